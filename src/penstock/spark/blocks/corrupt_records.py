"""What becomes of damage that a scan meets: it fails the query, is left out, or is set aside.

    fail            the query fails, and says which block, which offset and which sequences
    skip            everything around the damage is read
    quarantine      the same, and the damage is kept at `quarantinePath`:

        <stream>/<block>-<offset>-<hash>.bytes      what stands in the block file there
        <stream>/<block>-<offset>-<hash>.json       what is wrong with it

A file's name and contents follow from the damage alone and it appears whole or not at all, so that
a task that is run again, twice at a time or by another query leaves the same files. Where a whole
block cannot be read, the whole file is kept; so it is with Go's layout, whose blocks are packed.

Loaded by executors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec

from penstock.errors import CorruptStore
from penstock.format.damage import Damage
from penstock.format.files import ReadableFolder
from penstock.format.hashing import xxh64
from penstock.format.layout import block_name
from penstock.spark.archives.folder import ArchiveFolder, HashingFile
from penstock.spark.reading_options import OnCorruptRecord


class Finding(msgspec.Struct, frozen=True):
    """A report of one damage, as it is kept."""

    stream: str
    path: str
    file: str
    offset: int
    length: int
    reason: str
    first_sequence: int
    last_sequence: int
    """Below the first: no sequence is missing."""

    kept: str
    kept_from: int
    kept_bytes: int


class Scanned(msgspec.Struct, frozen=True):
    """The files in which damage was found."""

    folder: ReadableFolder
    stream: str
    is_go: bool

    def bytes_of(self, damage: Damage) -> tuple[str, int, bytes]:
        """Give the file with the damage, from where on it is kept, and its bytes."""
        name = f"{damage.block}.blk" if self.is_go else block_name(damage.block)
        is_whole = self.is_go or not damage.length
        try:
            file = self.folder.open(name)
        except FileNotFoundError:
            return name, damage.offset, b""
        try:
            if is_whole:
                return name, 0, file.read_at(0, file.size())
            return name, damage.offset, file.read_at(damage.offset, damage.length)
        finally:
            file.close()


def treat_damage(
    found: Sequence[Damage], where: Scanned, on_corrupt: OnCorruptRecord, quarantine: str
) -> None:
    """Do with damage what the policy says; raises CorruptStore where that is to fail."""
    if found and on_corrupt is OnCorruptRecord.FAIL:
        raise CorruptStore(
            where.folder.path,
            found[0].offset,
            f"{found[0]}; read around it with onCorruptRecord=skip",
        )
    if found and on_corrupt is OnCorruptRecord.QUARANTINE:
        folder = ArchiveFolder(quarantine)
        for each in found:
            _set_aside(folder, each, where)


def _set_aside(folder: ArchiveFolder, damage: Damage, where: Scanned) -> None:
    file, start, data = where.bytes_of(damage)
    name = f"{where.stream}/{damage.block:06d}-{damage.offset}-{xxh64(data):016x}"
    report = Finding(
        where.stream,
        where.folder.path,
        file,
        damage.offset,
        damage.length,
        damage.reason,
        damage.first_seq,
        damage.last_seq,
        f"{name}.bytes",
        start,
        len(data),
    )
    document = msgspec.json.format(msgspec.json.encode(report))
    for suffix, contents in (("bytes", data), ("json", document)):
        if folder.size(f"{name}.{suffix}") != len(contents):
            folder.write(f"{name}.{suffix}", functools.partial(_fill, contents))


def _fill(contents: bytes, file: HashingFile) -> None:
    file.write(contents)
