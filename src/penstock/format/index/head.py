"""Parts of a block's index, read without the others: its head, its subjects, some of its entries.

A head says which block an index fits, what the block holds in all, which messages its tombstones
remove and what was damaged. Head and subjects have checksums of their own, so that a directory of
ten thousand blocks is surveyed in a fraction of a second, where the entries would be gigabytes. By
the subjects, the entries that a filter wants are found. An index of version 1 has no such checksums
and is read whole.

Read-only; any thread. The caller opens the file and compares the head with the block.
"""

from __future__ import annotations

import struct
from array import array

import msgspec

from penstock.errors import CorruptStore, FormatError
from penstock.format.damage import Damage, decode_damage
from penstock.format.files import ReadableFile
from penstock.format.hashing import xxh64
from penstock.format.index.block_index import (
    ENTRY_BYTES,
    EXPIRY_BYTES,
    FIXED_BYTES,
    HEAD_BYTES,
    MAGIC,
    PLACE_BYTES,
    SUBJECT_BYTES,
    VERSION,
    BlockIndex,
    count_matching,
    wanted_places,
)
from penstock.format.index.pick import read_entries
from penstock.format.sequence_set import SequenceSet
from penstock.subjects import SubjectFilter

PICKED_SUBJECTS = 64
PICKED_ENTRIES_PART = 32
"""Entries are read one by one where there are few subjects to look for, and so small a part of the
entries is wanted: a system call for each takes as long as reading some forty in a row."""

_FIXED = struct.Struct("<8sHHIIIQQQqqQIIIIIIQ128sQQ")
_VERSION_WITHOUT_HEAD = 1


class IndexHead(msgspec.Struct, frozen=True):
    """An index without its entries; the names are those of `BlockIndex`."""

    number: int
    generation: int
    count: int
    block_bytes: int
    base_seq: int
    last_seq: int
    first_time_ns: int
    last_time_ns: int
    message_bytes: int
    subject_count: int
    header: bytes
    tombstones: SequenceSet
    damage: list[Damage]

    @classmethod
    def of(cls, index: BlockIndex) -> IndexHead:
        """Return the head of an index that was loaded or built."""
        return cls(*(getattr(index, name) for name in cls.__struct_fields__))


class _Parts(msgspec.Struct, frozen=True):
    """The fixed part of the file: the head's numbers, where sections lie, and checksums."""

    numbers: tuple[int, int, int, int, int, int, int, int, int, int]
    header: bytes
    text_bytes: int
    expiry_count: int
    tombstone_bytes: int
    damage_bytes: int
    checksum: int
    subjects_checksum: int

    @property
    def count(self) -> int:
        return self.numbers[2]

    @property
    def places_at(self) -> int:
        return FIXED_BYTES + self.count * ENTRY_BYTES + self.expiry_count * EXPIRY_BYTES

    @property
    def subjects_at(self) -> int:
        return self.places_at + self.count * PLACE_BYTES

    @property
    def subjects_bytes(self) -> int:
        return self.numbers[-1] * SUBJECT_BYTES + self.text_bytes

    @property
    def file_bytes(self) -> int:
        rest = self.subjects_bytes + self.tombstone_bytes + self.damage_bytes + 8
        return self.subjects_at + rest


def read_head(file: ReadableFile) -> IndexHead | None:
    """Return the head of an index file, or None if the whole file must be read.

    Raises CorruptStore where it is damaged.
    """
    fixed = file.read_at(0, FIXED_BYTES)
    parts = _read_parts(fixed, file)
    if parts is None:
        return None
    size = parts.tombstone_bytes + parts.damage_bytes
    rest = file.read_at(parts.file_bytes - 8 - size, size)
    if xxh64(fixed[:HEAD_BYTES] + rest) != parts.checksum:
        raise CorruptStore(file.path, 0, "block index head checksum differs")
    try:
        tombstones = SequenceSet.decode(rest[: parts.tombstone_bytes])
        damage = decode_damage(rest[parts.tombstone_bytes :])
    except FormatError as error:
        raise CorruptStore(file.path, 0, error.reason) from error
    return IndexHead(*parts.numbers, parts.header, tombstones, damage)


