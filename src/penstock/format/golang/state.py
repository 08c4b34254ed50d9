"""The state of a stream of Go's nats-server: the values, and `index.db`, which holds them on disk.

    [11][version 1-4] uvarint messages, bytes, first seq; varint first time; uvarint last seq;
    varint last time; uvarint subjects, each: uvarint length, subject, uvarint total, first block,
    last block (before version 4 only if total > 1); uvarint blocks, each: uvarint number, bytes,
    first seq; varint first time - base; uvarint last seq; varint last time - base; uvarint deleted;
    uvarint ttls (version 2 on), schedules (3 on); the deleted sequences, if any;
    uvarint last block, 8 bytes: the hash of that block's last record; 8 bytes: hash of all before

    deleted = [22][1 or 2] u32 nodes, u32 sequences, per node: u64 base, bitmap, u16 height;
              the bitmap has 64 words of 64 bits in version 1, 32 in version 2

The server writes `index.db` mostly when it stops. Times are relative to the stream's first time.
The hash covers the file as it is on disk, encrypted or not. `recovery` decides whether an index
still describes the blocks.

Invariant: no decoder reads past the end of its data; data that does not fit raises FormatError with
the offset. Pure; any thread.
"""

from __future__ import annotations

from array import array
from typing import Protocol

import msgspec

from penstock.errors import FormatError
from penstock.format.damage import Damage
from penstock.format.golang.highway import highway_hash
from penstock.format.golang.keys import AssetKey
from penstock.format.golang.records import DamagedBytes
from penstock.format.sequence_set import SequenceSet


class SubjectMatcher(Protocol):
    """Decides which subjects are read."""

    def matches(self, subject: bytes, /) -> bool:
        """Return True if messages of this subject are wanted."""
        ...


class StreamState(msgspec.Struct, frozen=True):
    """A stream as the server reports it; an empty stream's first sequence is the next to come."""

    messages: int
    bytes: int
    first_seq: int
    first_timestamp_ns: int
    last_seq: int
    last_timestamp_ns: int


class BlockPlan(msgspec.Struct, frozen=True):
    """What to read of one block: first to last sequence, less the deleted ones."""

    number: int
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    deleted: SequenceSet = msgspec.field(default_factory=SequenceSet)


class FileProblem(msgspec.Struct, frozen=True):
    """A file that could not be used as it is, and why."""

    path: str
    reason: str


class ReadReport(msgspec.Struct):
    """What was found wrong so far; reading every block completes it.

    `index_problem` says why index.db was not used (None: it was). Without it the blocks were
    scanned, and `limits_removed` messages left out because the stream's limits remove them, which
    leaves no trace in the blocks.
    """

    index_problem: str | None = None
    limits_removed: int = 0
    files: list[FileProblem] = msgspec.field(default_factory=list)
    damage_by_block: dict[int, list[Damage]] = msgspec.field(default_factory=dict)

    @property
    def damage(self) -> list[Damage]:
        """Return all damage to blocks, in order."""
        in_order = sorted(self.damage_by_block)
        return [each for number in in_order for each in self.damage_by_block[number]]

    @property
    def is_clean(self) -> bool:
        """Return True if nothing wrong was found."""
        return not self.files and not any(self.damage_by_block.values())


def flat_ranges(removed: SequenceSet, first_seq: int, last_seq: int) -> array[int]:
    """Return the removed ranges between two sequences as first, last, first, last, ..."""
    flat = array("Q")
    for pair in removed.ranges_between(first_seq, last_seq):
        flat.extend(pair)
    return flat


def locate_damage(
    block: int, damaged: DamagedBytes, *, after_seq: int, before_seq: int, removed: SequenceSet
) -> Damage:
    """Say which sequences a damaged stretch may have held.

    Its neighbours in the block bound it; at the block's edges `after_seq` and `before_seq` do.
    Sequences known to be removed are not missed.
    """
    first_seq = max(damaged.seq_before, after_seq) + 1
    last_seq = (damaged.seq_after or before_seq) - 1
    missing = SequenceSet()
    if first_seq <= last_seq:
        missing.add_range(first_seq, last_seq)
        for first, last in removed.ranges_between(first_seq, last_seq):
            missing.remove_range(first, last)
    if missing.first is not None and missing.last is not None:
        first_seq, last_seq = missing.first, missing.last
    else:
        last_seq = first_seq - 1
    return Damage(block, damaged.offset, damaged.length, damaged.reason, first_seq, last_seq)


_UVARINT_BYTES_MAX = 10  # of the format
_U64_MAX = 2**64 - 1


