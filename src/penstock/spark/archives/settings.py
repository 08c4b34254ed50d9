"""What the options of `penstock-archive` say, and the plan that follows from them.

Used in the driver alone: parts carry all that tasks need. With `union` a table is the archive up to
where it ends, and the stream itself from there on; both must be of one and the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.errors import UsageError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import FORMAT, Manifest, load_manifest
from penstock.spark.archives.scan import ArchivePart
from penstock.spark.archives.union import LivePart, hole_between
from penstock.spark.blocks.scan import Wanted
from penstock.spark.connecting import ALIASES, Connection
from penstock.spark.options import Options
from penstock.spark.plan import Splitting, group_blocks
from penstock.spark.positions import DataLoss
from penstock.spark.reading_options import Batches, Content, Following, Range
from penstock.spark.streams import settings as stream_settings

_LIVE_ONLY = {
    field.encode_name.lower()
    for kind in (Connection, stream_settings.Source)
    for field in msgspec.structs.fields(kind)
}
_OURS = {"path", "union"}
_OF_STREAMS = (
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "payloadCompression",
    "schemaStyle",
)
"""What is known with streams and directories, and has no meaning here: passed over in silence it
would give other rows than were asked for."""


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Which archive, and whether the stream goes on where it ends."""

    path: str = ""
    union: bool = False


class Settings(msgspec.Struct, frozen=True):
    """Everything that the options say."""

    place: str
    wanted: Wanted
    starts_at_end: bool
    splitting: Splitting
    content: Content
    following: Following
    live: dict[str, str] | None
    """The options of `penstock` for what lies behind the archive; None without it."""


def read_settings(given: Mapping[str, str]) -> Settings:
    """Read the options of the format; raises UsageError."""
    options = Options(FORMAT, given, ALIASES)
    source = options.group(Source)
    wanted = options.group(Range)
    batches = options.group(Batches)
    splitting = options.group(Splitting)
    content = options.group(Content)
    following = options.group(Following)
    options.group(Connection)
    options.group(stream_settings.Source)
    options.finish()
    if not source.path:
        raise UsageError(f"{FORMAT}: give the archive's folder: .load(path)")
    _refuse_of_streams(given)
    live = None
    if source.union:
        live = {name: text for name, text in given.items() if name.lower() not in _OURS}
    else:
        _refuse_live(given)
    return Settings(
        source.path,
        Wanted.of(wanted, batches),
        wanted.starts_at_end(),
        splitting,
        content,
        following,
        live,
    )


def _refuse_of_streams(given: Mapping[str, str]) -> None:
    meant = {ALIASES.get(name.lower(), name).lower() for name in given}
    for name in _OF_STREAMS:
        if name.lower() in meant:
            raise UsageError(f"{FORMAT}: option {name} is for streams and directories")


def _refuse_live(given: Mapping[str, str]) -> None:
    for name in given:
        if ALIASES.get(name.lower(), name).lower() in _LIVE_ONLY:
            raise UsageError(f"{FORMAT}: option {name} is for reading on in the stream: union=true")


def plan(settings: Settings) -> list[ArchivePart | LivePart]:
    """Divide the wanted messages among tasks; raises UsageError, CorruptStore, DataLoss."""
    folder = ArchiveFolder(settings.place)
    manifest = load_manifest(folder)
    if settings.live is None:
        return [*_plan_files(settings, manifest)]
    live = _live_settings(settings, settings.live, manifest.stream)
    facts = stream_settings.find_streams(live)[0]
    # Messages go from a stream after they were archived: asked in this order, none is missed that
    # goes just now.
    manifest = load_manifest(folder)
    if facts.created != manifest.created:
        raise DataLoss(
            f"stream {facts.name} was made {facts.created}, and the archive is of the one that "
            f"was made {manifest.created}"
        )
    first = max(manifest.end, settings.wanted.first_seq)
    end = min(facts.last_seq, settings.wanted.last_seq) + 1
    if settings.following.fail_on_data_loss:
        _refuse_holes(manifest, settings.wanted)
        if facts.first_seq > first and first < end:
            raise hole_between(manifest.stream, manifest.end, facts.first_seq)
    ranges = stream_settings.ranges_of(live, facts, max(first, facts.first_seq), end)
    return [
        *_plan_files(settings, manifest),
        *(
            LivePart(settings.place, each, settings.wanted, settings.following.fail_on_data_loss)
            for each in ranges
        ),
    ]


def _plan_files(settings: Settings, manifest: Manifest) -> list[ArchivePart]:
    first = manifest.end if settings.starts_at_end else settings.wanted.first_seq
    wanted = msgspec.structs.replace(settings.wanted, first_seq=first)
    files = [
        each
        for each in manifest.between(wanted.first_seq, wanted.last_seq)
        if each.messages and each.first_ns <= wanted.last_ns and each.last_ns >= wanted.first_ns
    ]
    return [
        ArchivePart(settings.place, manifest.stream, tuple(part), wanted)
        for part in group_blocks(files, settings.splitting)
    ]


def _refuse_holes(manifest: Manifest, wanted: Wanted) -> None:
    for first, last in manifest.holes():
        if first <= wanted.last_seq and last >= wanted.first_seq:
            raise DataLoss(
                f"the archive of {manifest.stream} has nothing of the sequences from {first} to "
                f"{last}; with failOnDataLoss=false the rest is read"
            )


def _live_settings(
    settings: Settings, given: dict[str, str], stream: str
) -> stream_settings.Settings:
    named = next((text for name, text in given.items() if name.lower() == "stream"), stream)
    if named != stream:
        raise UsageError(f"{settings.place} is an archive of {stream}, not of {named}")
    options = {name: text for name, text in given.items() if name.lower() != "stream"}
    return stream_settings.read_settings({**options, "stream": stream})
