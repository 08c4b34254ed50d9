"""Requests that between them touch every field of a consumer's configuration.

Each field valid, at its edges, beyond them, and with those that it does not go with. Names, forms
of the subject, changes and work queues are in `corpus_requests`.
"""

from __future__ import annotations

from typing import Any

from tests.consumer.compared import HEARD, Case, alone, named

SECOND = 1_000_000_000
MS = 1_000_000
PUSH = {"deliver_subject": "to"}
EXPLICIT = {"ack_policy": "explicit"}


def _numbers() -> list[Case]:
    found: list[Case] = []
    for name in ("max_deliver", "max_waiting", "max_ack_pending", "max_batch", "max_bytes"):
        found += [
            alone(**{name: value})
            for value in (-2, -1, 0, 1, 100, 2**31, 2**63 - 1, 2**63, 1.5, "1", None, True)
        ]
        for value in (-2, -1, 0, 1):
            found.append(alone(**{name: value}, pedantic=True))
            found.append(alone(**{name: value}, **PUSH))
            found.append(alone(**{name: value}, **EXPLICIT))
            found.append(alone(**{name: value}, **PUSH, **EXPLICIT))
    found += [alone(num_replicas=count) for count in (-1, 0, 1, 2, 5, 6)]
    for retention in ("interest", "workqueue"):
        for count in (-1, 0, 1, 3):
            request = named(num_replicas=count, **EXPLICIT)
            found.append(Case((request,), {"retention": retention}))
    found += [alone(rate_limit_bps=rate, **PUSH) for rate in (0, 1, 2**64 - 1, 2**64, -1)]
    found += [alone(rate_limit_bps=1)]
    return found


def _durations() -> list[Case]:
    found: list[Case] = []
    names = (
        "ack_wait", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout",
    )  # fmt: skip
    for name in names:
        for value in (-1, 0, 1, MS - 1, MS, 99 * MS, 100 * MS, SECOND, 2**63 - 1, "1s"):
            found.append(alone(**{name: value}))
            found.append(alone(**{name: value}, **PUSH))
        found.append(alone(**{name: -1}, pedantic=True))
        found.append(alone(**{name: SECOND}, pedantic=True))
        found.append(alone(**{name: SECOND}, **EXPLICIT))
    return found


def _words() -> list[Case]:
    found: list[Case] = []
    for name, words in {
        "deliver_policy": (
            "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject",
            "undefined", "All", "", "bogus",
        ),
        "ack_policy": ("none", "all", "explicit", "flow_control", "Explicit", "", "bogus"),
        "replay_policy": ("instant", "original", "Instant", "", "bogus"),
        "priority_policy": (
            "none", "overflow", "pinned_client", "prioritized", "None", "", "bogus",
        ),
    }.items():  # fmt: skip
        others: tuple[Any, ...] = (None, 5, True, [], {"a": 1})
        for word in (*words, *others):
            found.append(alone(**{name: word}))
            found.append(alone(**{name: word}, **PUSH))
    found += [
        alone(action=action)
        for action in ("", "create", "update", "Create", "create_or_update", None, 5, ["create"])
    ]
    found += [alone(pedantic=value) for value in (False, None, 1)]
    return found


def _starts() -> list[Case]:
    time = "2026-01-02T03:04:05.678+02:00"
    found: list[Case] = []
    for policy in (
        "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject",
    ):  # fmt: skip
        for start in (
            {},
            {"opt_start_seq": 1},
            {"opt_start_seq": 0},
            {"opt_start_time": time},
            {"opt_start_time": None},
            {"opt_start_seq": 5, "opt_start_time": time},
            {"filter_subject": "s.a"},
            {"filter_subjects": ["s.a", "s.b"]},
            {"filter_subject": "s.a", "opt_start_seq": 5},
        ):
            found += [alone(deliver_policy=policy, **start)]
    times = ("2026-01-02T03:04:05Z", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "x", 5)
    found += [alone(deliver_policy="by_start_time", opt_start_time=each) for each in times]
    return found


