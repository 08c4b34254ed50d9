"""Running pipelines: from streams to streams, tables and buckets, and their errors."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.errors import UsageError
from penstock.protocol.pipeline_reports import FlowReport, FlowState
from penstock.spark.failures import first_line
from penstock.spark.pipelines import Pipeline, from_stream, to_kv, to_stream, to_table
from penstock.spark.pipelines.load import read_document
from penstock.spark.pipelines.pipeline import read_template
from penstock.spark.pipelines.report import QueryCounts, lag_of
from penstock.spark.pipelines.run import PipelineFailed, Running
from penstock.spark.pipelines.schemas import dead_letters, fitting, parsed, read_schema
from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.spark.orders import (
    REGIONS,
    SCHEMA,
    copies_of,
    found,
    found_totals,
    is_good,
    make_streams,
    order,
    publish,
    totals_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FLOWS = ("copies", "totals")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_process(PENSTOCK, store_dir=tmp_path / "store", monitor_port=-1) as running:
        yield running


@pytest.fixture
def streams(server: ServerProcess) -> Iterator[JetStream]:
    with Client.connect(server.url, timeout_s=60) as client:
        made = JetStream(client)
        make_streams(made)
        yield made


def orders_pipeline() -> Pipeline:
    pipeline = Pipeline("orders")
    orders = from_stream("ORDERS", schema=SCHEMA, dead_letters="dead.{_subject}", max_messages=40)

    @pipeline.flow(orders, to_stream("OUT", subject="out.{region}"))
    def copies(frame: DataFrame) -> DataFrame:
        return frame.select("id", "region", "_sequence")

    @pipeline.flow(orders, to_kv("TOTALS", key="{region}"), mode="update")
    def totals(frame: DataFrame) -> DataFrame:
        total = F.sum("price").cast("double").alias("total")
        return frame.groupBy("region").agg(total, F.count(F.lit(1)).alias("orders"))

    return pipeline


@pytest.mark.promise
def test_a_pipeline_goes_on_where_it_was(
    spark: SparkSession, streams: JetStream, server: ServerProcess, tmp_path: Path
) -> None:
    told: list[tuple[str, FlowReport]] = []
    publish(streams, range(100))
    running = {"server": server.url, "checkpoint": str(tmp_path / "checkpoints"), "once": True}

    first = orders_pipeline().run(spark, **running, on_report=lambda *each: told.append(each))  # type: ignore[arg-type]
    publish(streams, range(100, 150))
    second = orders_pipeline().run(spark, **running)  # type: ignore[arg-type]

    assert found(streams, "OUT", "out.>") == copies_of(range(150))
    assert found_totals(streams) == totals_of(range(150))
    letters = list(streams.each("DEAD", "dead.>"))
    assert [each.payload for each in letters] == [order(n) for n in range(9, 150, 10)]
    assert b"Penstock-Reason: the payload is no JSON\r\n" in letters[0].headers
    assert b"Penstock-Sequence: 10\r\n" in letters[0].headers

    assert {
        flow: (each.state, each.rows, each.lag_messages) for flow, each in first.items()
    } == dict.fromkeys(FLOWS, (FlowState.DONE, 100, 0))
    assert [first[flow].dead_letters for flow in first] == [10, 0]
    assert (first["copies"].batch, second["copies"].rows) == (2, 50)
    assert any(flow == "totals" and each.lag_messages for flow, each in told)
    with urllib.request.urlopen(f"{server.monitor_url}/pipelinez", timeout=60) as answer:
        flows = {each["flow"]: each for each in json.loads(answer.read())["flows"]}
    assert {flow: (each["state"], each["rows"]) for flow, each in flows.items()} == dict.fromkeys(
        FLOWS, ("done", 50)
    )
    assert flows["copies"]["dead_letters"] == 5


def test_a_declared_pipeline_runs_with_the_real_server_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = """
        pipeline: large
        flows:
          large:
            from: {stream: ORDERS, schema: "id long, region string, price double",
                   dead_letters: dead.orders}
            steps:
              - filter: price >= 2
              - add: {twice: price * 2}
              - map: {id: id, region: upper(region), twice: twice}
              - aggregate: {n: count(*), most: max(twice)}
                by: [region, id % 2 as odd]
                window: 1 hour
            to: {stream: OUT, subject: "out.{region}.{odd}"}
            mode: complete
    """
    with (
        server_process(REFERENCE, store_dir=tmp_path / "store") as server,
        Client.connect(server.url, timeout_s=60) as client,
    ):
        streams = JetStream(client)
        make_streams(streams)
        publish(streams, range(30))
        read_document(text, "p.yaml").run(
            spark, server=server.url, checkpoint=str(tmp_path / "checkpoints"), once=True
        )
        sent = found(streams, "OUT", "out.>")
        letters = found(streams, "DEAD", "dead.>")

    numbers = [number for number in range(8, 30) if is_good(number)]
    expected: dict[str, tuple[int, float]] = {}
    for number in numbers:
        subject = f"out.{REGIONS[number % 3].upper()}.{number % 2}"
        expected[subject] = (expected.get(subject, (0, 0))[0] + 1, number / 2)
    values = {subject: json.loads(payload) for subject, payload in sent}
    assert {subject: (each["n"], each["most"]) for subject, each in values.items()} == expected
    assert len(sent) == len(expected)
    assert all("window_start" in each for each in values.values())
    assert [payload for _, payload in letters] == [order(9), order(19)]


# What is wrong


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("- filter: pric > 1", "p.yaml:6: flows.f.steps[0].filter: "),
        ("- filter: price >", "p.yaml:6: flows.f.steps[0].filter: "),
        ("- map: {a: nothing(id)}", "p.yaml:6: flows.f.steps[0].map.a: "),
        ("- add: {a: '1 +'}", "p.yaml:6: flows.f.steps[0].add.a: "),
        ("- {aggregate: {a: sum(id)}, by: [x]}", "p.yaml:6: flows.f.steps[0].by[0]: "),
        ("- {aggregate: {a: sum(x)}, by: [id]}", "p.yaml:6: flows.f.steps[0].aggregate.a: "),
        ("- map: {a: id}", "subject 'out.{region}': the frame has no column 'region', but a, _s"),
    ],
)
def test_what_spark_refuses_is_told_with_its_key(
    spark: SparkSession, url: str, tmp_path: Path, step: str, told: str
) -> None:
    text = f"""pipeline: p
