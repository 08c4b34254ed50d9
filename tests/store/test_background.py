"""Background work: in order, one job at a time, in threads that stores share."""

from __future__ import annotations

import threading

from penstock.limits import UPKEEP_THREADS_MAX
from penstock.store.threads import Background

PATIENCE_S = 30
"""Only a test that fails waits this long."""


def ignore(error: Exception) -> None:
    """For jobs that do not fail."""


def test_jobs_run_in_order_and_one_at_a_time() -> None:
    background = Background(failed=ignore)
    background.start()
    order: list[int] = []
    running = threading.Lock()

    def job(number: int) -> None:
        assert running.acquire(blocking=False)
        order.append(number)
        running.release()

    for number in range(200):
        background.submit(lambda number=number: job(number))  # type: ignore[misc]
    background.drain()

    assert order == list(range(200))


def test_a_job_that_is_queued_is_not_queued_again() -> None:
    background = Background(failed=ignore)
    background.start()
    began, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        began.set()
        assert go_on.wait(PATIENCE_S)

    def second() -> None:
        done.append("second")

    background.submit(first)
    assert began.wait(PATIENCE_S)
    for _ in range(5):
        background.submit(second)
    go_on.set()
    background.stop()

    assert done == ["second"]


def test_a_failure_is_told_and_the_next_job_runs() -> None:
    errors: list[Exception] = []
    background = Background(failed=errors.append)
    background.start()
    done: list[str] = []

    def fail() -> None:
        raise OSError("no")

    background.submit(fail)
    background.submit(lambda: done.append("next"))
    background.drain()

    assert [str(error) for error in errors] == ["no"]
    assert done == ["next"]


def test_a_job_may_ask_for_the_end_of_all_jobs() -> None:
    background = Background(failed=ignore)
    background.start()
    done: list[str] = []

    def job() -> None:
        background.drain()
        done.append("job")

    background.submit(job)
    background.drain()

    assert done == ["job"]


def test_without_a_start_jobs_run_at_once() -> None:
    background = Background(failed=ignore)
    threads: list[int] = []

    background.submit(lambda: threads.append(threading.get_ident()))

    assert threads == [threading.get_ident()]


def test_many_stores_share_few_threads() -> None:
    threads: set[int] = set()
    backgrounds = [Background(failed=ignore) for _ in range(50)]
    for background in backgrounds:
        background.start()
        background.submit(lambda: threads.add(threading.get_ident()))
    for background in backgrounds:
        background.stop()

    assert 1 <= len(threads) <= UPKEEP_THREADS_MAX
