"""Many threads at one store: writers, readers, removers and all upkeep at once; none hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from penstock.errors import RecordNotFound, StoreReadOnly
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter

CONFIG = StoreConfig(block_bytes=16 * 1024, max_msgs_per_subject=200)
JOIN_SECONDS = 60
"""Nothing here takes this long: a thread that is not done by then waits for ever."""


class Crowd:
    """Threads that work until they were told to stop; their errors are kept."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._enough = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, job: Callable[[Random], object], *, rounds: int | None = None) -> None:
        """Have a thread do a job again and again, or so many times."""
        random = Random(len(self._threads))

        def work() -> None:
            done = 0
            try:
                while not self._enough.is_set() and done != rounds:
                    job(random)
                    done += 1
            except BaseException as error:  # noqa: BLE001  # whatever it is, the test shows it
                self.errors.append(error)

        self._threads.append(threading.Thread(target=work, daemon=True))

    def run(self, leaders: int) -> None:
        """Start all; when the first `leaders` are done, so are the rest."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads[:leaders]:
            thread.join(JOIN_SECONDS)
        self._enough.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
            assert not thread.is_alive(), f"{thread.name} hangs"
        assert self.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("interval_ns", [0, 2_000_000])
def test_everything_at_once_ends_and_leaves_a_whole_store(tmp_path: Path, interval_ns: int) -> None:
    config = StoreConfig(
        block_bytes=CONFIG.block_bytes,
        max_msgs_per_subject=CONFIG.max_msgs_per_subject,
        sync_interval_ns=interval_ns,
    )
    durable: list[int] = []
    store = FileStore.open(str(tmp_path / "store"), config, on_durable=durable.append)

    def write(random: Random) -> None:
        store.store(b"s.%d" % random.randrange(20), b"", random.randbytes(100))

    def write_batch(random: Random) -> None:
        store.store_batch([(b"s.%d" % number, b"", b"x" * 50) for number in range(20)])
        store.flush()

    def read(random: Random) -> None:
        state = store.state()
        try:
            found = store.load_next(random.randint(1, state.last_seq + 1))
        except RecordNotFound:
            return
        assert found.payload is not None
        store.load_last(found.subject)

    def remove(random: Random) -> None:
        state = store.state()
        seq = random.randint(state.first_seq, state.last_seq + 1)
        random.choice((store.remove, store.remove, store.erase))(seq)

    def keep_up(random: Random) -> None:
        upkeep: list[Callable[[], object]] = [
            store.checkpoint,
            store.reclaim,
            lambda: (store.expire(), store.flush()),
            lambda: store.purge(SubjectFilter([b"s.3"]), keep=5),
            lambda: store.compact(store.state().first_seq + 50),
            lambda: store.count_pending(None, store.state().first_seq),
        ]
        random.choice(upkeep)()

    crowd = Crowd()
    crowd.add(write, rounds=3000)
    crowd.add(write_batch, rounds=150)
    for job in (read, remove, keep_up, keep_up):
        crowd.add(job)
    crowd.run(leaders=2)
    state = store.state()
    store.stop()

    assert durable == sorted(durable)
    with FileStore.open(str(tmp_path / "store"), config, threaded=False) as again:
        assert again.report.clean, again.report
        assert again.state() == state


@pytest.mark.slow
def test_truncations_and_resets_among_writers_end_and_leave_a_whole_store(tmp_path: Path) -> None:
    store = FileStore.open(str(tmp_path / "store"), CONFIG)

    def write(random: Random) -> None:
        store.store(b"s.%d" % random.randrange(20), b"", random.randbytes(100))

    def cut(random: Random) -> None:
        state = store.state()
        try:
            store.truncate(random.randint(state.first_seq, state.last_seq + 1))
        except RecordNotFound:
            return

    crowd = Crowd()
    crowd.add(write, rounds=4000)
    crowd.add(write, rounds=4000)
    crowd.add(cut)
    crowd.add(lambda _: store.flush())
    crowd.add(lambda _: store.checkpoint())
    crowd.add(lambda random: store.reset() if random.random() < 0.1 else store.reclaim())
    crowd.run(leaders=2)
    store.flush()
    state = store.state()
    store.stop()

    with FileStore.open(str(tmp_path / "store"), CONFIG, threaded=False) as again:
        assert again.report.clean, again.report
        assert again.state() == state


def test_an_error_in_a_durable_callback_is_told_and_hangs_no_thread(tmp_path: Path) -> None:
    def refuse(seq: int) -> None:
        raise RuntimeError(f"cannot take {seq}")

    store = FileStore.open(str(tmp_path / "store"), on_durable=refuse)
    store.store(b"a", b"", b"x")

    # It is raised here, or in the thread that commits: the store tells of it in either case.
    with pytest.raises((RuntimeError, StoreReadOnly), match="cannot take 1"):
        store.flush()
    assert "cannot take 1" in (store.failure or "")
    store.stop()
