"""The options of `penstock stream add` and `edit`, which become configuration fields.

Sizes are written as 512, 64KB, 1GiB or 10MB (units of 1024), durations as 30s, 12h or 7d; -1 or
`unlimited` is no bound. Pure, but for the configuration file that an option names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.errors import UsageError
from penstock.limits import API_REQUEST_BYTES_MAX
from penstock.text.times import parse_duration

_SIZE = re.compile(r"(?P<amount>\d+)\s*(?P<prefix>[kmgt]?)(?:i?b)?\Z", re.IGNORECASE)
_PREFIXES = ("", "k", "m", "g", "t")
_DAYS = re.compile(r"(?P<days>\d+)d(?P<rest>.*)\Z", re.DOTALL)
_DAY_NS = 86_400 * 10**9
_UNLIMITED = ("-1", "unlimited")


class Retention(StrEnum):
    """What a message is kept for."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORK = "work"


class Discard(StrEnum):
    """What goes when there is no room."""

    OLD = "old"
    NEW = "new"


class StorageKind(StrEnum):
    """Where a stream is kept."""

    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    """How blocks are packed."""

    NONE = "none"
    S2 = "s2"


def size_bytes(text: str) -> int:
    """Return a number of bytes, -1 for no bound; raise UsageError."""
    if text.lower() in _UNLIMITED:
        return -1
    found = _SIZE.match(text)
    if found is None:
        raise UsageError(f"not a size: {text!r} (like 512, 64KB or 10GB)")
    return int(found["amount"]) << 10 * _PREFIXES.index(found["prefix"].lower())


def duration_ns(text: str) -> int:
    """Return a duration in nanoseconds, 0 for no bound; raise UsageError."""
    if text.lower() in _UNLIMITED:
        return 0
    days = _DAYS.match(text)
    rest = days["rest"] if days else text
    try:
        rest_ns = 0 if days and not rest else parse_duration(rest)
    except ValueError:
        raise UsageError(f"not a duration: {text!r} (like 30s, 12h or 7d)") from None
    total_ns = (int(days["days"]) * _DAY_NS if days else 0) + rest_ns
    if total_ns < 0:
        raise UsageError(f"a duration cannot be below 0: {text!r}")
    return total_ns


def metadata(words: list[str]) -> dict[str, str]:
    """Return K:V words as a dict; raise UsageError."""
    pairs = [word.partition(":") for word in words]
    for word, (name, colon, _) in zip(words, pairs, strict=True):
        if not name or not colon:
            raise UsageError(f"not metadata: {word!r} (like owner:billing)")
    return {name: value for name, _, value in pairs}


def read_config(file: Path | None) -> dict[str, Any]:
    """Return a configuration file's JSON, {} without a file; raise UsageError, OSError."""
    if file is None:
        return {}
    with file.open("rb") as opened:
        text = opened.read(API_REQUEST_BYTES_MAX + 1)
    if len(text) > API_REQUEST_BYTES_MAX:
        raise UsageError(f"{file} is too large for a configuration")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{file}: not a JSON object")
    return document


def said_option(*names: str, metavar: str, help: str) -> Any:
    """Return an option whose default means that it was not given."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False)


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A configuration as JSON; other options count over it.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream; None for one that was not given."""

    subjects: Annotated[
        list[str] | None,
        said_option("--subjects", metavar="SUBJECT", help="What it takes (again)."),
    ] = None
    config_file: ConfigFile = None
    description: Annotated[
        str | None, said_option("--description", metavar="TEXT", help="What it is for.")
    ] = None
    retention: Annotated[
        Retention | None, typer.Option("--retention", help="What messages are kept for.")
    ] = None
    discard: Annotated[
        Discard | None, typer.Option("--discard", help="What goes when there is no room.")
    ] = None
    max_msgs: Annotated[
        int | None, said_option("--max-msgs", metavar="N", help="The most messages.")
    ] = None
    max_msgs_per_subject: Annotated[
        int | None,
        said_option("--max-msgs-per-subject", metavar="N", help="The most messages of a subject."),
    ] = None
    max_bytes: Annotated[
        str | None, said_option("--max-bytes", metavar="SIZE", help="The most bytes.")
    ] = None
    max_age: Annotated[
        str | None, said_option("--max-age", metavar="DURATION", help="How long messages are kept.")
    ] = None
    max_msg_size: Annotated[
        str | None, said_option("--max-msg-size", metavar="SIZE", help="The largest message.")
    ] = None
    max_consumers: Annotated[
        int | None, said_option("--max-consumers", metavar="N", help="The most consumers.")
    ] = None
    dupe_window: Annotated[
        str | None,
        said_option("--dupe-window", metavar="DURATION", help="How long message ids are known."),
    ] = None
    replicas: Annotated[
        int | None, said_option("--replicas", metavar="N", help="Servers that keep it.")
    ] = None
    compression: Annotated[
        Compression | None, typer.Option("--compression", help="How it is packed.")
    ] = None
    allow_rollup: Annotated[
        bool | None,
        typer.Option(
            "--allow-rollup/--no-allow-rollup",
            help="Whether messages replace others.",
        ),
    ] = None
    allow_direct: Annotated[
        bool | None,
        typer.Option("--allow-direct/--no-allow-direct", help="Whether gets may be direct."),
    ] = None
    allow_msg_ttl: Annotated[
        bool | None,
        typer.Option("--allow-msg-ttl/--no-allow-msg-ttl", help="Whether messages may have TTLs."),
    ] = None
    allow_batch: Annotated[
        bool | None,
        typer.Option("--allow-batch/--no-allow-batch", help="Whether it takes atomic batches."),
    ] = None
    deny_delete: Annotated[
        bool | None, typer.Option("--deny-delete", help="Refuse to delete messages, for good.")
    ] = None
    deny_purge: Annotated[
        bool | None, typer.Option("--deny-purge", help="Refuse to purge, for good.")
    ] = None
    metadata: Annotated[
        list[str] | None,
        said_option("--metadata", metavar="K:V", help="A note of its own (again)."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields that were given as options; raise UsageError or OSError."""
        said = self._as_typed() | {
            "retention": None if self.retention is None else _RETENTIONS[self.retention],
            "max_bytes": None if self.max_bytes is None else size_bytes(self.max_bytes),
            "max_msg_size": None if self.max_msg_size is None else size_bytes(self.max_msg_size),
            "max_age": None if self.max_age is None else duration_ns(self.max_age),
            "duplicate_window": None if self.dupe_window is None else duration_ns(self.dupe_window),
            "metadata": None if self.metadata is None else metadata(self.metadata),
        }
        return read_config(self.config_file) | {
            name: value for name, value in said.items() if value is not None
        }

    def _as_typed(self) -> dict[str, Any]:
        return {
            "subjects": self.subjects,
            "description": self.description,
            "discard": None if self.discard is None else str(self.discard),
            "max_msgs": self.max_msgs,
            "max_msgs_per_subject": self.max_msgs_per_subject,
            "max_consumers": self.max_consumers,
            "num_replicas": self.replicas,
            "compression": None if self.compression is None else str(self.compression),
            "allow_rollup_hdrs": self.allow_rollup,
            "allow_direct": self.allow_direct,
            "allow_msg_ttl": self.allow_msg_ttl,
            "allow_atomic": self.allow_batch,
            "deny_delete": self.deny_delete,
            "deny_purge": self.deny_purge,
        }


_RETENTIONS = {
    Retention.LIMITS: "limits",
    Retention.INTEREST: "interest",
    Retention.WORK: "workqueue",
}
