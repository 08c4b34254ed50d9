"""Requests that between them touch every field of a stream's configuration.

Each field valid, at its edges, beyond them, and with those that it does not go with; every rule for
changes; the same stream asked for twice. Subjects and origins are in `corpus_subjects`.
"""

from __future__ import annotations

from typing import Any

from tests.stream.compared import Case, Request, alone, changed, create, update

SECOND = 1_000_000_000
MS = 1_000_000


def _names() -> list[Case]:
    texts = ["S", "a-b_c", "é", "x" * 254, "x" * 255, "x" * 256, "$KV", "A=B", "a,b", "a{b}"]
    found: list[Case] = [(create(name),) for name in texts]
    found += [(Request("CREATE", "S", b'{"name":"T"}'), Request("UPDATE", "S", b'{"name":"T"}'))]
    found += [(Request("CREATE", "S", b'{"name":""}'), Request("UPDATE", "S", b"{}"))]
    for name in ("a.b", "a*b", "a>b", "a b", "a\\b", "a/b", "a\tb"):
        found += [(Request("UPDATE", "S", create(name).body),)]
    found += [
        (Request("CREATE", name, create(name).body),) for name in ("a*b", "a>b", "a\\b", "a/b")
    ]
    found += [(update(),), (update("Z", max_msgs=5),)]
    return found


def _numbers() -> list[Case]:
    found: list[Case] = []
    for name in ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size"):
        found += [alone(**{name: value}) for value in (-2, -1, 0, 1, 1000)]
        found.append(alone(**{name: -2, "pedantic": True}))
        found.append(alone(**{name: -1, "pedantic": True}))
        found.append(changed({name: 10}, {name: 5}))
        found.append(changed({name: 10}, {name: 20}))
        found.append(changed({name: 10}, {}))
        found.append(changed({}, {name: 10}))
    found += [alone(max_msg_size=2**31 - 1), alone(max_msg_size=2**31), alone(max_msgs=2**63 - 1)]
    found += [alone(num_replicas=value) for value in (-1, 0, 1, 2, 3, 5, 6)]
    found += [changed({}, {"num_replicas": value}) for value in (-1, 0, 2, 6)]
    found += [alone(first_seq=value) for value in (0, 1, 100, 2**64 - 1, 2**64, -1)]
    found += [changed({"first_seq": 5}, {"first_seq": 9}), changed({"first_seq": 5}, {})]
    return found


def _durations() -> list[Case]:
    found: list[Case] = [
        alone(max_age=ns) for ns in (-1, 1, 99 * MS, 100 * MS, SECOND, 3600 * SECOND)
    ]
    found += [alone(duplicate_window=ns) for ns in (-1, 1, 99 * MS, 100 * MS, SECOND, 2**62)]
    for age in (100 * MS, SECOND, 60 * SECOND, 120 * SECOND, 121 * SECOND):
        found += [alone(max_age=age), alone(max_age=age, pedantic=True)]
        found += [alone(max_age=age, duplicate_window=age)]
        found += [alone(max_age=age, duplicate_window=age + 1)]
    found += [
        alone(subject_delete_marker_ttl=ns) for ns in (-1, 1, SECOND - 1, SECOND, 60 * SECOND)
    ]
    found += [changed({"max_age": SECOND}, {"max_age": 0})]
    found += [changed({}, {"max_age": SECOND})]
    found += [changed({}, {"max_age": SECOND, "duplicate_window": SECOND})]
    found += [changed({"duplicate_window": SECOND}, {"duplicate_window": 2 * SECOND})]
    return found


def _words() -> list[Case]:
    found: list[Case] = []
    for name, words in {
        "retention": ("limits", "interest", "workqueue", "Limits", "", "bogus"),
        "discard": ("old", "new", "OLD", "New", "", "bogus"),
        "storage": ("file", "memory", "File", "", "bogus"),
        "compression": ("none", "s2", "S2", "", "zip"),
        "persist_mode": ("default", "async", "Async", "", "bogus"),
    }.items():
        found += [alone(**{name: word}) for word in words]
        others: tuple[Any, ...] = (None, 5, True, [], {"a": 1})
        found += [alone(**{name: value}) for value in others]
        for one in words[:3]:
            for two in words[:3]:
                found.append(changed({name: one}, {name: two}))
    return found


FLAGS = (
    "no_ack",
    "allow_direct",
    "mirror_direct",
    "discard_new_per_subject",
    "sealed",
    "deny_delete",
    "deny_purge",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_msg_counter",
    "allow_atomic",
    "allow_msg_schedules",
    "allow_batched",
)


def _flags() -> list[Case]:
    found: list[Case] = []
    for name in FLAGS:
        found += [alone(**{name: True}), alone(**{name: False}), alone(**{name: None})]
        found += [alone(**{name: 1}), alone(**{name: True, "pedantic": True})]
        found += [changed({name: True}, {name: False}), changed({}, {name: True})]
        found += [changed({name: True}, {name: True})]
        found += [alone(**{name: True, "retention": "workqueue"})]
        found += [alone(**{name: True, "discard": "new"})]
        found += [alone(**{name: True, "storage": "memory"})]
        found += [alone(**{name: True, "persist_mode": "async"})]
        found += [alone(**{name: True, "mirror": {"name": "O"}})]
        found += [alone(**{name: True, "sources": [{"name": "O"}]})]
        for other in FLAGS:
            if name < other:
                found.append(alone(**{name: True, other: True}))
    return found


