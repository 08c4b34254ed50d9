"""The tables of `penstock-meta`: their columns, and their rows from a server or from directories.

A row is a dictionary; columns that a server or a directory does not have stay null. Times are Unix
nanoseconds and are shown to a microsecond. A server is asked by API calls in pages, of a directory
the files are read. No message is read, except for the subjects of a directory of Go's server, whose
index does not have them. A directory that a server writes to is shown as it is at the moment.

Loaded by executors.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, TimestampType

from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, FormatError, InvalidDocument, RefusedByServer, UsageError
from penstock.format.envelope import StoreKey
from penstock.format.files import ReadableFolder
from penstock.format.golang.directory import GoStreamReader, is_go_stream_directory
from penstock.format.layout import CONSUMERS_NAME
from penstock.format.state.checked_document import without_checksum
from penstock.format.state.consumer import ConsumerState, SequencePair, decode_consumer_state
from penstock.format.state.journal import JOURNAL_NAME, decode_journal
from penstock.format.state.sealed_document import DocumentKeys
from penstock.format.summary import summarize
from penstock.limits import (
    CONSUMER_JOURNAL_FILE_BYTES_MAX,
    CONSUMER_STATE_BYTES_MAX,
    STREAM_DOCUMENT_BYTES_MAX,
)
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.folder import folder_at, stream_name
from penstock.spark.schema import Column, arrow_schema
from penstock.subjects import SubjectFilter
from penstock.text.times import ZERO_TIME_NS, parse_instant

# Tables

BATCH_ROWS = 16_384

Row = Mapping[str, Any]
"""One row by its columns' names."""


class TableName(StrEnum):
    """Which table is read."""

    STREAMS = "streams"
    BLOCKS = "blocks"
    CONSUMERS = "consumers"
    SUBJECTS = "subjects"


def _text(name: str, text: str) -> Column:
    return Column(name, StringType(), pa.string(), text)


def _number(name: str, text: str) -> Column:
    return Column(name, LongType(), pa.int64(), text)


def _flag(name: str, text: str) -> Column:
    return Column(name, BooleanType(), pa.bool_(), text)


def _time(name: str, text: str) -> Column:
    return Column(name, TimestampType(), pa.timestamp("us", tz="UTC"), text)


def _texts(name: str, text: str) -> Column:
    kind = pa.list_(pa.field("element", pa.string()))
    return Column(name, ArrayType(StringType()), kind, text)


ACCOUNT = _text("account", "the account's folder; null through a server")
STREAM = _text("stream", "the stream's name")

TABLES: dict[TableName, tuple[Column, ...]] = {
    TableName.STREAMS: (
        ACCOUNT,
        STREAM,
        _texts("subjects", "what it listens to"),
        _text("retention", "limits, interest or workqueue"),
        _text("storage", "file or memory"),
        _number("replicas", "servers that keep it"),
        _time("created", "when it was made"),
        _number("messages", "messages that it holds"),
        _number("bytes", "their bytes, as servers count them"),
        _number("first_sequence", "the first of them"),
        _time("first_timestamp", "when that was stored"),
        _number("last_sequence", "the last sequence that was given"),
        _time("last_timestamp", "when that was stored"),
        _number("deleted", "sequences in between without a message"),
        _number("subject_count", "distinct subjects; null with Go's layout"),
        _number("consumer_count", "consumers"),
        _number("block_count", "block files; null through a server"),
    ),
    TableName.BLOCKS: (
        ACCOUNT,
        STREAM,
        _number("block", "the number of the block file"),
        _number("generation", "how often it was rewritten"),
        _number("bytes", "its length"),
        _number("messages", "messages in it that were not removed"),
        _number("records", "messages in it, removed ones included; null with Go's layout"),
        _number("first_sequence", "no sequence of it is below"),
        _number("last_sequence", "the last sequence that it accounts for"),
        _time("first_timestamp", "the earliest time in it; null with Go's layout"),
        _time("last_timestamp", "the latest; null with Go's layout"),
        _flag("sealed", "whether it is finished"),
        _flag("encrypted", "whether it needs a key"),
    ),
    TableName.CONSUMERS: (
        ACCOUNT,
        STREAM,
        _text("consumer", "the consumer's name"),
        _flag("durable", "whether it stays when nobody uses it"),
        _time("created", "when it was made"),
        _texts("filter_subjects", "what it is for; empty for all subjects"),
        _text("deliver_policy", "where it began"),
        _text("ack_policy", "how messages are acknowledged"),
        _number("delivered_sequence", "the last message that it delivered"),
        _number("ack_floor_sequence", "up to here all is acknowledged"),
        _number("pending", "messages still to be delivered; null from a directory"),
        _number("ack_pending", "delivered and not acknowledged yet"),
        _number("redelivered", "of those, delivered more than once"),
        _number("waiting", "requests that wait for messages; null from a directory"),
    ),
    TableName.SUBJECTS: (
        ACCOUNT,
        STREAM,
        _text("subject", "the subject"),
        _number("messages", "its messages"),
    ),
}


