"""Restoring an archive as a backup of its stream, which any server of version 2.15 or later takes.

    backup.json     the configuration and the state
    stream.tar.s2   the messages, as servers send them in snapshots (`format.golang.archive`)

Names and contents are those of `penstock stream backup` and of the `nats` tool, whose `restore`
makes a stream of them: with the same sequences, times and headers.

What always holds: `backup.json` is written last, when the rest is whole and on stable storage.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import UsageError
from penstock.format.golang.archive import END, MAGIC, STATE_NAME, ArchiveEntry
from penstock.format.golang.s2 import encode_s2_stream
from penstock.limits import SNAPSHOT_PIECE_BYTES
from penstock.spark.archives.folder import ArchiveFolder, HashingFile
from penstock.spark.archives.manifest import Manifest
from penstock.spark.archives.rows import opened, row_columns
from penstock.spark.jobs.report import Report
from penstock.spark.jobs.restore import begin_restore, named_config, rows_of
from penstock.spark.jobs.work import Tell
from penstock.spark.rows import encode_entries

DOCUMENT_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"
DOCUMENT_TYPE = "io.nats.jetstream.api.v1.stream_snapshot_response"

_MESSAGE_BYTES = 30
_HEADERS_BYTES = 4
"""What a server counts for a message, and for its headers, besides their own bytes."""


class _State(msgspec.Struct):
    """What a server says of a stream's messages."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: str = "0001-01-01T00:00:00Z"
    last_seq: int = 0
    last_ts: str = "0001-01-01T00:00:00Z"
    consumer_count: int = 0


def restore_snapshot(
    place: str,
    target: str,
    *,
    name: str = "",
    allow_holes: bool = False,
    dry_run: bool = False,
    tell: Tell | None = None,
) -> Report:
    """Write a backup into the folder `target`, which has none yet; see `restore_blocks`."""
    folder, manifest, report = begin_restore(place, dry_run=dry_run, allow_holes=allow_holes)
    config = named_config(manifest, name)
    into = ArchiveFolder(target)
    if into.size(DOCUMENT_NAME) >= 0:
        raise UsageError(f"{target} has a backup already")
    report.outputs = [f"{target}/{DATA_NAME}", f"{target}/{DOCUMENT_NAME}"]
    if dry_run:
        return report
    state = _state_of(folder, manifest)
    into.write(DATA_NAME, lambda file: _write(file, _pieces(folder, manifest, state, tell)))
    document: dict[str, Any] = {"type": DOCUMENT_TYPE, "config": config, "state": state}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    into.write(DOCUMENT_NAME, lambda file: _write(file, iter([text])))
    return report


def _write(file: HashingFile, pieces: Iterator[bytes]) -> None:
    for each in pieces:
        file.write(each)


def _pieces(
    folder: ArchiveFolder, manifest: Manifest, state: _State, tell: Tell | None
) -> Iterator[bytes]:
    told = ArchiveEntry(STATE_NAME, payload=msgspec.json.encode(state))
    plain = bytearray(MAGIC + told.encode())
    for batch in rows_of(folder, manifest, tell):
        plain += encode_entries(*row_columns(batch))
        if len(plain) >= SNAPSHOT_PIECE_BYTES:
            yield encode_s2_stream(bytes(plain))
            plain.clear()
    yield encode_s2_stream(bytes(plain + END.encode()))


def _state_of(folder: ArchiveFolder, manifest: Manifest) -> _State:
    """Add up what a server would say; a state comes before the messages that it is of."""
    state = _State(first_seq=manifest.end, last_seq=manifest.end - 1)
    for entry in manifest.files:
        with opened(folder, entry) as file:
            for batch in file.iter_batches(
                columns=["sequence", "time_ns", "subject", "headers"], use_threads=False
            ):
                _add(state, batch)
        state.bytes += entry.bytes
    return state


def _add(state: _State, batch: pa.RecordBatch) -> None:
    if not batch.num_rows:
        return
    if not state.messages:
        state.first_seq = batch.column("sequence")[0].as_py()
        state.first_ts = _moment(batch.column("time_ns")[0].as_py())
    state.last_ts = _moment(batch.column("time_ns")[-1].as_py())
    state.messages += batch.num_rows
    subjects = pc.sum(pc.binary_length(batch.column("subject").cast(pa.string()))).as_py()
    with_headers = pc.sum(pc.greater(pc.binary_length(batch.column("headers")), 0)).as_py()
    state.bytes += subjects + _MESSAGE_BYTES * batch.num_rows + _HEADERS_BYTES * with_headers


def _moment(time_ns: int) -> str:
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    whole = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    # Servers leave out what is zero at the end.
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}".rstrip("0").rstrip(".") + "Z"
