"""Traces of messages for streams: what each server reports, stores and answers."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.conformance.companies import assert_same
from tests.conformance.conftest import PairWith
from tests.conformance.traces import CONFIG, Story, Traced

pytestmark = pytest.mark.oracle

_SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Streams:
    """Creates a stream S of `js.>` for a story, reads it, and deletes it."""

    def __init__(self, all_: Traced, user: str = "a", **config: Any) -> None:
        self._all = all_
        self._user = f"{user}'s keeper"
        all_.peer(self._user, user=user)
        all_.say(self._user, "SUB answers 1")
        fields = {"name": "S", "subjects": ["js.>"], "storage": "memory", **config}
        self.ask("STREAM.CREATE.S", **fields)

    def ask(self, endpoint: str, **fields: Any) -> dict[str, Any]:
        """Ask the API."""
        body = json.dumps(fields) if fields else ""
        self._all.say(self._user, f"PUB $JS.API.{endpoint} answers {len(body)}", body)
        frames: list[bytes] = []
        while not frames:
            frames = self._all.frames(self._user)
        answer: dict[str, Any] = json.loads(frames[0].split(b"\r\n")[1])
        assert "error" not in answer or answer["error"]["code"] == 404, answer
        return answer

    def stored(self) -> list[tuple[str, bytes]]:
        """Return subjects and headers of what is stored, and delete the stream."""
        found = []
        last = self.ask("STREAM.INFO.S")["state"]["last_seq"]
        for seq in range(1, last + 1):
            message = self.ask("STREAM.MSG.GET.S", seq=seq).get("message")
            if message is not None:
                headers = base64.b64decode(message.get("hdrs", ""))
                found.append((message["subject"], headers))
        self.ask("STREAM.DELETE.S")
        return found


def what_is_stored_is_told_of(all_: Traced) -> object:
    streams = Streams(all_)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.say("other", "SUB js.x 1")
    all_.trace("a", "js.x", reply="back", Key="v")
    all_.trace("a", "js.x")
    all_.trace("a", "js.y", reply="back", Nats_Msg_Id="1")
    return all_.settled(), all_.heard("other"), streams.stored()


def what_is_only_traced_is_not_stored(all_: Traced) -> object:
    streams = Streams(all_)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.try_out("a", "js.x", reply="back")
    all_.try_out("a", "js.x", Nats_Msg_Id="1")
    all_.trace("a", "js.x", Nats_Msg_Id="1")
    all_.try_out("a", "js.x", reply="back", Nats_Msg_Id="1")
    return all_.settled(), streams.stored()


def refusals_are_told_of(all_: Traced) -> object:
    streams = Streams(all_, max_msg_size=400)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.say("a", "PUB js.x 1", "x")
    for headers in (
        {"Nats_Msg_Id": "1"},
        {"Nats_Msg_Id": "1"},
        {"Nats_Expected_Stream": "OTHER"},
        {"Nats_Expected_Last_Sequence": "7"},
        {"Nats_Expected_Last_Subject_Sequence": "7"},
        {"Nats_Expected_Last_Msg_Id": "none"},
        {"Nats_TTL": "1s"},
        {"Nats_Rollup": "all"},
        {"Nats_Rollup": "what"},
        {"Nats_Incr": "1"},
        {"Nats_Schedule": "@at 2100-01-01T00:00:00Z"},
        {"Nats_Stream_Source": "X 1"},
        {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1"},
        {"Much": "x" * 500},
    ):
        all_.trace("a", "js.x", reply="back", **headers)
        all_.try_out("a", "js.x", reply="back", **headers)
    return all_.settled(), streams.stored()


def a_full_stream_is_told_of(all_: Traced) -> object:
    streams = Streams(all_, max_msgs=1, discard="new", deny_purge=False)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.trace("a", "js.x", reply="back")
    all_.trace("a", "js.x", reply="back")
    all_.try_out("a", "js.x", reply="back")
    return all_.settled(), streams.stored()


def a_transform_is_told_of(all_: Traced) -> object:
    streams = Streams(
        all_,
        subject_transform={"src": "js.*", "dest": "stored.{{wildcard(1)}}"},
        republish={"src": "stored.>", "dest": "again.>"},
    )
    all_.say("a", "SUB traces.a 9")
    all_.say("other", "SUB again.> 1")
    all_.trace("a", "js.x")
    all_.try_out("a", "js.x")
    traces = all_.settled()
    stored = streams.stored()
    return traces, all_.heard("other"), stored


def a_lack_of_interest_is_told_of(all_: Traced) -> object:
    streams = Streams(all_, retention="interest")
    config = {"durable_name": "c", "filter_subject": "js.wanted", "ack_policy": "explicit"}
    streams.ask("CONSUMER.CREATE.S.c.js.wanted", stream_name="S", config=config)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    for subject in ("js.wanted", "js.unwanted"):
        all_.trace("a", subject, reply="back")
        all_.try_out("a", subject, reply="back")
    return all_.settled(), streams.stored()


def a_sealed_stream_is_told_of(all_: Traced) -> object:
    streams = Streams(all_)
    config = {"name": "S", "subjects": ["js.>"], "storage": "memory", "sealed": True}
    streams.ask("STREAM.UPDATE.S", **config)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.trace("a", "js.x", reply="back")
    all_.try_out("a", "js.x", reply="back")
    return all_.settled(), streams.stored()


def a_counter_is_told_of(all_: Traced) -> object:
    streams = Streams(all_, allow_msg_counter=True, allow_direct=True)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    all_.trace("a", "js.x", reply="back", Nats_Incr="5")
    all_.try_out("a", "js.x", reply="back", Nats_Incr="5")
    all_.trace("a", "js.x", reply="back")
    return all_.settled(), streams.stored()


def a_stream_behind_a_service(all_: Traced) -> object:
    streams = Streams(all_, subjects=["in.*", "kept.*", "js.>"])
    all_.say("b", "SUB traces.b 9", "SUB back 8")
    for subject in ("in.1", "kept.1"):
        all_.trace("b", subject, reply="back")
        all_.try_out("b", subject, reply="back")
    return all_.settled("b", end="in"), streams.stored()


def a_stream_of_what_is_imported(all_: Traced) -> object:
    streams = Streams(all_, "b", subjects=["from_a.>", "before.open.>"])
    all_.say("a", "SUB traces.a 9")
    for subject in ("orders.x", "open.x"):
        all_.trace("a", subject)
        all_.try_out("a", subject)
    return all_.traced(end="open"), streams.stored()


def a_parent_is_stored(all_: Traced) -> object:
    streams = Streams(all_, "b")
    all_.say("b", "SUB traces.b 9")
    all_.publish("b", "js.x", traceparent=_SAMPLED)
    all_.publish("b", "js.x", traceparent=_SAMPLED[:-1] + "0")
    return all_.settled("b"), streams.stored()


def fast_and_atomic_batches(all_: Traced) -> object:
    streams = Streams(all_, allow_atomic=True)
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    batch = {"Nats_Batch_Id": "b"}
    all_.publish("a", "js.x", Nats_Batch_Sequence="1", **batch)
    all_.trace("a", "js.x", reply="back", Nats_Batch_Sequence="2", Nats_Batch_Commit="1", **batch)
    all_.trace("a", "js.x", reply="back", Nats_Batch_Id="c", Nats_Batch_Sequence="2")
    return all_.settled(), streams.stored()


def acknowledgements_count(all_: Traced) -> object:
    streams = Streams(all_, allow_direct=True)
    config = {"durable_name": "c", "ack_policy": "explicit"}
    streams.ask("CONSUMER.CREATE.S.c", stream_name="S", config=config)
    all_.say("a", "SUB traces.a 9", "SUB back 8", "PUB js.x 1", "x")
    all_.trace("a", "$JS.API.CONSUMER.MSG.NEXT.S.c", reply="back")
    traces = all_.settled()
    streams.stored()
    return traces[0], [answer[:9] for answer in traces[1]]


def the_api_of_a_domain_is_not_asked_by_who_only_tries(all_: Traced) -> object:
    all_.say("a", "SUB traces.a 9", "SUB back 8")
    for subject in ("STREAM.CREATE.T", "INFO", "$KV.bucket.key", "NONE", "CONSUMER.MSG.NEXT.T.c"):
        all_.try_out("a", f"$JS.east.API.{subject}", reply="back")
        all_.trace("a", f"$JS.east.API.{subject}")
    return all_.traced()


STORIES: list[Story] = [
    what_is_stored_is_told_of,
    what_is_only_traced_is_not_stored,
    refusals_are_told_of,
    a_full_stream_is_told_of,
    a_transform_is_told_of,
    a_lack_of_interest_is_told_of,
    a_sealed_stream_is_told_of,
    a_counter_is_told_of,
    a_stream_behind_a_service,
    a_stream_of_what_is_imported,
    a_parent_is_stored,
    fast_and_atomic_batches,
    acknowledgements_count,
]


def test_a_domain_is_traced_as_by_the_real_server(pair_with: PairWith) -> None:
    pair = pair_with(CONFIG.replace("jetstream: enabled", "jetstream: { domain: east }", 1))
    assert_same(pair, Traced, the_api_of_a_domain_is_not_asked_by_who_only_tries)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_streams_are_traced_as_by_the_real_server(pair_with: PairWith, story: Story) -> None:
    assert_same(pair_with(CONFIG), Traced, story)
