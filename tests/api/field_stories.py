"""Requests with every field of a configuration for both servers, with valid and invalid values."""

from __future__ import annotations

from typing import Any

from tests.api.compared import Step, Story, Teller, ask, create, filled, info, update
from tests.api.consumer_stories import about, consumer
from tests.api.stories import FAR_AHEAD, LONG_AGO

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
MANY = 2**31

Configs = list[dict[str, Any]]


def values(field: str, *each: Any, **beside: Any) -> Configs:
    """Return a configuration for each value of a field, with the same fields beside it."""
    return [{field: value} | beside for value in each]


COUNTS = (0, 1, -1, -2, MANY, "1", 1.5, None, 2**64)
FLAGS = (True, False, None, "true", 1)
DURATIONS = (0, 1, SECOND_NS, 100 * SECOND_NS, -1, 2**63, "1s", None)
TEXTS = ("", "text", "<&>\u2028\u00e9\U0001f600", "x" * 4096, "x" * 4097, 5, None)
METADATA: tuple[Any, ...] = (
    {},
    {"k": "v"},
    {"k": ""},
    {"a": "b" * 2**17},
    {"k": 1},
    {"_nats.x": "y"},
    [],
    None,
)

STREAM_FIELDS: dict[str, Configs] = {
    "name": values("name", "", "a.b", "a b", "a*", "a>", "../a", "a/b", "x" * 300, 5, None),
    "description": values("description", *TEXTS),
    "subjects": values(
        "subjects",
        ["fields.a", "fields.b"],
        ["fields.a", "fields.a"],
        ["fields.*", "fields.a"],
        ["fields..a"],
        ["fields.>.a"],
        ["fields. a"],
        [""],
        [">"],
        ["$JS.API.>"],
        ["$JS.EVENT.fields"],
        ["$SYS.a"],
        ["$SYS.ACCOUNT.fields"],
        "fields",
        [1],
        [None],
    ),
    "retention": values("retention", "limits", "interest", "workqueue", "other", "", 1, None),
    "max_consumers": values("max_consumers", *COUNTS),
    "max_msgs": values("max_msgs", *COUNTS),
    "max_bytes": values("max_bytes", *COUNTS),
    "max_age": values("max_age", *DURATIONS),
    "max_msgs_per_subject": values("max_msgs_per_subject", *COUNTS),
    "max_msg_size": values("max_msg_size", *COUNTS),
    "discard": values("discard", "old", "new", "NEW", "other", 5, None),
    "storage": values("storage", "file", "memory", "other", "", None),
    "num_replicas": values("num_replicas", 0, 1, 2, 3, 5, 6, -1, None),
    "no_ack": [*values("no_ack", *FLAGS), *values("no_ack", True, False, subjects=["$JS.x"])],
    "duplicate_window": [
        *values("duplicate_window", *DURATIONS),
        *values("duplicate_window", SECOND_NS, 10 * SECOND_NS, max_age=5 * SECOND_NS),
    ],
    "placement": values(
        "placement", {}, {"cluster": "c"}, {"tags": ["a", "!b"]}, {"preferred": "p"}, [], None
    ),
    "mirror": [
        *values("mirror", {"name": "a.b"}, {"name": ""}, {}, "x", subjects=[]),
        *values("mirror", {"name": "none"}, sources=[{"name": "x"}], subjects=[]),
        *values("mirror", {"name": "none"}, first_seq=5, subjects=[]),
        *values("mirror", {"name": "none"}),
        *values("mirror", {"name": "none", "consumer": {"name": "a b"}}, subjects=[]),
        *values(
            "mirror",
            {"name": "none", "filter_subject": "a"}
            | {"subject_transforms": [{"src": "a", "dest": "b"}]},
            subjects=[],
        ),
        *values("mirror", {"name": "none", "external": {"api": "$JS.API"}}, subjects=[]),
        *values("mirror", {"name": "none", "bogus": 1}, subjects=[]),
    ],
    "sources": [
        *values("sources", [{"name": ""}], [{"name": "x"}, {"name": "x"}], [{}], {}, "x"),
        *values("sources", [{"name": "x", "opt_start_seq": -1}]),
        *values("sources", [{"name": "x", "opt_start_time": "then"}]),
        *values("sources", [{"name": "x", "external": {"api": "*"}}]),
        *values("sources", [{"name": "x", "subject_transforms": [{"src": "a..b", "dest": ""}]}]),
        *values("sources", [{"name": "x", "subject_transforms": [{"src": "a", "dest": "$1"}]}]),
        *values("sources", [{"name": "x", "consumer": {"name": "c"}}]),
        *values("sources", [{"name": "x"}], allow_msg_schedules=True),
    ],
    "compression": values("compression", "none", "s2", "S2", "zip", "", 5, None),
    "first_seq": values("first_seq", 0, 1, 100, 2**62, -1, None),
    "subject_transform": values(
        "subject_transform",
        {"src": "fields.*", "dest": "other.$1"},
        {"src": "fields.*", "dest": "other.{{wildcard(1)}}.{{partition(3,1)}}"},
        {"src": "fields.*", "dest": "other.$2"},
        {"src": "a..b", "dest": "c"},
        {"src": "", "dest": "other.>"},
        {"src": "a", "dest": ""},
        {},
        None,
        subjects=["fields.*"],
    ),
    "republish": values(
        "republish",
        {"src": "fields.>", "dest": "again.>"},
        {"src": "fields.>", "dest": "again.>", "headers_only": True},
        {"dest": "again.>"},
        {"src": "fields.>", "dest": "fields.>"},
        {"src": "fields.*", "dest": "again.$2"},
        {},
        None,
        subjects=["fields.>"],
    ),
    "allow_direct": values("allow_direct", *FLAGS),
    "mirror_direct": values("mirror_direct", *FLAGS),
    "discard_new_per_subject": [
        *values("discard_new_per_subject", *FLAGS),
        *values("discard_new_per_subject", True, discard="new"),
        *values("discard_new_per_subject", True, False, discard="new", max_msgs_per_subject=2),
    ],
    "sealed": values("sealed", False, True, None),
    "deny_delete": values("deny_delete", *FLAGS),
    "deny_purge": [
        *values("deny_purge", *FLAGS),
        *values("deny_purge", True, allow_rollup_hdrs=True),
    ],
    "allow_rollup_hdrs": values("allow_rollup_hdrs", *FLAGS),
    "consumer_limits": values(
        "consumer_limits",
        {},
        {"inactive_threshold": SECOND_NS},
        {"max_ack_pending": 5},
        {"max_ack_pending": -5},
        {"inactive_threshold": -1},
        {"bogus": 1},
        None,
    ),
    "allow_msg_ttl": values("allow_msg_ttl", *FLAGS),
    "subject_delete_marker_ttl": [
        *values("subject_delete_marker_ttl", *DURATIONS),
        *values("subject_delete_marker_ttl", SECOND_NS, pedantic=True),
        *values("subject_delete_marker_ttl", SECOND_NS, deny_purge=True),
    ],
    "allow_msg_counter": [
        *values("allow_msg_counter", *FLAGS),
        *values("allow_msg_counter", True, discard="new"),
        *values("allow_msg_counter", True, allow_msg_ttl=True),
        *values("allow_msg_counter", True, allow_msg_schedules=True),
        *values("allow_msg_counter", True, retention="workqueue"),
    ],
    "allow_atomic": [
        *values("allow_atomic", *FLAGS),
        *values("allow_atomic", True, persist_mode="async"),
    ],
    "allow_msg_schedules": [
        *values("allow_msg_schedules", *FLAGS),
        *values("allow_msg_schedules", True, discard="new"),
        *values("allow_msg_schedules", True, pedantic=True),
    ],
    "persist_mode": [
        *values("persist_mode", "default", "async", "", "other", 5),
        *values("persist_mode", "async", storage="memory"),
    ],
    "allow_batched": values("allow_batched", *FLAGS),
    "metadata": values("metadata", *METADATA),
    "pedantic": values("pedantic", *FLAGS),
}

