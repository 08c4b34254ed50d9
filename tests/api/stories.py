"""Requests for both servers: every endpoint, valid and invalid, in every order that matters."""

from __future__ import annotations

from typing import Any

from tests.api.compared import (
    Story,
    Teller,
    ask,
    ask_in_vain,
    create,
    delete_message,
    direct,
    filled,
    get,
    get_many,
    info,
    publish,
    purge,
    update,
)

LONG_AGO = "2001-02-03T04:05:06Z"
FAR_AHEAD = "2101-02-03T04:05:06Z"

BAD_BODIES: list[bytes] = [
    b"{",
    b"[]",
    b"[1]",
    b"{}x",
    b'{"bogus":1}',
    b'{"seq":"1"}',
    b'{"seq":-1}',
    b'{"seq":1.5}',
    b'{"seq":18446744073709551616}',
    b'{"seq":null}',
    b'{"SEQ":1}',
    b'{"seq":1}{"seq":2}',
    b"null",
    b"5",
    b'"text"',
    b"\xff\xfe",
    b"[" * 200,
    b'{"a":' * 200,
]


def making(s: str) -> Story:
    return [
        create(s),
        create(s),
        create(s, max_msgs=5),
        create(s, description="other"),
        ask(f"STREAM.CREATE.{s}", {"name": "other"}),
        ask(f"STREAM.CREATE.{s}", b""),
        ask(f"STREAM.CREATE.{s}-x", {"name": f"{s}-x", "subjects": [f"{s}.a"]}),
        ask(f"STREAM.CREATE.{s}-y", {"name": f"{s}-y", "subjects": [f"{s}.>", f"{s}-y"]}),
        *(ask(f"STREAM.CREATE.{s}", body) for body in BAD_BODIES),
        info(s),
    ]


def changing(s: str) -> Story:
    return [
        update(s),
        create(s, metadata={"a": "b", "_nats.ver": "1", "_nats.level": "9"}),
        update(s, description="new", max_msgs=10),
        update(s, subjects=[f"{s}.x", f"{s}.y"]),
        publish(f"{s}.x"),
        update(s, storage="memory"),
        update(s, retention="workqueue"),
        update(s, num_replicas=3),
        update(s, deny_delete=True, deny_purge=True),
        update(s),
        update(s, deny_delete=True, deny_purge=True, sealed=True),
        update(s, deny_delete=True, deny_purge=True),
        purge(s),
        delete_message(s, seq=1),
        ask(f"STREAM.UPDATE.{s}", {"name": "other"}),
        *(ask(f"STREAM.UPDATE.{s}", body) for body in BAD_BODIES),
        info(s),
    ]


def showing(s: str) -> Story:
    return [
        info(s),
        *filled(s),
        info(s),
        info(s, subjects_filter=">"),
        info(s, subjects_filter=f"{s}.*"),
        info(s, subjects_filter=f"{s}.a"),
        info(s, subjects_filter=f"{s}.>", offset=1),
        info(s, subjects_filter=f"{s}.>", offset=99),
        info(s, subjects_filter=f"{s}.>", offset=-1),
        info(s, subjects_filter="nothing"),
        info(s, subjects_filter="a..b"),
        info(s, subjects_filter="a b"),
        info(s, subjects_filter=">.a"),
        info(s, offset=5),
        delete_message(s, seq=2),
        delete_message(s, seq=4),
        info(s, deleted_details=True),
        info(s, deleted_details=False),
        ask(f"STREAM.INFO.{s}", b"  "),
        ask(f"STREAM.INFO.{s}", b"{}"),
        *(ask(f"STREAM.INFO.{s}", body) for body in BAD_BODIES),
        ask_in_vain(f"STREAM.INFO.{s}.{s}"),
        ask_in_vain("STREAM.INFO"),
    ]


def removing(s: str) -> Story:
    return [
        ask(f"STREAM.DELETE.{s}"),
        create(s),
        ask(f"STREAM.DELETE.{s}", b"x"),
        ask(f"STREAM.DELETE.{s}", b'{"a":1}'),
        ask(f"STREAM.DELETE.{s}", b"[]"),
        ask(f"STREAM.DELETE.{s}", b"null"),
        ask(f"STREAM.DELETE.{s}", b" {} "),
        ask(f"STREAM.DELETE.{s}"),
        info(s),
        publish(f"{s}.a"),
    ]


