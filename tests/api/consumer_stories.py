"""Requests about consumers for both servers: every endpoint, with valid and invalid requests."""

from __future__ import annotations

from typing import Any

from tests.api.compared import Step, Story, Teller, ask, ask_in_vain, create, filled, info, update
from tests.api.stories import BAD_BODIES, FAR_AHEAD, LONG_AGO

HOUR_NS = 3600 * 10**9
EXPLICIT = {"ack_policy": "explicit"}


def consumer(stream: str, _name: str = "C", _filter: str = "", /, **fields: Any) -> Step:
    """Create or change a consumer by the subject with its name; none is removed during a story."""
    lasting = {} if "durable_name" in fields else {"inactive_threshold": HOUR_NS}
    fields = lasting | fields
    asked = {name: fields.pop(name) for name in ("action", "pedantic") if name in fields}
    where = ".".join(filter(None, (stream, _name, _filter)))
    return ask(f"CONSUMER.CREATE.{where}", {"stream_name": stream, "config": fields} | asked)


def durable(stream: str, name: str = "C", **fields: Any) -> Step:
    return consumer(stream, name, durable_name=name, **fields)


def about(stream: str, name: str = "C") -> Step:
    return ask(f"CONSUMER.INFO.{stream}.{name}")


def consumers_made(s: str) -> Story:
    return [
        consumer(s),
        *filled(s),
        consumer(s),
        durable(s, "D", **EXPLICIT),
        consumer(s, "P", deliver_subject="to"),
        consumer(s, "F", f"{s}.a", filter_subject=f"{s}.a"),
        consumer(s, "G", f"{s}.c.>", filter_subject=f"{s}.c.>"),
        consumer(s, "H", f"{s}.*", filter_subject=f"{s}.b"),
        consumer(s, "M", filter_subjects=[f"{s}.a", f"{s}.b"], **EXPLICIT),
        ask(f"CONSUMER.DURABLE.CREATE.{s}.L", {"stream_name": s, "config": {"durable_name": "L"}}),
        ask(f"CONSUMER.DURABLE.CREATE.{s}.K", {"stream_name": s, "config": {"durable_name": "L"}}),
        ask(f"CONSUMER.DURABLE.CREATE.{s}.K", {"stream_name": s, "config": {}}),
        ask(f"CONSUMER.CREATE.{s}", {"stream_name": s, "config": {"name": "N"}}),
        ask(f"CONSUMER.CREATE.{s}", {"stream_name": s, "config": {"durable_name": "N"}}),
        ask(f"CONSUMER.CREATE.{s}.C", {"stream_name": "other", "config": {}}),
        ask(f"CONSUMER.CREATE.{s}.a/b", {"stream_name": s, "config": {}}),
        *(ask(f"CONSUMER.CREATE.{s}.C", body) for body in BAD_BODIES),
        *(about(s, name) for name in "CDPFGHMLNX"),
        ask(f"CONSUMER.NAMES.{s}"),
        ask(f"CONSUMER.LIST.{s}"),
        info(s),
    ]


def consumers_at_a_start(s: str) -> Story:
    both = {"filter_subjects": [f"{s}.a", f"{s}.b"]}
    return [
        *filled(s),
        consumer(s, "all"),
        consumer(s, "last", deliver_policy="last"),
        consumer(s, "new", deliver_policy="new"),
        consumer(s, "sequence", deliver_policy="by_start_sequence", opt_start_seq=3),
        consumer(s, "beyond", deliver_policy="by_start_sequence", opt_start_seq=30),
        consumer(s, "past", deliver_policy="by_start_time", opt_start_time=LONG_AGO),
        consumer(s, "future", deliver_policy="by_start_time", opt_start_time=FAR_AHEAD),
        consumer(s, "each", deliver_policy="last_per_subject", filter_subject=f"{s}.>"),
        consumer(s, "each-of-two", deliver_policy="last_per_subject", **both),
        consumer(s, "one", filter_subject=f"{s}.a"),
        consumer(s, "one-last", filter_subject=f"{s}.a", deliver_policy="last"),
        consumer(s, "two", **both),
        consumer(s, "two-last", deliver_policy="last", **both),
        consumer(s, "nothing", filter_subject=f"{s}.x"),
        consumer(s, "nothing-last", filter_subject=f"{s}.x", deliver_policy="last"),
        consumer(s, "each-nothing", deliver_policy="last_per_subject", filter_subject=f"{s}.x"),
        ask(f"CONSUMER.LIST.{s}"),
    ]


def consumers_of_an_empty_stream(s: str) -> Story:
    each = {"deliver_policy": "last_per_subject", "filter_subject": ">"}
    return [
        create(s),
        *(consumer(s, policy, deliver_policy=policy) for policy in ("all", "last", "new")),
        consumer(s, "sequence", deliver_policy="by_start_sequence", opt_start_seq=3),
        consumer(s, "past", deliver_policy="by_start_time", opt_start_time=LONG_AGO),
        consumer(s, "each", **each),
        ask(f"CONSUMER.LIST.{s}"),
    ]