def _waits() -> list[Case]:
    found: list[Case] = []
    for backoff in ([], [SECOND], [SECOND, 2 * SECOND], [0], [-1], [SECOND, -1], None, [None], 5):
        found.append(alone(backoff=backoff))
        found.append(alone(backoff=backoff, **EXPLICIT))
        found.append(alone(backoff=backoff, **EXPLICIT, pedantic=True))
        found.append(alone(backoff=backoff, **EXPLICIT, ack_wait=SECOND, pedantic=True))
        found += [alone(backoff=backoff, max_deliver=count, **EXPLICIT) for count in (-1, 1, 2, 3)]
    for policy in ("none", "all", "explicit"):
        for value in (-1, 0, 1, 5):
            found.append(alone(ack_policy=policy, max_ack_pending=value))
            found.append(alone(ack_policy=policy, ack_wait=value, **PUSH))
    return found


def _flow_control() -> list[Case]:
    found: list[Case] = []
    for fields in (
        {},
        PUSH,
        PUSH | {"flow_control": True},
        PUSH | {"flow_control": True, "idle_heartbeat": SECOND},
        PUSH | {"flow_control": True, "idle_heartbeat": SECOND, "max_ack_pending": 10},
        PUSH | {"flow_control": True, "idle_heartbeat": 2 * SECOND, "max_ack_pending": 10},
        PUSH | {"flow_control": True, "idle_heartbeat": SECOND, "max_ack_pending": -1},
        PUSH | {"flow_control": True, "idle_heartbeat": SECOND, "ack_wait": SECOND},
        PUSH | {"flow_control": True, "idle_heartbeat": SECOND, "backoff": [SECOND]},
        PUSH | {"flow_control": True, "idle_heartbeat": SECOND, "max_deliver": 5},
        PUSH | {"idle_heartbeat": 5 * SECOND},
        {"flow_control": True},
    ):
        for policy in ("none", "explicit", "flow_control"):
            found += [
                alone(**fields, ack_policy=policy, pedantic=pedantic) for pedantic in (False, True)
            ]
    return found


def _subjects() -> list[Case]:
    found: list[Case] = []
    subjects = (
        "to", "to.*", "to.>", ">", "*", "to.", ".to", "t o", "to..b", "s.a", "s", "s.>", "é", "",
        HEARD, "$JS.API.x", "to\t", "a*b", "a>",
    )  # fmt: skip
    found += [alone(deliver_subject=subject) for subject in subjects]
    found += [alone(filter_subject=subject) for subject in subjects]
    found += [alone(filter_subjects=[subject]) for subject in subjects]
    found += [alone(filter_subjects=["s.b", subject]) for subject in subjects]
    for several in (
        ["s.a", "s.a"], ["s.a", "s.b", "s.c"], ["s.*", "s.a"], ["s.a", "s.*"], ["s.>", "s.*"],
        ["a.*", "*.b"], ["s.*.b", "s.a.*"], [">", "s.a"], ["s.a", "x y"], ["x y", "s.a", "s.a"],
        ["s.a", "s.a", "x y"], ["s.*", "x.", "s.a"], [], [""], ["s.a", ""], None, "s.a", [5],
        ["*.*", "a.b"], ["s.*", "s.*"], ["a.>", "a"], ["a", "a.>"],
    ):  # fmt: skip
        found.append(alone(filter_subjects=several))
        found.append(alone(filter_subjects=several, filter_subject="s.z"))
    found += [alone(deliver_group=group, **PUSH) for group in ("g", "", "a b", "g.*")]
    found += [alone(deliver_group="g")]
    return found


