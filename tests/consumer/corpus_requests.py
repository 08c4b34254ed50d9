"""Requests for consumers by form and name, for changes, and in work queues."""

from __future__ import annotations

from typing import Any

from penstock.consumer.config.create import Address, Form
from tests.consumer.compared import HEARD, Case, Request, changed, durable, named, unnamed

SECOND = 1_000_000_000
EXPLICIT = {"ack_policy": "explicit"}
QUEUE = {"retention": "workqueue"}


def _forms() -> list[Case]:
    requests: list[Request] = [
        unnamed(),
        unnamed(name="N"),
        unnamed(durable_name="D"),
        unnamed(name="a/b"),
        unnamed(name="a.b"),
        unnamed(filter_subject="s.a"),
        named(),
        named(name="other"),
        named(durable_name="C"),
        named(durable_name="D"),
        named(name="C", durable_name="C"),
        named("C", "s.a"),
        named("C", "s.a", filter_subject="s.a"),
        named("C", "s.a", filter_subject="s.b"),
        named("C", "s.a", filter_subjects=["s.a"]),
        named("C", "s.a.b.c", filter_subject="s.a.b.c"),
        named("C", filter_subject="s.b"),
        durable(),
        durable(name="D"),
        durable(name="other"),
        durable(durable_name=""),
        durable(durable_name="E"),
        durable(filter_subject="s.a"),
        durable(num_replicas=3),
    ]
    bodies = (b"", b"{}", b"[]", b"x", b"null", b'{"stream_name":"T"}')
    requests += [Request(Address(Form.NAMED, "S", "C"), body) for body in bodies]
    requests += [Request(Address(Form.NAMED, "T", "C"), body) for body in bodies[:-1]]
    missing = b'{"stream_name":"S","config":null,"extra":1}'
    requests.append(Request(Address(Form.NAMED, "S", "C"), missing))
    requests.append(Request(Address(Form.DURABLE, "T", "C"), b'{"stream_name":"S"}'))
    return [Case((request,)) for request in requests]


def _names() -> list[Case]:
    found: list[Case] = []
    names = ("a-b_c", "é", "$x", "a=b", "a\\b", "a/b", "a*b", "a>b", "x" * 200, "x" * 255)
    for name in names:
        found += [Case((named(name),)), Case((durable(name),))]
        found += [Case((named(name, durable_name=name),)), Case((unnamed(name=name),))]
    found += [Case((unnamed(name=name),)) for name in ("a b", "a\tb", "a\nb", "*", ">")]
    found += [Case((durable("x" * 256),)), Case((named("x" * 256, durable_name="x" * 256),))]
    found += [Case((named(**fields),)) for fields in ({"name": "a b"}, {"durable_name": "a b"})]
    return found


def _again() -> list[Case]:
    found: list[Case] = []
    for fields in (
        {},
        {"durable_name": "C"},
        {"inactive_threshold": 5 * SECOND},
        {"inactive_threshold": SECOND} | EXPLICIT,
        {"metadata": {"a": "b"}, "durable_name": "C"},
    ):
        for action in ("", "create", "update"):
            found.append(Case((named(**fields), named(**fields, action=action))))
            different = fields | {"description": "different"}
            found.append(Case((named(**fields), named(**different, action=action))))
    found += [Case((named(action="update"), named(action="create"), named(action="create")))]
    found += [Case((named(durable_name="C"), named(), named(description="still"), named()))]
    found += [Case((named(), named(durable_name="C")))]
    found += [Case((durable(), durable())), Case((durable(), named("D", durable_name="D")))]
    found += [Case((named("N"), unnamed(name="N"))), Case((unnamed(name="N"), unnamed(name="N")))]
    paused = {"pause_until": "2030-01-02T03:04:05+02:00"}
    later = {"pause_until": "2031-01-02T03:04:05Z"}
    found += [changed(paused, {}), changed(paused, later), changed({}, later)]
    found += [Case((named(**paused), named(**paused, action="create")))]
    return found


CHANGES: dict[str, tuple[Any, ...]] = {
    "description": ("a", "b"),
    "deliver_policy": ("all", "new", "last"),
    "ack_policy": ("none", "all", "explicit"),
    "ack_wait": (SECOND, 2 * SECOND),
    "max_deliver": (-1, 1, 5),
    "backoff": ([], [SECOND], [SECOND, 2 * SECOND]),
    "filter_subject": ("", "s.a", "s.b"),
    "filter_subjects": ([], ["s.a"], ["s.a", "s.b"]),
    "replay_policy": ("instant", "original"),
    "sample_freq": ("", "50%", "60"),
    "max_waiting": (0, 5, 512),
    "max_ack_pending": (-1, 5, 10),
    "headers_only": (False, True),
    "max_batch": (0, 5),
    "max_expires": (0, SECOND),
    "max_bytes": (0, 5),
    "inactive_threshold": (0, SECOND, 5 * SECOND),
    "num_replicas": (0, 1),
    "mem_storage": (False, True),
    "metadata": ({}, {"a": "b"}),
    "priority_timeout": (0, SECOND),
}
PUSHED: dict[str, tuple[Any, ...]] = {
    "deliver_subject": ("", "to", "other", HEARD),
    "deliver_group": ("", "g", "h"),
    "rate_limit_bps": (0, 5, 6),
    "idle_heartbeat": (0, SECOND, 2 * SECOND),
    "direct": (False, True),
    "sourcing": (False, True),
}


