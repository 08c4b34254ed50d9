"""Tables for SQL: streams, buckets, directories and archives under their own names.

A table that a statement mentions is created when it is mentioned, in two layers:

    a table of Spark's catalog, with the options of its format     reads, and takes filters
    a temporary view over it, under the stream's name              shows payloads as JSON

Which fields the JSON payloads have, and of which types, is inferred from samples. A field with
several types is a variant, which holds anything. A value that was not among the samples is at worst
null in its column, and never an error.

Invariant: no row is wrong or missing because of filters that were passed to our formats. Spark
keeps one reader for a table of a statement, so that a statement that reads a table twice would
apply the filters of one place in the other. Such a statement gets tables without filters, and so
does a session that does not pass filters on. Through Spark Connect, where the catalog may be shared
with others, there are only temporary views.

Used in the driver by one thread. Only a connection that lists a server's streams is opened here.
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import UsageError
from penstock.limits import INFERRED_DEPTH_MAX, INFERRED_FIELDS_MAX, SQL_SAMPLE_MESSAGES
from penstock.spark import schema
from penstock.spark.archives.folder import FORMAT as ARCHIVE_FORMAT
from penstock.spark.blocks.settings import FORMAT as BLOCK_FORMAT
from penstock.spark.connection import Connection, streams_of
from penstock.spark.jobs.job import Input
from penstock.spark.kv import rows as kv_rows
from penstock.spark.kv.settings import FORMAT as KV_FORMAT
from penstock.spark.options import Options
from penstock.spark.schema import Column
from penstock.spark.sql.statements import lowered, names, only_reads, reads_whole_rows
from penstock.spark.streams.settings import FORMAT as STREAM_FORMAT

# Fields of payloads, inferred

VARIANT = "variant"
_INT64_MAX = 2**63 - 1


class Field(msgspec.Struct, frozen=True):
    """A field of payloads: its name there, and its type in SQL."""

    name: str
    type: str


class _Kind(msgspec.Struct):
    """What is known of one field's type; nothing yet if `name` is empty."""

    name: str = ""
    fields: dict[str, _Kind] = msgspec.field(default_factory=dict)
    items: _Kind | None = None


def infer(payloads: Iterable[bytes]) -> list[Field]:
    """Return the fields of payloads, in the order in which they appear.

    Payloads that are no JSON objects are ignored.
    """
    whole = _Kind()
    for payload in payloads:
        try:
            value = json.loads(payload)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            _learn(whole, value, 0)
    found = _distinct(whole.fields)
    # These letters cannot be in a path into a variant.
    return [Field(name, _sql(kind)) for name, kind in found if name and not set(name) & {"'", "?"}]


def _learn(kind: _Kind, value: Any, depth: int) -> None:
    if value is None or kind.name == VARIANT:
        return
    found = _name_of(value) if depth <= INFERRED_DEPTH_MAX else VARIANT
    kind.name = _joined(kind.name, found)
    if kind.name == "struct":
        for name, each in value.items():
            if name in kind.fields or len(kind.fields) < INFERRED_FIELDS_MAX:
                _learn(kind.fields.setdefault(name, _Kind()), each, depth + 1)
    elif kind.name == "array":
        kind.items = kind.items or _Kind()
        for each in value:
            _learn(kind.items, each, depth + 1)


def _name_of(value: Any) -> str:
    # A bool is an int in Python, so it is checked first.
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_INT64_MAX <= value <= _INT64_MAX else VARIANT
    names = {float: "double", str: "string", dict: "struct", list: "array"}
    return names[type(value)]


def _joined(known: str, found: str) -> str:
    if known in ("", found):
        return found
    return "double" if {known, found} == {"bigint", "double"} else VARIANT


def _distinct(fields: dict[str, _Kind]) -> list[tuple[str, _Kind]]:
    # Spark ignores case: of fields that differ only by case, the first is returned.
    met: dict[str, tuple[str, _Kind]] = {}
    for name, kind in fields.items():
        met.setdefault(name.lower(), (name, kind))
    return list(met.values())


def _sql(kind: _Kind) -> str:
    if kind.name == "struct":
        if not kind.fields or len(_distinct(kind.fields)) < len(kind.fields):
            return VARIANT
        inner = ", ".join(f"{quote_name(name)}: {_sql(each)}" for name, each in kind.fields.items())
        return f"struct<{inner}>"
    if kind.name == "array":
        return f"array<{_sql(kind.items or _Kind())}>"
    return kind.name or VARIANT