def _flags() -> list[Case]:
    found: list[Case] = []
    for name in ("flow_control", "headers_only", "mem_storage", "direct", "sourcing"):
        for value in (True, False, None, 1):
            found.append(alone(**{name: value}))
            found.append(alone(**{name: value}, **PUSH))
        found.append(alone(**{name: True}, **PUSH, durable_name="C"))
        found.append(alone(**{name: True}, **PUSH, idle_heartbeat=SECOND))
        found.append(alone(**{name: True}, pedantic=True))
    found.append(alone(direct=True, sourcing=True, **PUSH))
    for retention in ("interest", "workqueue"):
        request = named(direct=True, sourcing=True, ack_wait=SECOND, max_deliver=5, **PUSH)
        from_five = {"deliver_policy": "by_start_sequence", "opt_start_seq": 5}
        moved = named(direct=True, sourcing=True, **PUSH, **from_five)
        found.append(Case((request, request, moved), {"retention": retention}))
    return found


def _texts() -> list[Case]:
    found: list[Case] = [alone(description=text) for text in ("d", "<&>", "x" * 4096, "x" * 4097)]
    found += [
        alone(sample_freq=text)
        for text in (
            "50", "50%", "%", "100%%", "x", "-1", "-1%", "-0", "+5", "1.5", " 5", "5 ", "1e3",
            "٣", "150%", '"', "9" * 18, "9223372036854775807", "9223372036854775808", "9" * 30,
            "9" * 30 + "x", "-9223372036854775808", "-9223372036854775809", "0" * 40 + "5", "+",
            "18446744073709551615x", "18446744073709551616x", "_1", "1_0",
        )
    ]  # fmt: skip
    found += [
        alone(metadata=metadata)
        for metadata in (
            {"a": "b"},
            {},
            None,
            {"b": "1", "a": "<>"},
            {"_nats.req.level": "9", "_nats.ver": "1", "_nats.level": "x", "own": "1"},
            {"a": 5},
            {"k": "x" * (128 * 1024 - 17)},
            {"k": "x" * (128 * 1024 - 1)},
            {"k": "x" * (128 * 1024)},
        )
    ]
    times = ("2030-01-02T03:04:05Z", "2030-01-02T03:04:05+02:00", "2020-01-01T00:00:00Z")
    found += [alone(pause_until=until) for until in (*times, "0001-01-01T00:00:00Z", None, "x", 5)]
    return found


def _priorities() -> list[Case]:
    found: list[Case] = []
    groups: tuple[Any, ...] = (
        None, [], [""], ["a"], ["a", "b"], ["x" * 16], ["x" * 17], ["a b"], ["a/_=-Z9"], ["é"],
        ["a\n"], ["a", ""], "a",
    )  # fmt: skip
    for policy in ("none", "overflow", "pinned_client", "prioritized"):
        found += [alone(priority_policy=policy, priority_groups=chosen) for chosen in groups]
        both = {"priority_policy": policy, "priority_groups": ["a"]}
        found.append(alone(**both, **PUSH))
        found += [alone(**both, priority_timeout=value) for value in (-1, 0, 1, SECOND)]
        found.append(alone(**both, priority_timeout=-1, pedantic=True))
        found.append(alone(**both, pedantic=True))
    return found


def _limits() -> list[Case]:
    found: list[Case] = []
    for limits in (
        {"max_ack_pending": 10},
        {"inactive_threshold": SECOND},
        {"max_ack_pending": 10, "inactive_threshold": 90 * SECOND},
    ):
        for fields in (
            {},
            EXPLICIT,
            {"max_ack_pending": 10},
            {"max_ack_pending": 11},
            {"max_ack_pending": -1},
            {"inactive_threshold": SECOND},
            {"inactive_threshold": 91 * SECOND},
            {"durable_name": "C"},
            PUSH,
            {"pedantic": True},
            EXPLICIT | {"max_ack_pending": 5, "inactive_threshold": SECOND, "pedantic": True},
            EXPLICIT | {"max_ack_pending": 5, "pedantic": True},
        ):
            found += [Case((named(**fields),), {"consumer_limits": limits})]
    return found


CASES: list[Case] = [
    *_numbers(),
    *_durations(),
    *_words(),
    *_starts(),
    *_waits(),
    *_flow_control(),
    *_subjects(),
    *_flags(),
    *_texts(),
    *_priorities(),
    *_limits(),
]
