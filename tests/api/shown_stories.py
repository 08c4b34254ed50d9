"""Streams, consumers and messages with everything that answers can show of them, in all answers."""

from __future__ import annotations

from typing import Any

from tests.api.compared import (
    Step,
    Story,
    Teller,
    ask,
    create,
    delete_message,
    get,
    info,
    publish,
    purge,
    update,
)
from tests.api.consumer_stories import HOUR_NS, about, consumer, durable
from tests.api.stories import FAR_AHEAD

TEXT = '<&>"\\\u2028\u00e9\U0001f600\x7f\b\f\n\r\t\x00'
NAMES = ("a", "A", "b.c", "b", "\u00e9", "z<&>", 'q"u\\o', "\u2028", "\U0001f600", "a.b.c.d")
"""Subjects' ends, whose order by bytes and whose escapes differ from others'."""

EVERYTHING = {
    "description": TEXT,
    "max_consumers": 100,
    "max_msgs": 1_000,
    "max_bytes": 2**20,
    "max_age": HOUR_NS,
    "max_msgs_per_subject": 5,
    "max_msg_size": 2**16,
    "discard": "new",
    "discard_new_per_subject": True,
    "duplicate_window": 10**9,
    "compression": "s2",
    "first_seq": 7,
    "allow_direct": True,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "consumer_limits": {"inactive_threshold": 3 * HOUR_NS, "max_ack_pending": 500},
    "allow_msg_ttl": True,
    "allow_atomic": True,
    "metadata": {"b": TEXT, "a": "", "\u00e9": "x", TEXT: "y"},
    "placement": {"cluster": "c", "tags": ["t", TEXT]},
}
PULLED = {
    "description": TEXT,
    "ack_policy": "explicit",
    "ack_wait": 5 * 10**9,
    "max_deliver": 5,
    "backoff": [10**9, 2 * 10**9],
    "max_ack_pending": 77,
    "max_waiting": 9,
    "max_batch": 8,
    "max_expires": 10**9,
    "max_bytes": 4096,
    "sample_freq": "30%",
    "headers_only": True,
    "inactive_threshold": HOUR_NS,
    "mem_storage": True,
    "pause_until": FAR_AHEAD,
    "metadata": {"z": "1", TEXT: TEXT},
    "priority_groups": ["g"],
    "priority_policy": "pinned_client",
    "priority_timeout": 10**9,
}
PUSHED = {
    "deliver_subject": "to.<&>",
    "deliver_group": "group",
    "deliver_policy": "by_start_sequence",
    "opt_start_seq": 9,
    "replay_policy": "original",
    "rate_limit_bps": 4096,
    "flow_control": True,
    "idle_heartbeat": 10**9,
    "ack_policy": "all",
}


def _messages(s: str, **more: Any) -> Story:
    return [
        *(publish(f"{s}.{name}", name.encode(), **more) for name in NAMES),
        publish(f"{s}.a", bytes(range(256)), headers={"X": "\u00e9 <&>", "Y": ""}),
        publish(f"{s}.a", b""),
        publish(f"{s}.a", b"x" * 1000),
    ]


def _answers_about(s: str) -> Story:
    """Ask for a stream in every way."""
    return [
        info(s),
        *(info(s, subjects_filter=each) for each in (">", f"{s}.>", f"{s}.a", f"{s}.*", "none")),
        *(info(s, subjects_filter=f"{s}.{each}") for each in ("a.>", "b.*", "\u00e9", "a..b", "")),
        *(info(s, subjects_filter=">", offset=each) for each in (-1, 1, 3, 10, 11, 10**6)),
        info(s, deleted_details=True),
        info(s, deleted_details=True, subjects_filter=">", offset=2),
        *_oddly_written(f"STREAM.INFO.{s}"),
        ask("STREAM.LIST", {"subject": f"{s}.a"}),
        ask("STREAM.NAMES", {"subject": f"{s}.>"}),
    ]


