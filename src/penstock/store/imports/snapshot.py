"""A snapshot: a stream's live messages as one run of bytes, taken while the stream goes on.

    +------+------------------------------+-----+
    | head | records, in rising sequence  | end |
    +------+------------------------------+-----+

    head  +--------------+------------------+-----------------+--------------+---------------+
          | `PNSTKSNP`   | version u16      | name length u16 | messages u64 | first_seq u64 |
          +--------------+------------------+-----------------+--------------+---------------+
          | last_seq u64 | last time i64 ns | name            | XXH64 u64    |
          +--------------+------------------+-----------------+--------------+
    end   +--------------+------------------+-----------------+
          | 0xFF u8      | messages u64     | XXH64 u64       |
          +--------------+------------------+-----------------+

Little-endian. A record is encoded as in a block (format/README.md), with checksum seed 0, plain
headers and payload, and no flag but `expires`; gaps are sequences that do not come. The head's
checksum covers the head. The *chain* starts as that checksum and becomes, with each record, the
XXH64 of the record's bytes seeded with the chain before; the checksum of the end is that of its
nine bytes, seeded with the last chain. So the end vouches for every byte before it.

Invariant: a snapshot shows the stream as it was at the call, however slowly it is taken.
Only what is erased meanwhile is left out, so the end may count fewer messages than the head; a
truncation, a reset or a repair ends it with an error, and so does a damaged message.

Any thread; one snapshot is read by one thread at a time. Memory is bounded by the largest message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from penstock.errors import CorruptStore, FormatError, StoreError, UnsupportedVersion, UsageError
from penstock.format.damage import Damage
from penstock.format.hashing import xxh64
from penstock.format.record import EXPIRES
from penstock.limits import SNAPSHOT_CHUNK_BYTES_MAX, STREAM_NAME_BYTES_MAX
from penstock.store.interface import RawMessage
from penstock.store.log.block import Block
from penstock.store.log.bulk import export_records, parse_records
from penstock.store.log.ledger import Ledger
from penstock.store.log.log import Log
from penstock.store.upkeep.compaction import Compaction

MAGIC = b"PNSTKSNP"
VERSION = 1

_HEAD = struct.Struct("<8sHHQQQq")
_CHECKSUM = struct.Struct("<Q")
_END = struct.Struct("<BQ")
_END_MARK = 0xFF


class SnapshotHead(msgspec.Struct, frozen=True):
    """What a snapshot says of its stream; `messages` is how many there were when it was taken."""

    stream: str
    messages: int
    first_seq: int
    last_seq: int
    last_time_ns: int

    def encode(self) -> bytes:
        """Return the bytes of the head, checksum included."""
        name = self.stream.encode()
        if len(name) > STREAM_NAME_BYTES_MAX:
            raise UsageError(f"a stream's name of {len(name)} bytes fits no snapshot")
        fixed = _HEAD.pack(
            MAGIC,
            VERSION,
            len(name),
            self.messages,
            self.first_seq,
            self.last_seq,
            self.last_time_ns,
        )
        return fixed + name + _CHECKSUM.pack(xxh64(fixed + name))


# Taking


class _Part(msgspec.Struct, frozen=True):
    """The entries of one block that belong to a snapshot: the first `stop`, less the dead ones."""

    block: Block
    generation: int
    stop: int
    dead: bytes


class _View(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """A stream at one moment. While compaction remembers it, its blocks stay."""

    ledger: Ledger
    head: SnapshotHead
    parts: list[_Part]


def snapshot_chunks(log: Log, compaction: Compaction) -> Iterator[bytes]:
    """Yield the stream as it is now, in pieces of at most SNAPSHOT_CHUNK_BYTES_MAX.

    The pieces raise CorruptStore where a message is damaged, StoreError where the stream was
    truncated, reset or repaired meanwhile, OSError.
    """
    with compaction.rewriting, log.lock:
        ledger = log.ledger
        head = SnapshotHead(
            log.settings.config.name,
            ledger.messages,
            ledger.first_seq,
            ledger.last_seq,
            ledger.last_time_ns,
        )
        parts = [
            _Part(block, block.generation, block.count, block.dead_bitmap)
            for block in ledger.blocks
            if block.live
        ]
        view = _View(ledger, head, parts)
        compaction.keep_for(view)
    return _chunks(log, compaction, view)


def _chunks(log: Log, compaction: Compaction, view: _View) -> Iterator[bytes]:
    # The view is held by this generator alone, so that letting go of the one lets go of the other.
    try:
        head = view.head.encode()
        yield head
        (chain,) = _CHECKSUM.unpack_from(head, len(head) - _CHECKSUM.size)
        messages = 0
        for part in view.parts:
            ordinal = 0
            while ordinal < part.stop:
                records, count, ordinal, chain = _export(log, view, part, ordinal, chain)
                messages += count
                yield from _sliced(records)
        end = _END.pack(_END_MARK, messages)
        yield end + _CHECKSUM.pack(xxh64(end, chain))
    finally:
        compaction.let_go_of(view)


def _sliced(records: bytes) -> Iterator[bytes]:
    for start in range(0, len(records), SNAPSHOT_CHUNK_BYTES_MAX):
        yield records[start : start + SNAPSHOT_CHUNK_BYTES_MAX]


def _export(
    log: Log, view: _View, part: _Part, ordinal: int, chain: int
) -> tuple[bytes, int, int, int]:
    """Encode the next messages of a block: (records, messages, next ordinal, chain)."""
    block = part.block
    with log.lock:
        if (
            log.ledger is not view.ledger
            or block not in view.ledger.blocks
            or block.generation != part.generation
            or block.count < part.stop
        ):
            raise StoreError(
                f"{log.directory.path}: cut short, reset or repaired during a snapshot"
            )
        try:
            return export_records(
                view.ledger,
                block,
                ordinal,
                stop=part.stop,
                dead=part.dead,
                chain=chain,
                bytes_max=SNAPSHOT_CHUNK_BYTES_MAX,
            )
        except CorruptStore as error:
            seq = error.seq or 0
            log.health.report_damage(Damage(block.number, error.offset, 0, error.reason, seq, seq))
            raise


# Reading back


class SnapshotParser:
    """Takes a snapshot's bytes, cut anywhere, and gives its messages.

    `head` is there once enough was fed. Nothing counts before `check_complete` has returned. Every
    error is a FormatError with its place in the snapshot, or UnsupportedVersion.
    """

    def __init__(self) -> None:
        self.head: SnapshotHead | None = None
        self.messages = 0
        self._buffer = bytearray()
        self._buffer_at = 0
        self._chain = 0
        self._last_seq = 0
        self._ended = False

    def feed(self, chunk: bytes | memoryview) -> list[RawMessage]:
        """Take some bytes; give the messages that are whole now."""
        self._buffer += chunk
        if self._ended and self._buffer:
            raise FormatError("there is more after the end", offset=self._buffer_at)
        if self.head is None:
            self.head = self._read_head()
            if self.head is None:
                return []
        try:
            messages, used, self._chain = parse_records(self._buffer, 0, self._chain)
        except FormatError as error:
            raise FormatError(error.reason, offset=self._buffer_at + error.offset) from error
        self._check_sequences(messages, self.head)
        self.messages += len(messages)
        self._drop(used)
        if self._buffer and self._buffer[0] == _END_MARK:
            self._read_end()
        elif self._buffer and self._buffer[0] & ~EXPIRES:
            raise FormatError("neither a record nor the end", offset=self._buffer_at)
        return messages

    def check_complete(self) -> None:
        """Raise unless the end was there and vouched for all before it."""
        if not self._ended:
            raise FormatError("the snapshot is cut off", offset=self._buffer_at + len(self._buffer))

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._buffer_at += count

    def _read_head(self) -> SnapshotHead | None:
        data = self._buffer
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            raise FormatError("not a snapshot")
        if len(data) < _HEAD.size:
            return None
        _, version, name_bytes, *state = _HEAD.unpack_from(data)
        if version > VERSION:
            raise UnsupportedVersion("snapshot", version, VERSION)
        if version < 1 or name_bytes > STREAM_NAME_BYTES_MAX:
            raise FormatError("the snapshot's head cannot be", offset=len(MAGIC))
        end = _HEAD.size + name_bytes
        if len(data) < end + _CHECKSUM.size:
            return None
        (self._chain,) = _CHECKSUM.unpack_from(data, end)
        if xxh64(data[:end]) != self._chain:
            raise FormatError("the head's checksum differs", offset=end)
        name = bytes(data[_HEAD.size : end]).decode("utf-8", "replace")
        self._drop(end + _CHECKSUM.size)
        return SnapshotHead(name, *state)

    def _check_sequences(self, messages: list[RawMessage], head: SnapshotHead) -> None:
        for message in messages:
            if not self._last_seq < message[0] <= head.last_seq:
                reason = f"sequence {message[0]} after {self._last_seq} of {head.last_seq}"
                raise FormatError(reason, offset=self._buffer_at)
            self._last_seq = message[0]

    def _read_end(self) -> None:
        if len(self._buffer) < _END.size + _CHECKSUM.size:
            return
        _, messages = _END.unpack_from(self._buffer)
        (checksum,) = _CHECKSUM.unpack_from(self._buffer, _END.size)
        if checksum != xxh64(self._buffer[: _END.size], self._chain):
            raise FormatError("the snapshot's checksum differs", offset=self._buffer_at)
        if messages != self.messages:
            reason = f"{self.messages} messages, and the end counts {messages}"
            raise FormatError(reason, offset=self._buffer_at)
        self._drop(_END.size + _CHECKSUM.size)
        self._ended = True
        if self._buffer:
            raise FormatError("there is more after the end", offset=self._buffer_at)