def purging(s: str) -> Story:
    return [
        purge(s),
        *filled(s),
        purge(s, seq=3, keep=1),
        purge(s, seq=3),
        info(s),
        purge(s, seq=1),
        purge(s, keep=2),
        info(s, subjects_filter=">"),
        purge(s, keep=100),
        purge(s, seq=100),
        info(s),
        publish(f"{s}.a"),
        info(s),
        purge(s),
        purge(s),
        info(s, deleted_details=True),
        publish(f"{s}.a"),
        info(s),
        *(ask(f"STREAM.PURGE.{s}", body) for body in BAD_BODIES),
        info(s),
    ]


def purging_what_is_empty(s: str) -> Story:
    story: Story = []
    requests: list[dict[str, Any]] = [{}, {"seq": 1}, {"keep": 1}, {"seq": 5}, {"filter": ">"}]
    for place, request in enumerate(requests):
        name = f"{s}-{place}"
        story += [create(name), purge(name, **request), info(name), purge(name), info(name)]
        story += [publish(f"{name}.a"), info(name)]
    return story


def refusing_new_ones(s: str) -> Story:
    """Stored messages stay, however narrow the limits become; a full subject may make room."""
    story: Story = []
    for place, (storage, limits) in enumerate(
        (storage, limits)
        for storage in ("file", "memory")
        for limits in ({"max_msgs": 1}, {"max_bytes": 50}, {"max_msgs_per_subject": 1})
    ):
        name = f"{s}-{place}"
        narrow = {"storage": storage, "discard": "new"} | limits
        story += [create(name, storage=storage)]
        story += [publish(f"{name}.{each}", each.encode() * 9) for each in "aabcb"]
        story += [update(name, **narrow), info(name), publish(f"{name}.c", b"xyz")]
        story += [update(name, **narrow | {"sealed": True}), info(name)]
        full = f"{name}-full"
        kept = {"storage": storage, "discard": "new", "max_bytes": 110, "max_msgs_per_subject": 1}
        story += [create(full, **kept), publish(f"{full}.a", b"x" * 20), info(full)]
        story += [publish(f"{full}.b", b"y" * 20), publish(f"{full}.a", b"x" * 21)]
        story += [publish(f"{full}.a", b"x" * 20), publish(f"{full}.a", b"z"), info(full)]
    return story


def coming_to_be_kept_by_interest(s: str) -> Story:
    """Messages that all consumers are done with are removed; without a consumer all are."""
    explicit = {"ack_policy": "explicit"}
    kinds: list[list[dict[str, Any]]] = [
        [],
        [explicit],
        [explicit | {"deliver_policy": "new"}],
        [explicit | {"deliver_policy": "by_start_sequence", "opt_start_seq": 3}],
        [explicit | {"filter_subject": "a"}],
        [explicit | {"filter_subject": "a"}, explicit | {"deliver_policy": "new"}],
    ]
    story: Story = []
    for place, consumers in enumerate(kinds):
        name = f"{s}-{place}"
        # The subjects are all there is, so that a filter need not know the stream's name.
        subjects = [f"{name}.>", "a"] if place == len(kinds) - 1 else [f"{name}.>"]
        story += [create(name, subjects=subjects)]
        story += [publish(f"{name}.{each}") for each in "abcab"]
        story += [publish("a")] if "a" in subjects else []
        for number, config in enumerate(consumers):
            asked = {"stream_name": name, "config": {"durable_name": f"c{number}"} | config}
            story.append(ask(f"CONSUMER.CREATE.{name}.c{number}", asked))
        story += [update(name, subjects=subjects, retention="interest")]
        story += [info(name, deleted_details=True), publish(f"{name}.z")]
        story += [info(name, deleted_details=True), update(name, subjects=subjects), info(name)]
    return story


def purging_by_subject(s: str) -> Story:
    return [
        *filled(s),
        *(publish(f"{s}.{subject}") for subject in "abcab"),
        purge(s, filter=f"{s}.a", keep=2),
        info(s, subjects_filter=">", deleted_details=True),
        purge(s, filter=f"{s}.a", seq=7),
        info(s, subjects_filter=">"),
        purge(s, filter=f"{s}.*", keep=3),
        info(s, subjects_filter=">"),
        purge(s, filter=f"{s}.b", seq=1),
        purge(s, filter=f"{s}.b", seq=100),
        purge(s, filter="nothing"),
        purge(s, filter="a..b"),
        info(s, subjects_filter=">", deleted_details=True),
        purge(s, filter=">"),
        info(s),
        publish(f"{s}.a"),
        info(s),
    ]


def purging_is_denied(s: str) -> Story:
    return [
        *filled(s, deny_purge=True),
        purge(s),
        purge(s, filter=f"{s}.a"),
        update(s, deny_purge=True, sealed=True),
        purge(s),
        info(s),
    ]


