"""Streams of a bench, and their consumers: created before a run, removed after it.

    with fresh_streams(plan, target) as made:
        processes.run(made, target)

Streams that consumers read take longer to fill than to read, so they stay for the next run.

Invariant: no other stream is touched; each has a random name and subject. Called by `runs`, outside
of the measured time.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock import error_codes
from penstock.bench.plan import DRAIN, Ack, Counted, Kind, Plan, Target
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, BenchFailed, NoAnswer
from penstock.limits import BENCH_REQUESTS_MAX, BENCH_WAIT_S

CREATE_TRIES = 5
SECOND_NS = 10**9
ACK_PENDING_DEFAULT = 1_000
"""The servers' default for `max_ack_pending`."""


@contextlib.contextmanager
def fresh_streams(plan: Plan, target: Target) -> Iterator[Plan]:
    """Return the plan with a subject of its own; its streams exist while the block runs."""
    made = _with_own_subject(plan)
    names: list[str] = []
    try:
        with _told(plan), _client(target) as client:
            for place in range(plan.streams):
                config = _config(made, place)
                _create(JetStream(client), config)
                names.append(config["name"])
        yield made
    finally:
        with _told(plan), contextlib.suppress(OSError), _client(target) as client:
            for name in names:
                JetStream(client).call(f"STREAM.DELETE.{name}")


def _create(streams: JetStream, config: dict[str, Any]) -> None:
    # The reference server removes its folder after the last stream is deleted, maybe while the next
    # one is being created in it.
    for tries_left in reversed(range(CREATE_TRIES)):
        try:
            streams.call(f"STREAM.CREATE.{config['name']}", config)
        except ApiError as error:
            if error.err_code != error_codes.STREAM_CREATE.err_code or not tries_left:
                raise
        else:
            return


@contextlib.contextmanager
def _told(plan: Plan) -> Iterator[None]:
    try:
        yield
    except (ApiError, NoAnswer) as error:
        raise BenchFailed(plan.kind, str(error)) from None


def _with_own_subject(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, subject=f"{plan.subject}.{secrets.token_hex(4)}")


class FilledStreams:
    """Streams that are filled once and read by many runs; `fill` runs a plan that publishes."""

    def __init__(self, fill: Callable[[Plan, Target], object]) -> None:
        self._fill = fill
        self._known: dict[tuple[object, ...], Plan] = {}
        self._open = contextlib.ExitStack()

    def get(self, plan: Plan, target: Target) -> Plan:
        """Return the plan with the subject of a stream that holds what the plan reads."""
        shape = (target.url, plan.subject, plan.storage, plan.size_bytes, plan.spread)
        key = (*shape, plan.one_in, plan.stored, repr(plan.config))
        known = self._known.get(key)
        if known is None:
            known = self._open.enter_context(fresh_streams(plan, target))
            # Each pass uses every subject once, so that all have equally many messages.
            left = plan.stored
            while left:
                part = min(left, _whole_passes(plan))
                self._fill(as_filling(known, part), target)
                left -= part
            self._known[key] = known
        return msgspec.structs.replace(plan, subject=known.subject)

    def remove(self) -> None:
        """Remove all filled streams."""
        self._known.clear()
        self._open.close()


def _whole_passes(plan: Plan) -> int:
    each = max(plan.spread, 1)
    return BENCH_REQUESTS_MAX // each * each


@contextlib.contextmanager
def fresh_consumers(plan: Plan, target: Target) -> Iterator[None]:
    """Have the consumers that a run reads, while the block runs."""
    with _told(plan), _client(target) as client:
        streams = JetStream(client)
        stream = plan.stream_name(0)
        each_its_own = plan.kind is Kind.JSPUSH
        readers = range(plan.subscribers if each_its_own else 1)
        made = [(lap, place) for lap in range(len(plan.laps)) for place in readers]
        for lap, place in made:
            config = _consumer_config(plan, lap, place)
            asked = {"stream_name": stream, "config": config}
            streams.call(f"CONSUMER.CREATE.{stream}.{config['name']}", asked)
        yield
        for lap, place in made:
            streams.call(f"CONSUMER.DELETE.{stream}.{plan.consumer_name(lap, place)}")


def create_drain(plan: Plan, target: Target) -> None:
    """Have the consumer that reads what is published; it goes with the stream."""
    stream = plan.stream_name(0)
    config = {"name": DRAIN, "durable_name": DRAIN, "ack_policy": str(Ack.EXPLICIT)}
    with _told(plan), _client(target) as client:
        asked = {"stream_name": stream, "config": config}
        JetStream(client).call(f"CONSUMER.CREATE.{stream}.{DRAIN}", asked)


def _consumer_config(plan: Plan, lap: int, place: int) -> dict[str, Any]:
    name = plan.consumer_name(lap, place)
    config: dict[str, Any] = {"name": name, "ack_policy": str(plan.ack)}
    if plan.filter_subject:
        config["filter_subject"] = plan.filter_subject
    if plan.kind is Kind.JSFETCH:
        wanted = plan.subscribers * plan.in_flight * plan.batch
        pending = (
            {} if plan.ack is Ack.NONE else {"max_ack_pending": max(wanted, ACK_PENDING_DEFAULT)}
        )
        return config | pending | {"durable_name": name}
    # As clients configure ordered consumers.
    return config | {
        "deliver_subject": plan.deliver_subject(lap, place),
        "flow_control": True,
        "idle_heartbeat": 5 * SECOND_NS,
        "inactive_threshold": int(BENCH_WAIT_S) * SECOND_NS,
        "mem_storage": True,
        "max_deliver": 1 if plan.ack is Ack.NONE else -1,
    }


def as_filling(plan: Plan, count: int = 0) -> Plan:
    """Return the plan that stores `count` messages, or one under each subject of `plan`."""
    count = count or max(plan.spread, 1) * plan.streams
    return msgspec.structs.replace(
        plan,
        kind=Kind.JSPUB,
        messages=count,
        publishers=plan.streams,
        in_flight=min(count, 1_000),
        headers="",
        counted_header=Counted.NONE,
        drained=False,
    )


def _client(target: Target) -> Client:
    return Client.connect(
        target.url,
        credentials=target.credentials,
        tls=target.tls,
        name="penstock bench",
        timeout_s=BENCH_WAIT_S,
    )


def _config(plan: Plan, place: int) -> dict[str, Any]:
    subject = f"{plan.subject}.{place}"
    return {
        "name": plan.stream_name(place),
        "subjects": [f"{subject}.>" if plan.spread else subject],
        "storage": str(plan.storage),
        "allow_direct": True,
        **plan.config,
    }