PULL = {"ack_policy": "explicit"}
PUSH = {"deliver_subject": "to.fields"}

CONSUMER_FIELDS: dict[str, Configs] = {
    "durable_name": values("durable_name", "C", "D", "a.b", "", "x" * 300, 5, None),
    "name": values("name", "C", "D", "a b", "", None),
    "description": values("description", *TEXTS),
    "deliver_policy": values(
        "deliver_policy", "all", "last", "new", "by_start_sequence", "by_start_time",
        "last_per_subject", "undefined", "other", "", None,
    ),
    "opt_start_seq": [
        *values("opt_start_seq", 0, 1, 3, 2**63, -1, deliver_policy="by_start_sequence"),
        *values("opt_start_seq", 3),
    ],
    "opt_start_time": [
        *values("opt_start_time", LONG_AGO, FAR_AHEAD, "then", 5, deliver_policy="by_start_time"),
        *values("opt_start_time", LONG_AGO),
    ],
    "ack_policy": values("ack_policy", "none", "all", "explicit", "flow_control", "other", None),
    "ack_wait": [*values("ack_wait", *DURATIONS, **PULL), *values("ack_wait", SECOND_NS)],
    "max_deliver": values("max_deliver", *COUNTS, **PULL),
    "backoff": [
        *values("backoff", [], [SECOND_NS], [1, 2, 3], [-1], ["1s"], 5, None, **PULL),
        *values("backoff", [1, 2, 3], max_deliver=2, **PULL),
        *values("backoff", [1, 2, 3], max_deliver=3, ack_wait=5, **PULL),
    ],
    "filter_subject": values("filter_subject", "", "a", "fields.*", ">", "a..b", "a b", 5, None),
    "filter_subjects": [
        *values("filter_subjects", [], ["a", "b"], ["a", "a"], ["a", "*"], ["a..b"], [""], "a"),
        *values("filter_subjects", ["a"], filter_subject="b"),
    ],
    "replay_policy": values("replay_policy", "instant", "original", "other", None),
    "rate_limit_bps": [
        *values("rate_limit_bps", 0, 1, 10**6, -1, **PUSH),
        *values("rate_limit_bps", 1),
    ],
    "sample_freq": values("sample_freq", "", "0", "50", "50%", "100%", "101%", "x", "-1", 50),
    "max_waiting": [*values("max_waiting", *COUNTS, **PULL), *values("max_waiting", 5, **PUSH)],
    "max_ack_pending": values("max_ack_pending", *COUNTS, **PULL),
    "flow_control": [
        *values("flow_control", True, False, **PUSH),
        *values("flow_control", True, idle_heartbeat=SECOND_NS, **PUSH),
        *values("flow_control", True),
    ],
    "headers_only": values("headers_only", *FLAGS),
    "max_batch": [*values("max_batch", *COUNTS, **PULL), *values("max_batch", 5, **PUSH)],
    "max_expires": [*values("max_expires", *DURATIONS), *values("max_expires", 5, **PUSH)],
    "max_bytes": [*values("max_bytes", *COUNTS), *values("max_bytes", 5, **PUSH)],
    "deliver_subject": values("deliver_subject", "", "to.a", "to.*", "a..b", "fields.a", 5, None),
    "deliver_group": [*values("deliver_group", "", "g", "a b", **PUSH)],
    "idle_heartbeat": [
        *values("idle_heartbeat", *DURATIONS, **PUSH),
        *values("idle_heartbeat", SECOND_NS),
    ],
    "inactive_threshold": values(
        "inactive_threshold", 0, HOUR_NS, 2 * HOUR_NS, -1, "1s", None, durable_name="C"
    ),
    "num_replicas": values("num_replicas", 0, 1, 2, 3, 6, -1, None),
    "mem_storage": values("mem_storage", *FLAGS),
    "direct": values("direct", False, None),
    "sourcing": values("sourcing", False, None),
    "metadata": values("metadata", *METADATA),
    "pause_until": values("pause_until", FAR_AHEAD, LONG_AGO, "then", None),
    "priority_groups": values(
        "priority_groups", [], ["g"], ["g", "h"], ["x" * 17], ["a b"], [""], "g",
        priority_policy="overflow", **PULL,
    ),
    "priority_policy": [
        *values("priority_policy", "none", "overflow", "pinned_client", "prioritized", "other"),
        *values(
            "priority_policy", "none", "overflow", "pinned_client", "prioritized",
            priority_groups=["g"], **PULL,
        ),
        *values("priority_policy", "overflow", priority_groups=["g"], **PUSH),
    ],
    "priority_timeout": values(
        "priority_timeout", *DURATIONS, priority_policy="pinned_client", priority_groups=["g"],
        **PULL,
    ),
}  # fmt: skip