def getting(s: str) -> Story:
    return [
        get(s, seq=1),
        *filled(s),
        *(get(s, seq=seq) for seq in (0, 1, 2, 4, 5, 6, 2**63)),
        *(get(s, last_by_subj=f"{s}.{rest}") for rest in ("a", "b", "z", "*", ">", "c.d")),
        get(s, last_by_subj=">"),
        *(get(s, next_by_subj=f"{s}.a", seq=seq) for seq in (0, 1, 2, 3, 4, 100)),
        get(s, next_by_subj=f"{s}.*", seq=2),
        get(s, next_by_subj="nothing"),
        get(s, start_time=LONG_AGO),
        get(s, start_time=FAR_AHEAD),
        get(s, start_time=LONG_AGO, next_by_subj=f"{s}.b"),
        get(s, start_time="yesterday"),
        get(s, start_time=None, seq=1),
        get(s, seq=2, no_hdr=True),
        get(s, seq=1, last_by_subj=f"{s}.a"),
        get(s, seq=1, start_time=LONG_AGO),
        get(s, last_by_subj=f"{s}.a", start_time=LONG_AGO),
        get(s, last_by_subj=f"{s}.a", next_by_subj=f"{s}.a"),
        get(s, seq=1, batch=2),
        get(s, seq=1, max_bytes=2),
        get(s, seq=1, batch=-1),
        get(s, multi_last=[f"{s}.a"]),
        ask(f"STREAM.MSG.GET.{s}"),
        ask(f"STREAM.MSG.GET.{s}", b" "),
        *(ask(f"STREAM.MSG.GET.{s}", body) for body in BAD_BODIES),
        ask_in_vain("STREAM.MSG.GET"),
    ]


def deleting(s: str) -> Story:
    return [
        delete_message(s, seq=1),
        *filled(s),
        delete_message(s, seq=3),
        get(s, seq=3),
        delete_message(s, seq=3),
        delete_message(s, seq=3, no_erase=True),
        delete_message(s, seq=2, no_erase=True),
        delete_message(s, seq=6),
        delete_message(s, seq=6, no_erase=True),
        delete_message(s, seq=0),
        delete_message(s, no_erase=True),
        delete_message(s, seq=2**64 - 1),
        info(s, deleted_details=True),
        delete_message(s, seq=1),
        info(s, deleted_details=True),
        delete_message(s, seq=1),
        delete_message(s, seq=5),
        info(s, deleted_details=True),
        publish(f"{s}.a"),
        info(s, deleted_details=True),
        ask(f"STREAM.MSG.DELETE.{s}"),
        *(ask(f"STREAM.MSG.DELETE.{s}", body) for body in BAD_BODIES),
        info(s, deleted_details=True),
        update(s, deny_delete=True),
        delete_message(s, seq=4),
    ]


def deleting_from_memory(s: str) -> Story:
    return [
        create(s, subjects=[f"{s}.>"], storage="memory"),
        delete_message(s, seq=1),
        publish(f"{s}.a"),
        publish(f"{s}.a"),
        *(delete_message(s, seq=seq) for seq in (0, 1, 1, 3, 9)),
    ]


def getting_directly(s: str) -> Story:
    return [
        direct(s, seq=1),
        *filled(s),
        direct(s, seq=1),
        update(s, allow_direct=True),
        *(direct(s, seq=seq) for seq in (0, 1, 2, 4, 5, 6)),
        *(direct(s, last_by_subj=f"{s}.{rest}") for rest in ("a", "b", "z", "*", ">")),
        *(direct(s, next_by_subj=f"{s}.a", seq=seq) for seq in (0, 1, 2, 4)),
        direct(s, next_by_subj=f"{s}.*", seq=2),
        direct(s, start_time=LONG_AGO),
        direct(s, start_time=FAR_AHEAD),
        direct(s, start_time="yesterday"),
        direct(s, start_time=LONG_AGO, next_by_subj=f"{s}.b"),
        direct(s, seq=2, no_hdr=True),
        direct(s, seq=1, no_hdr=True),
        direct(s, seq=1, last_by_subj=f"{s}.a"),
        direct(s, seq=1, start_time=LONG_AGO),
        direct(s, last_by_subj=f"{s}.a", start_time=LONG_AGO),
        direct(s, last_by_subj=f"{s}.a", next_by_subj=f"{s}.a"),
        direct(s, last_by_subj=f"{s}.a", batch=2),
        direct(s, bogus=True),
        direct(s, bogus=True, seq=1),
        ask(f"DIRECT.GET.{s}"),
        *(ask(f"DIRECT.GET.{s}", body) for body in BAD_BODIES),
        ask(f"DIRECT.GET.{s}", {"seq": 1}, headers={"Nats-Required-Api-Level": "99"}),
        ask(f"DIRECT.GET.{s}", {"seq": 1}, headers={"Nats-Required-Api-Level": "5"}),
        update(s, allow_direct=False),
        direct(s, seq=1),
    ]


