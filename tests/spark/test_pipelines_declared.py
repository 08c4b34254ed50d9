"""Pipelines from files: errors have file, line and key, and come before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from penstock.errors import UsageError
from penstock.limits import PIPELINE_FILE_BYTES_MAX
from penstock.spark.pipelines.load import Document, load_pipeline, read_document
from penstock.spark.pipelines.pipeline import (
    KvOutput,
    Mode,
    StreamOutput,
    TableOutput,
    from_stream,
    read_template,
)
from penstock.spark.pipelines.schemas import read_schema
from penstock.spark.pipelines.yaml_reader import read_yaml

GOOD = """\
pipeline: orders
server: nats://example:4222
every: 5 seconds
sources:
  orders:
    stream: ORDERS
    subject: orders.eu.>
    schema: {id: long not null, region: string, price: double}
    dead_letters: dead.orders
    max_messages: 1000
flows:
  large:
    from: orders
    steps:
      - filter: price > 100
      - map: {id: id, region: upper(region)}
    to: {stream: LARGE, subject: "large.{region}", delivery: dedupe}
  totals:
    from: orders
    steps:
      - aggregate: {total: sum(price)}
        by: [region]
        window: 1 minute
        watermark: 5 minutes
    to: {kv: TOTALS, key: "{region}.{window_start}"}
    mode: update
  all:
    from: {stream: ORDERS}
    to: {table: /data/orders, partition_by: [subject]}
"""


def test_a_file_is_a_pipeline() -> None:
    pipeline = read_document(GOOD, "p.yaml")

    large, totals, every = pipeline.flows
    assert (pipeline.name, pipeline.server, pipeline.every) == (
        "orders",
        "nats://example:4222",
        "5 seconds",
    )
    assert large.inputs == totals.inputs
    (orders,) = large.inputs
    assert orders.options == {
        "stream": "ORDERS",
        "startingOffsets": "earliest",
        "subject": "orders.eu.>",
        "maxOffsetsPerTrigger": "1000",
    }
    assert orders.dead_letters is not None
    assert orders.dead_letters.text == "dead.orders"
    assert isinstance(large.output, StreamOutput)
    assert large.output.options == {"stream": "LARGE", "delivery": "dedupe"}
    assert isinstance(totals.output, KvOutput)
    assert totals.output.key.columns == ["region", "window_start"]
    assert totals.mode is Mode.UPDATE
    assert isinstance(every.output, TableOutput)
    assert every.inputs[0].schema is None


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("every: 5", "evry: 5", "p.yaml:3: no key 'evry'; did you mean every?"),
        ("filter: price", "filtr: price", "p.yaml:15: flows.large.steps[0]: no key 'filtr'; did"),
        ("    subject: orders", "    subjct: orders", "p.yaml:7: sources.orders: no key 'subjct'"),
        ("every: 5 seconds", "every: soon", "p.yaml:3: every: 'soon' is no span of time"),
        ("pipeline: orders", "pipeline: a b", "p.yaml:1: pipeline: 'a b' cannot be"),
        ("pipeline: orders\n", "", "p.yaml:1: the key pipeline is missing"),
        ("from: orders\n    steps:\n      - filter", "from: ordrs\n    steps:\n      - filter",
         "p.yaml:13: flows.large.from: there is no source 'ordrs'; did you mean orders?"),
        ("mode: update", "mode: updat", "p.yaml:26: flows.totals.mode: 'updat'"),
        ("mode: update", "mode: [a]", "p.yaml:26: flows.totals.mode: one value belongs here"),
        ("max_messages: 1000", "max_messages: many", "sources.orders.max_messages: 'many'"),
        ("by: [region]", "by: region", "flows.totals.steps[0].by: a list belongs here"),
        ("window: 1 minute", "window: minutely", "flows.totals.steps[0]: 'minutely'"),
        ("- filter: price > 100", "- by: [region]", "flows.large.steps[0]: give one of filter, "),
        ("      - filter: price > 100", "      - filter: a\n        add: {b: c}", "give one of"),
        ("- filter: price > 100", "- {filter: a, by: [b]}", "by does not belong to filter"),
        ("{stream: LARGE, ", "{table: x, ", "flows.large.to: subject does not belong to table"),
        ("{table: /data/orders, part", "{part", "flows.all.to: give one of stream, table, kv"),
        ('subject: "large.{region}"', 'subject: "large.{region"', "'large.{region': braces"),
        ('key: "{region}.{window_start}"', 'key: ""', "flows.totals.to: key: a text with names"),
        ("price: double", "price: dubble", "no type 'dubble'"),
        ("dead.orders", "dead.>", "dead letters: 'dead.>' is no subject"),
        ("dead.orders", "dead.{id}", "dead letters 'dead.{id}': the frame has no column 'id'"),
        ("/data/orders, partition_by: [subject]", "t, format: orc", "a table's format is one of"),
        ("/data/orders, part", "t, format: delta, part", "a Delta table of ours is not divided"),
        ("  large:", "  la rge:", "'la rge' cannot be a flow's name"),
        ("partition_by: [subject]}", "partition_by: [subject]}\n    mode: complete", "in mode a"),
        ("    stream: ORDERS\n", "    stream: ORDERS\n    stream: B\n", "p.yaml:7: sources.o"),
        ("    stream: ORDERS\n", "    stream: &a ORDERS\n    x: *a\n", "p.yaml:7: anchors are not"),
        ("pipeline: orders", "pipeline: [", "p.yaml:3: no YAML"),
        ("pipeline: orders", "- a", "p.yaml:"),
        ("pipeline: orders", "pipeline:", "p.yaml:1: pipeline: one value belongs here"),
        ("pipeline: orders", "? [a]\n: b\npipeline: orders", "a key is a word"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_key(before: str, after: str, told: str) -> None:
    assert GOOD.count(before) >= 1

    with pytest.raises(UsageError) as refused:
        read_document(GOOD.replace(before, after, 1), "p.yaml")

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "# nothing", "[]", "x", "flows: {}\npipeline: a", "\x00"])
def test_what_is_no_pipeline_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^p\.yaml"):
        read_document(text, "p.yaml")


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(UsageError):
        read_yaml(text, "p.yaml", Document)


def test_deep_and_long_texts_are_refused() -> None:
    for text in ("[" * 1500, "a: " * 500, "x" * (PIPELINE_FILE_BYTES_MAX + 1)):
        with pytest.raises(UsageError):
            read_yaml(text, "p.yaml", Document)


# Schemas and templates


def test_a_schema_is_read_without_spark() -> None:
    text = (
        "id LONG not null, `odd name`: string, at struct<lat: double, tags array<string>>, "
        "m map<string, decimal(10,2)>, d decimal"
    )

    assert read_schema(text) == StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("odd name", StringType()),
            StructField(
                "at",
                StructType(
                    [
                        StructField("lat", DoubleType()),
                        StructField("tags", ArrayType(StringType())),
                    ]
                ),
            ),
            StructField("m", MapType(StringType(), DecimalType(10, 2))),
            StructField("d", DecimalType(10, 0)),
        ]
    )
    assert read_schema({"id": "long not null"}) == read_schema("id long not null")


@pytest.mark.parametrize(
    "text",
    [
        "", "id", "id long,", "id long price double", "id lng", "id long not", "id long not nul",
        "id array", "id array<long", "id map<long>", "id struct<>", "id decimal(40)",
        "id decimal(2,3)", "id decimal(x)", "id decimal(0)", "id long, id long", "id; long",
        "id " + "array<" * 100 + "long" + ">" * 100, "<", "id long not null null", "`a long",
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="schema"):
        read_schema(text)


@given(st.text(alphabet="id long,<>()`:array struct decimal1 not null", max_size=60))
def test_a_schema_is_read_or_refused(text: str) -> None:
    try:
        fields = read_schema(text).fields
    except UsageError:
        return
    assert fields


@pytest.mark.parametrize("text", ["", "a.{}", "a.{b", "a.b}", "a.{b{c}}", "{`}"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="subject"):
        read_template(text, "subject")


def test_a_template_knows_its_columns() -> None:
    template = read_template("a.{b}.c{d}", "subject")

    assert template.columns == ["b", "d"]
    template.check(["b", "c", "d"], "subject")
    with pytest.raises(UsageError, match="no column 'd', but b"):
        template.check(["b"], "subject")


def test_a_field_cannot_be_called_as_what_the_message_has() -> None:
    with pytest.raises(UsageError, match="_subject"):
        from_stream("A", schema="_subject string")
    with pytest.raises(UsageError, match="give one"):
        from_stream("A", dead_letters="dead")
    with pytest.raises(UsageError, match="failOnDataLoss"):
        from_stream("A", options={"failOnDataLos": "false"})


# Python files


PYTHON = """\
from dataclasses import dataclass
from penstock.spark.pipelines import Pipeline, from_stream, to_table

