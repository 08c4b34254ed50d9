"""`index.db`: the state of a whole stream as the server last wrote it, mostly when it stopped.

    [11][version 1-4] uvarint messages, bytes, first seq; varint first time; uvarint last seq;
    varint last time; uvarint subjects, each: uvarint length, subject, uvarint total, first block,
    last block (before version 4 only if total > 1); uvarint blocks, each: uvarint number, bytes,
    first seq; varint first time - base; uvarint last seq; varint last time - base; uvarint deleted;
    uvarint ttls (version 2 on), schedules (3 on); the deleted sequences, if any;
    uvarint last block, 8 bytes: the hash of that block's last record; 8 bytes: hash of all before

    deleted = [22][1 or 2] u32 nodes, u32 sequences, per node: u64 base, bitmap, u16 height;
              the bitmap has 64 words of 64 bits in version 1, 32 in version 2

The base of times is the stream's first time. The hash is taken over the file as it stands on disk,
encrypted or not. Whether the index still fits the blocks is for recovery.py to say. Pure.
"""

from __future__ import annotations

import msgspec

from penstock.errors import FormatError
from penstock.format.golang.cursor import ByteCursor
from penstock.format.golang.highway import highway_hash
from penstock.format.golang.keys import AssetKey
from penstock.format.golang.state import BlockPlan, StreamState
from penstock.format.sequence_set import SequenceSet

HASH_BYTES = 8

_MAGIC = 11
_VERSION_MAX = 4
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
