"""What a consumer must remember, and its bytes on disk.

    +-------------------+-------------+------------------------------------+-----------+
    | magic `PNSTKCON`  | version u16 | body: uvarints to the end          | XXH64 u64 |
    +-------------------+-------------+------------------------------------+-----------+

    body: delivered consumer_seq, delivered stream_seq,
          ack floor consumer_seq, ack floor stream_seq,
          pending count,     then per entry: stream_seq step, consumer_seq turn, timestamp turn
          redelivered count, then per entry: stream_seq step, count - 1
    since version 2, and only where there is a held message or a letter:
          held count,        then per entry: stream_seq step
          letter count,      then per entry: stream_seq step, deliveries - 1, timestamp turn,
                             whether it was terminated, size of the text, its bytes one by one

Little-endian. Entries ascend by stream sequence. A *step* is the stream sequence minus the previous
one minus 1; before the first stands the ack floor, or 0 (redelivered). A *turn* is the difference
to the previous entry modulo 2**64, zigzag coded; before the first stand the ack floor's consumer
sequence and the time 0. The checksum covers every byte before it.

Invariant, for what is written and for what is read: the ack floor is not above delivered; what is
pending lies above the floor and not above delivered, in both sequences; redelivered
sequences are not above delivered, with counts of at least 1; what is held lies where pending
messages do, and is not pending; a letter's message is pending.

Pure; any thread. Called by consumers (write), by the import of Go's directories and by Spark.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from penstock.errors import FormatError, UnsupportedVersion, UsageError
from penstock.format.hashing import xxh64
from penstock.format.varint import U64_MAX, put_uvarint, read_uvarints
from penstock.limits import TERM_REASON_BYTES_MAX

MAGIC = b"PNSTKCON"
VERSION = 2
VERSION_PLAIN = 1
"""Of a state without held messages and letters: earlier servers read it too."""


_HEAD = struct.Struct("<8sH")
_CHECKSUM = struct.Struct("<Q")
_FIXED_VALUES = 6
_PENDING_VALUES = 3
_REDELIVERED_VALUES = 2
_LETTER_VALUES = 5
_TIMESTAMP_NS_MIN = -(2**63)
_TIMESTAMP_NS_MAX = 2**63 - 1


class SequencePair(NamedTuple):
    """One point of a consumer's progress, as the consumer and as the stream counts."""

    consumer_seq: int
    stream_seq: int


class PendingDelivery(NamedTuple):
    """A message that was delivered and not yet acknowledged."""

    consumer_seq: int
    timestamp_ns: int


_NOTHING_YET = SequencePair(0, 0)


class DeadLetter(NamedTuple):
    """A message that will not be delivered again, and is still to be sent elsewhere."""

    deliveries: int
    time_ns: int
    """When that was decided."""

    is_terminated: bool
    """By a client; otherwise it was delivered as often as it may be."""

    text: bytes
    """What the client said of it."""


class ConsumerState(msgspec.Struct):
    """A consumer's progress; everything in it is keyed by stream sequence."""

    delivered: SequencePair = _NOTHING_YET
    ack_floor: SequencePair = _NOTHING_YET
    pending: dict[int, PendingDelivery] = msgspec.field(default_factory=dict)
    redelivered: dict[int, int] = msgspec.field(default_factory=dict)
    held: set[int] = msgspec.field(default_factory=set)
    """Messages that others were delivered before, and that are still to be delivered."""

    letters: dict[int, DeadLetter] = msgspec.field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version of its bytes."""
        return VERSION if self.held or self.letters else VERSION_PLAIN


def encode_consumer_state(state: ConsumerState) -> bytes:
    """Return the state's bytes; raises UsageError where they could not be read back."""
    reason = _find_contradiction(state)
    if reason is not None:
        raise UsageError(reason)
    out = bytearray(_HEAD.pack(MAGIC, state.version))
    for value in (*state.delivered, *state.ack_floor, len(state.pending)):
        put_uvarint(out, value)
    stream_seq = state.ack_floor.stream_seq
    consumer_seq = state.ack_floor.consumer_seq
    timestamp_ns = 0
    for next_stream_seq, delivery in sorted(state.pending.items()):
        next_consumer_seq, next_timestamp_ns = delivery
        put_uvarint(out, next_stream_seq - stream_seq - 1)
        put_uvarint(out, _turn(consumer_seq, next_consumer_seq))
        put_uvarint(out, _turn(timestamp_ns, next_timestamp_ns))
        stream_seq, consumer_seq = next_stream_seq, next_consumer_seq
        timestamp_ns = next_timestamp_ns
    put_uvarint(out, len(state.redelivered))
    stream_seq = 0
    for next_stream_seq, count in sorted(state.redelivered.items()):
        put_uvarint(out, next_stream_seq - stream_seq - 1)
        put_uvarint(out, count - 1)
        stream_seq = next_stream_seq
    if state.version > VERSION_PLAIN:
        _put_held(out, state)
        _put_letters(out, state)
    out += _CHECKSUM.pack(xxh64(out))
    return bytes(out)