def getting_directly_by_subject(s: str) -> Story:
    by_subject = f"DIRECT.GET.{s}.{s}"
    return [
        *filled(s, allow_direct=True),
        *(ask(f"{by_subject}.{rest}") for rest in ("a", "b", "c.d", "z")),
        ask(f"{by_subject}.a", {"no_hdr": True}),
        ask(f"{by_subject}.b", {"no_hdr": True}),
        ask(f"{by_subject}.a", {}),
        ask(f"{by_subject}.a", {"seq": 1}),
        ask(f"{by_subject}.a", {"batch": 1}),
        ask(f"{by_subject}.a", {"batch": -1}),
        ask(f"{by_subject}.a", {"max_bytes": 1}),
        ask(f"{by_subject}.a", {"last_by_subj": "x"}),
        ask(f"{by_subject}.a", {"up_to_seq": 1}),
        ask(f"{by_subject}.a", b"x"),
        ask(f"{by_subject}.a", b"{"),
        ask(f"{by_subject}.a", headers={"Nats-Required-Api-Level": "99"}),
        ask(f"{by_subject}.a", headers={"Nats-Required-Api-Level": "x"}),
        ask(f"DIRECT.GET.none.{s}"),
    ]


def getting_batches(s: str) -> Story:
    return [
        *filled(s, allow_direct=True),
        get_many(s, seq=1, batch=3),
        get_many(s, seq=1, batch=100),
        get_many(s, seq=4, batch=1),
        get_many(s, seq=5, batch=2),
        get_many(s, seq=6, batch=2),
        get_many(s, seq=1, batch=100, max_bytes=1),
        get_many(s, seq=1, batch=100, max_bytes=20),
        get_many(s, seq=1, batch=2, next_by_subj=f"{s}.a"),
        get_many(s, batch=2, next_by_subj=f"{s}.a"),
        get_many(s, batch=5, next_by_subj=f"{s}.*"),
        get_many(s, batch=5, next_by_subj="nothing"),
        get_many(s, start_time=LONG_AGO, batch=2),
        get_many(s, start_time=FAR_AHEAD, batch=2),
        get_many(s, start_time=LONG_AGO, batch=2, next_by_subj=f"{s}.b"),
        delete_message(s, seq=2),
        delete_message(s, seq=3),
        get_many(s, seq=2, batch=2),
        get_many(s, seq=1, batch=2, no_hdr=True),
    ]


def getting_last_of_many(s: str) -> Story:
    return _last_of_many(s, "file")


def getting_last_of_many_from_memory(s: str) -> Story:
    return _last_of_many(s, "memory")


def _last_of_many(s: str, storage: str) -> Story:
    a, b = f"{s}.a", f"{s}.b"
    return [
        *filled(s, allow_direct=True, storage=storage),
        get_many(s, multi_last=[a]),
        get_many(s, multi_last=[a, b]),
        get_many(s, multi_last=[f"{s}.>"]),
        get_many(s, multi_last=[f"{s}.>"], batch=2),
        get_many(s, multi_last=[f"{s}.>"], max_bytes=1),
        get_many(s, multi_last=[f"{s}.>"], seq=4),
        get_many(s, multi_last=[f"{s}.>"], seq=100),
        get_many(s, multi_last=[f"{s}.>"], up_to_seq=2),
        get_many(s, multi_last=[f"{s}.>"], up_to_seq=5),
        get_many(s, multi_last=[f"{s}.>"], up_to_seq=6),
        get_many(s, multi_last=[f"{s}.>"], up_to_seq=100),
        get_many(s, multi_last=[f"{s}.>"], up_to_time=FAR_AHEAD),
        get_many(s, multi_last=[f"{s}.>"], up_to_time=LONG_AGO),
        get_many(s, multi_last=[f"{s}.>"], up_to_time=LONG_AGO, up_to_seq=2),
        get_many(s, multi_last=["nothing"]),
        get_many(s, multi_last=[a], last_by_subj=a),
        get_many(s, multi_last=[a], next_by_subj=a),
        get_many(s, multi_last=[]),
        get_many(s, multi_last=[a, f"{s}.*"]),
    ]


