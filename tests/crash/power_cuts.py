"""Streams that lose power: a file system that is cut off at a chosen call, and what must hold then.

A `Life` is one random sequence of operations on a store. What was durable when the power went is
known to it, and so is what was under way; `check` holds the reopened store against both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from penstock.errors import RecordNotFound, StoreError
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import TEMPORARY_SUFFIX
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, Operation
from penstock.testing.filesystem import MemoryFileSystem

PATH = "/data/stream"
KEY = StoreKey(b"the key of the crash tests")
SUBJECTS = [b"a", b"b.1", b"b.2", b"c.x.y"]

Content = tuple[bytes, bytes, bytes]
"""(subject, headers, payload)"""


class PowerCut(FaultyFileSystem):
    """A memory file system whose power goes at the n-th call; `survivor` is found afterwards."""

    def __init__(self, disk: MemoryFileSystem, at_call: int, keep: Random | None) -> None:
        super().__init__(disk)
        self.calls = 0
        self.survivor: MemoryFileSystem | None = None
        self._disk = disk
        self._at_call = at_call
        self._keep = keep

    def note(self, operation: Operation, path: str) -> FaultPlan | None:
        self.calls += 1
        if self.calls == self._at_call:
            self.cut()
        return super().note(operation, path)

    def cut(self) -> MemoryFileSystem:
        """Cut the power now, if it has not gone yet."""
        if self.survivor is None:
            self.survivor = self._disk.crash(self._keep)
        return self.survivor


def content_of(store: FileStore) -> dict[int, Content]:
    """Return every live message."""
    found: dict[int, Content] = {}
    seq = 0
    while True:
        try:
            message = store.load_next(seq + 1)
        except RecordNotFound:
            return found
        seq = message.seq
        found[seq] = (message.subject, message.headers, message.payload)


def check_numbers(store: FileStore, content: dict[int, Content]) -> None:
    """Hold the store's numbers against its messages."""
    state = store.state()
    assert state.messages == len(content)
    assert state.bytes == sum(
        30 + len(subject) + len(payload) + (4 + len(headers) if headers else 0)
        for subject, headers, payload in content.values()
    )
    assert state.last_seq >= max(content, default=0)
    assert state.first_seq == (min(content) if content else state.last_seq + 1)
    totals: dict[bytes, int] = {}
    for subject, _, _ in content.values():
        totals[subject] = totals.get(subject, 0) + 1
    assert store.subjects_totals(SubjectFilter([])) == totals


def random_config(random: Random) -> StoreConfig:
    return StoreConfig(
        name="crash",
        block_bytes=4096,
        max_msgs=random.choice((0, 0, 25)),
        max_msgs_per_subject=random.choice((0, 0, 1, 4)),
        compression=random.choice((Compression.NONE, Compression.NONE, Compression.SNAPPY)),
        cipher=random.choice((Cipher.NONE, Cipher.NONE, Cipher.CHACHA20_POLY1305)),
    )