class ByteCursor:
    """A place in some bytes, moving forward."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes and move past them."""
        if size > len(self._data) - self.at:
            raise FormatError("the data ends early", offset=self.at)
        taken = self._data[self.at : self.at + size]
        self.at += size
        return taken

    def left(self) -> int:
        """Return how many bytes are left."""
        return len(self._data) - self.at

    def unsigned(self, size: int) -> int:
        """Read a little-endian integer of `size` bytes."""
        return int.from_bytes(self.take(size), "little")

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 64 bits."""
        # Most are of one byte, and an index has some for each of its subjects.
        at = self.at
        if at < len(self._data) and (byte := self._data[at]) < 0x80:
            self.at = at + 1
            return byte
        value = 0
        for place in range(_UVARINT_BYTES_MAX):
            byte = self.unsigned(1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if value > _U64_MAX:
                    break
                return value
        raise FormatError("a varint is longer than 64 bits", offset=self.at)

    def varint(self) -> int:
        """Read a signed (zig-zag) varint."""
        value = self.uvarint()
        return (value >> 1) ^ -(value & 1)


HASH_BYTES = 8

_MAGIC = 11
_VERSION_MAX = 4  # of the format
_DELETED_MAGIC = 22
_BITMAP_BYTES = {1: 64 * 8, 2: 32 * 8}
_SEQ_MAX = 2**63 - 1


class GoIndex(msgspec.Struct, frozen=True):
    """What `index.db` says."""

    state: StreamState
    subject_count: int
    blocks: tuple[BlockPlan, ...]
    last_block: int
    last_record_hash: bytes


def decode_index(data: bytes, hash_key: bytes, key: AssetKey | None) -> GoIndex:
    """Check, decrypt if there is a key, and decode an `index.db`; raises FormatError."""
    body, stored_hash = data[:-HASH_BYTES], data[-HASH_BYTES:]
    if highway_hash(body, hash_key) != stored_hash:
        raise FormatError("the checksum of index.db differs", offset=len(body))
    cursor = ByteCursor(body if key is None else key.unseal(body))
    if cursor.unsigned(1) != _MAGIC:
        raise FormatError("not an index.db")
    version = cursor.unsigned(1)
    if not 1 <= version <= _VERSION_MAX:
        raise FormatError(f"index.db of unknown version {version}", offset=1)
    state = _decode_state(cursor)
    subject_count = _skip_subjects(cursor, version)
    blocks = tuple(_decode_block(cursor, version) for _ in range(cursor.uvarint()))
    index = GoIndex(state, subject_count, blocks, cursor.uvarint(), cursor.take(HASH_BYTES))
    if cursor.left():
        raise FormatError("index.db goes on after its end", offset=cursor.at)
    return index


def _decode_state(cursor: ByteCursor) -> StreamState:
    messages, bytes_, first_seq = cursor.uvarint(), cursor.uvarint(), cursor.uvarint()
    first_timestamp_ns = cursor.varint()
    last_seq, last_timestamp_ns = cursor.uvarint(), cursor.varint()
    _check_sequences(cursor, first_seq, last_seq)
    return StreamState(messages, bytes_, first_seq, first_timestamp_ns, last_seq, last_timestamp_ns)


def _check_sequences(cursor: ByteCursor, *seqs: int) -> None:
    if max(seqs) > _SEQ_MAX:
        raise FormatError("a sequence in index.db is impossible", offset=cursor.at)


def _skip_subjects(cursor: ByteCursor, version: int) -> int:
    count = cursor.uvarint()
    for _ in range(count):
        size = cursor.uvarint()
        if size == 0:
            continue
        cursor.take(size)
        total = cursor.uvarint()
        cursor.uvarint()
        if total > 1 or version >= 4:
            cursor.uvarint()
    return count


def _decode_block(cursor: ByteCursor, version: int) -> BlockPlan:
    number, bytes_, first_seq = cursor.uvarint(), cursor.uvarint(), cursor.uvarint()
    cursor.varint()
    last_seq = cursor.uvarint()
    cursor.varint()
    deleted_count = cursor.uvarint()
    # Counts of messages with a TTL and of schedules: nothing that a reader needs.
    for since in (2, 3):
        if version >= since:
            cursor.uvarint()
    _check_sequences(cursor, first_seq, last_seq)
    deleted = decode_deleted(cursor) if deleted_count else SequenceSet()
    messages = max(last_seq - first_seq + 1 - len(deleted), 0)
    return BlockPlan(number, messages, bytes_, first_seq, last_seq, deleted)


def decode_deleted(cursor: ByteCursor) -> SequenceSet:
    """Decode a set of deleted sequences at the cursor; raises FormatError."""
    if cursor.unsigned(1) != _DELETED_MAGIC:
        raise FormatError("not a sequence set", offset=cursor.at)
    bitmap_bytes = _BITMAP_BYTES.get(cursor.unsigned(1))
    if bitmap_bytes is None:
        raise FormatError("sequence set of unknown version", offset=cursor.at)
    node_count, count = cursor.unsigned(4), cursor.unsigned(4)
    deleted = SequenceSet()
    for _ in range(node_count):
        base = cursor.unsigned(8)
        _check_sequences(cursor, base + bitmap_bytes * 8)
        _add_bitmap(deleted, base, cursor.unsigned(bitmap_bytes))
        cursor.take(2)
    if len(deleted) != count:
        raise FormatError("a sequence set does not hold what it says", offset=cursor.at)
    return deleted


def _add_bitmap(deleted: SequenceSet, base: int, bits: int) -> None:
    # One step per run of ones, lowest first.
    while bits:
        start = (bits & -bits).bit_length() - 1
        ones = bits >> start
        run = (~ones & (ones + 1)).bit_length() - 1
        deleted.add_range(base + start, base + start + run - 1)
        bits = (ones >> run) << (start + run)