def count_wanted(file: ReadableFile, header: bytes, subjects: SubjectFilter) -> int | None:
    """Return how many entries of an index file a filter wants, None if it must be read whole.

    It is None, too, if the index is not that of the block with that header. Raises as `read_head`
    does.
    """
    parts = _read_parts(file.read_at(0, FIXED_BYTES), file)
    if parts is None or parts.header != header:
        return None
    sections = _read_subjects(file, parts)
    try:
        return count_matching(sections, parts.numbers[-1], subjects)
    except FormatError as error:
        raise CorruptStore(file.path, parts.subjects_at, error.reason) from error


def read_unverified(file: ReadableFile, subjects: SubjectFilter) -> BlockIndex | None:
    """Return an index with the entries that a filter wants, and perhaps others, in their order.

    They are not verified; see `BlockIndex.unverified`. None where only the whole file tells; raises
    as `read_head` does. Comparing the checksum of all entries takes longer than reading the few
    messages that a filter wants.
    """
    parts = _read_parts(file.read_at(0, FIXED_BYTES), file)
    if parts is None:
        return None
    sections = _read_subjects(file, parts)
    try:
        entries = _read_wanted(file, parts, sections, subjects)
        numbers = (*parts.numbers[:2], len(entries) // ENTRY_BYTES, *parts.numbers[3:])
        return BlockIndex.unverified(numbers, parts.header, entries, sections)
    except FormatError as error:
        raise CorruptStore(file.path, parts.subjects_at, error.reason) from error


def _read_wanted(
    file: ReadableFile, parts: _Parts, sections: bytes, subjects: SubjectFilter
) -> bytes:
    # Where reading is asking another machine, all of them cost less than some.
    if file.fileno() >= 0:
        wanted = wanted_places(sections, parts.numbers[-1], subjects)
        if len(wanted) <= PICKED_SUBJECTS and (
            sum(count for _, count in wanted) * PICKED_ENTRIES_PART <= parts.count
        ):
            ordinals = array("I")
            for first, count in wanted:
                ordinals.frombytes(
                    file.read_at(parts.places_at + first * PLACE_BYTES, count * PLACE_BYTES)
                )
            if len(wanted) > 1:
                ordinals = array("I", sorted(ordinals))
            return read_entries(file.fileno(), ordinals.tobytes(), parts.count)
    return file.read_at(FIXED_BYTES, parts.count * ENTRY_BYTES)


def _read_subjects(file: ReadableFile, parts: _Parts) -> bytes:
    sections = file.read_at(parts.subjects_at, parts.subjects_bytes)
    if xxh64(sections) != parts.subjects_checksum:
        raise CorruptStore(file.path, parts.subjects_at, "block index subjects checksum differs")
    return sections


def _read_parts(fixed: bytes, file: ReadableFile) -> _Parts | None:
    if len(fixed) < FIXED_BYTES or fixed[:8] != MAGIC:
        raise CorruptStore(file.path, 0, "not a block index")
    (
        _, version, _, number, generation, count, block_bytes, base_seq, last_seq, first_time_ns,
        last_time_ns, message_bytes, subject_count, text_bytes, expiry_count, tombstone_bytes,
        damage_bytes, _, _, header, checksum, subjects_checksum,
    ) = _FIXED.unpack_from(fixed)  # fmt: skip
    # A version that is not known, or a damaged one: the checksum of the whole file tells which.
    if not _VERSION_WITHOUT_HEAD < version <= VERSION:
        return None
    parts = _Parts(
        (
            number, generation, count, block_bytes, base_seq, last_seq, first_time_ns,
            last_time_ns, message_bytes, subject_count,
        ),
        header, text_bytes, expiry_count, tombstone_bytes, damage_bytes, checksum,
        subjects_checksum,
    )  # fmt: skip
    if parts.file_bytes != file.size():
        raise CorruptStore(file.path, 0, "block index sections do not fill the file")
    return parts