def _put_held(out: bytearray, state: ConsumerState) -> None:
    put_uvarint(out, len(state.held))
    stream_seq = state.ack_floor.stream_seq
    for next_stream_seq in sorted(state.held):
        put_uvarint(out, next_stream_seq - stream_seq - 1)
        stream_seq = next_stream_seq


def _put_letters(out: bytearray, state: ConsumerState) -> None:
    put_uvarint(out, len(state.letters))
    stream_seq = state.ack_floor.stream_seq
    time_ns = 0
    for next_stream_seq, letter in sorted(state.letters.items()):
        put_uvarint(out, next_stream_seq - stream_seq - 1)
        put_uvarint(out, letter.deliveries - 1)
        put_uvarint(out, _turn(time_ns, letter.time_ns))
        for value in (int(letter.is_terminated), len(letter.text), *letter.text):
            put_uvarint(out, value)
        stream_seq, time_ns = next_stream_seq, letter.time_ns


def decode_consumer_state(buffer: bytes | memoryview, *, path: str = "") -> ConsumerState:
    """Read a state back.

    Raises FormatError for bytes that `encode_consumer_state` does not write, and
    UnsupportedVersion, naming `path`, for those of a later Penstock.
    """
    data = bytes(buffer)
    end = len(data) - _CHECKSUM.size
    if end < _HEAD.size:
        raise FormatError("consumer state is too short", offset=len(data))
    magic, version = _HEAD.unpack_from(data)
    if magic != MAGIC or version < 1:
        raise FormatError("not a consumer state")
    if xxh64(data[:end]) != _CHECKSUM.unpack_from(data, end)[0]:
        raise FormatError("consumer state checksum differs", offset=end)
    if version > VERSION:
        raise UnsupportedVersion(path, version, VERSION)
    state = _read_body(read_uvarints(data[:end], _HEAD.size), version)
    reason = _find_contradiction(state)
    if reason is None and state.version != version:
        reason = f"version {version} has nothing that is new in it"
    if reason is not None:
        raise FormatError(reason, offset=_HEAD.size)
    return state


def _read_body(values: list[int], version: int) -> ConsumerState:
    # Counts are held against the numbers that are there, before an entry is made of any.
    if len(values) < _FIXED_VALUES:
        raise FormatError("consumer state is too short", offset=_HEAD.size)
    delivered = SequencePair(values[0], values[1])
    ack_floor = SequencePair(values[2], values[3])
    pending_start = 5
    pending_stop = pending_start + _PENDING_VALUES * values[4]
    if pending_stop >= len(values):
        raise FormatError(f"{values[4]} pending entries are not there", offset=_HEAD.size)
    redelivered_start = pending_stop + 1
    redelivered_stop = redelivered_start + _REDELIVERED_VALUES * values[pending_stop]
    is_plain = version == VERSION_PLAIN
    if redelivered_stop > len(values) or (is_plain and redelivered_stop != len(values)):
        reason = f"{values[pending_stop]} redelivered entries do not fit what is there"
        raise FormatError(reason, offset=_HEAD.size)
    state = ConsumerState(
        delivered=delivered,
        ack_floor=ack_floor,
        pending=_read_pending(values[pending_start:pending_stop], ack_floor),
        redelivered=_read_redelivered(values[redelivered_start:redelivered_stop]),
    )
    if not is_plain:
        _read_further(state, values[redelivered_stop:])
    return state


