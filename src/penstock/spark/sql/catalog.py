"""Tables for SQL: streams, buckets, directories and archives under their own names.

A table that a statement mentions is made when it is mentioned, in two layers:

    a table of Spark's catalog, with the options of its format     reads, and takes filters over
    a temporary view over it, named as people name the stream      shows payloads as JSON

What always holds: no row is wrong or missing because of filters that were handed to our formats.
Spark keeps one reader for a table of a statement, so that a statement that reads a table twice
would see the filters of one place in the other: such a statement gets tables without them, and so
does a session that does not hand filters over. Through Spark Connect, where the catalog may be
shared with others, there are only temporary views.

Used in the driver by one thread.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import UsageError
from penstock.limits import SQL_SAMPLE_MESSAGES
from penstock.spark import schema
from penstock.spark.jobs.inputs import Input, read_part
from penstock.spark.schema import Column
from penstock.spark.sql.inference import Field, infer, quoted, texted
from penstock.spark.sql.statements import lowered, names, only_reads, reads_whole_rows

SCHEMA = "penstock_tables"
VALUE = "value"

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
SESSION_CONF = {
    PUSHDOWN_CONF: "true",
    # Tables are for this session alone, and so is where Spark keeps them.
    "spark.sql.catalogImplementation": "in-memory",
}
"""What a session is best opened with."""

_SAMPLED_PARTS = 8
_READ = re.compile(rf"RelationV2\[.*\] \S*\b{SCHEMA}\.(\w+)")
_SHARED = re.compile(r"CTERelationRef (\d+)")

_PAYLOAD = "try_validate_utf8(cast({0} as string))"
_AS_JSON = f"coalesce(try_parse_json({_PAYLOAD}), cast({_PAYLOAD} as variant))"
"""Text that is no JSON is a text; bytes that are no text are null."""


class Table(msgspec.Struct, frozen=True):
    """Something that can be read: how people name it, and where it is."""

    name: str
    format: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    payload: str
    """The column that holds payloads."""

    sample: Input
    """Where payloads are taken from to tell their fields."""

    takes_filters: bool


_numbers = itertools.count(1)
"""Of the tables that were made: a session may have several catalogs, one after another."""


class _Made(msgspec.Struct, frozen=True):
    """A table as it was last made."""

    table: Table
    columns: tuple[str, ...]
    takes_filters: bool


class Catalog:
    """The tables of a session; see the module."""

    def __init__(
        self, spark: SparkSession, tables: Sequence[Table], *, is_inferring: bool = False
    ) -> None:
        self._spark = spark
        self._tables: dict[str, list[Table]] = {}
        for each in tables:
            self._tables.setdefault(each.name.lower(), []).append(each)
        self._is_inferring = is_inferring
        self._fields: dict[str, list[Field]] = {}
        self._made: dict[str, _Made] = {}
        self._relations: dict[str, Table] = {}
        self._is_remote = not hasattr(spark, "_jvm")
        is_asked = spark.conf.get(PUSHDOWN_CONF, "false") == "true"
        self._hands_filters_over = is_asked and not self._is_remote
        # Once there are views of the user's own, nobody knows which columns they read.
        self._is_narrow = True
        if not self._is_remote:
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")

    def names(self) -> list[str]:
        """Give the names of all tables, sorted."""
        return sorted(each.name for alike in self._tables.values() for each in alike)

    def nearest(self, name: str) -> str:
        """Say which tables are named alike; "" where none is."""
        near = difflib.get_close_matches(name.lower(), list(self._tables), n=3, cutoff=0.5)
        listed = [quoted_if_needed(self._tables[each][0].name) for each in near]
        return f"did you mean {' or '.join(listed)}?" if listed else ""

    def frame(self, statement: str) -> DataFrame:
        """Give a statement's result, with the tables that it mentions made.

        A query is planned and not yet run; anything else is done. Raises what Spark raises, and
        UsageError for names that cannot be told apart.
        """
        is_reading = only_reads(statement)
        self._is_narrow = self._is_narrow and is_reading
        written = names(statement)
        for key in sorted(lowered(written) & self._tables.keys()):
            table = _chosen(self._tables[key], written)
            self._make(table, self._wanted(table, statement), takes_filters=is_reading)
        frame = self._spark.sql(statement)
        if is_reading and (shared := self._read_twice(frame)):
            for table in shared:
                self._make(table, self._made[table.name.lower()].columns, takes_filters=False)
            frame = self._spark.sql(statement)
        return frame

    def _wanted(self, table: Table, statement: str) -> tuple[str, ...]:
        known = [each.name for each in table.columns]
        if not self._is_narrow or reads_whole_rows(statement):
            return tuple(known)
        mentioned = lowered(names(statement))
        wanted = {each for each in known if each in mentioned}
        of_payload = {VALUE, *(each.lower() for each, _ in self._inferred(table))}
        if of_payload & mentioned:
            wanted.add(table.payload)
        # Rows are counted by some column: the first is as good as any.
        return tuple(each for each in known if each in wanted) or (known[0],)

    def _make(self, table: Table, columns: tuple[str, ...], *, takes_filters: bool) -> None:
        takes_filters = takes_filters and table.takes_filters and self._hands_filters_over
        made = _Made(table, columns, takes_filters)
        # A view of a remote session is planned once and for all, so it is made anew each time.
        if self._made.get(table.name.lower()) == made and not self._is_remote:
            return
        relation = self._make_relation(made)
        value = _AS_JSON.format(quoted(table.payload))
        shown = []
        for each in columns:
            if each == table.payload:
                shown.append(f"{value} AS {quoted(VALUE)}")
                shown += [
                    f"try_variant_get({value}, {texted(path)}, {texted(kind)}) AS {quoted(name)}"
                    for name, (path, kind) in self._inferred(table)
                ]
            if each != VALUE:
                shown.append(quoted(each))
        self._spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {quoted(table.name)} AS "
            f"SELECT {', '.join(shown)} FROM {relation}"
        )
        self._made[table.name.lower()] = made

    def _make_relation(self, made: _Made) -> str:
        name = f"t{next(_numbers)}"
        given = made.table.options | ({"pushdown": "true"} if made.takes_filters else {})
        pairs = [(texted(key), texted(value)) for key, value in given.items()]
        kinds = {each.name: each.spark.simpleString() for each in made.table.columns}
        columns = ", ".join(f"{quoted(each)} {kinds[each]}" for each in made.columns)
        what = f"({columns}) USING {quoted(made.table.format)}"
        if self._is_remote:
            view = f"{SCHEMA}_{name}"
            options = ", ".join(f"{key} {value}" for key, value in pairs)
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} {what} OPTIONS ({options})")
            return view
        self._spark.sql(f"CREATE TABLE {SCHEMA}.{name} {what}")
        self._relations[name] = made.table
        # Options that a table is made with do not reach a format written in Python: these do.
        options = ", ".join(f"{key} = {value}" for key, value in pairs)
        return f"{SCHEMA}.{name} WITH ({options})"

    def _read_twice(self, frame: DataFrame) -> list[Table]:
        if self._is_remote:
            return []
        plan: str = _java(frame).queryExecution().analyzed().toString()
        reads = _READ.findall(plan)
        shared = _SHARED.findall(plan)
        is_shared = len(set(shared)) < len(shared)
        found = {name for name in reads if is_shared or reads.count(name) > 1}
        by_name = {self._relations[name].name: self._relations[name] for name in sorted(found)}
        return list(by_name.values())

    def _inferred(self, table: Table) -> list[tuple[str, tuple[str, str]]]:
        """Give the columns of a table's payloads: name, then path and type."""
        if not self._is_inferring:
            return []
        if table.name not in self._fields:
            self._fields[table.name] = infer(_payloads(table.sample))
        taken = {each.name for each in table.columns} | {VALUE}
        return [
            (
                f"value_{each.name}" if each.name.lower() in taken else each.name,
                (f"$['{each.name}']", each.type),
            )
            for each in self._fields[table.name]
        ]


