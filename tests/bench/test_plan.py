"""A bench is cut into jobs that together do what was planned."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.plan import CONSUMED, Job, Kind, Plan, Role, Target
from penstock.client.credentials import Credentials
from penstock.errors import UsageError
from penstock.limits import BENCH_CLIENTS_MAX, BENCH_LAPS_MAX, BENCH_REQUESTS_MAX

TARGET = Target("nats://127.0.0.1:4222")

PLANS = st.builds(
    Plan,
    kind=st.sampled_from(Kind),
    messages=st.integers(50, 10_000),
    size_bytes=st.integers(0, 2_000_000),
    publishers=st.integers(1, 50),
    subscribers=st.integers(1, 50),
    stored=st.integers(50, 3_000),
    one_in=st.integers(1, 50),
)


@given(PLANS)
def test_the_publishers_share_all_messages_as_evenly_as_can_be(plan: Plan) -> None:
    shares = [job.messages for job in plan.jobs(TARGET) if job.role in (Role.PUBLISH, Role.REQUEST)]

    assert sum(shares) == (0 if plan.kind in {Kind.SUB, *CONSUMED} else plan.messages)
    assert not shares or max(shares) - min(shares) <= 1


@given(PLANS)
def test_those_who_listen_get_ready_before_those_who_publish(plan: Plan) -> None:
    roles = [job.role for job in plan.jobs(TARGET)]
    listening = [role in (Role.RECEIVE, Role.ANSWER) for role in roles]

    assert listening == sorted(listening, reverse=True)
    assert sum(listening) == (plan.subscribers if plan.has_listeners else 0)


@given(PLANS.filter(lambda plan: plan.kind in CONSUMED))
def test_those_who_consume_read_every_lap_from_consumers_that_have_as_many(plan: Plan) -> None:
    jobs = plan.jobs(TARGET)

    read: dict[str, int] = {}
    for job in jobs:
        for lap in job.laps:
            read[lap.consumer] = read.get(lap.consumer, 0) + lap.messages
    assert sum(read.values()) == plan.received == sum(job.messages for job in jobs)
    assert max(read.values()) <= plan.stored // plan.one_in
    # Pulling readers share a consumer; a reader that is pushed to has its own.
    assert len(read) == len(plan.laps) * (plan.subscribers if plan.kind is Kind.JSPUSH else 1)


@given(PLANS)
def test_reports_come_before_publishers_run_out_of_leave(plan: Plan) -> None:
    jobs = [job for job in plan.jobs(TARGET) if job.role is Role.RECEIVE]
    unreported = sum(job.piece - 1 for job in jobs) if plan.kind is Kind.QUEUE else plan.piece - 1

    assert unreported < plan.ahead


@pytest.mark.parametrize(
    ("kind", "received", "counted"),
    [
        (Kind.PUB, 0, 10),
        (Kind.SUB, 30, 30),
        (Kind.PUBSUB, 30, 30),
        (Kind.FANOUT, 30, 30),
        (Kind.QUEUE, 10, 10),
        (Kind.REQREP, 10, 10),
        (Kind.JSPUB, 10, 10),
        (Kind.JSGET, 10, 10),
        (Kind.JSFETCH, 10, 10),
        (Kind.JSPUSH, 30, 30),
    ],
)
def test_a_rate_is_of_what_arrives_or_else_of_what_is_published(
    kind: Kind, received: int, counted: int
) -> None:
    plan = Plan(kind, 10, 16, publishers=2, subscribers=3)

    assert (plan.received, plan.counted) == (received, counted)


GOOD = Plan(Kind.REQREP, 10, 16)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", 0),
        ("messages", BENCH_REQUESTS_MAX + 1),
        ("size_bytes", -1),
        ("size_bytes", 2**31),
        ("publishers", 0),
        ("publishers", 11),
        ("publishers", BENCH_CLIENTS_MAX + 1),
        ("subscribers", 0),
        ("in_flight", 0),
        ("streams", 0),
        ("spread", -1),
        ("spread", BENCH_REQUESTS_MAX + 1),
        ("subject", ""),
        ("subject", "a..b"),
        ("subject", "a.*"),
        ("subject", ">"),
        ("subject", "a b"),
        ("subject", "a\r\nPING"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(field: str, value: object) -> None:
    GOOD.check()

    with pytest.raises(UsageError):
        msgspec.structs.replace(GOOD, **{field: value}).check()


def test_subjects_whose_frames_a_publisher_could_not_keep_are_refused() -> None:
    large = Plan(Kind.PUBSUB, 10, 1_000_000, spread=250)
    large.check()

    with pytest.raises(UsageError, match="--subjects must be at most 268 "):
        msgspec.structs.replace(large, spread=269).check()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", 10 * BENCH_LAPS_MAX + 1),
        ("stored", 0),
        ("stored", 4),
        ("spread", 4),
        ("batch", 0),
        ("one_in", 0),
        ("one_in", 6),
    ],
)
def test_a_plan_that_reads_what_is_not_there_is_refused(field: str, value: object) -> None:
    good = Plan(Kind.JSFETCH, 10 * BENCH_LAPS_MAX, 16, stored=50, spread=5, one_in=5)
    good.check()

    with pytest.raises(UsageError):
        msgspec.structs.replace(good, **{field: value}).check()


def test_a_job_crosses_a_pipe_whole_and_shows_no_secret() -> None:
    target = Target("nats://u:s3cret@h", Credentials(token="t0ken", seed=b"s33d"))
    jobs = GOOD.jobs(target)

    assert [msgspec.json.decode(msgspec.json.encode(job), type=Job) for job in jobs] == jobs
    assert not any(word in repr(jobs) for word in ("s3cret", "t0ken", "s33d"))
