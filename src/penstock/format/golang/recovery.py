"""The block files of one Go stream, and which of their messages are live.

    on disk = keystream XOR (packed or plain records)
    packed  = "cmp" | algorithm u8 (1: S2) | uvarint plain size | S2 stream | last 8 plain bytes

A block with a `<n>.key` file is encrypted. A block without is plain even in an encrypted stream:
the server encrypts it when it next starts. Only sealed blocks are packed.

`index.db` is used only if it describes these files: the hash of its last record is at the end of
its last block, there is no later block, every block in it exists, and its sums agree. Otherwise all
blocks are scanned, newest first: a tombstone is in the message's own block or in a later one, and
limits keep the newest messages. A stale index still gives the highest sequence ever assigned and
the lowest that was live; neither ever falls.

The server writes tombstones for messages that a user deletes, acknowledges or purges, but none for
messages that max_msgs, max_bytes, max_age or max_msgs_per_subject remove. So `Retention` applies
the stream's limits again to scanned blocks, newest message first; limits per subject go first, as
when messages are stored. Where a user deleted a message that had pushed out an older one, the older
one is kept: one message too many is better than one lost.

Invariant: any file content results in a `GoBlock` or FormatError, and no file above the bound in
`limits` is loaded. Raises WrongKey, reports everything else. Read-only; one thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import FormatError, WrongKey
from penstock.format.columns import ColumnBatch, ColumnBuilder, MessageRow
from penstock.format.damage import Damage
from penstock.format.files import ReadableFolder
from penstock.format.golang.highway import named_key
from penstock.format.golang.keys import AssetKey, ServerKey
from penstock.format.golang.records import DamagedBytes, GoBlock
from penstock.format.golang.s2 import decode_s2_stream, salvage_s2_stream
from penstock.format.golang.state import (
    HASH_BYTES,
    BlockPlan,
    ByteCursor,
    FileProblem,
    GoIndex,
    ReadReport,
    StreamState,
    decode_index,
    flat_ranges,
    locate_damage,
)
from penstock.format.sequence_set import SequenceSet
from penstock.limits import GO_BLOCK_BYTES_MAX

_BLOCK_NAME = re.compile(r"([0-9]{1,10})\.blk")
_PACKED_WITH_S2 = b"cmp\x01"


def read_whole(folder: ReadableFolder, name: str, bytes_max: int | None = None) -> bytes:
    """Read a file; FormatError if it is longer than `bytes_max`."""
    file = folder.open(name)
    try:
        size = file.size()
        if bytes_max is not None and size > bytes_max:
            raise FormatError(f"{size} bytes: more than the server ever writes", offset=bytes_max)
        return file.read_at(0, size)
    finally:
        file.close()


def unpack_block(data: bytes) -> bytes:
    """Return the plain bytes of a decrypted block; what cannot be unpacked becomes zeros."""
    if not data.startswith(_PACKED_WITH_S2) or len(data) < len(_PACKED_WITH_S2) + 1 + HASH_BYTES:
        return data
    cursor = ByteCursor(data)
    cursor.take(len(_PACKED_WITH_S2))
    plain_size = cursor.uvarint()
    stream, tail = data[cursor.at : -HASH_BYTES], data[-HASH_BYTES:]
    try:
        return decode_s2_stream(stream, GO_BLOCK_BYTES_MAX) + tail
    except FormatError:
        wanted = min(plain_size, GO_BLOCK_BYTES_MAX) - HASH_BYTES
        return salvage_s2_stream(stream, max(wanted, 0))[0] + tail


class BlockFolder:
    """The folder of a stream's blocks."""

    def __init__(
        self, folder: ReadableFolder, stream: str, server_key: ServerKey | None, *, key_proven: bool
    ) -> None:
        """`key_proven` says that the server key has opened another file of this stream."""
        self._folder = folder
        self._stream = stream
        self._server_key = server_key
        self._key_proven = key_proven
        self._names = set(folder.list_names())
        matches = (_BLOCK_NAME.fullmatch(name) for name in self._names)
        self.numbers = sorted(int(match[1]) for match in matches if match)

    @property
    def path(self) -> str:
        """Return the folder's path."""
        return self._folder.path

    def load_index(self) -> bytes | None:
        """Read `index.db`, or None if there is none."""
        return read_whole(self._folder, "index.db") if "index.db" in self._names else None

    def block_bytes(self, number: int) -> int:
        """Return how long a block's file is."""
        file = self._folder.open(f"{number}.blk")
        try:
            return file.size()
        finally:
            file.close()

    def load_records(self, number: int) -> GoBlock:
        """Read a block; raises FormatError if nothing of it can be read, or WrongKey."""
        plain = unpack_block(self._load_decrypted(number))
        return GoBlock(plain, named_key(f"{self._stream}-{number}"))

    def load_last_hash(self, number: int) -> bytes:
        """Return the last 8 plain bytes of a block, zeros if it has none."""
        return self._load_decrypted(number)[-HASH_BYTES:].rjust(HASH_BYTES, b"\0")

    def _load_decrypted(self, number: int) -> bytes:
        data = read_whole(self._folder, f"{number}.blk", GO_BLOCK_BYTES_MAX)
        key_name = f"{number}.key"
        if key_name not in self._names:
            return data
        if self._server_key is None:
            raise WrongKey(self.path, f"block {number} is encrypted and no key was given")
        key_file = read_whole(self._folder, key_name)
        key = self._server_key.open_key_file(f"{self._stream}:{number}", key_file)
        if key is not None:
            return key.decrypt_block(data)
        if self._key_proven:
            raise FormatError(f"{key_name} does not open with the server's key")
        raise WrongKey(self.path, f"the key does not open {key_name}")