ON_DISK = {"storage", "persist_mode", "compression", "first_seq", "allow_atomic", "max_bytes"}
"""Fields that matter to files; for the others streams in memory are quicker."""


def _of_stream(field: str) -> Teller:
    def tell(s: str) -> Story:
        story: Story = []
        configs = STREAM_FIELDS[field]
        quick = {} if field in ON_DISK else {"storage": "memory"}
        for place, (config, following) in enumerate(zip(configs, [*configs[1:], {}], strict=True)):
            name = f"{s}-{place}"
            story += [create(name, **quick | config), info(name)]
            story += [update(name, **quick | following), info(name), ask(f"STREAM.DELETE.{name}")]
        return story

    tell.__name__ = f"stream_{field}"
    return tell


def _of_consumer(field: str) -> Teller:
    def tell(s: str) -> Story:
        story: list[Step] = filled(s)
        configs = CONSUMER_FIELDS[field]
        for config, following in zip(configs, [*configs[1:], {}], strict=True):
            story += [consumer(s, "C", **config), about(s), consumer(s, "C", **following)]
            story += [about(s), ask(f"CONSUMER.DELETE.{s}.C")]
        return story

    tell.__name__ = f"consumer_{field}"
    return tell


TELLERS = [*map(_of_stream, STREAM_FIELDS), *map(_of_consumer, CONSUMER_FIELDS)]
