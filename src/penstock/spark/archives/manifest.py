"""Which files make up an archive: numbered documents, each of which adds to the one before.

    {"checksum": "…", "manifest": {"format": "penstock-archive", "version": 1, "number": 3, …}}

A manifest names the files that it adds, with the sequences that each answers for; every
`WHOLE_EVERY`th names them all, so that few documents are read however many there are. The checksum
is the XXH64 of the inner document's bytes. Nothing in it depends on when, where or by whom it was
written: the same messages make the same bytes.

Invariant: a manifest names only files that are whole and were hashed. Its number is taken by one
writer. Files answer for rising sequences, and no two for the same. Sequences between two files were
removed from the stream before they could be archived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import CorruptStore, UnsupportedVersion, UsageError
from penstock.format.hashing import xxh64
from penstock.limits import ARCHIVE_MANIFEST_BYTES_MAX
from penstock.spark.archives.folder import AlreadyThere, ArchiveFolder

FORMAT = "penstock-archive"
VERSION = 1
MANIFESTS = "manifests"
WHOLE_EVERY = 32
_DIGITS = 20


class FileEntry(msgspec.Struct, frozen=True):
    """One file: the sequences that it answers for, and its contents."""

    name: str
    first: int
    last: int
    messages: int
    bytes: int
    """Of headers and payloads, as the column `size` counts them."""

    first_ns: int
    last_ns: int
    rows_hash: str
    file_bytes: int
    file_hash: str


class Manifest(msgspec.Struct, frozen=True):
    """An archive as one of its manifests leaves it."""

    stream: str
    created: str
    """When the stream was created: it tells the stream from others of its name."""

    config: dict[str, Any]
    first: int
    """The first sequence that the archive answers for."""

    end: int
    """The first sequence that it does not answer for any more: the next run goes on there."""

    files: tuple[FileEntry, ...] = ()
    number: int = 0

    @property
    def messages(self) -> int:
        """How many messages the archive holds."""
        return sum(each.messages for each in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes of headers and payloads the archive holds."""
        return sum(each.bytes for each in self.files)

    def holes(self) -> list[tuple[int, int]]:
        """Return the ranges of sequences, first and last, that no file answers for."""
        found = []
        at = self.first
        for each in self.files:
            if each.first > at:
                found.append((at, each.first - 1))
            at = each.last + 1
        return found

    def between(self, first: int, last: int) -> list[FileEntry]:
        """Return the files that answer for a sequence of this range."""
        return [each for each in self.files if each.first <= last and each.last >= first]


class _Document(msgspec.Struct):
    format: str
    version: int
    number: int
    stream: str
    created: str
    config: dict[str, Any]
    first: int
    end: int
    whole: bool
    files: list[FileEntry]


class _Envelope(msgspec.Struct):
    checksum: str
    manifest: msgspec.Raw


def hex_of(found: int) -> str:
    """Return a hash as manifests write it."""
    return f"{found:016x}"


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"{MANIFESTS}/{number:0{_DIGITS}d}.json"


def find_manifest(folder: ArchiveFolder) -> Manifest | None:
    """Return an archive as it is now, or None if there is none; raise CorruptStore."""
    numbers = sorted(
        int(name.removesuffix(".json"))
        for name in folder.names(MANIFESTS)
        if name.endswith(".json") and name.removesuffix(".json").isdecimal()
    )
    if not numbers:
        return None
    pending: list[_Document] = []
    for number in reversed(numbers):
        pending.append(_read(folder, number))
        if pending[-1].whole:
            break
    pending.reverse()
    if not pending[0].whole or pending[-1].number - pending[0].number + 1 != len(pending):
        place = folder.full(manifest_name(pending[0].number))
        raise CorruptStore(place, 0, "a manifest before or after it is missing")
    newest = pending[-1]
    files = tuple(each for document in pending for each in document.files)
    _check_order(folder, files)
    return Manifest(
        newest.stream,
        newest.created,
        newest.config,
        newest.first,
        newest.end,
        files,
        newest.number,
    )


def load_manifest(folder: ArchiveFolder) -> Manifest:
    """Return an archive as it is now; raise UsageError if there is none, or CorruptStore."""
    found = find_manifest(folder)
    if found is None:
        raise UsageError(f"{folder.place}: no archive: there is no manifest in {MANIFESTS}/")
    return found


def _read(folder: ArchiveFolder, number: int) -> _Document:
    name = manifest_name(number)
    try:
        envelope = msgspec.json.decode(
            folder.read(name, ARCHIVE_MANIFEST_BYTES_MAX), type=_Envelope
        )
        inner = bytes(envelope.manifest)
        if hex_of(xxh64(inner)) != envelope.checksum:
            raise CorruptStore(folder.full(name), 0, "the manifest's checksum differs")
        document = msgspec.json.decode(inner, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptStore(folder.full(name), 0, f"no manifest: {error}") from None
    if document.version > VERSION:
        raise UnsupportedVersion(folder.full(name), document.version, VERSION)
    if document.format != FORMAT or document.number != number:
        raise CorruptStore(folder.full(name), 0, "a manifest of something else")
    return document


def _check_order(folder: ArchiveFolder, files: Sequence[FileEntry]) -> None:
    last = 0
    for each in files:
        if each.first <= last or each.last < each.first or "/" in each.name.partition("/")[2]:
            raise CorruptStore(folder.full(each.name), 0, "the manifest has it out of order")
        last = each.last


def commit(folder: ArchiveFolder, now: Manifest, added: Sequence[FileEntry]) -> Manifest:
    """Write the next manifest and return it: `now` with the added files.

    Raise AlreadyThere if another job has written one meanwhile.
    """
    number = now.number + 1
    files = (*now.files, *added)
    whole = number % WHOLE_EVERY == 1
    document = _Document(
        FORMAT,
        VERSION,
        number,
        now.stream,
        now.created,
        now.config,
        now.first,
        now.end,
        whole,
        list(files if whole else added),
    )
    _check_order(folder, files)
    inner = msgspec.json.encode(document, order="sorted")
    envelope = _Envelope(hex_of(xxh64(inner)), msgspec.Raw(inner))
    try:
        folder.put_if_absent(manifest_name(number), msgspec.json.encode(envelope))
    except AlreadyThere:
        raise AlreadyThere(
            f"{folder.place}: another job wrote manifest {number} meanwhile; run again to go on "
            "from there"
        ) from None
    return replace(now, files=files, number=number)