_NO_LIMIT = 2**63
_KEPT_FOREVER = b"\r\nNats-TTL: never\r\n"


class Kept(msgspec.Struct):
    """What remains of one block."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_timestamp_ns: int = 0
    removed: SequenceSet = msgspec.field(default_factory=SequenceSet)


def _limit(config: Mapping[str, Any], name: str) -> int:  # Any: a JSON document
    value = config.get(name)
    return value if isinstance(value, int) and value > 0 else _NO_LIMIT


class Retention:
    """The limits of one stream and what they still leave room for."""

    def __init__(self, config: Mapping[str, Any], now_ns: int | None) -> None:  # Any: JSON
        discards_old = config.get("discard", "old") == "old"
        self._messages_left = _limit(config, "max_msgs") if discards_old else _NO_LIMIT
        self._bytes_left = _limit(config, "max_bytes") if discards_old else _NO_LIMIT
        self._per_subject_max = _limit(config, "max_msgs_per_subject")
        age_ns_max = _limit(config, "max_age")
        # A server that leaves markers for what expires does so when it runs, not at its start.
        if now_ns is None or config.get("subject_delete_marker_ttl"):
            age_ns_max = _NO_LIMIT
        self._oldest_ns = -_NO_LIMIT if age_ns_max == _NO_LIMIT else (now_ns or 0) - age_ns_max
        self._subject_counts: dict[bytes, int] = {}
        self._full = False
        self.removes_nothing = (
            min(self._messages_left, self._bytes_left, self._per_subject_max, age_ns_max)
            == _NO_LIMIT
        )

    def apply(self, batch: ColumnBatch, sizes: memoryview) -> Kept:
        """Decide about the messages of a block, of which all newer ones were decided already."""
        if self.removes_nothing:
            return self._keep_all(batch, sizes)
        kept = Kept()
        for row, message in reversed(list(enumerate(batch.messages()))):
            if self._stays(message, sizes[row]):
                kept.messages += 1
                kept.bytes += sizes[row]
                kept.first_seq, kept.first_timestamp_ns = message.seq, message.timestamp_ns
            else:
                kept.removed.add(message.seq)
        return kept

    def _keep_all(self, batch: ColumnBatch, sizes: memoryview) -> Kept:
        if not batch.count:
            return Kept()
        first_seq = memoryview(batch.sequences).cast("Q")[0]
        first_timestamp_ns = memoryview(batch.timestamps).cast("q")[0]
        return Kept(batch.count, sum(sizes), first_seq, first_timestamp_ns)

    def _stays(self, message: MessageRow, size: int) -> bool:
        if message.timestamp_ns <= self._oldest_ns and _KEPT_FOREVER not in message.headers:
            return False
        count = self._subject_counts.get(message.subject, 0)
        if count >= self._per_subject_max:
            return False
        # These two limits cut off the oldest: once one is reached, nothing older has room.
        self._full = self._full or self._messages_left < 1 or self._bytes_left < size
        if self._full:
            return False
        if self._per_subject_max != _NO_LIMIT:
            self._subject_counts[message.subject] = count + 1
        self._messages_left -= 1
        self._bytes_left -= size
        return True


_SEQ_MAX = 2**62 - 1

# What Go makes of the year 1 in nanoseconds since 1970, which overflow: its way to say "no time".
_NO_TIMESTAMP_NS = -6_795_364_578_871_345_152


def recover(
    blocks: BlockFolder,
    report: ReadReport,
    *,
    stream: str,
    key: AssetKey | None,
    config: Mapping[str, Any],  # Any: a JSON document
    now_ns: int | None,
) -> tuple[StreamState, list[BlockPlan]]:
    """Return a stream's state and what to read of each block; fills in the report."""
    index, problem = _load_index(blocks, report, stream, key)
    if index is not None and problem is None:
        problem = _misfit(index, blocks)
        if problem is None:
            return index.state, [plan for plan in index.blocks if plan.messages]
    report.index_problem = problem
    stale = index.state if index else StreamState(0, 0, 0, 0, 0, 0)
    scan = _Scan(blocks, Retention(config, now_ns), report, stale)
    scan.run()
    return scan.state(config), scan.plans