def _oddly_written(endpoint: str) -> Story:
    return [
        ask(endpoint, body)
        for body in (
            b' { "subjects_filter" : ">" , "offset" : 1 } \n',
            b'{"SUBJECTS_FILTER":">"}',
            b'{"subjects_filter":"\\u003e"}',
            b'{"subjects_filter":"a","subjects_filter":">"}',
            b'{"subjects_filter":null}',
            b'{"subjects_filter":">"}{"offset":2}',
            b'{"offset":1.0,"subjects_filter":">"}',
            b'{"offset":-0}',
            b'{"offset":01}',
            b'{"deleted_details":true,"bogus":1}',
            b'{"deleted_details":"true"}',
            b'{"offset":9223372036854775807}',
            b'{"offset":9223372036854775808}',
            b"{}",
            b" {} ",
            b"[]",
            b'{"a"',
        )
    ]


def everything_of_a_stream(s: str) -> Story:
    return [
        create(s, **EVERYTHING),
        *_messages(s),
        *_answers_about(s),
        update(s, **EVERYTHING | {"description": "", "metadata": {}}),
        info(s),
        ask("STREAM.LIST", {"subject": f"{s}.a"}),
    ]


def gaps_of_a_stream(s: str) -> Story:
    gone: list[Step] = [delete_message(s, seq=seq) for seq in (2, 3, 5, 13)]
    return [
        create(s),
        *_messages(s),
        *gone,
        *_answers_about(s),
        purge(s, filter=f"{s}.a"),
        *_answers_about(s),
        purge(s),
        *_answers_about(s),
    ]


def messages_of_a_stream(s: str) -> Story:
    story: Story = []
    for name, config in (
        (s, {}),
        (f"{s}-s2", {"compression": "s2"}),
        (f"{s}-m", {"storage": "memory"}),
    ):
        story += [create(name, **config), *_messages(name), delete_message(name, seq=4)]
        story += [get(name, seq=seq, no_hdr=seq % 2 == 1) for seq in range(16)]
        story += [get(name, seq=11), get(name, seq=11, no_hdr=False)]
        story += [
            get(name, last_by_subj=f"{name}.{each}") for each in (*NAMES, "*", ">", "none", "")
        ]
        story += [
            get(name, seq=seq, next_by_subj=f"{name}.{each}")
            for seq in (0, 2, 12, 99)
            for each in ("a", "*", ">", "none", "b.>")
        ]
        story += [
            ask(f"STREAM.MSG.GET.{name}", body)
            for body in (
                b'{"seq":1,"SEQ":2}',
                b'{"seq":1 }',
                b'{"seq":"1"}',
                b'{"seq":18446744073709551615}',
                b'{"seq":-1}',
                b'{"seq":1}{"seq":2}',
                b'{"last_by_subj":"\\u0061"}',
                b'{"seq":1,"last_by_subj":"a"}',
                b"{}",
                b"",
            )
        ]
    return story


def everything_of_consumers(s: str) -> Story:
    return [
        create(s),
        *_messages(s),
        durable(s, "pulled", **PULLED),
        durable(s, "pushed", **PUSHED),
        consumer(s, "filtered", filter_subjects=[f"{s}.a", f"{s}.\u00e9"]),
        consumer(s, "one", f"{s}.b", filter_subject=f"{s}.b"),
        *(about(s, name) for name in ("pulled", "pushed", "filtered", "one", "none")),
        *(ask(f"CONSUMER.INFO.{s}.one", body) for body in (b"{}", b" {} ", b"{", b'{"a":1}')),
        ask(f"CONSUMER.NAMES.{s}"),
        ask(f"CONSUMER.LIST.{s}"),
        *(ask(f"CONSUMER.LIST.{s}", {"offset": each}) for each in (-1, 1, 4, 5)),
        *(ask(f"CONSUMER.NAMES.{s}", body) for body in (b"{", b'{"offset":"1"}', b"x", b"[]")),
        ask(f"CONSUMER.PAUSE.{s}.one", {"pause_until": FAR_AHEAD}),
        about(s, "one"),
        info(s),
    ]


TELLERS: list[Teller] = [
    everything_of_a_stream,
    gaps_of_a_stream,
    messages_of_a_stream,
    everything_of_consumers,
]