def to_batches(rows: Iterable[Row], columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of some columns."""
    schema = arrow_schema(columns)
    left = iter(rows)
    while some := list(itertools.islice(left, BATCH_ROWS)):
        arrays = [_array(each, some) for each in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Column, rows: Sequence[Row]) -> pa.Array:
    values = [row.get(column.holds) for row in rows]
    if pa.types.is_timestamp(column.arrow):
        values = [None if each is None else each // 1000 for each in values]
    return pa.array(values, column.arrow)


# Rows

Document = Mapping[str, Any]
"""A JSON document of the API."""


def stream_rows(streams: JetStream, name: str) -> Iterator[Row]:
    """Yield the row of a stream."""
    info = _called(streams, f"STREAM.INFO.{name}")
    state = info["state"]
    yield config_facts(info["config"]) | {
        "stream": name,
        "created": time_ns(info.get("created")),
        "messages": state["messages"],
        "bytes": state["bytes"],
        "first_sequence": state["first_seq"],
        "first_timestamp": time_ns(state.get("first_ts")),
        "last_sequence": state["last_seq"],
        "last_timestamp": time_ns(state.get("last_ts")),
        "deleted": state.get("num_deleted", 0),
        "subject_count": state.get("num_subjects", 0),
        "consumer_count": state.get("consumer_count", 0),
    }


def config_facts(config: Document) -> dict[str, Any]:
    """Return the columns that come from a stream's configuration."""
    return {
        "subjects": config.get("subjects") or [],
        "retention": config.get("retention", "limits"),
        "storage": config.get("storage", "file"),
        "replicas": config.get("num_replicas", 1),
    }


def consumer_rows(streams: JetStream, stream: str) -> Iterator[Row]:
    """Yield the rows of a stream's consumers."""
    for info in streams.pages(f"CONSUMER.LIST.{stream}", "consumers", {}):
        yield consumer_facts(info["config"]) | {
            "stream": stream,
            "consumer": info["name"],
            "created": time_ns(info.get("created")),
            "delivered_sequence": info["delivered"]["stream_seq"],
            "ack_floor_sequence": info["ack_floor"]["stream_seq"],
            "pending": info["num_pending"],
            "ack_pending": info["num_ack_pending"],
            "redelivered": info["num_redelivered"],
            "waiting": info["num_waiting"],
        }


def consumer_facts(config: Document) -> dict[str, Any]:
    """Return the columns that come from a consumer's configuration."""
    one = config.get("filter_subject")
    return {
        "durable": bool(config.get("durable_name")),
        "filter_subjects": config.get("filter_subjects") or ([one] if one else []),
        "deliver_policy": config.get("deliver_policy", "all"),
        "ack_policy": config.get("ack_policy", "none"),
    }


def subject_rows(streams: JetStream, stream: str, patterns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a stream's matching subjects, each once."""
    for place, pattern in enumerate(patterns):
        told = SubjectFilter(each.encode() for each in patterns[:place]) if place else None
        for subject, count in streams.subjects(stream, pattern):
            if told is None or not told.matches(subject.encode()):
                yield {"stream": stream, "subject": subject, "messages": count}


def time_ns(text: str | None) -> int | None:
    """Return the Unix nanoseconds of a document's time; None for the zero time."""
    if not text:
        return None
    try:
        found = parse_instant(text).time_ns
    except InvalidDocument as error:
        raise RefusedByServer(f"a time that is none: {error}") from None
    return None if found == ZERO_TIME_NS else found


def _called(streams: JetStream, name: str) -> dict[str, Any]:
    try:
        return streams.call(name)
    except ApiError as error:
        raise UsageError(f"{name}: {error}") from None


def rows_of_folder(
    table: TableName, directory: StreamDirectory, subjects: SubjectFilter
) -> Iterator[Row]:
    """Yield a table's rows for one stream's directory."""
    common = {"account": account_of(directory.path)}
    found = _GoFolder(directory) if directory.is_go else _OurFolder(directory)
    for row in _rows(found, table, subjects):
        yield common | {"stream": found.name} | dict(row)


def _rows(
    found: _OurFolder | _GoFolder, table: TableName, subjects: SubjectFilter
) -> Iterator[Row]:
    if table is TableName.STREAMS:
        yield found.stream()
    elif table is TableName.BLOCKS:
        yield from found.blocks()
    elif table is TableName.CONSUMERS:
        yield from found.consumers()
    else:
        totals = found.subjects(subjects)
        for subject in sorted(totals):
            yield {"subject": subject.decode(errors="replace"), "messages": totals[subject]}


def directory_of(path: str, key_file: str) -> StreamDirectory:
    """Return a stream's directory, with its layout."""
    is_go = is_go_stream_directory(path, open_folder=folder_at)
    return StreamDirectory(path, stream_name(path), key_file, is_go)


def account_of(path: str) -> str | None:
    """Return the account in a path of a server's store; None for other paths."""
    parts = [part for part in path.split("/") if part]
    return parts[-3] if len(parts) > 2 and parts[-2] == "streams" else None


class _OurFolder:
    """A directory of our layout."""

    def __init__(self, directory: StreamDirectory) -> None:
        self.name = directory.stream
        self._directory = directory
        self._folder = folder_at(directory.path)
        self._names = set(self._folder.list_names())
        self._consumers_path = f"{directory.path.rstrip('/')}/{CONSUMERS_NAME}"
        secret = directory.secret()
        self._has_key = secret is not None
        self._keys = DocumentKeys(key=None if secret is None else StoreKey(secret))

    def stream(self) -> Row:
        """Return the row of the stream."""
        reader = self._directory.open()
        summary = summarize(reader)
        document = self._document(self._folder, "stream.json", "stream.json")
        known = {} if document is None else config_facts(document.get("config", {}))
        return known | {
            "created": time_ns((document or {}).get("created")),
            "messages": summary.messages,
            "bytes": summary.bytes,
            "first_sequence": summary.first_seq if summary.last_seq else 0,
            "first_timestamp": summary.first_time_ns if summary.messages else None,
            "last_sequence": summary.last_seq,
            "last_timestamp": summary.last_time_ns or None,
            "deleted": summary.deleted,
            "subject_count": summary.subjects,
            "consumer_count": len(self._consumer_documents()),
            "block_count": len(reader.blocks),
        }

    def blocks(self) -> Iterator[Row]:
        """Yield the row of each block."""
        reader = self._directory.open()
        live = summarize(reader).live_by_block
        for block in reader.blocks:
            yield {
                "block": block.number,
                "generation": block.generation,
                "bytes": block.bytes,
                "messages": live.get(block.number, 0),
                "records": block.count,
                "first_sequence": block.base_seq,
                "last_sequence": block.last_seq,
                "first_timestamp": block.first_time_ns if block.count else None,
                "last_timestamp": block.last_time_ns if block.count else None,
                "sealed": block.sealed,
                "encrypted": block.encrypted,
            }

    def _consumer_documents(self) -> dict[str, bytes]:
        """Return the content of each `consumer.json`, by the consumer's folder.

        What a running server has changed within the last second is in its journal only.
        """
        documents: dict[str, bytes] = {}
        if CONSUMERS_NAME in self._names:
            for name in folder_at(self._consumers_path).list_names():
                with contextlib.suppress(FileNotFoundError):
                    folder = folder_at(f"{self._consumers_path}/{name}")
                    documents[name] = _read(folder, "consumer.json", STREAM_DOCUMENT_BYTES_MAX)
        for name, document in self._journaled():
            if document is None:
                documents.pop(name, None)
            else:
                documents[name] = document
        return documents

    def _journaled(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield what the account's journal says of this stream's consumers, in its order."""
        account = "/".join(self._directory.path.rstrip("/").split("/")[:-2])
        if account_of(self._directory.path) is None:
            return
        document = self._document(self._folder, "stream.json", "stream.json")
        created_ns = time_ns((document or {}).get("created"))
        folder = folder_at(account)
        matches = filter(None, map(JOURNAL_NAME.match, folder.list_names()))
        for match in sorted(matches, key=lambda each: int(each[1])):
            try:
                # The changes that fill it are written whole.
                data = _read(folder, match[0], 4 * CONSUMER_JOURNAL_FILE_BYTES_MAX)
            except FileNotFoundError:
                # The server has put it into the folders, and removed it.
                continue
            for entry in decode_journal(data, path=f"{account}/{match[0]}").entries:
                if (entry.stream, entry.stream_ns) == (self.name, created_ns):
                    yield entry.consumer, entry.document

    def subjects(self, subjects: SubjectFilter) -> Mapping[bytes, int]:
        """Return the messages by subject, from the indexes."""
        return summarize(self._directory.open()).table.totals(subjects)

    def consumers(self) -> Iterator[Row]:
        """Yield the row of each consumer."""
        for base, data in sorted(self._consumer_documents().items()):
            folder = folder_at(f"{self._consumers_path}/{base}")
            path = f"{folder.path}/consumer.json"
            document = self._decoded(data, f"consumer.json/{base}", path)
            state = _state(folder, (document or {}).get("start_seq", 0))
            known = {} if document is None else consumer_facts(document.get("config", {}))
            yield known | {
                "consumer": base if document is None else document.get("name") or base,
                "created": time_ns((document or {}).get("created")),
                "delivered_sequence": state.delivered.stream_seq,
                "ack_floor_sequence": state.ack_floor.stream_seq,
                "ack_pending": len(state.pending),
                "redelivered": len(state.redelivered),
            }

    def _document(self, folder: ReadableFolder, name: str, which: str) -> dict[str, Any] | None:
        """Return a document; None if there is none, or if it is encrypted and there is no key."""
        try:
            data = _read(folder, name, STREAM_DOCUMENT_BYTES_MAX)
        except FileNotFoundError:
            return None
        return self._decoded(data, which, f"{folder.path}/{name}")

    def _decoded(self, data: bytes, which: str, path: str) -> dict[str, Any] | None:
        """Return a document; None if it is encrypted and there is no key."""
        if not self._has_key and not data.lstrip().startswith(b"{"):
            return None
        plain = self._keys.open(data, stream=self.name.encode(), which=which.encode(), path=path)
        try:
            found = json.loads(without_checksum(plain)[0])
        except FormatError as error:
            raise FormatError(f"{path}: {error.reason}") from None
        except ValueError as error:
            raise FormatError(f"{path}: {error}") from None
        if not isinstance(found, dict):
            raise FormatError(f"{path}: no JSON object")
        return found


def _state(folder: ReadableFolder, start_seq: int) -> ConsumerState:
    try:
        return decode_consumer_state(_read(folder, "state", CONSUMER_STATE_BYTES_MAX))
    except FileNotFoundError:
        # A consumer that has delivered nothing has no state file: it is at its start.
        before = SequencePair(0, max(start_seq - 1, 0))
        return ConsumerState(delivered=before, ack_floor=before)


def _read(folder: ReadableFolder, name: str, bytes_max: int) -> bytes:
    file = folder.open(name)
    try:
        if file.size() > bytes_max:
            raise UsageError(f"{folder.path}/{name}: {file.size()} bytes, too many")
        return file.read_at(0, bytes_max)
    finally:
        file.close()


class _GoFolder:
    """A directory of Go's server."""

    def __init__(self, directory: StreamDirectory) -> None:
        self._reader: GoStreamReader = directory.open_go()
        self.name = self._reader.name

    def stream(self) -> Row:
        """Return the row of the stream."""
        config, state = self._reader.config, self._reader.state
        return config_facts(config) | {
            "created": time_ns(config.get("Created")),
            "messages": state.messages,
            "bytes": state.bytes,
            "first_sequence": state.first_seq,
            "first_timestamp": state.first_timestamp_ns if state.messages else None,
            "last_sequence": state.last_seq,
            "last_timestamp": state.last_timestamp_ns if state.last_seq else None,
            "deleted": state.last_seq - state.first_seq + 1 - state.messages
            if state.messages
            else 0,
            "consumer_count": len(self._reader.consumers()),
            "block_count": len(self._reader.blocks),
        }

    def blocks(self) -> Iterator[Row]:
        """Yield the row of each block."""
        for block in self._reader.blocks:
            yield {
                "block": block.number,
                "generation": 0,
                "bytes": block.bytes,
                "messages": block.messages,
                "first_sequence": block.first_seq,
                "last_sequence": block.last_seq,
                "sealed": block.number != self._reader.blocks[-1].number,
                "encrypted": self._reader.encrypted,
            }

    def consumers(self) -> Iterator[Row]:
        """Yield the row of each consumer."""
        for each in self._reader.consumers():
            state = each.state
            yield consumer_facts(each.config) | {
                "consumer": each.config.get("Name") or each.name,
                "created": time_ns(each.config.get("Created")),
                "delivered_sequence": 0 if state is None else state.delivered_stream_seq,
                "ack_floor_sequence": 0 if state is None else state.ack_floor_stream_seq,
                "ack_pending": 0 if state is None else len(state.pending),
                "redelivered": 0 if state is None else len(state.redelivered),
            }

    def subjects(self, subjects: SubjectFilter) -> Mapping[bytes, int]:
        """Return the messages by subject; Go's index does not have them, so messages are read."""
        totals: Counter[bytes] = Counter()
        for batch in self._reader.batches(subjects=subjects, headers=False, payloads=False):
            totals.update(each.subject for each in batch.messages())
        return totals