def _load_index(
    blocks: BlockFolder, report: ReadReport, stream: str, key: AssetKey | None
) -> tuple[GoIndex | None, str | None]:
    data = blocks.load_index()
    if data is None:
        return None, "there is no index.db"
    try:
        return decode_index(data, named_key(stream), key), None
    except FormatError as error:
        report.files.append(FileProblem(os.path.join(blocks.path, "index.db"), str(error)))
        return None, str(error)


def _misfit(index: GoIndex, blocks: BlockFolder) -> str | None:
    """Say why the index does not describe these blocks, or None if it does."""
    listed = [plan.number for plan in index.blocks]
    if not listed or listed[-1] != index.last_block or listed != sorted(set(listed)):
        return "index.db does not end with its last block"
    missing = sorted(set(listed) - set(blocks.numbers))
    if missing:
        return f"block {missing[0]} is missing"
    if blocks.numbers[-1] > index.last_block:
        return "there are blocks later than index.db"
    state = index.state
    sums = (sum(plan.messages for plan in index.blocks), sum(plan.bytes for plan in index.blocks))
    last_seq = max(plan.last_seq for plan in index.blocks)
    if sums != (state.messages, state.bytes) or last_seq != state.last_seq:
        return "index.db does not add up"
    try:
        if blocks.load_last_hash(index.last_block) != index.last_record_hash:
            return "the last block has changed since index.db was written"
    except FormatError as error:
        return error.reason
    return None


class _Edges(msgspec.Struct):
    """What a scanned block tells its neighbours."""

    first_ordered_seq: int = 0
    last_ordered_seq: int = 0
    damage: list[DamagedBytes] = msgspec.field(default_factory=list)