def consumers_changed(s: str) -> Story:
    return [
        *filled(s),
        durable(s, action="update"),
        durable(s, action="create"),
        durable(s, action="create"),
        durable(s, action="create", description="other"),
        durable(s, action="update", description="other"),
        durable(s, filter_subject=f"{s}.a"),
        durable(s, filter_subjects=[f"{s}.a", f"{s}.b"]),
        durable(s),
        durable(s, deliver_policy="new"),
        durable(s, pause_until=FAR_AHEAD),
        about(s),
        ask(f"CONSUMER.LIST.{s}"),
    ]


def consumers_under_limits(s: str) -> Story:
    one, two = {"max_ack_pending": 10}, {"max_ack_pending": 20, "inactive_threshold": 2 * HOUR_NS}
    return [
        create(s, max_consumers=2),
        # The real server names several that are beyond a limit in any order.
        durable(s, "A", **EXPLICIT, max_ack_pending=5, inactive_threshold=HOUR_NS),
        durable(s, "B", **EXPLICIT, **two),
        durable(s, "C"),
        update(s, max_consumers=2, consumer_limits=one),
        update(s, max_consumers=2, consumer_limits={"inactive_threshold": HOUR_NS}),
        durable(s, "A", **EXPLICIT, **one),
        update(s, max_consumers=2, consumer_limits=two),
        update(s, max_consumers=3, consumer_limits=two),
        durable(s, "C"),
        durable(s, "C", max_ack_pending=21, **EXPLICIT),
        durable(s, "D"),
        ask(f"CONSUMER.LIST.{s}"),
    ]


def consumers_removed(s: str) -> Story:
    return [
        ask(f"CONSUMER.DELETE.{s}.C"),
        create(s),
        ask(f"CONSUMER.DELETE.{s}.C"),
        durable(s),
        consumer(s, "P", deliver_subject="to"),
        *(ask(f"CONSUMER.DELETE.{s}.C", body) for body in BAD_BODIES),
        ask(f"CONSUMER.DELETE.{s}.C", b"{}"),
        ask(f"CONSUMER.DELETE.{s}.C"),
        ask(f"CONSUMER.DELETE.{s}.P", b" { } "),
        about(s),
        ask(f"CONSUMER.NAMES.{s}"),
        info(s),
        durable(s),
        ask(f"STREAM.DELETE.{s}"),
        about(s),
        create(s),
        about(s),
    ]


def consumers_shown(s: str) -> Story:
    return [
        about(s),
        ask(f"CONSUMER.NAMES.{s}"),
        ask(f"CONSUMER.LIST.{s}"),
        create(s),
        ask(f"CONSUMER.NAMES.{s}"),
        ask(f"CONSUMER.LIST.{s}"),
        *(durable(s, name) for name in ("b", "a", "B", "é", "10", "9")),
        consumer(s, "D", deliver_subject="to", direct=True),
        *(ask(f"CONSUMER.NAMES.{s}", {"offset": each}) for each in (-1, 0, 1, 5, 6, 7)),
        *(ask(f"CONSUMER.LIST.{s}", {"offset": each}) for each in (-1, 0, 4, 6, 7)),
        *(ask(f"CONSUMER.NAMES.{s}", body) for body in BAD_BODIES),
        *(ask(f"CONSUMER.LIST.{s}", body) for body in BAD_BODIES[:8]),
        *(ask(f"CONSUMER.INFO.{s}.a", body) for body in (*BAD_BODIES, b"{}", b" {} ")),
        about(s, "X"),
        about(s, "D"),
        info(s),
    ]


def consumers_paused(s: str) -> Story:
    return [
        ask(f"CONSUMER.PAUSE.{s}.C"),
        create(s),
        ask(f"CONSUMER.PAUSE.{s}.C"),
        durable(s),
        ask(f"CONSUMER.PAUSE.{s}.C", {"pause_until": FAR_AHEAD}),
        about(s),
        ask(f"CONSUMER.LIST.{s}"),
        ask(f"CONSUMER.PAUSE.{s}.C", {"pause_until": "2101-02-03T04:05:06+02:00"}),
        about(s),
        durable(s, description="still"),
        ask(f"CONSUMER.PAUSE.{s}.C", {"pause_until": LONG_AGO}),
        about(s),
        *(ask(f"CONSUMER.PAUSE.{s}.C", body) for body in BAD_BODIES),
        *(ask(f"CONSUMER.PAUSE.{s}.C", {"pause_until": each}) for each in (None, "", "x", 5)),
        ask(f"CONSUMER.PAUSE.{s}.C"),
        about(s),
        consumer(s, "P", pause_until=FAR_AHEAD),
        about(s, "P"),
        ask(f"CONSUMER.PAUSE.{s}.P", b"{}"),
        about(s, "P"),
    ]


