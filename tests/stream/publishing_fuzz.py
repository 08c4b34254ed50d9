"""Random cases for the comparison with the real server: any headers on any stream."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.stream.published import Case, Publish

SUBJECTS = ("s.a", "s.b", "s.c.d")
SWITCHES = (
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_msg_counter",
    "allow_atomic",
    "allow_batched",
    "allow_msg_schedules",
)
VALUES: dict[str, tuple[str, ...]] = {
    "Nats-Msg-Id": ("1", "2", "3", "4", ""),
    "Nats-Expected-Stream": ("S", "S", "S", "T"),
    "Nats-Expected-Last-Sequence": ("0", "1", "2", "3", "4", "5", "x"),
    "Nats-Expected-Last-Subject-Sequence": ("0", "1", "2", "3", "4", "5"),
    "Nats-Expected-Last-Subject-Sequence-Subject": SUBJECTS,
    "Nats-Expected-Last-Msg-Id": ("1", "2", "3"),
    "Nats-Rollup": ("sub", "all", "x"),
    "Nats-TTL": ("1h", "never", "7200", "x", "1ms"),
    "Nats-Incr": ("1", "-5", "x", "99999999999999999999"),
    "Nats-Stream-Source": ("S 1",),
    "Nats-Schedule": ("@at 2099-01-01T00:00:00Z", "@every 1h", "x"),
    "Nats-Schedule-Target": SUBJECTS,
    "Nats-Schedule-Time-Zone": ("UTC", "x"),
    "Nats-Scheduler": SUBJECTS,
    "Nats-Schedule-Next": ("purge", "x"),
    "Nats-Request-Info": ("{}",),
    "Nats-Required-Api-Level": ("1", "99"),
    "Own": ("x", ""),
}
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"max_msgs": 3},
    {"max_msgs": 3, "discard": "new"},
    {"max_bytes": 600, "discard": "new"},
    {"max_msgs_per_subject": 1},
    {"max_msgs_per_subject": 2, "discard": "new", "discard_new_per_subject": True},
    {"max_msg_size": 120},
    {"deny_purge": True},
    {"subject_transform": {"src": "s.*", "dest": "t.{{wildcard(1)}}"}},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"republish": {"src": "s.>", "dest": "r.>"}},
    {"republish": {"src": "s.*", "dest": "r.{{wildcard(1)}}", "headers_only": True}},
    {"max_msgs_per_subject": 2, "discard": "new", "max_bytes": 2000},
    {"max_msgs_per_subject": 1, "subject_delete_marker_ttl": 10_000_000_000_000},
)


class Publisher:
    """Invents messages, some of them in batches that continue."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._atomic = 0
        self._fast = 0

    def next(self) -> Publish:
        random = self._random
        names = random.sample(sorted(VALUES), random.choice((0, 0, 1, 1, 2, 3)))
        headers = {name: random.choice(VALUES[name]) for name in names}
        body = random.choice((b"", b"", b"x", b"x" * 100))
        reply = None
        kind = random.random()
        if kind < 0.25:
            headers |= self._member()
        elif kind < 0.45:
            reply = self._fast_reply()
        return Publish(random.choice(SUBJECTS), body, headers, reply)

    def _member(self) -> dict[str, str]:
        self._atomic = self._random.choice((self._atomic + 1,) * 8 + (1, self._atomic + 2))
        headers = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(self._atomic)}
        if self._random.random() < 0.3:
            headers["Nats-Batch-Commit"] = self._random.choice(("1", "1", "eob", "x"))
            self._atomic = 0
        return headers

    def _fast_reply(self) -> str:
        self._fast = self._random.choice((self._fast + 1,) * 8 + (1, self._fast + 2))
        operation = self._random.choice((1, 1, 1, 1, 2, 3, 4)) if self._fast > 1 else 0
        gaps = "ok" if self._random.random() < 0.3 else "fail"
        reply = f"_IN.fast.f.3.{gaps}.{self._fast}.{operation}.$FI"
        if operation in (2, 3):
            self._fast = 0
        return reply


def random_case(seed: int) -> Case:
    """Return a random case; the same for the same seed."""
    random = Random(seed)
    config: dict[str, Any] = {"name": "S", "subjects": ["s.>"], **random.choice(LIMITS)}
    for name in SWITCHES:
        if random.random() < 0.5:
            config[name] = True
    if "deny_purge" in config:
        config["allow_rollup_hdrs"] = False
    if config.get("discard") == "new" or config.get("allow_msg_counter"):
        config.pop("allow_msg_schedules", None)
    if config.get("allow_msg_counter"):
        config.pop("retention", None)
        config["discard"] = "old"
        config.pop("discard_new_per_subject", None)
        config.pop("allow_msg_ttl", None)
    if random.random() < 0.5:
        config["storage"] = "memory"
    publisher = Publisher(random)
    return Case(f"seed {seed}", config, tuple(publisher.next() for _ in range(40)))