def _read_further(state: ConsumerState, values: list[int]) -> None:
    """Take over what is held, and the letters."""
    held_stop = 1 + values[0] if values else 1
    if held_stop >= len(values):
        raise FormatError("held entries are not there", offset=_HEAD.size)
    stream_seq = state.ack_floor.stream_seq
    for step in values[1:held_stop]:
        stream_seq += step + 1
        state.held.add(stream_seq)
    place = held_stop + 1
    stream_seq, time_ns = state.ack_floor.stream_seq, 0
    for _ in range(values[held_stop]):
        head = values[place : place + _LETTER_VALUES]
        if len(head) < _LETTER_VALUES:
            raise FormatError("letters are not there", offset=_HEAD.size)
        step, further, turn, is_terminated, size = head
        text = values[place + _LETTER_VALUES : place + _LETTER_VALUES + size]
        place += _LETTER_VALUES + size
        if is_terminated > 1 or len(text) != size or any(each > 0xFF for each in text):
            raise FormatError("a letter cannot be", offset=_HEAD.size)
        stream_seq += step + 1
        time_ns = _follow(time_ns, turn)
        state.letters[stream_seq] = DeadLetter(
            further + 1, _signed(time_ns), bool(is_terminated), bytes(text)
        )
    if place != len(values):
        raise FormatError("numbers follow the last letter", offset=_HEAD.size)


def _read_pending(values: list[int], ack_floor: SequencePair) -> dict[int, PendingDelivery]:
    pending: dict[int, PendingDelivery] = {}
    consumer_seq, stream_seq = ack_floor
    timestamp_ns = 0
    triples = zip(values[::3], values[1::3], values[2::3], strict=True)
    for step, consumer_turn, timestamp_turn in triples:
        stream_seq += step + 1
        consumer_seq = _follow(consumer_seq, consumer_turn)
        timestamp_ns = _follow(timestamp_ns, timestamp_turn)
        pending[stream_seq] = PendingDelivery(consumer_seq, _signed(timestamp_ns))
    return pending


def _read_redelivered(values: list[int]) -> dict[int, int]:
    redelivered: dict[int, int] = {}
    stream_seq = 0
    for step, further in zip(values[::2], values[1::2], strict=True):
        stream_seq += step + 1
        redelivered[stream_seq] = further + 1
    return redelivered


def _turn(previous: int, value: int) -> int:
    # Zigzag, so that a small step back costs as little as a small step on.
    difference = (value - previous) & U64_MAX
    return difference << 1 if difference < 2**63 else ((U64_MAX - difference) << 1) | 1


def _follow(previous: int, turn: int) -> int:
    difference = U64_MAX - (turn >> 1) if turn & 1 else turn >> 1
    return (previous + difference) & U64_MAX


def _signed(time_ns: int) -> int:
    return time_ns - 2**64 if time_ns > _TIMESTAMP_NS_MAX else time_ns


def _find_contradiction(state: ConsumerState) -> str | None:
    # Say what is wrong with a state, in the words of the module's docstring.
    top_consumer_seq, top_stream_seq = state.delivered
    floor_consumer_seq, floor_stream_seq = state.ack_floor
    if not 0 <= floor_consumer_seq <= top_consumer_seq <= U64_MAX:
        return f"ack floor {floor_consumer_seq} is above delivered {top_consumer_seq}"
    if not 0 <= floor_stream_seq <= top_stream_seq <= U64_MAX:
        return f"ack floor {floor_stream_seq} is above delivered {top_stream_seq} in the stream"
    for stream_seq, (consumer_seq, timestamp_ns) in state.pending.items():
        if not floor_stream_seq < stream_seq <= top_stream_seq:
            return f"pending {stream_seq} is not between the ack floor and delivered"
        if not floor_consumer_seq < consumer_seq <= top_consumer_seq:
            return f"delivery {consumer_seq} is not between the ack floor and delivered"
        if not _TIMESTAMP_NS_MIN <= timestamp_ns <= _TIMESTAMP_NS_MAX:
            return f"timestamp {timestamp_ns} of pending {stream_seq} is not a time"
    for stream_seq, count in state.redelivered.items():
        if not 0 < stream_seq <= top_stream_seq or not 0 < count <= U64_MAX:
            return f"redelivered {stream_seq}, {count} times, cannot be"
    return _find_contradiction_further(state)


def _find_contradiction_further(state: ConsumerState) -> str | None:
    floor_stream_seq, top_stream_seq = state.ack_floor.stream_seq, state.delivered.stream_seq
    for stream_seq in state.held:
        if not floor_stream_seq < stream_seq <= top_stream_seq or stream_seq in state.pending:
            return f"held {stream_seq} is not between the ack floor and delivered, or is pending"
    for stream_seq, letter in state.letters.items():
        if stream_seq not in state.pending:
            return f"a letter of {stream_seq}, which is not pending"
        if not 0 < letter.deliveries <= U64_MAX or len(letter.text) > TERM_REASON_BYTES_MAX:
            return f"a letter of {stream_seq} cannot be"
        if not _TIMESTAMP_NS_MIN <= letter.time_ns <= _TIMESTAMP_NS_MAX:
            return f"timestamp {letter.time_ns} of a letter is not a time"
    return None