def consumers_unpinned(s: str) -> Story:
    group = {"group": "jobs"}
    priority = {"priority_policy": "pinned_client", "priority_groups": ["jobs"]}
    return [
        ask(f"CONSUMER.UNPIN.{s}.C", group),
        create(s),
        ask(f"CONSUMER.UNPIN.{s}.C", group),
        consumer(s, **priority),
        ask(f"CONSUMER.UNPIN.{s}.C", group),
        about(s),
        *(ask(f"CONSUMER.UNPIN.{s}.C", {"group": each}) for each in ("", "x", "a b", None, 5)),
        *(ask(f"CONSUMER.UNPIN.{s}.C", body) for body in (b"", *BAD_BODIES)),
        consumer(s, "N"),
        ask(f"CONSUMER.UNPIN.{s}.N", group),
    ]


def consumers_reset(s: str) -> Story:
    return [
        *filled(s),
        ask_in_vain(f"CONSUMER.RESET.{s}.C"),
        ask_in_vain(f"CONSUMER.RESET.{s}-x.C"),
        durable(s, **EXPLICIT),
        ask(f"CONSUMER.RESET.{s}.C"),
        ask(f"CONSUMER.RESET.{s}.C", {"seq": 3}),
        ask(f"CONSUMER.RESET.{s}.C"),
        ask(f"CONSUMER.RESET.{s}.C", {"seq": 30}),
        ask(f"CONSUMER.RESET.{s}.C", {"seq": 1, "bogus": 1}),
        *(ask(f"CONSUMER.RESET.{s}.C", body) for body in BAD_BODIES),
        about(s),
        durable(s, "S", deliver_policy="by_start_sequence", opt_start_seq=3),
        *(ask(f"CONSUMER.RESET.{s}.S", {"seq": seq}) for seq in (0, 2, 3, 4)),
        durable(s, "T", deliver_policy="by_start_time", opt_start_time=LONG_AGO),
        *(ask(f"CONSUMER.RESET.{s}.T", {"seq": seq}) for seq in (0, 1, 4)),
        *(durable(s, each, deliver_policy=each) for each in ("new", "last")),
        *(ask(f"CONSUMER.RESET.{s}.{each}", {"seq": 1}) for each in ("new", "last")),
        *(ask(f"CONSUMER.RESET.{s}.{each}") for each in ("new", "last")),
    ]


def consumers_that_feed_streams(s: str) -> Story:
    fields = {"deliver_subject": "to", "direct": True}
    body = {"stream_name": s, "config": fields}
    other = {"Nats-Stream-Identity": "somebody"}
    return [
        create(s),
        ask(f"CONSUMER.CREATE.{s}.C", body, headers=other),
        ask(f"CONSUMER.CREATE.{s}.C", body, headers={"Nats-Stream-Identity": ""}),
        durable(s, "D"),
        ask(f"CONSUMER.RESET.{s}.D", headers=other),
        create(f"{s}-i", retention="interest"),
        consumer(f"{s}-i", "C", **fields, sourcing=True),
        consumer(f"{s}-i", "C", **fields, sourcing=True, description="again"),
        info(f"{s}-i"),
    ]


def consumers_and_levels(s: str) -> Story:
    newer = {"Nats-Required-Api-Level": "99"}
    return [
        create(s),
        durable(s),
        *(
            ask(f"CONSUMER.{endpoint}", headers=newer)
            for endpoint in (
                f"CREATE.{s}.C",
                f"NAMES.{s}",
                f"LIST.{s}",
                f"INFO.{s}.C",
                f"DELETE.{s}.C",
                f"PAUSE.{s}.C",
                f"UNPIN.{s}.C",
                f"RESET.{s}.C",
            )
        ),
        ask(f"CONSUMER.INFO.{s}.C", headers={"Nats-Required-Api-Level": "1"}),
    ]


def consumers_that_are_not_there(s: str) -> Story:
    return [
        create(s),
        ask(f"CONSUMER.MSG.NEXT.{s}.X"),
        ask_in_vain(f"CONSUMER.BOGUS.{s}.C"),
        ask_in_vain("CONSUMER.CREATE"),
        ask_in_vain(f"CONSUMER.INFO.{s}"),
        ask(f"CONSUMER.LEADER.STEPDOWN.{s}.X"),
    ]


TELLERS: list[Teller] = [
    consumers_made,
    consumers_at_a_start,
    consumers_of_an_empty_stream,
    consumers_changed,
    consumers_under_limits,
    consumers_removed,
    consumers_shown,
    consumers_paused,
    consumers_unpinned,
    consumers_reset,
    consumers_that_feed_streams,
    consumers_and_levels,
    consumers_that_are_not_there,
]
