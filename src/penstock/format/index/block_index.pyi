"""The index of one block: where its messages lie, by sequence, subject and time."""

from typing_extensions import disjoint_base

from penstock.format.damage import Damage
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.subjects import SubjectFilter

MAGIC: bytes
VERSION: int
FIXED_BYTES: int
ENTRY_BYTES: int
HEAD_BYTES: int
SUBJECT_BYTES: int
EXPIRY_BYTES: int
PLACE_BYTES: int

@disjoint_base
class BlockIndex:
    """One block's index; see the module."""

    def __init__(
        self, number: int, generation: int, base_seq: int, header: bytes, table: SubjectTable
    ) -> None: ...
    @property
    def number(self) -> int:
        """The block's number."""
        ...

    @property
    def generation(self) -> int:
        """The generation of the block that the index fits."""
        ...

    @property
    def base_seq(self) -> int:
        """No entry is below it."""
        ...

    @property
    def last_seq(self) -> int:
        """The highest sequence that the block accounts for; one below the base for none."""
        ...

    @property
    def block_bytes(self) -> int:
        """Where the last whole record ends in the block file."""
        ...

    @property
    def last_checksum(self) -> int:
        """The checksum of the block's last record."""
        ...

    @property
    def message_bytes(self) -> int:
        """What the entries count for in the stream's bytes, deleted ones included."""
        ...

    @property
    def first_time_ns(self) -> int:
        """The earliest time of an entry; 0 without entries."""
        ...

    @property
    def last_time_ns(self) -> int:
        """The latest time of an entry; 0 without entries."""
        ...

    @property
    def tombstones(self) -> SequenceSet:
        """The sequences that the block's tombstones tell of."""
        ...

    @property
    def damage(self) -> list[Damage]:
        """What was found damaged when the index was built by a walk."""
        ...

    @property
    def header(self) -> bytes:
        """The block's header as it was when the index was made."""
        ...

    @property
    def count(self) -> int:
        """Entries, deleted ones included."""
        ...

    @property
    def subject_count(self) -> int:
        """Distinct subjects."""
        ...

    @property
    def expiry_count(self) -> int:
        """Entries with a time to live."""
        ...

    def adopt(self, table: SubjectTable) -> None:
        """Go on building with another table of names, as after a scan with one of its own."""
        ...

    def cover(self, block_bytes: int) -> None:
        """Count the file's bytes up to here as the block's, whatever follows the last record."""
        ...

    def freeze(self) -> None:
        """Copy the names out of the shared table and order them; nothing is added any more."""
        ...

    def entry(self, ordinal: int) -> tuple[int, int, int, int, int, int, bytes]:
        """Return (seq, offset, length, timestamp_ns, size, flags, subject) of one entry."""
        ...

    def ordinal_of(self, seq: int) -> int | None:
        """Return the ordinal of a sequence, or None."""
        ...

    def first_ordinal_from(self, seq: int) -> int:
        """Return the ordinal of the first entry that is not below `seq` (the count for none)."""
        ...

    def count_matching(self, subject_filter: SubjectFilter) -> int:
        """Return the number of entries that a filter wants, deleted ones included."""
        ...

    def subject_totals(self) -> dict[bytes, tuple[int, int, int]]:
        """Return {subject: (entries, first seq, last seq)} of the block, deleted ones included."""
        ...

    def expiring(self) -> list[tuple[int, int, int]]:
        """Return [(ordinal, seq, expires_ns)] of the messages with a time to live."""
        ...

    def memory_bytes(self) -> int:
        """Return how many bytes of memory the index holds."""
        ...

    def encode(self) -> bytes:
        """Return the bytes of the index file; the index must be frozen."""
        ...

    @staticmethod
    def unverified(
        numbers: tuple[int, ...], header: bytes, entries: bytes, sections: bytes
    ) -> BlockIndex:
        """Return an index of which only the subject sections were verified, to find entries in.

        Raises FormatError where they point outside themselves.
        """
        ...

    @staticmethod
    def load(data: bytes, path: str) -> BlockIndex:
        """Look into the bytes of an index file, after verifying all of them.

        Raises CorruptStore, or UnsupportedVersion where the file is newer.
        """
        ...

def wanted_places(
    sections: bytes, subject_count: int, subject_filter: SubjectFilter
) -> list[tuple[int, int]]:
    """Return [(first, count)] of the places of the subjects that a filter wants.

    Raises as `count_matching` does.
    """
    ...

def count_matching(sections: bytes, subject_count: int, subject_filter: SubjectFilter) -> int:
    """Return how many entries a filter wants, by the subject sections of an index file alone.

    Raises FormatError where they point outside themselves; their checksum is the caller's.
    """
    ...
