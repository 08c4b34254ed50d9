"""A run of messages: the same ones, in the same order, as loading them one by one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consumer.delivery import RUN_BYTES, RUN_COUNT, RUN_END, RUN_NOBODY, MessageSender
from penstock.consumer.pending import Pending
from penstock.errors import RecordNotFound
from penstock.routing.hub import Hub, Service
from penstock.routing.sublist import Sublist, Subscription
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.subjects import SubjectFilter

HEADERS = b"NATS/1.0\r\nX: y\r\n\r\n"
Seen = tuple[bytes, bytes, bytes]
MESSAGES = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans(), st.integers(0, 900)), max_size=60
)


class Receiving:
    """Somebody who listens to `to`, and a sender."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.replies: list[bytes] = []
        self.sublist = Sublist()
        self.sender = MessageSender(Hub(1), self.sublist, b"$JS.ACK.S.C.")
        self.pending = Pending((1_000,))
        self.pending.start_at(1)
        self.sublist.insert(Subscription(Service(self._take), b"to", b"1"))

    def _take(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        self.seen.append((subject, headers, body))
        self.replies.append(reply or b"")

    def run(
        self,
        store: FileStore,
        subjects: SubjectFilter | None = None,
        *,
        cursor: int = 1,
        count_max: int = 1_000,
        bytes_max: int = -1,
        target: bytes = b"to",
        first_goes: bool = False,
        chosen: list[int] | None = None,
    ) -> int:
        pending = store.count_pending(subjects, cursor) if chosen is None else len(chosen)
        return self.sender.run(
            store.scanner(),
            target,
            subjects,
            cursor=cursor,
            until=store.durable_seq,
            count_max=count_max,
            bytes_max=bytes_max,
            first_goes=first_goes,
            consumer_seq=self.pending.delivered_consumer_seq + 1,
            num_pending=pending,
            pending=self.pending,
            now_ns=5,
            chosen=chosen,
        )


def one_by_one(store: FileStore, subjects: SubjectFilter | None, cursor: int) -> list[Seen]:
    found: list[Seen] = []
    try:
        while True:
            message = store.load_next(cursor, subjects)
            found.append((message.subject, message.headers, message.payload))
            cursor = message.seq + 1
    except RecordNotFound:
        return found


@given(
    messages=MESSAGES,
    removed=st.sets(st.integers(1, 60), max_size=20),
    patterns=st.sampled_from([(), (b"a",), (b"a", b"c"), (b"x",)]),
    cursor=st.integers(1, 70),
    batch=st.integers(1, 70),
)
@settings(max_examples=150, deadline=None)
def test_a_run_sends_what_loading_one_by_one_gives(
    messages: list[tuple[bytes, bool, int]],
    removed: set[int],
    patterns: tuple[bytes, ...],
    cursor: int,
    batch: int,
) -> None:
    subjects = SubjectFilter(list(patterns)) if patterns else None
    store = MemoryStore.create(StoreConfig(block_bytes=4096))
    for subject, with_headers, size in messages:
        store.store(subject, HEADERS if with_headers else b"", b"x" * size)
    for seq in removed:
        store.remove(seq)
    store.flush()
    receiving = Receiving()

    outcome, place = RUN_COUNT, cursor
    while outcome == RUN_COUNT:
        outcome = receiving.run(store, subjects, cursor=place, count_max=batch)
        place = receiving.sender.cursor

    assert outcome == RUN_END
    assert receiving.seen == one_by_one(store, subjects, cursor)
    assert len(receiving.pending) == len(receiving.seen)
    left = [int(reply.rpartition(b".")[2]) for reply in receiving.replies]
    assert left == list(range(len(left) - 1, -1, -1))


@given(
    messages=MESSAGES,
    removed=st.sets(st.integers(1, 60), max_size=20),
    wanted=st.sets(st.integers(1, 60)),
    batch=st.integers(1, 70),
)
@settings(max_examples=150, deadline=None)
def test_a_run_of_chosen_messages_sends_those_that_are_left_in_their_order(
    messages: list[tuple[bytes, bool, int]], removed: set[int], wanted: set[int], batch: int
) -> None:
    store = MemoryStore.create(StoreConfig(block_bytes=4096))
    for subject, with_headers, size in messages:
        store.store(subject, HEADERS if with_headers else b"", b"x" * size)
    for seq in removed:
        store.remove(seq)
    store.flush()
    receiving = Receiving()
    chosen = sorted((seq for seq in wanted if seq <= len(messages)), reverse=True)
    left = [seq for seq in reversed(chosen) if seq not in removed]
    expected = [store.load(seq) for seq in left]

    while receiving.run(store, cursor=1, count_max=batch, chosen=chosen) == RUN_COUNT:
        assert len(receiving.seen) <= len(expected)

    assert chosen == []
    assert receiving.seen == [(each.subject, each.headers, each.payload) for each in expected]
    replies = [reply.split(b".") for reply in receiving.replies]
    assert [int(parts[5]) for parts in replies] == left
    if not removed & wanted:
        assert [int(parts[8]) for parts in replies] == list(range(len(left) - 1, -1, -1))


def test_a_chosen_message_that_nobody_takes_or_that_is_not_durable_stays_chosen(
    tmp_path: Path,
) -> None:
    store = FileStore.open(str(tmp_path / "s"), threaded=False)
    for number in range(3):
        store.store(b"a", b"", b"%d" % number)
    store.flush()
    store.store(b"a", b"", b"not durable")
    receiving = Receiving()
    chosen = [4, 3, 1]

    assert receiving.run(store, target=b"nobody", chosen=chosen) == RUN_NOBODY
    assert chosen == [4, 3, 1]
    assert receiving.run(store, bytes_max=1, chosen=chosen) == RUN_BYTES
    assert chosen == [4, 3, 1]
    assert receiving.run(store, chosen=chosen) == RUN_END
    assert chosen == [4]
    assert [body for _, _, body in receiving.seen] == [b"0", b"2"]
    store.stop()


def test_a_run_reads_sealed_and_growing_blocks_of_a_file(tmp_path: Path) -> None:
    store = FileStore.open(str(tmp_path / "s"), StoreConfig(block_bytes=4096))
    receiving = Receiving()
    for number in range(200):
        store.store(b"a", b"", b"%d" % number * 20)
        if number % 50 == 49:
            store.flush()
            receiving.run(store, cursor=receiving.pending.delivered_stream_seq + 1)

    assert receiving.seen == one_by_one(store, None, 1)
    store.stop()


def test_a_run_ends_where_the_bytes_do() -> None:
    store = MemoryStore.create()
    for _ in range(3):
        store.store(b"a", b"", b"x" * 100)
    receiving = Receiving()

    assert receiving.run(store, bytes_max=50) == RUN_BYTES
    assert receiving.sender.sent == 0
    assert receiving.run(store, bytes_max=50, first_goes=True) == RUN_BYTES
    assert receiving.sender.sent == 1
    assert receiving.sender.cursor == 2


def test_nothing_passes_where_nobody_listens() -> None:
    store = MemoryStore.create()
    store.store(b"a", b"", b"x")
    receiving = Receiving()

    assert receiving.run(store, target=b"elsewhere") == RUN_NOBODY
    assert receiving.sender.cursor == 1
    assert len(receiving.pending) == 0


NUMBERS = st.integers(0, 2**64 - 1) | st.sampled_from(
    [number for power in range(1, 20) for number in (10**power - 1, 10**power)]
)


@given(
    deliveries=NUMBERS,
    stream_seq=NUMBERS,
    consumer_seq=NUMBERS,
    time_ns=st.integers(0, 2**63 - 1),
    pending=NUMBERS,
)
def test_a_reply_has_its_numbers_in_full(
    deliveries: int, stream_seq: int, consumer_seq: int, time_ns: int, pending: int
) -> None:
    numbers = (deliveries, stream_seq, consumer_seq, time_ns, pending)

    reply = Receiving().sender.reply_to(*numbers)

    assert reply == b"$JS.ACK.S.C." + ".".join(map(str, numbers)).encode()


def test_several_targets_are_sent_one_message_each_in_turn() -> None:
    store = MemoryStore.create()
    for number in range(7):
        store.store(b"a", b"", b"%d" % number)
    sublist = Sublist()
    seen: dict[bytes, list[bytes]] = {b"to.1": [], b"to.2": [], b"to.3": []}

    def listen(target: bytes) -> None:
        def take(subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
            seen[target].append(body)

        sublist.insert(Subscription(Service(take), target, b"1"))

    def run(cursor: int, count_max: int) -> int:
        return sender.run(
            scanner,
            b"to.1",
            None,
            cursor=cursor,
            until=store.durable_seq,
            count_max=count_max,
            bytes_max=-1,
            first_goes=False,
            consumer_seq=cursor,
            num_pending=8 - cursor,
            pending=pending,
            now_ns=1,
            targets=list(seen),
        )

    sender, scanner, pending = MessageSender(Hub(1), sublist, b"R."), store.scanner(), Pending((1,))
    for target in (b"to.1", b"to.2"):
        listen(target)

    # The third has nobody: its turn ends the run, and what it would have had stays.
    assert run(1, 6) == RUN_NOBODY
    assert (sender.sent, sender.cursor) == (2, 3)
    listen(b"to.3")
    assert run(3, 4) == RUN_COUNT
    assert seen == {b"to.1": [b"0", b"2", b"5"], b"to.2": [b"1", b"3"], b"to.3": [b"4"]}
    assert len(pending) == 6
