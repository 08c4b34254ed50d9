"""What jobs read: a stream of a server, a directory of blocks, or an archive.

`Input` names one by a format and its options; the format plans its parts (`StreamPart`), which
tasks read. Used in the driver.

`find_origin` says which stream an archive or a replay is made of, and which sequences it has now.
It asks the stream's server or reads its directory, before anything is planned. An archive answers
for whole ranges of a stream, so that an input that leaves messages out (by subject or by time) is
refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import UsageError
from penstock.format.block import decode_block_header
from penstock.format.reader import StreamReader
from penstock.limits import STREAM_DOCUMENT_BYTES_MAX
from penstock.spark.archives import manifest as archive_manifest
from penstock.spark.archives import settings as archive_settings
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.scan import ArchiveUnion
from penstock.spark.blocks import settings as block_settings
from penstock.spark.connection import streams_of
from penstock.spark.part import StreamPart
from penstock.spark.streams import settings as stream_settings

BlockFormat = block_settings.FORMAT
StreamFormat = stream_settings.FORMAT
ArchiveFormat = archive_manifest.FORMAT

SELECTING = ("subject", "startingtimestamp", "endingtimestamp", "oncorruptrecord")
"""Options that leave messages out, other than the first and the last sequence."""


class Input(msgspec.Struct, frozen=True):
    """A stream, a directory or an archive, as options name it."""

    format: str
    options: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The path or the stream's name, for reports; nothing secret."""
        names = ("path", "stream", "streams", "streampattern")
        found = {name.lower(): text for name, text in self.options.items()}
        return next((found[name] for name in names if name in found), self.format)

    def whole(self) -> Input:
        """Return the input without the options that leave messages out."""
        kept = {name: text for name, text in self.options.items() if name.lower() not in SELECTING}
        return Input(self.format, kept)

    def parts(self) -> list[StreamPart]:
        """Return the parts that tasks read; raise UsageError, CorruptStore, OSError."""
        if self.format == BlockFormat:
            return block_settings.plan(block_settings.read_settings(self.options))
        if self.format == StreamFormat:
            return stream_settings.plan(stream_settings.read_settings(self.options))
        if self.format == ArchiveFormat:
            parts = archive_settings.plan(archive_settings.read_settings(self.options))
            if any(isinstance(each.source, ArchiveUnion) for each in parts):
                raise UsageError("a job reads an archive, or a stream: leave out union")
            return parts
        raise UsageError(
            f"a job reads {StreamFormat}, {BlockFormat} or {ArchiveFormat}, not {self.format!r}"
        )


STREAM_DOCUMENT = "stream.json"

_PARTIAL = (
    "subject",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "oncorruptrecord",
    "payloadcompression",
)
"""Options that leave messages out, or change them."""

_VOLATILE = ("_nats.level", "_nats.ver")
"""What a server writes of itself into a stream's metadata."""


class Origin(msgspec.Struct, frozen=True):
    """Which stream it is, and the sequences that it has now."""

    stream: str
    created: str
    config: dict[str, Any]
    first: int
    """The first sequence that it still has; one behind the last if it has none."""

    end: int
    """The first sequence that is still to come."""


def find_origin(source: Input) -> Origin:
    """Return the stream of an input; raise UsageError if it is not one whole stream."""
    given = {name.lower() for name in source.options}
    for name in _PARTIAL:
        if name in given:
            raise UsageError(f"an archive holds every message as it is: leave out {name}")
    if source.format == StreamFormat:
        return _of_server(source.options)
    if source.format == BlockFormat:
        return _of_directory(source.options)
    raise UsageError(f"a job reads {StreamFormat} or {BlockFormat}, not {source.format!r}")


def between(source: Input, first: int, end: int) -> Input:
    """Return the input for the sequences from `first` up to `end`, which is not read."""
    kept = {
        name: text
        for name, text in source.options.items()
        if name.lower() not in ("startingoffsets", "endingoffsets")
    }
    return Input(source.format, {**kept, "startingOffsets": str(first), "endingOffsets": str(end)})


def _of_server(options: Mapping[str, str]) -> Origin:
    settings = stream_settings.read_settings(options)
    found = stream_settings.find_streams(settings)
    if len(found) != 1:
        names = ", ".join(each.name for each in found)
        raise UsageError(f"an archive is of one stream, not of {len(found)}: {names}")
    facts = found[0]
    with streams_of(settings.connection) as streams:
        config = streams.call(f"STREAM.INFO.{facts.name}")["config"]
    first, end = stream_settings.bounds_of(settings, facts)
    return Origin(facts.name, facts.created, lasting(config), first, end)


def _of_directory(options: Mapping[str, str]) -> Origin:
    settings = block_settings.read_settings(options)
    directory, selection = settings.directory, settings.selection
    if directory.is_go:
        go = directory.open_go()
        config = dict(go.config)
        created = str(config.pop("Created", ""))
        name, first, last = go.name, go.state.first_seq, go.state.last_seq
    else:
        reader = directory.open()
        created, config = _document_of(directory.path)
        created = created or _identity(reader)
        name, first, last = directory.stream, first_live(reader), reader.last_seq
    return Origin(
        name,
        created,
        lasting(config),
        max(first, selection.first_seq, 1),
        min(last, selection.last_seq) + 1,
    )


def lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream's configuration without what depends on the server that was asked."""
    kept = dict(config)
    metadata = {
        name: text for name, text in (kept.get("metadata") or {}).items() if name not in _VOLATILE
    }
    kept["metadata"] = metadata
    return kept


def first_live(reader: StreamReader) -> int:
    """Return the first sequence that was not removed; one behind the last if all were."""
    at = 0
    for block in reader.blocks:
        at = max(at, block.base_seq)
        for low, high in reader.removed.ranges_between(at, reader.last_seq):
            if low > at:
                break
            at = high + 1
        if block.count and at <= block.last_seq:
            return at
    return reader.last_seq + 1


def _document_of(path: str) -> tuple[str, dict[str, Any]]:
    # A server keeps the stream's document beside its messages. An encrypted one cannot be read.
    for folder_path in (path, path.rstrip("/").removesuffix("/msgs")):
        folder = ArchiveFolder(folder_path)
        if folder.size(STREAM_DOCUMENT) < 0:
            continue
        try:
            document = json.loads(folder.read(STREAM_DOCUMENT, STREAM_DOCUMENT_BYTES_MAX))
            return str(document["created"]), dict(document["config"])
        except (ValueError, LookupError, TypeError):
            continue
    return "", {}


def _identity(reader: StreamReader) -> str:
    # The stream's salt stands in the header of every block.
    if not reader.blocks:
        return ""
    index = reader.load_index(reader.blocks[-1].number)
    return f"salt:{decode_block_header(index.header, reader.folder.path).salt:016x}"