def levels(s: str) -> Story:
    texts = ("0", "1", "5", "6", "x", "-1", " 5", "", "99999999999999999999", "5.0")
    verbs = ("PURGE", "DELETE", "MSG.GET", "MSG.DELETE", "SNAPSHOT", "RESTORE", "CREATE", "UPDATE")
    too_new = {"Nats-Required-Api-Level": "9"}
    return [
        create(s),
        *(ask(f"STREAM.INFO.{s}", headers={"Nats-Required-Api-Level": text}) for text in texts),
        *(ask(f"STREAM.{verb}.{s}", headers=too_new) for verb in verbs),
        *(ask(each, headers=too_new) for each in ("STREAM.NAMES", "STREAM.LIST", "INFO")),
    ]


def snapshots_that_cannot_be(s: str) -> Story:
    snapshot, restore = f"STREAM.SNAPSHOT.{s}", f"STREAM.RESTORE.{s}"
    return [
        ask(snapshot, {"deliver_subject": "x"}),
        create(s),
        ask(snapshot),
        ask(snapshot, {}),
        ask(snapshot, {"chunk_size": 5}),
        *(ask(snapshot, {"deliver_subject": each}) for each in ("", "a.*", ">", "a b", "a..b")),
        *(ask(snapshot, body) for body in BAD_BODIES),
        ask(restore),
        ask(restore, {}),
        ask(restore, {"config": {"name": s}}),
        ask(restore, {"config": {"name": "other"}}),
        ask(restore, {"config": {}}),
        ask(restore, {"config": {"name": s, "max_age": -1}}),
        ask(f"STREAM.RESTORE.{s}-2", {"config": {"name": f"{s}-2", "num_replicas": 9}}),
        ask(f"STREAM.RESTORE.{s}-2", {"config": {"name": f"{s}-2", "retention": "x"}}),
        ask(f"STREAM.RESTORE.{s}-2", {"config": {"name": f"{s}-2", "max_age": 1}}),
        *(ask(restore, body) for body in BAD_BODIES),
    ]


def asking_in_vain(s: str) -> Story:
    return [
        create(s),
        ask_in_vain("BOGUS"),
        ask_in_vain(f"STREAM.BOGUS.{s}"),
        ask_in_vain("STREAM.TEMPLATE.NAMES"),
        ask_in_vain("META.LEADER.STEPDOWN"),
        ask_in_vain("SERVER.REMOVE"),
        ask_in_vain("ACCOUNT.PURGE.A"),
        ask(f"STREAM.LEADER.STEPDOWN.{s}"),
        ask(f"STREAM.PEER.REMOVE.{s}"),
        ask(f"STREAM.PEER.EVACUATE.{s}"),
        ask(f"STREAM.CANCEL_MOVE.{s}"),
        ask(f"CONSUMER.LEADER.STEPDOWN.{s}.c"),
        ask(f"CONSUMER.MSG.NEXT.{s}.c"),
    ]


def _with(**config: Any) -> Teller:
    def tell(s: str) -> Story:
        return [
            *filled(s, **config),
            info(s, subjects_filter=">", deleted_details=True),
            purge(s, filter=f"{s}.a"),
            delete_message(s, seq=4),
            info(s, subjects_filter=">", deleted_details=True),
            update(s, **config),
            purge(s),
            info(s),
        ]

    return tell


TELLERS: list[Teller] = [
    making,
    changing,
    showing,
    removing,
    purging,
    purging_what_is_empty,
    refusing_new_ones,
    coming_to_be_kept_by_interest,
    purging_by_subject,
    purging_is_denied,
    getting,
    deleting,
    deleting_from_memory,
    getting_directly,
    getting_directly_by_subject,
    getting_batches,
    getting_last_of_many,
    getting_last_of_many_from_memory,
    levels,
    snapshots_that_cannot_be,
    asking_in_vain,
]

CONFIGURED: list[Teller] = [
    _with(storage="memory"),
    _with(first_seq=100),
    _with(storage="memory", first_seq=100),
    _with(compression="s2"),
    _with(max_msgs=3),
    _with(max_msgs=3, storage="memory"),
    _with(max_bytes=200),
    _with(max_bytes=200, storage="memory"),
    _with(max_msgs_per_subject=1),
    _with(max_msgs=3, discard="new"),
    _with(max_msg_size=4),
    _with(allow_rollup_hdrs=True, allow_direct=True, description="text", metadata={"k": "v"}),
    _with(consumer_limits={"inactive_threshold": 10**9, "max_ack_pending": 5}),
    _with(placement={"cluster": "c", "tags": ["a"]}),
    _with(persist_mode="async"),
    _with(allow_msg_ttl=True),
    _with(duplicate_window=10**9, max_age=3600 * 10**9),
]