class _Scan:
    """One scan over the blocks, newest first."""

    def __init__(
        self, blocks: BlockFolder, retention: Retention, report: ReadReport, stale: StreamState
    ) -> None:
        self._blocks = blocks
        self._retention = retention
        self._report = report
        self._stale = stale
        self._tombstones = SequenceSet()
        self._edges: dict[int, _Edges] = {}
        self._highest = (0, 0)
        self._oldest = Kept()
        self.plans: list[BlockPlan] = []

    def run(self) -> None:
        """Scan; afterwards `plans` rise and the report has the damage."""
        ceiling = _SEQ_MAX
        for number in reversed(self._blocks.numbers):
            try:
                block = self._blocks.load_records(number)
            except FormatError as error:
                size = self._blocks.block_bytes(number)
                self._edges[number] = _Edges(damage=[DamagedBytes(0, size, error.reason, 0, 0)])
                continue
            self._note(number, block)
            if block.row_count and block.last_seq >= self._stale.first_seq:
                self._plan(number, block, ceiling)
                ceiling = min(ceiling, block.first_seq - 1)
        self.plans.reverse()
        self._report_damage()

    def _note(self, number: int, block: GoBlock) -> None:
        for seq in block.tombstones:
            self._tombstones.add(seq)
        self._edges[number] = _Edges(
            block.first_ordered_seq, block.last_ordered_seq, list(block.damage)
        )
        seq, timestamp_ns = self._highest
        if block.highest_seq > seq or (block.highest_seq == seq and not timestamp_ns):
            known_ns = block.highest_timestamp_ns
            self._highest = (block.highest_seq, 0 if known_ns == _NO_TIMESTAMP_NS else known_ns)

    def _plan(self, number: int, block: GoBlock, ceiling: int) -> None:
        first_seq = max(block.first_seq, self._stale.first_seq)
        last_seq = min(block.last_seq, ceiling)
        if block.last_seq > ceiling:
            overlap = DamagedBytes(0, 0, "sequences stand in a later block again", ceiling, ceiling)
            self._edges[number].damage.append(overlap)
        deleted = SequenceSet()
        for first, last in self._tombstones.ranges_between(first_seq, last_seq):
            deleted.add_range(first, last)
        builder = ColumnBuilder(payloads=False)
        sizes = block.fill(builder, first_seq, last_seq, flat_ranges(deleted, first_seq, last_seq))
        kept = self._retention.apply(builder.take(number), memoryview(sizes).cast("I"))
        self._report.limits_removed += len(kept.removed)
        if kept.messages:
            deleted.update(kept.removed)
            self._oldest = kept
            self.plans.append(
                BlockPlan(number, kept.messages, kept.bytes, first_seq, last_seq, deleted)
            )

    def _report_damage(self) -> None:
        # A neighbour without ordered records says nothing: the next one that has some does.
        after_seq = 0
        for number in self._blocks.numbers:
            edges = self._edges[number]
            if edges.damage:
                before_seq = self._first_after(number)
                self._report.damage_by_block[number] = [
                    self._locate(number, damaged, after_seq, before_seq) for damaged in edges.damage
                ]
            after_seq = edges.last_ordered_seq or after_seq

    def _first_after(self, number: int) -> int:
        for later in self._blocks.numbers:
            if later > number and self._edges[later].first_ordered_seq:
                return self._edges[later].first_ordered_seq
        return self._stale.last_seq + 1

    def _locate(
        self, number: int, damaged: DamagedBytes, after_seq: int, before_seq: int
    ) -> Damage:
        # Past the last record that is known, at least one may have stood.
        before_seq = max(before_seq, max(damaged.seq_before, after_seq) + 2)
        return locate_damage(
            number,
            damaged,
            after_seq=after_seq,
            before_seq=before_seq,
            removed=self._tombstones,
        )

    def state(self, config: Mapping[str, Any]) -> StreamState:
        """Add the plans up; a stale index and `first_seq` may know of higher sequences."""
        last_seq, last_timestamp_ns = self._highest
        if self._stale.last_seq > last_seq:
            last_seq, last_timestamp_ns = self._stale.last_seq, self._stale.last_timestamp_ns
        configured_first_seq = config.get("first_seq")
        if isinstance(configured_first_seq, int):
            last_seq = max(last_seq, configured_first_seq - 1)
        return StreamState(
            messages=sum(plan.messages for plan in self.plans),
            bytes=sum(plan.bytes for plan in self.plans),
            first_seq=self._oldest.first_seq or last_seq + 1,
            first_timestamp_ns=self._oldest.first_timestamp_ns,
            last_seq=last_seq,
            last_timestamp_ns=last_timestamp_ns,
        )
