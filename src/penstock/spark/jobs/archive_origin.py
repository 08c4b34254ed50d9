"""What an archive is made of: one stream, which one it is, and the sequences that it has now.

Asked in the driver, of the stream's server or of its directory, before anything is planned. An
archive answers for whole stretches of a stream, so that an input that leaves messages out (by
subject or by time) is refused.
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
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.blocks import settings as block_settings
from penstock.spark.connecting import streams_of
from penstock.spark.jobs.inputs import BlockFormat, Input, StreamFormat
from penstock.spark.streams import settings as stream_settings

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
"""What would leave messages out, or change them."""

_VOLATILE = ("_nats.level", "_nats.ver")
"""What a server says of itself in a stream's metadata, whenever it is asked."""


class Origin(msgspec.Struct, frozen=True):
    """A stream as it is now."""

    stream: str
    created: str
    config: dict[str, Any]
    first: int
    """The first sequence that it still has; one behind the last where it has none."""

    end: int
    """The first sequence that is still to come."""


def find_origin(source: Input) -> Origin:
    """Ask for the stream; raises UsageError where it is not one, or not the whole of it."""
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
    """Give the input of the sequences from `first` up to `end`, which is not read."""
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
    place, wanted = settings.place, settings.wanted
    if place.is_go:
        go = place.open_go()
        config = dict(go.config)
        created = str(config.pop("Created", ""))
        name, first, last = go.name, go.state.first_seq, go.state.last_seq
    else:
        reader = place.open()
        created, config = _document_of(place.path)
        created = created or _identity(reader)
        name, first, last = place.stream, first_live(reader), reader.last_seq
    return Origin(
        name,
        created,
        lasting(config),
        max(first, wanted.first_seq, 1),
        min(last, wanted.last_seq) + 1,
    )


def lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    """Give a configuration without what depends on the server that was asked."""
    kept = dict(config)
    metadata = {
        name: text for name, text in (kept.get("metadata") or {}).items() if name not in _VOLATILE
    }
    kept["metadata"] = metadata
    return kept


def first_live(reader: StreamReader) -> int:
    """Give the first sequence that was not removed; one behind the last where all were."""
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
    # A server keeps the stream's document beside its messages; sealed, it tells us nothing.
    for place in (path, path.rstrip("/").removesuffix("/msgs")):
        folder = ArchiveFolder(place)
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
