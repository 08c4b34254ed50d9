"""What a sink asks of a stream before any row is written, of our server and the real one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.spark.sinks.settings import Sink, read_sink

pytestmark = pytest.mark.slow

EXACT = {"stream": "OUT", "delivery": "exactly-once", "sinkId": "job", "version": "1"}


def schema(*names: str) -> StructType:
    numbers = {"sequence"}
    return StructType([StructField(n, LongType() if n in numbers else StringType()) for n in names])


@contextlib.contextmanager
def stream_of(url: str, **more: object) -> Iterator[JetStream]:
    config = {
        "name": "OUT",
        "subjects": ["out.>", "_fence.OUT.>"],
        "allow_atomic": True,
        "storage": "memory",
    }
    with Client.connect(url, timeout_s=60) as client:
        streams = JetStream(client)
        streams.call("STREAM.CREATE.OUT", config | more)
        try:
            yield streams
        finally:
            streams.call("STREAM.DELETE.OUT")


def read(url: str, options: dict[str, str], *, streaming: bool = False) -> Sink:
    given = {name: text for name, text in options.items() if text} | {"servers": url}
    return read_sink(given, schema("subject", "data"), is_streaming=streaming)


@pytest.mark.parametrize(
    ("config", "options", "reason"),
    [
        ({"allow_atomic": False}, {}, "takes no atomic batches"),
        ({"subjects": ["out.>"]}, {}, r'no subject for fences: add "_fence\.OUT\.>"'),
        ({}, {"fencePrefix": "other"}, r'no subject for fences: add "other\.>"'),
        ({}, {"fencePrefix": "out.*"}, "option fencePrefix"),
        ({"retention": "workqueue"}, {}, "drops fences"),
        ({"no_ack": True}, {}, "acknowledges nothing"),
        ({"subject_transform": {"src": "out.>", "dest": "in.>"}}, {}, "renames"),
        ({}, {"stream": "NONE"}, "stream NONE: stream not found"),
        ({}, {"stream": "N.O"}, "cannot be a stream's name"),
        ({}, {"stream": ""}, "give the option stream"),
        ({}, {"stream": "", "subject": "elsewhere"}, "no stream takes 'elsewhere'"),
        ({}, {"subject": "elsewhere"}, "does not take 'elsewhere'"),
        ({}, {"subject": "out.*"}, "no subject to publish to"),
        ({}, {"sinkId": ""}, "needs sinkId and version"),
        ({}, {"version": ""}, "needs sinkId and version"),
        ({}, {"sinkId": "a.b"}, "option sinkId"),
        ({}, {"expectedLastSequence": "7"}, "ends with sequence 0, not with 7"),
        ({}, {"msgIdColumn": "id"}, "no column id"),
        ({}, {"preserveOrigin": "true"}, "needs the columns stream and sequence"),
        ({}, {"fencePrefx": "x"}, "did you mean fencePrefix"),
        ({}, {"createStream": "out.>", "stream": "NEW"}, "cannot be made"),
    ],
)
def test_what_cannot_be_written_exactly_once_is_refused_before_any_work(
    url: str, config: dict[str, object], options: dict[str, str], reason: str
) -> None:
    with stream_of(url, **config), pytest.raises(UsageError, match=reason):
        read(url, EXACT | options)


def test_a_stream_that_can_do_it_is_known_to_the_tasks(url: str) -> None:
    with stream_of(url):
        sink = read(url, EXACT | {"stream": "", "subject": "out.all"})

    assert sink.target.stream == "OUT"
    assert sink.stream_subjects == (b"out.>", b"_fence.OUT.>")
    assert sink.fence_prefix == "_fence.OUT"


def test_a_query_has_its_batches_and_appends(url: str) -> None:
    with stream_of(url):
        read(url, {"stream": "OUT", "delivery": "exactly-once"}, streaming=True)
        with pytest.raises(UsageError, match="version is for single writes"):
            read(url, EXACT, streaming=True)
        with pytest.raises(UsageError, match="only ever appends"):
            read_sink({}, schema("subject", "data"), overwrites=True, is_streaming=True)


def test_a_window_that_is_too_short_is_refused(url: str) -> None:
    minute_ns = 60_000_000_000
    options = {"stream": "OUT", "delivery": "dedupe"}
    with stream_of(url, duplicate_window=minute_ns):
        with pytest.raises(UsageError, match=r"for 60000 ms \(duplicate_window"):
            read(url, options)
        read(url, options | {"recoveryWindowMs": "60000"})
        # The stream is found by the subject.
        with pytest.raises(UsageError, match="duplicate_window"):
            read(url, {"subject": "out.a", "delivery": "dedupe"})


def test_a_stream_is_made_where_that_is_wanted(url: str) -> None:
    with Client.connect(url, timeout_s=60) as client:
        streams = JetStream(client)
        options = EXACT | {"createStream": "out.>,more.>"}
        for _ in range(2):
            read(url, options)
        config = streams.call("STREAM.INFO.OUT")["config"]
        streams.call("STREAM.DELETE.OUT")

    assert config["subjects"] == ["out.>", "more.>", "_fence.OUT.>"]
    assert config["allow_atomic"] is True


def test_overwriting_needs_a_word_more(url: str) -> None:
    frame = schema("subject", "data")
    with stream_of(url) as streams:
        streams.publish(b"out.a", b"old")
        for options in ({}, {"stream": "OUT"}, {"allowPurge": "true"}):
            with pytest.raises(UsageError, match="only ever appended to"):
                read_sink({"servers": url} | options, frame, overwrites=True)
        given = {"servers": url, "stream": "OUT", "allowPurge": "true"}

        assert read_sink(given, frame, overwrites=True).purges_to == 1
