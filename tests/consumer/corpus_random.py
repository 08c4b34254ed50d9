"""Requests for consumers made up at random: many things at once, right and wrong.

Where several things are wrong, both must tell of the same one first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.consumer.compared import HEARD, Case, Request, durable, named, unnamed

SECOND = 1_000_000_000

FIELDS: dict[str, tuple[Any, ...]] = {
    "description": ("d", "x" * 4097),
    "deliver_policy": ("all", "last", "new", "by_start_sequence", "last_per_subject"),
    "opt_start_seq": (0, 5),
    "opt_start_time": (None, "2026-01-02T03:04:05Z"),
    "ack_policy": ("none", "all", "explicit", "explicit", "flow_control"),
    "ack_wait": (-1, 0, SECOND),
    "max_deliver": (-2, -1, 0, 1, 3),
    "backoff": (None, [SECOND], [SECOND, 5], [-1]),
    "filter_subject": ("", "s.a", "s.*", "s..", "s.b"),
    "filter_subjects": (None, ["s.a"], ["s.a", "s.*"], ["s.b", "s.c"], [""]),
    "replay_policy": ("instant", "original"),
    "rate_limit_bps": (0, 1000),
    "sample_freq": ("", "50%", "x"),
    "max_waiting": (-1, 0, 5),
    "max_ack_pending": (-2, -1, 0, 5, 50),
    "flow_control": (False, True),
    "headers_only": (False, True),
    "max_batch": (-1, 0, 5),
    "max_expires": (-1, 0, 5, SECOND),
    "max_bytes": (-1, 0, 5),
    "deliver_subject": ("", "to", "to", HEARD, "s.a", "to.*", "to."),
    "deliver_group": ("", "g"),
    "idle_heartbeat": (-1, 0, 5, SECOND),
    "inactive_threshold": (-1, 0, SECOND, 90 * SECOND),
    "num_replicas": (-1, 0, 0, 1, 3),
    "mem_storage": (False, True),
    "direct": (False, False, True),
    "sourcing": (False, False, True),
    "metadata": ({}, {"a": "b"}, {"k": "x" * 131_073}),
    "priority_groups": (None, ["a"], ["a b"]),
    "priority_policy": ("none", "overflow", "pinned_client"),
    "priority_timeout": (-1, 0, SECOND),
    "pedantic": (False, True),
    "action": ("", "", "create", "update"),
}
STREAMS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"consumer_limits": {"max_ack_pending": 10, "inactive_threshold": 60 * SECOND}},
    {"max_consumers": 2},
)


def cases(count: int, seed: int) -> Iterator[Case]:
    """Make up cases; the same ones for the same seed."""
    chance = random.Random(seed)
    for _ in range(count):
        fields: dict[str, Any] = {}
        requests: list[Request] = []
        for _ in range(chance.randint(1, 4)):
            # Mostly what was asked for before with a change or two, so that changes get far.
            fields |= _some(chance, chance.choice((1, 1, 2, 5)))
            requests.append(_request(chance, fields))
        yield Case(tuple(requests), chance.choice(STREAMS))


def _some(chance: random.Random, count: int) -> dict[str, Any]:
    return {name: chance.choice(FIELDS[name]) for name in chance.sample(sorted(FIELDS), count)}


def _request(chance: random.Random, fields: dict[str, Any]) -> Request:
    name = chance.choice("AAB")
    match chance.randint(0, 9):
        case 0:
            return unnamed(**fields)
        case 1 | 2 | 3:
            return durable(name, **fields)
        case 4 | 5:
            return named(name, durable_name=name, **fields)
        case 6:
            return named(name, "s.a", **fields)
        case _:
            return named(name, **fields)
