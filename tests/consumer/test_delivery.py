"""A run of messages: the same ones, in the same order, as loading them one by one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.consumer.delivery import RUN_BYTES, RUN_COUNT, RUN_END, RUN_NOBODY, Courier
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
    """Somebody who listens to `to`, and a courier."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.replies: list[bytes] = []
        self.sublist = Sublist()
        self.courier = Courier(Hub(1), self.sublist, b"$JS.ACK.S.C.")
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
    ) -> int:
        return self.courier.run(
            store.outtake(),
            target,
            subjects,
            cursor=cursor,
            until=store.durable_seq,
            count_max=count_max,
            bytes_max=bytes_max,
            first_goes=first_goes,
            consumer_seq=self.pending.delivered_consumer_seq + 1,
            num_pending=store.count_pending(subjects, cursor),
            pending=self.pending,
            now_ns=5,
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
        place = receiving.courier.cursor

    assert outcome == RUN_END
    assert receiving.seen == one_by_one(store, subjects, cursor)
    assert len(receiving.pending) == len(receiving.seen)
    left = [int(reply.rpartition(b".")[2]) for reply in receiving.replies]
    assert left == list(range(len(left) - 1, -1, -1))


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
    assert receiving.courier.sent == 0
    assert receiving.run(store, bytes_max=50, first_goes=True) == RUN_BYTES
    assert receiving.courier.sent == 1
    assert receiving.courier.cursor == 2


def test_nothing_passes_where_nobody_listens() -> None:
    store = MemoryStore.create()
    store.store(b"a", b"", b"x")
    receiving = Receiving()

    assert receiving.run(store, target=b"elsewhere") == RUN_NOBODY
    assert receiving.courier.cursor == 1
    assert len(receiving.pending) == 0