def _chosen(alike: Sequence[Table], written: frozenset[str]) -> Table:
    """Give the one of tables that differ by case alone which a statement means."""
    exact = [each for each in alike if each.name in written]
    if len(alike) > 1 and len(exact) != 1:
        listed = ", ".join(each.name for each in alike)
        raise UsageError(f"SQL does not tell these names apart; write one of them: {listed}")
    return exact[0] if exact else alike[0]


def _java(frame: DataFrame) -> Any:
    return frame._jdf  # PySpark's own way to the plan


def _payloads(source: Input) -> list[bytes]:
    """Give some payloads from all over a stream."""
    small = {"arrowBatchRows": str(SQL_SAMPLE_MESSAGES // _SAMPLED_PARTS)}
    spread = {"minPartitions": str(_SAMPLED_PARTS)}
    parts = Input(source.format, {**source.options, **small, **spread}).parts()
    chosen = parts[:: max(len(parts) // _SAMPLED_PARTS, 1)]
    found: list[bytes] = []
    for number, part in enumerate(chosen, 1):
        enough = SQL_SAMPLE_MESSAGES * number // len(chosen)
        for batch in read_part(part, [schema.DATA]):
            found += batch.column(0).to_pylist()
            if len(found) >= enough:
                break
    return found


def quoted_if_needed(name: str) -> str:
    """Give a name as people write it in SQL."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quoted(name)
