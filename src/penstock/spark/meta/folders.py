"""Rows of `penstock-meta` from stream directories: by their indexes and documents, and no server.

No message is read, but for the subjects of a directory of Go's server, whose index does not tell
them apart. Beside a server that goes on writing it is a moment's view. Loaded by executors.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import FormatError, UsageError
from penstock.format.consumer_state import ConsumerState, SequencePair, decode_consumer_state
from penstock.format.envelope import StoreKey
from penstock.format.files import ReadableFolder
from penstock.format.golang.directory import GoStreamReader, is_go_stream_directory
from penstock.format.layout import CONSUMERS_NAME
from penstock.format.sealed_document import DocumentKeys
from penstock.format.summary import summarize
from penstock.limits import CONSUMER_STATE_BYTES_MAX
from penstock.spark.blocks.scan import Place
from penstock.spark.folders import folder_at, stream_name
from penstock.spark.meta.server import config_facts, consumer_facts, time_ns
from penstock.spark.meta.tables import Row, TableName
from penstock.subjects import SubjectFilter

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024
"""What a server writes as a stream's or a consumer's document at most."""


def rows_of_folder(table: TableName, place: Place, subjects: SubjectFilter) -> Iterator[Row]:
    """Give what a table says of one stream's directory."""
    common = {"account": account_of(place.path)}
    found = _GoFolder(place) if place.is_go else _OurFolder(place)
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


def place_of(path: str, key_file: str) -> Place:
    """Give a stream's directory as it is opened."""
    is_go = is_go_stream_directory(path, open_folder=folder_at)
    return Place(path, stream_name(path), key_file, is_go)


def account_of(path: str) -> str | None:
    """Give the account by the path, where the path is that of a server's store."""
    parts = [part for part in path.split("/") if part]
    return parts[-3] if len(parts) > 2 and parts[-2] == "streams" else None


class _OurFolder:
    """A directory of ours."""

    def __init__(self, place: Place) -> None:
        self.name = place.stream
        self._place = place
        self._folder = folder_at(place.path)
        self._names = set(self._folder.list_names())
        secret = place.secret()
        self._has_key = secret is not None
        self._keys = DocumentKeys(key=None if secret is None else StoreKey(secret))

    def stream(self) -> Row:
        """Tell of the stream."""
        reader = self._place.open()
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
            "consumer_count": len(self._consumer_folders()),
            "block_count": len(reader.blocks),
        }

    def blocks(self) -> Iterator[Row]:
        """Tell of each block."""
        reader = self._place.open()
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

    def _consumer_folders(self) -> list[ReadableFolder]:
        if CONSUMERS_NAME not in self._names:
            return []
        above = f"{self._place.path.rstrip('/')}/{CONSUMERS_NAME}"
        found = []
        for name in folder_at(above).list_names():
            folder = folder_at(f"{above}/{name}")
            if "consumer.json" in folder.list_names():
                found.append(folder)
        return found

    def subjects(self, subjects: SubjectFilter) -> Mapping[bytes, int]:
        """Count messages by subject, from the indexes."""
        return summarize(self._place.open()).table.totals(subjects)

    def consumers(self) -> Iterator[Row]:
        """Tell of each consumer."""
        for folder in self._consumer_folders():
            base = folder.path.rstrip("/").rpartition("/")[2]
            document = self._document(folder, "consumer.json", f"consumer.json/{base}")
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
        """Give a document; None where there is none, or it is sealed and we have no key."""
        try:
            data = _read(folder, name, DOCUMENT_BYTES_MAX)
        except FileNotFoundError:
            return None
        if not self._has_key and not data.lstrip().startswith(b"{"):
            return None
        path = f"{folder.path}/{name}"
        plain = self._keys.open(data, stream=self.name.encode(), which=which.encode(), path=path)
        try:
            found = json.loads(plain)
        except ValueError as error:
            raise FormatError(f"{path}: {error}") from None
        if not isinstance(found, dict):
            raise FormatError(f"{path}: no JSON object")
        return found


def _state(folder: ReadableFolder, start_seq: int) -> ConsumerState:
    try:
        return decode_consumer_state(_read(folder, "state", CONSUMER_STATE_BYTES_MAX))
    except FileNotFoundError:
        # A consumer that has delivered nothing yet stands where it began.
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

    def __init__(self, place: Place) -> None:
        self._reader: GoStreamReader = place.open_go()
        self.name = self._reader.name

    def stream(self) -> Row:
        """Tell of the stream."""
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
        """Tell of each block."""
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
        """Tell of each consumer."""
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
        """Count messages by subject; no index tells, so they are read."""
        totals: Counter[bytes] = Counter()
        for batch in self._reader.batches(subjects=subjects, headers=False, payloads=False):
            totals.update(each.subject for each in batch.messages())
        return totals
