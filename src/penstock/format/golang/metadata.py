"""`meta.inf` of a stream or consumer, with its checksum and key, and a consumer's state.

`meta.inf` is the configuration as JSON, sealed if a `meta.key` stands beside it; `meta.sum` is the
hash of the file as stored, in hex. Damage is reported and read past where that is possible; a key
that does not open raises WrongKey. Reads only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.errors import FormatError, WrongKey
from penstock.format.files import ReadableFolder
from penstock.format.golang.blocks import read_whole
from penstock.format.golang.consumer_state import GoConsumerState, decode_consumer_state
from penstock.format.golang.highway import highway_hash, named_key
from penstock.format.golang.keys import AssetKey, ServerKey
from penstock.format.golang.state import FileProblem


class Metadata(msgspec.Struct, frozen=True):
    """A configuration (empty if unreadable), the key it was sealed with, and what was wrong."""

    config: Mapping[str, Any]  # Any: a JSON document
    key: AssetKey | None
    problems: tuple[FileProblem, ...]


class GoConsumer(msgspec.Struct, frozen=True):
    """A consumer as it stands on disk; `state` is None if there is none or it is unreadable."""

    name: str
    config: Mapping[str, Any]  # Any: a JSON document
    state: GoConsumerState | None
    problems: tuple[FileProblem, ...]


def load_metadata(
    folder: ReadableFolder, *, hash_name: str, context: str, server_key: ServerKey | None
) -> Metadata:
    """Read `meta.inf`; raises WrongKey, and reports anything else."""
    names = folder.list_names()
    key = _open_key(folder, names, context, server_key)
    if "meta.inf" not in names:
        return Metadata({}, key, (FileProblem(folder.path, "meta.inf is missing"),))
    path = os.path.join(folder.path, "meta.inf")
    problems = []
    stored = read_whole(folder, "meta.inf")
    stored_sum = read_whole(folder, "meta.sum") if "meta.sum" in names else b""
    if highway_hash(stored, named_key(hash_name)).hex().encode() != stored_sum.strip():
        problems.append(FileProblem(path, "checksum differs from meta.sum"))
    config: Mapping[str, Any] = {}
    try:
        config = _parse_config(stored if key is None else key.unseal(stored))
    except FormatError as error:
        problems.append(FileProblem(path, error.reason))
    return Metadata(config, key, tuple(problems))


def _open_key(
    folder: ReadableFolder, names: list[str], context: str, server_key: ServerKey | None
) -> AssetKey | None:
    if "meta.key" not in names:
        return None
    if server_key is None:
        raise WrongKey(folder.path, "encrypted, and no key was given")
    key = server_key.open_key_file(context, read_whole(folder, "meta.key"))
    if key is None:
        raise WrongKey(folder.path, "the key (for this account) does not open meta.key")
    return key


def _parse_config(plain: bytes) -> Mapping[str, Any]:
    try:
        config = json.loads(plain)
    except (ValueError, RecursionError):
        raise FormatError("the configuration is not JSON") from None
    if not isinstance(config, dict):
        raise FormatError("the configuration is not a JSON object")
    return config


def load_consumers(
    stream_path: str,
    stream: str,
    server_key: ServerKey | None,
    open_folder: Callable[[str], ReadableFolder],
) -> list[GoConsumer]:
    """Read every consumer of a stream; raises WrongKey."""
    folder = open_folder(os.path.join(stream_path, "obs"))
    try:
        names = folder.list_names()
    except FileNotFoundError:
        return []
    consumers = []
    for name in names:
        try:
            consumer_folder = open_folder(os.path.join(folder.path, name))
            consumers.append(_load_consumer(consumer_folder, stream, name, server_key))
        except NotADirectoryError:
            continue
    return consumers


def _load_consumer(
    folder: ReadableFolder, stream: str, name: str, server_key: ServerKey | None
) -> GoConsumer:
    metadata = load_metadata(
        folder, hash_name=f"{stream}/{name}", context=f"{stream}.{name}", server_key=server_key
    )
    state = None
    problems = metadata.problems
    stored = read_whole(folder, "o.dat") if "o.dat" in folder.list_names() else b""
    if stored:
        try:
            plain = stored if metadata.key is None else metadata.key.unseal(stored)
            state = decode_consumer_state(plain)
        except FormatError as error:
            problems += (FileProblem(os.path.join(folder.path, "o.dat"), str(error)),)
    return GoConsumer(name, metadata.config, state, problems)