@dataclass
class Life:
    """A store in use, and what is known of it; see the module."""

    random: Random
    disk: MemoryFileSystem
    config: StoreConfig
    at_call: int = 0
    keep: Random | None = None
    durable: dict[int, Content] = field(default_factory=dict)
    durable_seq: int = 0
    added: dict[int, Content] = field(default_factory=dict)
    """Stored since, or being stored."""

    removed: set[int] = field(default_factory=set)
    """Removed since by their sequences, or being removed."""

    may_forget: bool = False
    """Sequences may go back: a truncation or a reset is under way."""

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.files = PowerCut(self.disk, self.at_call, self.keep)

    def open(self) -> FileStore:
        return open_store(self.files, self.config, self.clock, self.random)

    def run(self, operations: int) -> MemoryFileSystem:
        """Live until the power goes; give what is found afterwards."""
        try:
            self.store = self.open()
            self._settle()
            for _ in range(operations):
                self.clock.advance_ms(self.random.randint(0, 5))
                self.random.choices(*zip(*_OPERATIONS, strict=True))[0](self)
        except (OSError, StoreError):
            assert self.files.survivor is not None, "nothing but a power cut may fail"
        return self.files.cut()

    def _settle(self) -> None:
        """All that was done is durable from here on."""
        self.durable = content_of(self.store)
        self.durable_seq = self.store.state().last_seq
        self.added, self.removed, self.may_forget = {}, set(), False

    def _message(self) -> Content:
        size = self.random.choice((0, 10, 100, 700, 1500))
        headers = b"NATS/1.0\r\nA: b\r\n\r\n" if self.random.random() < 0.3 else b""
        return self.random.choice(SUBJECTS), headers, self.random.randbytes(size)

    def _next_seq(self) -> int:
        return self.store.state().last_seq + 1

    def _some_seq(self) -> int:
        state = self.store.state()
        return self.random.randint(max(state.first_seq - 1, 1), state.last_seq + 1)

    # What is done. What may come of it is noted first.

    def do_store(self) -> None:
        message = self._message()
        self.added[self._next_seq()] = message
        self.store.store(*message)

    def do_store_batch(self) -> None:
        messages = [self._message() for _ in range(self.random.randint(1, 8))]
        self.added.update(enumerate(messages, self._next_seq()))
        self.store.store_batch(messages)

    def do_store_raw(self) -> None:
        message = self._message()
        seq = self._next_seq() + self.random.randint(0, 3)
        self.added[seq] = message
        self.store.store_raw(*message, seq=seq, timestamp_ns=self.clock.now_ns())

    def do_skip(self) -> None:
        self.store.skip(self.random.choice((1, 3, 1000)))

    def do_remove(self) -> None:
        seq = self._some_seq()
        self.removed.add(seq)
        self.store.remove(seq)

    def do_erase(self) -> None:
        seq = self._some_seq()
        self.removed.add(seq)
        if self.store.erase(seq):
            self._settle()

    def do_purge(self) -> None:
        subjects = SubjectFilter([self.random.choice(SUBJECTS)])
        keep = self.random.choice((0, 2))
        state = self.store.state()
        below = self.random.choice((0, self._some_seq()))
        kind = self.random.randrange(3)
        self.removed.update(range(state.first_seq, state.last_seq + 1))
        if kind == 0:
            self.store.purge(subjects, keep=keep)
        elif kind == 1:
            self.store.purge(seq=below)
        else:
            self.store.compact(self._some_seq() + self.random.choice((0, 5)))
        self._settle()

    def do_truncate(self) -> None:
        seq = self._some_seq()
        self.removed.update(range(seq + 1, self._next_seq()))
        self.may_forget = True
        try:
            self.store.truncate(seq)
        except RecordNotFound:
            return
        self._settle()

    def do_reset(self) -> None:
        self.removed.update(range(self._next_seq()))
        self.may_forget = True
        self.store.reset()
        self._settle()

    def do_flush(self) -> None:
        self.store.flush()
        self._settle()

    def do_reclaim(self) -> None:
        self.store.reclaim()
        self._settle()

    def do_checkpoint(self) -> None:
        self.store.checkpoint()
        self._settle()

    def do_stop(self) -> None:
        self.store.stop()
        self.store = self.open()
        self._settle()

    # What must hold afterwards.

    def check(self, store: FileStore) -> dict[int, Content]:
        """Hold a reopened store against what is known; give its messages."""
        content = content_of(store)
        check_numbers(store, content)
        assert store.report.damage == []
        for seq, message in content.items():
            assert message in (self.durable.get(seq), self.added.get(seq)), seq
        for seq in self.durable.keys() - content.keys() - self.removed:
            assert self._gave_way(seq, content), f"{seq} is lost"
        if not self.may_forget:
            assert store.state().last_seq >= self.durable_seq
        return content

    def _gave_way(self, seq: int, content: dict[int, Content]) -> bool:
        """Return True if a limit may have removed a message: others must be there in its place."""
        config, subject = self.config, self.durable[seq][0]
        # A newer one may have made way for the old one's removal and then have been removed itself.
        known = self.durable | self.added
        came = content | {other: known[other] for other in self.removed & known.keys()}
        newer = [other for other in came if came[other][0] == subject and other > seq]
        if 0 < config.max_msgs_per_subject <= len(newer):
            return True
        return config.max_msgs > 0 and (len(content) >= config.max_msgs or bool(self.removed))