flows:
  f:
    from: {{stream: WRONG, schema: "id long, region string, price double"}}
    steps:
      {step}
    to: {{stream: WRONG, subject: "out.{{region}}", delivery: at-least-once}}
"""
    with Client.connect(url, timeout_s=60) as client:
        JetStream(client).call("STREAM.CREATE.WRONG", {"name": "WRONG", "subjects": ["wrong"]})

    with pytest.raises((PipelineFailed, UsageError)) as refused:
        read_document(text, "p.yaml").run(spark, server=url, checkpoint=str(tmp_path))

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert spark.streams.active == []


def test_without_dead_letters_a_message_that_does_not_fit_fails_its_flow(
    spark: SparkSession, streams: JetStream, server: ServerProcess, tmp_path: Path
) -> None:
    publish(streams, range(12))
    pipeline = Pipeline("orders")
    pipeline.flow(from_stream("ORDERS", schema=SCHEMA), to_table(str(tmp_path / "table")))(rows)

    with pytest.raises(PipelineFailed) as failed:
        pipeline.run(spark, server=server.url, checkpoint=str(tmp_path / "c"), once=True)

    assert failed.value.flow == "rows"
    assert failed.value.reason == "stream ORDERS, sequence 10: the payload is no JSON"
    with urllib.request.urlopen(f"{server.monitor_url}/pipelinez", timeout=60) as answer:
        (flow,) = json.loads(answer.read())["flows"]
    assert (flow["state"], flow["error"]) == ("failed", failed.value.reason)
    assert not list((tmp_path / "table").glob("*.parquet"))


def test_a_row_that_the_sink_refuses_fails_its_flow(
    spark: SparkSession, streams: JetStream, server: ServerProcess, tmp_path: Path
) -> None:
    publish(streams, range(5))
    pipeline = Pipeline("orders")
    sink = to_stream("OUT", subject="elsewhere.{subject}")
    pipeline.flow(from_stream("ORDERS"), sink)(rows_as_text)

    with pytest.raises(PipelineFailed) as failed:
        pipeline.run(spark, server=server.url, checkpoint=str(tmp_path / "c"), once=True)

    assert failed.value.flow == "rows_as_text"
    assert "'elsewhere.orders.new'" in failed.value.reason
    assert "\n" not in failed.value.reason
    assert found(streams, "OUT", ">") == []


class _EndsOnceAsked:
    """A query of Spark that makes its last progress, and ends, just after its progress was read."""

    def __init__(self, query: Any) -> None:
        self._query = query
        self._early = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    @property
    def isActive(self) -> bool:  # noqa: N802 - as Spark calls it
        return self._early or bool(self._query.isActive)

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - as Spark calls it
        if self._early:
            self._query.awaitTermination()
            self._early = False
            return list(self._query.recentProgress[:1])
        return list(self._query.recentProgress)


def test_what_a_query_did_last_is_counted(
    spark: SparkSession, streams: JetStream, server: ServerProcess, tmp_path: Path
) -> None:
    publish(streams, range(10))
    pipeline = Pipeline("orders")
    source = from_stream("ORDERS", max_messages=4)
    pipeline.flow(source, to_table(str(tmp_path / "table")))(rows)

    with Running(
        spark, pipeline, server=server.url, checkpoint=str(tmp_path / "c"), once=True
    ) as running:
        for each in running._queries:
            each.query = _EndsOnceAsked(each.query)  # type: ignore[assignment]
        last = running.watch()["rows"]

    assert (last.rows, last.state) == (10, FlowState.DONE)


def test_a_function_that_gives_no_frame_is_told(
    spark: SparkSession, streams: JetStream, server: ServerProcess, tmp_path: Path
) -> None:
    cases: tuple[tuple[Any, str], ...] = (
        (lambda frame: None, "must give a frame"),
        (lambda frame: 1 / 0, "ZeroDivisionError"),
    )
    for wrong, told in cases:
        pipeline = Pipeline("orders")
        pipeline.flow(from_stream("ORDERS"), to_table(str(tmp_path / "t")), name="wrong")(wrong)

        with pytest.raises(PipelineFailed, match=told):
            pipeline.run(spark, server=server.url, checkpoint=str(tmp_path / "c"))


def rows(frame: DataFrame) -> DataFrame:
    return frame


def rows_as_text(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("subject", "cast(data as string) as text")


@pytest.mark.parametrize(
    ("pipeline", "told"),
    [
        ((from_stream("NONE"), to_table("t")), "flow rows: stream NONE: stream not found"),
        ((from_stream("ORDERS"), to_kv("NONE", key="{subject}")), "flow rows: bucket NONE: stream"),
        ((from_stream("ORDERS"), to_stream("ORDERS", subject="orders.x")), "allow_atomic"),
        (
            (from_stream("ORDERS", schema="a int", dead_letters="nowhere"), to_table("t")),
            "dead letters: no stream takes 'nowhere'",
        ),
        (
            (from_stream("ORDERS"), to_stream("OUT", subject="out.x", options={"x": "y"})),
            "no option 'x'",
        ),
    ],
)
def test_streams_that_are_not_there_are_told_before_anything_starts(
    streams: JetStream, server: ServerProcess, pipeline: tuple[Any, Any], told: str
) -> None:
    made = Pipeline("p")
    made.flow(*pipeline)(rows)

    with pytest.raises(UsageError) as refused:
        made.run(None, server=server.url)  # type: ignore[arg-type]

    assert told in str(refused.value)


# Payloads


def test_a_payload_fits_or_is_a_dead_letter_with_a_reason(spark: SparkSession) -> None:
    schema = read_schema(
        "id long not null, price double, region string, `o.d'd`: int, at struct<a: int, b: string>"
    )
    cases = {
        '{"id":1,"price":2.5,"region":"eu","at":{"a":1,"b":"x"}}': None,
        ' {"id":1,"more":[1]} ': None,
        '{"id":1,"region":{"a":1}}': None,
        '{"id":1,"price":null,"region":null}': None,
        '{"id":"x"}': "field id does not fit bigint",
        '{"id":1.5}': "field id does not fit bigint",
        '{"id":99999999999999999999}': "field id does not fit bigint",
        '{"id":1,"price":"3"}': "field price does not fit double",
        '{"id":1,"o.d\'d":"x"}': "field o.d'd does not fit int",
        '{"id":1,"at":7}': "field at does not fit struct<a:int,b:string>",
        '{"id":1,"at":{"a":"x"}}': "the payload does not fit the schema",
        '{"price":1}': "field id is missing",
        '{"id":null}': "field id is missing",
        "{}": "field id is missing",
        "": "the payload is no JSON",
        "no JSON": "the payload is no JSON",
        '{"id":1': "the payload is no JSON",
        '{"id":1} {"id":2}': "the payload is not one JSON object",
        '{"id":1}}': "the payload is not one JSON object",
        '{"id":1},{"id":2}': "the payload is not one JSON object",
        '{"id":1},"x":2': "the payload is not one JSON object",
        '{"id":1}]}': "the payload is not one JSON object",
        "null": "the payload is no JSON object",
        "7": "the payload is no JSON object",
        '[{"id":1}]': "the payload is no JSON object",
    }
    messages = spark.createDataFrame(
        [("S", "a.b", number, None, bytearray(text.encode())) for number, text in enumerate(cases)],
        "stream string, subject string, sequence long, headers map<string,array<string>>, "
        "data binary",
    ).withColumn("timestamp", F.current_timestamp())

    read = parsed(messages, schema).cache()
    reasons = {row["_sequence"]: row["_problem"] for row in read.collect()}
    good = fitting(read, schema, fail=False).collect()
    letters = dead_letters(read, read_template("dead.{_subject}", "letters")).collect()

    assert {text: reasons[number] for number, text in enumerate(cases)} == cases
    wanted = [number for number, reason in enumerate(cases.values()) if reason is None]
    assert [row["_sequence"] for row in good] == wanted
    assert good[0].asDict()["price"] == 2.5
    assert [(bytes(each.data).decode(), each.headers["Penstock-Reason"]) for each in letters] == [
        (text, [reason]) for text, reason in cases.items() if reason is not None
    ]


def test_a_dead_letter_keeps_headers_but_those_that_a_server_would_obey(
    spark: SparkSession,
) -> None:
    headers = {"Nats-Msg-Id": ["7"], "Trace": ["a", "b"], "Penstock-Reason": ["mine"]}
    messages = spark.createDataFrame(
        [("S", "a.b", 5, headers, bytearray(b"\xff"))],
        "stream string, subject string, sequence long, headers map<string,array<string>>, "
        "data binary",
    ).withColumn("timestamp", F.current_timestamp())

    subject = read_template("dead.{_stream}.{_subject}", "dead letters")
    (letter,) = dead_letters(parsed(messages, read_schema("id long")), subject).collect()

    assert (letter.subject, bytes(letter.data)) == ("dead.S.a.b", b"\xff")
    assert letter.headers == {
        "Trace": ["a", "b"],
        "Penstock-Reason": ["the payload is no JSON"],
        "Penstock-Stream": ["S"],
        "Penstock-Subject": ["a.b"],
        "Penstock-Sequence": ["5"],
    }


# Progress


def progress(batch: int, second: int, **fields: Any) -> dict[str, Any]:
    source = {"endOffset": offset(A=5, B=9), "latestOffset": offset(A=8, B=9, C=2)}
    return {
        "timestamp": f"2026-01-01T00:00:{second:02}.000Z",
        "batchId": batch,
        "numInputRows": 10,
        "processedRowsPerSecond": 4.5,
        "durationMs": {"addBatch": 5},
        "sources": [source],
    } | fields


def offset(**positions: int) -> dict[str, Any]:
    return {"v": 1, "streams": {name: {"created": "c", "next": n} for name, n in positions.items()}}


def test_progress_is_counted_once() -> None:
    counts = QueryCounts()
    idle = progress(2, 3, numInputRows=0, processedRowsPerSecond="NaN", durationMs={})

    counts.take([progress(0, 1), progress(1, 2)])
    counts.take([progress(0, 1), progress(1, 2), idle])

    assert (counts.batch, counts.rows, counts.rows_per_second) == (1, 20, 0.0)


def test_what_only_sources_tell_is_added_up() -> None:
    counts = QueryCounts()
    told = progress(0, 1)
    numbers = {name: told.pop(name) for name in ("numInputRows", "processedRowsPerSecond")}

    counts.take([told | {"sources": [numbers, numbers]}])

    assert (counts.rows, counts.rows_per_second) == (20, 9.0)


def test_lag_is_what_streams_have_beyond_what_was_read() -> None:
    text = {"endOffset": json.dumps(offset(A=5)), "latestOffset": json.dumps(offset(A=7))}

    assert lag_of(progress(0, 1)) == 3 + 2
    assert lag_of(progress(0, 1, sources=[text])) == 2
    assert lag_of(progress(0, 1, sources=[{"endOffset": None, "latestOffset": "?"}])) == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback\n  File\npenstock.errors.UsageError: no stream\n\n\tat java", "no stream"),
        ("Job aborted\n[USER_RAISED_EXCEPTION] it is bad SQLSTATE: P0001\n", "it is bad"),
        ("Traceback\nValueError: x is 3\n", "ValueError: x is 3"),
        (
            "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [X] no. "
            "SQLSTATE: 42000\nmore",
            "[X] no.",
        ),
        ("", "RuntimeError"),
    ],
)
def test_a_failure_is_told_in_one_line(text: str, line: str) -> None:
    assert first_line(RuntimeError(text)) == line