@dataclass
class Unused:
    number: int

pipeline = Pipeline("copies")
also = pipeline

@pipeline.flow(from_stream("A"), to_table("/t"))
def copy(frame):
    return frame

if __name__ == "__main__":
    raise SystemExit
"""


def test_a_python_file_has_one_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "copies.py"
    file.write_text(PYTHON)

    assert [flow.name for flow in load_pipeline(file).flows] == ["copy"]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("pipeline = Pipeline", "pipelin = Pipeline", "p.py:9: NameError: name 'pipeline'"),
        ('Pipeline("copies")', 'Pipeline("a b")', "p.py:8: 'a b' cannot be a pipeline's name"),
        ('from_stream("A")', 'from_stream("A", schema="x y")', "p.py:11: schema 'x y': no type"),
        ("def copy(frame):", "def copy(frame)", "p.py:12: SyntaxError: expected ':'"),
        ("also = pipeline", 'also = Pipeline("b")', "p.py: one belongs in a file"),
        ("import dataclass", "import nothing", "p.py:1: ImportError"),
        ("    return frame", "    return frame\ncopy.x = copy.y", "p.py:14: AttributeError"),
    ],
)
def test_what_a_python_file_raises_is_told_with_its_line(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    file = tmp_path / "p.py"
    file.write_text(PYTHON.replace(before, after, 1))

    with pytest.raises(UsageError) as refused:
        load_pipeline(file)

    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["orders.py", "orders.yaml"])
def test_the_examples_are_pipelines(name: str) -> None:
    pipeline = load_pipeline(Path(__file__).parents[2] / "examples" / name)

    assert {"totals", "large"} <= {flow.name for flow in pipeline.flows}


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("")
    (tmp_path / "p.py").write_text("")
    (tmp_path / "p.yaml").write_bytes(b"\xff\xfe\xff")
    for name in ("p.txt", "p.py", "p.yaml"):
        with pytest.raises(UsageError, match=name):
            load_pipeline(tmp_path / name)
    with pytest.raises(OSError, match="No such file"):
        load_pipeline(tmp_path / "nowhere.py")