def _changes() -> list[Case]:
    found: list[Case] = []
    for name, values in CHANGES.items():
        for before in values:
            for after in values:
                if before != after:
                    found.append(changed({name: before}, {name: after}))
                    explicit = EXPLICIT if name != "ack_policy" else {}
                    lasting = {"durable_name": "C"} | explicit
                    found.append(changed(lasting | {name: before}, lasting | {name: after}))
    for name, values in PUSHED.items():
        for before in values:
            for after in values:
                if before != after:
                    push = {"deliver_subject": "to"}
                    found.append(changed(push | {name: before}, push | {name: after}))
    return found


def _changes_of_several() -> list[Case]:
    push = {"deliver_subject": "to"}
    flow = push | {"idle_heartbeat": SECOND}
    start = {"deliver_policy": "by_start_sequence"}
    time = {"deliver_policy": "by_start_time"}
    pinned = {"priority_policy": "pinned_client", "priority_groups": ["a"]}
    return [
        changed(flow, flow | {"flow_control": True}),
        changed(flow | {"flow_control": True}, flow),
        changed(start | {"opt_start_seq": 5}, start | {"opt_start_seq": 6}),
        changed(
            time | {"opt_start_time": "2026-01-02T03:04:05Z"},
            time | {"opt_start_time": "2026-01-02T05:04:05+02:00"},
        ),
        changed(
            time | {"opt_start_time": "2026-01-02T03:04:05Z"},
            time | {"opt_start_time": "2026-01-02T03:04:06Z"},
        ),
        changed(pinned, pinned | {"priority_groups": ["b"]}),
        changed(pinned, pinned | {"priority_policy": "overflow"}),
        changed(pinned, {}),
        changed({}, pinned),
        changed(EXPLICIT | {"max_deliver": 5}, EXPLICIT | {"backoff": [1, 2], "max_deliver": 1}),
        changed({"deliver_policy": "new", "mem_storage": True}, {"ack_policy": "all"}),
        changed({}, push | {"max_waiting": 5}),
        changed(push, {"max_waiting": 5}),
        changed({"filter_subject": "s.a"}, {"filter_subjects": ["s.a"]}),
        changed({"filter_subjects": ["s.a", "s.b"]}, {"filter_subjects": ["s.b", "s.a"]}),
    ]


def _queues() -> list[Case]:
    def among(*requests: Request) -> Case:
        return Case(requests, QUEUE)

    found = [
        among(named(**fields))
        for fields in (
            {},
            EXPLICIT,
            {"ack_policy": "all"},
            {"deliver_subject": "to"},
            EXPLICIT | {"deliver_policy": "new"},
            EXPLICIT | {"deliver_policy": "last"},
            {"deliver_subject": "to", "direct": True},
            {"deliver_subject": "to", "ack_policy": "flow_control"},
        )
    ]
    filters: tuple[dict[str, Any], ...] = (
        {},
        {"filter_subject": "s.a"},
        {"filter_subject": "s.*"},
        {"filter_subject": "s.b"},
        {"filter_subjects": ["s.b", "s.a"]},
        {"filter_subject": "*.a"},
        {"filter_subject": ">"},
    )
    for one in filters:
        found += [
            among(named("A", **EXPLICIT, **one), named("B", **EXPLICIT, **two)) for two in filters
        ]
    one, two = EXPLICIT | {"filter_subject": "s.a"}, EXPLICIT | {"filter_subject": "s.b"}
    found += [
        among(named("A", **one), named("B", **two), named("B", **one)),
        among(named("A", **one), named("B", **two), named("B", **EXPLICIT)),
        among(named("A", **one), named("A", **two), named("B", **one)),
        among(named("A", **one), named("A", **one, description="again")),
        among(named("A", deliver_subject="to", direct=True), named("B", **one), named("C", **two)),
        among(named("A", deliver_subject="to", direct=True), named("B", **EXPLICIT)),
        among(named("B", **EXPLICIT), named("A", deliver_subject="to", direct=True)),
    ]
    return found


def _counts() -> list[Case]:
    found: list[Case] = []
    for count in (-1, 1, 2):
        three = (named("A"), named("B"), named("C"), named("A", description="again"))
        found.append(Case(three, {"max_consumers": count}))
    direct = named("A", deliver_subject="to", direct=True)
    found.append(Case((direct, named("B"), named("C"), direct), {"max_consumers": 1}))
    found.append(Case((unnamed(), unnamed(), unnamed()), {"max_consumers": 2}))
    return found


CASES: list[Case] = [
    *_forms(),
    *_names(),
    *_again(),
    *_changes(),
    *_changes_of_several(),
    *_queues(),
    *_counts(),
]