def _features() -> list[Case]:
    marker: dict[str, Any] = {"subject_delete_marker_ttl": SECOND}
    found: list[Case] = [
        alone(**marker, pedantic=True),
        alone(**marker, allow_msg_ttl=True, pedantic=True),
    ]
    found += [alone(**marker, allow_msg_ttl=True, allow_rollup_hdrs=True, pedantic=True)]
    found += [alone(**marker, deny_purge=True), alone(**marker, allow_msg_counter=True)]
    found += [alone(**marker, mirror={"name": "O"}), alone(**marker, sources=[{"name": "O"}])]
    found += [changed(marker, {}), changed(marker, {"allow_msg_ttl": True}), changed({}, marker)]
    found += [alone(allow_msg_schedules=True, deny_purge=True)]
    found += [alone(allow_msg_schedules=True, pedantic=True)]
    found += [alone(allow_msg_schedules=True, allow_rollup_hdrs=True, pedantic=True)]
    found += [
        alone(discard="new", discard_new_per_subject=True, max_msgs_per_subject=count)
        for count in (-1, 0, 1, 5)
    ]
    found += [alone(discard_new_per_subject=True, max_msgs_per_subject=1)]
    found += [changed({}, {"discard": "new", "discard_new_per_subject": True})]
    sealed: dict[str, Any] = {"sealed": True, "max_age": SECOND, "duplicate_window": SECOND}
    found += [
        changed({}, sealed),
        (create(), update(**sealed), update()),
        (create(), update(**sealed), update(**sealed)),
    ]
    found += [(create(), update(sealed=True, allow_rollup_hdrs=True))]
    found += [changed({"persist_mode": "async"}, {"persist_mode": "async", "allow_atomic": True})]
    found += [
        changed({"retention": "interest"}, {"retention": "limits", "allow_msg_counter": True})
    ]
    return found


def _texts() -> list[Case]:
    found: list[Case] = [
        alone(description=text) for text in ("", "a <b> & c", "x" * 4096, "x" * 4097, "é" * 2049)
    ]
    found += [alone(description="\u2028\u2029\x00\x1f\b\f\n\r\t\x7f\x80/\\\"'😀")]
    found += [
        changed({"description": "a"}, {"description": "b"}),
        changed({"description": "a"}, {}),
    ]
    found += [
        alone(metadata=value) for value in ({}, None, {"b": "1", "a": "<2>", "A": "", "é": "x"})
    ]
    found += [alone(metadata={"k": "x" * size}) for size in (131_054, 131_055, 131_056, 131_071)]
    found += [
        alone(metadata={"_nats.req.level": "9", "_nats.ver": "x", "_nats.level": "y", "z": "1"})
    ]
    found += [changed({"metadata": {"a": "1"}}, {"metadata": {"b": "2"}})]
    found += [
        changed({"metadata": {"a": "1"}}, {}),
        changed({"allow_msg_ttl": True}, {"allow_msg_ttl": True, "allow_batched": True}),
    ]
    found += [changed({}, {"metadata": {"_nats.req.level": "9", "_nats.ver": "x"}})]
    return found


def _placements() -> list[Case]:
    values: list[Any] = [
        {},
        None,
        {"cluster": "C"},
        {"tags": []},
        {"tags": None},
        {"tags": ["a", "!b"]},
    ]
    values += [{"cluster": "C", "tags": ["a"]}, {"preferred": "p"}, {"cluster": "", "tags": ["x"]}]
    found: list[Case] = [alone(placement=value) for value in values]
    found += [
        changed({"placement": {"cluster": "C"}}, {}),
        changed({}, {"placement": {"tags": ["a"]}}),
    ]
    limits: list[Any] = [
        {},
        None,
        {"inactive_threshold": 5},
        {"max_ack_pending": 7},
        {"max_ack_pending": -1},
    ]
    limits += [{"inactive_threshold": -5, "max_ack_pending": 1}, {"bogus": 1}]
    found += [alone(consumer_limits=value) for value in limits]
    found += [
        changed(
            {"consumer_limits": {"max_ack_pending": 7}}, {"consumer_limits": {"max_ack_pending": 5}}
        )
    ]
    found += [changed({"consumer_limits": {"max_ack_pending": 7}}, {})]
    return found


def _again() -> list[Case]:
    """The same stream requested twice, with the same configuration or another."""
    full: dict[str, Any] = {
        "subjects": ["a.*", "b"],
        "description": "d",
        "max_msgs": 5,
        "max_age": 60 * SECOND,
        "discard": "new",
        "metadata": {"x": "y"},
        "placement": {"tags": ["t"]},
        "allow_msg_ttl": True,
        "republish": {"src": "a.*", "dest": "r.$1"},
        "consumer_limits": {"max_ack_pending": 4},
    }
    found: list[Case] = [
        (create(**full), create(**full)),
        (create(**full), create()),
        (create(), create(**full)),
    ]
    for name in full:
        rest = {key: value for key, value in full.items() if key != name}
        found += [(create(**full), create(**rest))]
    found += [(create(), create(max_msgs=-1, retention="limits", duplicate_window=120 * SECOND))]
    found += [(create(metadata={"_nats.req.level": "3"}), create())]
    source = {"name": "O", "opt_start_time": "2024-01-02T03:04:05Z"}
    found += [
        (create(sources=[source]), create(sources=[source])),
        (create(mirror=source), create(mirror=source)),
    ]
    found += [(create(sources=[source]), create(sources=[{"name": "O"}]))]
    found += [(create(**full), update(**full)), (create(**full), update(**full, pedantic=True))]
    return found


CASES: list[Case] = [
    *_names(),
    *_numbers(),
    *_durations(),
    *_words(),
    *_flags(),
    *_features(),
    *_texts(),
    *_placements(),
    *_again(),
]
