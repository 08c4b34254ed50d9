"""Every stream option with every other: one fixed script, played on a server over the wire.

The script publishes what the options are about (ids, expectations, rollups, lifetimes, counters,
batches, schedules, sizes), takes some of it through a consumer, and removes messages. An outcome is
all that a client can see of it: answers, copies, stored messages, deliveries and the state.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from penstock.testing.servers import WAIT_S
from tests.api.compared import headers_of, shown
from tests.support.nats_client import Delivery, NatsClient

HOUR_NS: Final = 3600 * 10**9
ORIGIN: Final = "ORIGIN"
"""An empty stream for mirrors and sources, which must exist on both servers."""

Fields = dict[str, Any]

OPTIONS: Final[dict[str, Fields]] = {
    "description": {"description": "words"},
    "memory": {"storage": "memory"},
    "interest": {"retention": "interest"},
    "workqueue": {"retention": "workqueue"},
    "discard new": {"discard": "new"},
    "discard new per subject": {
        "discard": "new",
        "discard_new_per_subject": True,
        "max_msgs_per_subject": 2,
    },
    "only discard_new_per_subject": {"discard_new_per_subject": True},
    "max_msgs": {"max_msgs": 6},
    "max_bytes": {"max_bytes": 600},
    "max_age": {"max_age": HOUR_NS},
    "max_msgs_per_subject": {"max_msgs_per_subject": 2},
    "max_msg_size": {"max_msg_size": 90},
    "max_consumers": {"max_consumers": 1},
    "num_replicas": {"num_replicas": 3},
    "placement": {"placement": {"cluster": "C", "tags": ["t"]}},
    "duplicate_window": {"duplicate_window": HOUR_NS // 60},
    "no_ack": {"no_ack": True},
    "allow_rollup_hdrs": {"allow_rollup_hdrs": True},
    "deny_delete": {"deny_delete": True},
    "deny_purge": {"deny_purge": True},
    "allow_direct": {"allow_direct": True},
    "mirror_direct": {"mirror_direct": True},
    "mirror": {"mirror": {"name": ORIGIN}},
    "sources": {"sources": [{"name": ORIGIN}]},
    "sealed": {"sealed": True},
    "compression": {"compression": "s2"},
    "first_seq": {"first_seq": 100},
    "subject_transform": {"subject_transform": {"src": "{s}.a", "dest": "to.{s}.a"}},
    "republish": {"republish": {"src": "{s}.>", "dest": "copy.{s}.>"}},
    "republish headers": {
        "republish": {"src": "{s}.a", "dest": "copy.{s}", "headers_only": True},
    },
    "consumer_limits": {
        "consumer_limits": {"inactive_threshold": HOUR_NS, "max_ack_pending": 500},
    },
    "metadata": {"metadata": {"key": "value"}},
    "allow_msg_ttl": {"allow_msg_ttl": True},
    "subject_delete_marker_ttl": {"subject_delete_marker_ttl": 2 * HOUR_NS},
    "allow_msg_counter": {"allow_msg_counter": True},
    "allow_atomic": {"allow_atomic": True},
    "allow_batched": {"allow_batched": True},
    "allow_msg_schedules": {"allow_msg_schedules": True},
    "persist_mode": {"persist_mode": "async"},
    "pedantic": {"pedantic": True},
    # Options that mean little without each other
    "full by messages": {"discard": "new", "max_msgs": 6},
    "full by bytes": {"discard": "new", "max_bytes": 600},
    "bucket": {
        "discard": "new",
        "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    },
    "markers": {"allow_msg_ttl": True, "subject_delete_marker_ttl": 2 * HOUR_NS},
    "counters": {"allow_msg_counter": True, "allow_atomic": True, "allow_direct": True},
}
"""{name: fields}; `{s}` in a text is the stream's name. Sealed streams are made so after the
script: none can be created."""


@dataclass(frozen=True)
class Pair:
    """A stream with the fields of at most two options."""

    stream: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join(self.options) or "no option"

    @property
    def config(self) -> Fields:
        """The configuration that is asked for."""
        fields: Fields = {"name": self.stream, "subjects": [f"{self.stream}.>"]}
        for name in self.options:
            if name != "sealed":
                fields |= OPTIONS[name]
        if "mirror" in fields:
            del fields["subjects"]
        found: Fields = json.loads(json.dumps(fields).replace("{s}", self.stream))
        return found


def fit_together(one: str, other: str) -> bool:
    """Return True if two options are no two values of the same field."""
    fields = OPTIONS[one]
    return all(fields.get(name, value) == value for name, value in OPTIONS[other].items())


def all_pairs() -> list[Pair]:
    """Return no option, each alone, and every two that fit together."""
    chosen: list[tuple[str, ...]] = [(), *((each,) for each in OPTIONS)]
    chosen += [pair for pair in itertools.combinations(OPTIONS, 2) if fit_together(*pair)]
    return [Pair(f"P{number}", each) for number, each in enumerate(chosen)]


PAIRS: Final = all_pairs()
SAMPLE: Final = [PAIRS[0], *Random(12).sample(PAIRS[1:], 39)]

Message = tuple[str, bytes, dict[str, str], str]
"""Subject, payload, headers, and the reply, or "" for one of its own."""


def _sent(subject: str, payload: bytes = b"x", /, **headers: str) -> Message:
    named = {f"Nats-{name.replace('_', '-')}": value for name, value in headers.items()}
    return subject, payload, named, ""


def _batch(name: str, *messages: Message) -> Iterator[Message]:
    """Yield the members of an atomic batch; the last commits it."""
    for number, (subject, payload, headers, reply) in enumerate(messages, 1):
        ends = {"Nats-Batch-Commit": "1"} if number == len(messages) else {}
        member = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(number)}
        yield subject, payload, headers | member | ends, reply


def _fast(subject: str, number: int, operation: int) -> Message:
    return subject, b"fast", {}, f"_IN.fast.f1.10.fail.{number}.{operation}.$FI"


def script(s: str) -> list[Message]:
    """Return all that is published to a stream of a name."""
    a, b, c, n = (f"{s}.{each}" for each in ("a", "b", "c.d", "n"))
    return [
        _sent(a, b"one"),
        _sent(b, b""),
        (a, b"", {"X": "only headers"}, ""),
        (c, b"four", {"X": "1", "Y": "a b"}, ""),
        # Ids
        _sent(a, b"five", Msg_Id="1"),
        _sent(b, b"again", Msg_Id="1"),
        _sent(b, b"six", Msg_Id="2"),
        # Expectations, some of them right in most streams
        _sent(a, Expected_Stream=s),
        _sent(a, Expected_Stream="OTHER"),
        _sent(a, Expected_Last_Sequence="7"),
        _sent(a, Expected_Last_Sequence="9999"),
        _sent(f"{s}.new", Expected_Last_Subject_Sequence="0"),
        _sent(f"{s}.new", Expected_Last_Subject_Sequence="0"),
        _sent(
            c, Expected_Last_Subject_Sequence="6", Expected_Last_Subject_Sequence_Subject=f"{s}.b"
        ),
        _sent(a, Expected_Last_Msg_Id="2"),
        _sent(a, Msg_Id="3"),
        _sent(a, Expected_Last_Msg_Id="3"),
        # Lifetimes, rollups and counters
        _sent(a, TTL="1h"),
        _sent(b, TTL="never"),
        _sent(b, TTL="soon"),
        _sent(a, b"rolled up", Rollup="sub"),
        _sent(n, b"", Incr="+5"),
        _sent(n, b"", Incr="-2"),
        _sent(n, b"", Incr="much"),
        _sent(n, b"", Incr="1", Msg_Id="4"),
        _sent(n, b"", Incr="1", Msg_Id="4"),
        _sent(n, b"", Incr="7", TTL="2h"),
        # Batches
        *_batch("one", _sent(a, b"b1"), _sent(b, b"b2"), _sent(a, b"b3", Msg_Id="5")),
        *_batch("two", _sent(n, b"", Incr="1"), _sent(n, b"", Incr="10")),
        *_batch("ids", _sent(a, Msg_Id="6"), _sent(a, Msg_Id="6")),
        _sent(a, Batch_Id="gap", Batch_Sequence="1"),
        _sent(a, Batch_Id="gap", Batch_Sequence="3"),
        _fast(a, 1, 0),
        _fast(b, 2, 1),
        _fast(c, 3, 2),
        # Schedules, levels, sizes
        _sent(f"{s}.plan", Schedule="@at 2101-02-03T04:05:06Z", Schedule_Target=f"{s}.due"),
        _sent(f"{s}.plan", Schedule="sometimes", Schedule_Target=f"{s}.due"),
        _sent(a, Required_Api_Level="99"),
        _sent(a, b"L" * 200),
        (a, b"", {"X": "H" * 200}, ""),
        # All that came before goes, where rollups are allowed
        _sent(b, b"all", Rollup="all"),
        *(_sent(f"{s}.a", b"later %d" % each) for each in range(3)),
        *(_sent(f"{s}.many.{each}", b"y" * each) for each in range(4)),
        (b, b"with lines", {"Nats-Msg-Id": "7", "X": "y"}, ""),
        _sent(n, b"", Incr="3"),
        _sent(f"{s}.m", b"", Incr="4"),
    ]


_ACTIVE = re.compile(rb'"active":-?\d+')
_ACK = re.compile(r"(\$JS\.ACK\..*)\.\d+\.(\d+)$")
ASKED: Final = "_IN.ask."
"""The beginning of the subjects that requests are answered to."""

ODD: Final = b',"num_deleted":1,"deleted":[0]'
"""The real server shows this for a stream on disk that never had a message."""

Outcome = dict[str, list[bytes]]
"""{part of the play: what a client saw of it}, without what no two servers have in common."""


def _seen(found: Delivery) -> bytes:
    reply = _ACK.sub(r"\1.<time>.\2", found.reply)
    whole = f"{found.subject} {reply} ".encode() + found.headers + b"|" + found.payload
    return _ACTIVE.sub(b'"active":0', shown(whole)).replace(ODD, b"")


class Player:
    """A connection that plays pairs on one server."""

    def __init__(self, client: NatsClient) -> None:
        self._client = client
        self._copies: list[bytes] = []
        self._late: list[bytes] = []
        client.subscribe("copy.>")

    def _next(self) -> Delivery:
        """Return the next delivery that is no copy."""
        while (found := self._client.next_delivery()).subject.startswith("copy."):
            self._copies.append(_seen(found))
        return found

    def _ask(self, *requests: tuple[str, Fields | bytes | None]) -> list[bytes]:
        """Return the answers to requests, in the order of the requests."""
        for number, (subject, document) in enumerate(requests):
            body = document if isinstance(document, bytes) else b""
            if isinstance(document, dict):
                body = json.dumps(document).encode()
            self._client.publish(subject, body, reply=f"{ASKED}{number}")
        found: list[Delivery] = []
        while len(found) < len(requests):
            answer = self._next()
            if answer.subject.startswith(ASKED):
                found.append(answer)
            else:
                self._late.append(_seen(answer))
        return [_seen(each) for each in sorted(found, key=_number)]

    def play(self, pair: Pair, expected: Outcome | None = None) -> Outcome:
        """Play the script; `expected` is the outcome on the other server, if it is known."""
        s, api = pair.stream, "$JS.API"
        self._copies, self._late = [], []
        created = self._ask((f"{api}.STREAM.CREATE.{s}", pair.config))
        if b'"error":' in created[0]:
            return {"created": created}
        durable = {"durable_name": "C", "ack_policy": "explicit", "max_deliver": 5}
        consumer = {"stream_name": s, "config": durable}
        outcome = {
            "created": created,
            "consumer": self._ask((f"{api}.CONSUMER.DURABLE.CREATE.{s}.C", consumer)),
            "published": self._publish(s, answered=not pair.config.get("no_ack")),
        }
        outcome["state"] = self._state(s, None if expected is None else expected.get("state"))
        state = _document(outcome["state"][0])["state"]
        first, last = max(state["first_seq"], 1), state["last_seq"]
        get = f"{api}.STREAM.MSG.GET.{s}"
        outcome["stored"] = self._ask(*((get, {"seq": seq}) for seq in range(first, last + 1)))
        outcome["asked"] = self._ask(
            (get, {"last_by_subj": f"{s}.a"}),
            (get, {"next_by_subj": f"{s}.*", "seq": first}),
            (f"{api}.DIRECT.GET.{s}", {"seq": last}),
            (f"{api}.DIRECT.GET.{s}", {"last_by_subj": f"{s}.n"}),
            (f"{api}.DIRECT.GET.{s}.{s}.b", None),
        )
        outcome |= self._consume(s, state["messages"])
        outcome["removed"] = [
            *self._ask((f"{api}.STREAM.MSG.DELETE.{s}", {"seq": last, "no_erase": True})),
            *self._ask((f"{api}.STREAM.MSG.DELETE.{s}", {"seq": last})),
            *self._ask((f"{api}.STREAM.PURGE.{s}", {"filter": f"{s}.many.*", "keep": 1})),
            *self._state(s, None),
        ]
        if "sealed" in pair.options:
            sealed = self._ask((f"{api}.STREAM.UPDATE.{s}", pair.config | {"sealed": True}))
            refused = self._publish(s, answered=not pair.config.get("no_ack"))
            outcome["sealed"] = sealed + refused
        outcome["emptied"] = [
            *self._ask((f"{api}.STREAM.PURGE.{s}", None)),
            *self._state(s, None),
        ]
        outcome["consumer left"] = self._ask((f"{api}.CONSUMER.INFO.{s}.C", None))
        outcome["deleted"] = self._ask((f"{api}.STREAM.DELETE.{s}", None))
        return outcome | {"copies": self._copies, "late": self._late}

    def _publish(self, s: str, *, answered: bool) -> list[bytes]:
        """Publish the script; return the answers in their order.

        Answers that come though none are expected are found among those to later requests.
        """
        for number, (subject, payload, headers, reply) in enumerate(script(s)):
            told = reply or f"_IN.{number}"
            self._client.publish(subject, payload, headers=headers_of(headers), reply=told)
        if not answered:
            return []
        # It is refused, and answered behind everything else.
        refused = headers_of({"Nats-Expected-Stream": "OTHER"})
        self._client.publish(f"{s}.end", headers=refused, reply="_IN.end")
        found = []
        while (answer := self._next()).subject != "_IN.end":
            found.append(_seen(answer))
        return [*found, _seen(answer)]

    def _state(self, s: str, expected: list[bytes] | None) -> list[bytes]:
        """Return the stream's state; wait for the expected one, at most for a moment.

        The real server stores messages behind its answers to other requests, and a stream that
        acknowledges nothing shows no other sign of it.
        """
        give_up_s = time.monotonic() + WAIT_S / 10
        request = {"subjects_filter": ">", "deleted_details": True}
        while True:
            found = self._ask((f"$JS.API.STREAM.INFO.{s}", request))
            if expected is None or found == expected or time.monotonic() > give_up_s:
                return found

    def _consume(self, s: str, count: int) -> Outcome:
        """Take all messages through the consumer; acknowledge some, each in another way."""
        if not count:
            return {}
        request = {"batch": count, "expires": 2 * 10**9}
        self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{s}.C", json.dumps(request).encode(), reply="_IN.pull"
        )
        taken: list[Delivery] = []
        while len(taken) < count and (found := self._next()).subject != "_IN.pull":
            if found.reply:
                taken.append(found)
            else:
                self._late.append(_seen(found))
        words = (b"+ACK", b"+TERM", b"+ACK", b"-NAK", b"+WPI")
        acks = [(each.reply, word) for each, word in zip(taken, words, strict=False)]
        return {
            "delivered": [_seen(each) for each in taken],
            "acknowledged": [answer for each in acks for answer in self._ask(each)],
            "kept": self._state(s, None),
        }


def _number(found: Delivery) -> int:
    return int(found.subject.removeprefix(ASKED))


def _document(seen: bytes) -> Fields:
    found: Fields = json.loads(seen.partition(b"|")[2])
    return found


Difference = tuple[bytes | None, bytes | None]
"""What the real server does, and ours."""


def differences(real: Outcome, ours: Outcome) -> dict[str, list[Difference]]:
    """Return what differs between two outcomes, by the part of it."""
    found: dict[str, list[Difference]] = {}
    for part in {**real, **ours}:
        both = itertools.zip_longest(real.get(part, []), ours.get(part, []))
        if told := [(wanted, got) for wanted, got in both if wanted != got]:
            found[part] = told
    return found