_OPERATIONS: list[tuple[Callable[[Life], None], int]] = [
    (Life.do_store, 20),
    (Life.do_store_batch, 10),
    (Life.do_store_raw, 3),
    (Life.do_skip, 2),
    (Life.do_remove, 10),
    (Life.do_erase, 3),
    (Life.do_purge, 2),
    (Life.do_truncate, 2),
    (Life.do_reset, 1),
    (Life.do_flush, 8),
    (Life.do_reclaim, 3),
    (Life.do_checkpoint, 2),
    (Life.do_stop, 3),
]


def open_store(
    files: MemoryFileSystem | FaultyFileSystem,
    config: StoreConfig,
    clock: FakeClock,
    random: Random,
) -> FileStore:
    """Open the stream of these tests without threads."""
    return FileStore.open(
        PATH,
        config,
        files=files,
        clock=clock,
        random_bytes=random.randbytes,
        key=KEY,
        threaded=False,
    )


def calls_of_a_life(seed: int, operations: int) -> int:
    """Return how many calls the file system gets where the power stays."""
    random = Random(seed)
    life = Life(random, MemoryFileSystem(), random_config(random))
    life.run(operations)
    return life.files.calls


def survive(seed: int, operations: int = 60) -> None:
    """Live, lose the power somewhere, recover, lose it again meanwhile, recover for good."""
    dice = Random(f"cut {seed}")
    at_call = dice.randint(1, calls_of_a_life(seed, operations))
    random = Random(seed)
    disk = MemoryFileSystem()
    config = random_config(random)
    keep = dice.choice((None, Random(seed), Random(seed)))
    life = Life(random, disk, config, at_call, keep)
    found = life.run(operations)
    recovered = _recover_with_interruptions(life, found, dice)
    store = open_store(recovered, config, life.clock, random)
    content = life.check(store)
    _check_that_it_is_durable(life, recovered, content)
    seq, _ = store.store(b"after", b"", b"the cut")
    assert seq > max(content, default=0)
    store.stop()
    again = open_store(recovered, config, life.clock, random)
    after = content_of(again)
    assert after[seq] == (b"after", b"", b"the cut")
    check_numbers(again, after)
    assert again.report.clean
    assert not [name for name in recovered.list_names(PATH) if name.endswith(TEMPORARY_SUFFIX)]


def _recover_with_interruptions(
    life: Life, found: MemoryFileSystem, dice: Random
) -> MemoryFileSystem:
    """Cut the power once or twice more while the store is being opened."""
    for _ in range(dice.randint(0, 2)):
        keep = Random(dice.random()) if dice.random() < 0.7 else None
        files = PowerCut(found, dice.randint(1, 60), keep)
        try:
            life.check(open_store(files, life.config, life.clock, life.random))
        except (OSError, StoreError):
            assert files.survivor is not None
        found = files.cut()
    return found


def _check_that_it_is_durable(
    life: Life, disk: MemoryFileSystem, content: dict[int, Content]
) -> None:
    """What recovery took over would survive a power cut right after it."""
    config = replace(life.config, max_msgs=0, max_msgs_per_subject=0)
    store = open_store(disk.survivor(), config, life.clock, life.random)
    assert content_of(store) == content
    assert store.report.damage == []
