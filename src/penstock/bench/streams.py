"""Streams for one run of a bench: made before it, removed behind it, under names of their own.

    with fresh_streams(plan, target) as made:
        crew.run(made, target)

What always holds: no stream but these is touched; a name and a subject that nobody else has are
chosen for each run. Called by the crew, outside of the time that is measured.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock import error_codes
from penstock.bench.plan import Kind, Plan, Target
from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, BenchFailed, NoAnswer
from penstock.limits import BENCH_WAIT_S

CREATE_TRIES = 5


@contextlib.contextmanager
def fresh_streams(plan: Plan, target: Target) -> Iterator[Plan]:
    """Give the plan with a subject of its own, whose streams are there for as long."""
    made = msgspec.structs.replace(plan, subject=f"{plan.subject}.{secrets.token_hex(4)}")
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
    # The reference server removes its folder behind the last stream that is deleted, maybe while
    # the next one is being made in it.
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


def as_filling(plan: Plan) -> Plan:
    """Give the plan that stores one message under each subject that `plan` asks for."""
    count = max(plan.spread, 1) * plan.streams
    return msgspec.structs.replace(
        plan,
        kind=Kind.JSPUB,
        messages=count,
        publishers=plan.streams,
        in_flight=min(count, 1_000),
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
        "subjects": [f"{subject}.*" if plan.spread else subject],
        "storage": str(plan.storage),
        "allow_direct": True,
    }
