"""Payloads as rows: the fields of a schema out of JSON, and what becomes of what does not fit.

A message fits if its payload is one JSON object, each field that is there has the schema's type,
and no field is missing that is `not null`. What does not fit is never a row: it fails the flow with
its stream and sequence, or it is a dead letter that keeps its payload, with the reason. All of it
is Spark's own expressions: nothing here runs for each message in Python.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

from penstock.spark.pipelines.ends import MESSAGE_COLUMNS
from penstock.spark.pipelines.templates import Template

_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_problem"}

REASON = "Penstock-Reason"
ORIGIN = {
    "Penstock-Stream": "_stream",
    "Penstock-Subject": "_subject",
    "Penstock-Sequence": "_sequence",
}
"""The headers that say where a dead letter comes from, and the columns that tell it."""


def parsed(messages: DataFrame, schema: StructType) -> DataFrame:
    """Give messages of the format `penstock` with their payload read: `_parsed`, and `_problem`."""
    named = [F.col(column).alias(name) for name, column in MESSAGE_COLUMNS.items()]
    # Spark reads the first document of a text and passes over what follows: so the payload is put
    # into another, with an end that must be found.
    text = F.concat(F.lit('{"v":['), F.col("_data").cast("string"), F.lit('],"end":true}'))
    whole = StructType(
        [
            StructField("v", ArrayType(_nullable(schema))),
            StructField("end", BooleanType()),
            StructField("_problem", StringType()),
        ]
    )
    return (
        messages.select(*named, F.col("data").alias("_data"))
        .withColumn("_parsed", F.from_json(text, whole, _OPTIONS))
        .withColumn("_row", F.when(_is_one(), F.col("_parsed.v")[0]))
        .withColumn("_problem", _problem(schema))
    )


def fitting(read: DataFrame, schema: StructType, *, fail: bool) -> DataFrame:
    """Give the rows of messages that fit; the others are left out, or fail the query."""
    is_good = F.col("_problem").isNull()
    if fail:
        told = F.concat_ws(
            "",
            F.lit("stream "),
            F.col("_stream"),
            F.lit(", sequence "),
            F.col("_sequence").cast("string"),
            F.lit(": "),
            F.col("_problem"),
        )
        is_good = F.when(is_good, F.lit(True)).otherwise(F.raise_error(told).cast("boolean"))
    fields = [F.col(f"_row.`{each.name}`").alias(each.name) for each in schema.fields]
    return read.where(is_good).select(*fields, *MESSAGE_COLUMNS)


def dead_letters(read: DataFrame, subject: Template) -> DataFrame:
    """Give what is to be published of messages that do not fit."""
    origin = [
        item
        for header, column in ORIGIN.items()
        for item in (F.lit(header), F.array(F.col(column).cast("string")))
    ]
    reason = (F.lit(REASON), F.array(F.col("_problem")))
    own = F.map_filter(
        F.coalesce(F.col("_headers"), F.create_map().cast("map<string,array<string>>")),
        lambda name, _: ~name.startswith("Nats-") & ~name.startswith("Penstock-"),
    )
    return read.where(F.col("_problem").isNotNull()).select(
        subject.value().alias("subject"),
        F.col("_data").alias("data"),
        F.map_concat(own, F.create_map(*reason, *origin)).alias("headers"),
    )


def _is_one() -> Column:
    return (F.size("_parsed.v") == 1) & F.col("_parsed.end")


def _problem(schema: StructType) -> Column:
    """Say in words why a message does not fit; null where it does."""
    value = F.col("_row")
    missing = [each for each in schema.fields if not each.nullable]
    lacks = [value[each.name].isNull() for each in missing]
    is_bad = reduce(
        lambda one, other: one | other,
        [F.col("_parsed._problem").isNotNull(), value.isNull(), *lacks],
    )
    return F.when(is_bad, _reason(schema))


def _reason(schema: StructType) -> Column:
    # Spark does not say which field was wrong. It is one that has a value in the document, and none
    # in the row.
    document = F.try_parse_json(F.col("_data").cast("string"))
    chosen = (
        F.when(document.isNull(), F.lit("the payload is no JSON"))
        .when(
            ~F.schema_of_variant(document).startswith("OBJECT"),
            F.lit("the payload is no JSON object"),
        )
        .when(F.col("_row").isNull(), F.lit("the payload is not one JSON object"))
    )
    for each in schema.fields:
        there = F.try_variant_get(document, _path(each.name), "string").isNotNull()
        in_row = F.col(f"_row.`{each.name}`").isNotNull()
        kind = each.dataType.simpleString()
        chosen = chosen.when(there & ~in_row, F.lit(f"field {each.name} does not fit {kind}"))
        if not each.nullable:
            chosen = chosen.when(~in_row, F.lit(f"field {each.name} is missing"))
    return chosen.otherwise(F.lit("the payload does not fit the schema"))


def _path(field: str) -> str:
    # There is no way to write a name with both kinds of quotes; no field is found by it.
    return f"$['{field}']" if "'" not in field else '$["{}"]'.format(field.replace('"', ""))


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(each.name, each.dataType) for each in schema.fields])
