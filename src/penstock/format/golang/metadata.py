"""Configurations (`meta.inf`) of streams and consumers, and consumers' states (`o.dat`).

`meta.inf` is the configuration as JSON, sealed if there is a `meta.key`. `meta.sum` is the hash of
the file as stored, in hex. `o.dat` is a consumer's state:

    [22][version] uvarints: ack floor (consumer, stream), delivered (consumer, stream), pending
    if any pending: varint base in seconds, then per message
        uvarint stream seq - floor, uvarint consumer seq - floor (version 2), varint seconds
    uvarint redelivered count, then per message: uvarint stream seq - floor, uvarint count

Version 1 keeps delivered sequences relative to the ack floor and as the next to come, has no
consumer sequence per pending message and adds the seconds instead of subtracting them. Times on
disk are whole seconds.

Damage is reported and skipped where possible. A key that does not open raises WrongKey. Read-only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from penstock.errors import FormatError, WrongKey
from penstock.format.files import ReadableFolder
from penstock.format.golang.highway import highway_hash, named_key
from penstock.format.golang.keys import AssetKey, ServerKey
from penstock.format.golang.recovery import read_whole
from penstock.format.golang.state import ByteCursor, FileProblem

_MAGIC = 22
_SEQ_MAX = 2**63 - 1
_SECOND_NS = 1_000_000_000


class PendingAck(msgspec.Struct, frozen=True):
    """A delivered message that waits for its ack; version 1 does not keep `consumer_seq` (0)."""

    consumer_seq: int
    delivered_ns: int


class GoConsumerState(msgspec.Struct, frozen=True):
    """Where a consumer stands; `pending` and `redelivered` are keyed by stream sequence."""

    ack_floor_consumer_seq: int
    ack_floor_stream_seq: int
    delivered_consumer_seq: int
    delivered_stream_seq: int
    pending: dict[int, PendingAck]
    redelivered: dict[int, int]


def decode_consumer_state(data: bytes) -> GoConsumerState:
    """Decode the plain bytes of an `o.dat`; raises FormatError."""
    cursor = ByteCursor(data)
    if cursor.unsigned(1) != _MAGIC:
        raise FormatError("not a consumer's state")
    version = cursor.unsigned(1)
    if version not in (1, 2):
        raise FormatError(f"consumer state of unknown version {version}", offset=1)
    floor_consumer, floor_stream = cursor.uvarint(), cursor.uvarint()
    delivered_consumer, delivered_stream = cursor.uvarint(), cursor.uvarint()
    if version == 1:
        delivered_consumer += max(floor_consumer - 1, 0)
        delivered_stream += max(floor_stream - 1, 0)
    if max(floor_consumer, floor_stream, delivered_consumer, delivered_stream) > _SEQ_MAX:
        raise FormatError("a consumer's sequence is impossible", offset=2)
    pending = _decode_pending(cursor, version, floor_consumer, floor_stream)
    redelivered = _decode_redelivered(cursor, floor_stream)
    return GoConsumerState(
        floor_consumer, floor_stream, delivered_consumer, delivered_stream, pending, redelivered
    )


def _decode_pending(
    cursor: ByteCursor, version: int, floor_consumer: int, floor_stream: int
) -> dict[int, PendingAck]:
    count = cursor.uvarint()
    pending: dict[int, PendingAck] = {}
    base_s = cursor.varint() if count else 0
    # No room is made for `count`: it ends with the data if it is a lie.
    for _ in range(count):
        stream_seq = cursor.uvarint() + floor_stream
        consumer_seq = cursor.uvarint() + floor_consumer if version == 2 else 0
        seconds = cursor.varint()
        if stream_seq == 0:
            raise FormatError("a pending message has no sequence", offset=cursor.at)
        delivered_s = base_s - seconds if version == 2 else base_s + seconds
        pending[stream_seq] = PendingAck(consumer_seq, delivered_s * _SECOND_NS)
    return pending


def _decode_redelivered(cursor: ByteCursor, floor_stream: int) -> dict[int, int]:
    redelivered: dict[int, int] = {}
    for _ in range(cursor.uvarint()):
        above_floor, count = cursor.uvarint(), cursor.uvarint()
        if above_floor and count:
            redelivered[above_floor + floor_stream] = count
    return redelivered


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