def quote_name(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


def quote_text(value: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


# Tables

SCHEMA = "penstock_tables"
VALUE = "value"

PUSHDOWN_CONF = "spark.sql.python.filterPushdown.enabled"
SESSION_CONF = {
    PUSHDOWN_CONF: "true",
    # Tables are for this session alone, so Spark's catalog is too.
    "spark.sql.catalogImplementation": "in-memory",
}
"""The settings with which a session is best opened."""

_SAMPLED_PARTS = 8
_READ = re.compile(rf"RelationV2\[.*\] \S*\b{SCHEMA}\.(\w+)")
_SHARED = re.compile(r"CTERelationRef (\d+)")

_PAYLOAD = "try_validate_utf8(cast({0} as string))"
_AS_JSON = f"coalesce(try_parse_json({_PAYLOAD}), cast({_PAYLOAD} as variant))"
"""Text that is no JSON is a string; bytes that are no text are null."""


class Table(msgspec.Struct, frozen=True):
    """A table: its name in SQL, and what it is read from."""

    name: str
    format: str
    options: dict[str, str]
    columns: tuple[Column, ...]
    payload: str
    """The column of payloads."""

    sample: Input
    """The input from which payloads are sampled to infer their fields."""

    takes_filters: bool


_numbers = itertools.count(1)
"""Numbers of created tables: a session may have several catalogs, one after another."""


class _CreatedTable(msgspec.Struct, frozen=True):
    """A table as it was last created."""

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
        self._made: dict[str, _CreatedTable] = {}
        self._relations: dict[str, Table] = {}
        self._is_remote = not hasattr(spark, "_jvm")
        is_asked = spark.conf.get(PUSHDOWN_CONF, "false") == "true"
        self._hands_filters_over = is_asked and not self._is_remote
        # Views of the user may read any column.
        self._is_narrow = True
        if not self._is_remote:
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")

    def names(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(each.name for alike in self._tables.values() for each in alike)

    def nearest(self, name: str) -> str:
        """Return a hint with similar names of tables; "" if there is none."""
        near = difflib.get_close_matches(name.lower(), list(self._tables), n=3, cutoff=0.5)
        listed = [quote_if_needed(self._tables[each][0].name) for each in near]
        return f"did you mean {' or '.join(listed)}?" if listed else ""

    def frame(self, statement: str) -> DataFrame:
        """Return a statement's result, after creating the tables that it mentions.

        A query is planned and not run yet; anything else is done. Raise what Spark raises, or
        UsageError for names that differ only by case.
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
        # Counting rows takes one column: the first.
        return tuple(each for each in known if each in wanted) or (known[0],)

    def _make(self, table: Table, columns: tuple[str, ...], *, takes_filters: bool) -> None:
        takes_filters = takes_filters and table.takes_filters and self._hands_filters_over
        made = _CreatedTable(table, columns, takes_filters)
        # A view of a remote session is planned only once, so it is created anew each
        # time.
        if self._made.get(table.name.lower()) == made and not self._is_remote:
            return
        relation = self._make_relation(made)
        value = _AS_JSON.format(quote_name(table.payload))
        shown = []
        for each in columns:
            if each == table.payload:
                shown.append(f"{value} AS {quote_name(VALUE)}")
                shown += [
                    f"try_variant_get({value}, {quote_text(path)}, {quote_text(kind)}) "
                    f"AS {quote_name(name)}"
                    for name, (path, kind) in self._inferred(table)
                ]
            if each != VALUE:
                shown.append(quote_name(each))
        self._spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW {quote_name(table.name)} AS "
            f"SELECT {', '.join(shown)} FROM {relation}"
        )
        self._made[table.name.lower()] = made

    def _make_relation(self, made: _CreatedTable) -> str:
        name = f"t{next(_numbers)}"
        given = made.table.options | ({"pushdown": "true"} if made.takes_filters else {})
        pairs = [(quote_text(key), quote_text(value)) for key, value in given.items()]
        kinds = {each.name: each.spark.simpleString() for each in made.table.columns}
        columns = ", ".join(f"{quote_name(each)} {kinds[each]}" for each in made.columns)
        what = f"({columns}) USING {quote_name(made.table.format)}"
        if self._is_remote:
            view = f"{SCHEMA}_{name}"
            options = ", ".join(f"{key} {value}" for key, value in pairs)
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} {what} OPTIONS ({options})")
            return view
        self._spark.sql(f"CREATE TABLE {SCHEMA}.{name} {what}")
        self._relations[name] = made.table
        # Options of CREATE TABLE do not reach a format written in Python; these do.
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
        """Return the columns inferred from a table's payloads: name, then path and type."""
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
    """Return the table that a statement means, of those whose names differ only by case."""
    exact = [each for each in alike if each.name in written]
    if len(alike) > 1 and len(exact) != 1:
        listed = ", ".join(each.name for each in alike)
        raise UsageError(f"SQL does not tell these names apart; write one of them: {listed}")
    return exact[0] if exact else alike[0]


def _java(frame: DataFrame) -> Any:
    return frame._jdf  # PySpark's own way to the plan


def _payloads(source: Input) -> list[bytes]:
    """Return samples of payloads from all over a stream."""
    small = {"arrowBatchRows": str(SQL_SAMPLE_MESSAGES // _SAMPLED_PARTS)}
    spread = {"minPartitions": str(_SAMPLED_PARTS)}
    parts = Input(source.format, {**source.options, **small, **spread}).parts()
    chosen = parts[:: max(len(parts) // _SAMPLED_PARTS, 1)]
    found: list[bytes] = []
    for number, part in enumerate(chosen, 1):
        enough = SQL_SAMPLE_MESSAGES * number // len(chosen)
        for batch in part.read([schema.DATA]):
            found += batch.column(0).to_pylist()
            if len(found) >= enough:
                break
    return found


def quote_if_needed(name: str) -> str:
    """Return a name as SQL needs it: quoted only if it must be."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else quote_name(name)


_MESSAGE = (
    schema.STREAM,
    schema.SUBJECT,
    schema.SEQUENCE,
    schema.TIMESTAMP,
    schema.TIME_NS,
    schema.HEADER_MAP,
    schema.SIZE,
    schema.DATA,
)
_BLOCK = (*_MESSAGE, schema.BLOCK, schema.OFFSET)


def tables_of_server(connection: Mapping[str, str]) -> list[Table]:
    """Return the tables of a server's streams; `connection` has options of the format
    `penstock`."""
    options = Options(STREAM_FORMAT, connection)
    wanted = options.group(Connection)
    options.finish()
    with streams_of(wanted) as streams:
        names = sorted(streams.pages("STREAM.NAMES", "streams", {}))
    return [_table_of_stream(each, dict(connection)) for each in names]


def _table_of_stream(name: str, connection: dict[str, str]) -> Table:
    source = Input(STREAM_FORMAT, {**connection, "stream": name})
    if name.startswith(kv_rows.STREAM_PREFIX):
        options = {**connection, "bucket": name.removeprefix(kv_rows.STREAM_PREFIX)}
        return _table_of_bucket(name, options, source)
    return _table_of_messages(name, source, _MESSAGE)


def table_of_directory(name: str, path: str, options: Mapping[str, str]) -> Table:
    """Return the table of a stream's directory; `options` are of the format `penstock-blocks`."""
    given = {**options, "path": path}
    source = Input(BLOCK_FORMAT, given)
    if name.startswith(kv_rows.STREAM_PREFIX):
        return _table_of_bucket(name, given, source)
    return _table_of_messages(name, source, _BLOCK)


def table_of_archive(name: str, path: str) -> Table:
    """Return the table of an archive."""
    return _table_of_messages(name, Input(ARCHIVE_FORMAT, {"path": path}), _MESSAGE)


def _table_of_messages(name: str, source: Input, columns: tuple[schema.Column, ...]) -> Table:
    return Table(
        name=name,
        format=source.format,
        options=dict(source.options),
        columns=columns,
        payload=schema.DATA.name,
        sample=source,
        takes_filters=source.format != ARCHIVE_FORMAT,
    )


def _table_of_bucket(name: str, options: dict[str, str], source: Input) -> Table:
    return Table(
        name=name,
        format=KV_FORMAT,
        options=options,
        columns=kv_rows.COLUMNS,
        payload=kv_rows.VALUE.name,
        sample=source,
        takes_filters=False,
    )
