"""Restoring an archive as a directory of blocks, or as a backup of its stream.

    TARGET/msgs/            the blocks: every message with its sequence and its time
    TARGET/stream.json      the stream's configuration, if the archive has it

    TARGET/backup.json      the configuration and the state
    TARGET/stream.tar.s2    the messages, as in servers' snapshots (`format.golang.archive`)

A directory of blocks, as a stream's folder of a server that is not running, is a stream when the
server starts. The store's own code writes it. A backup has the names and contents of `penstock
stream backup` and of the `nats` tool; servers from version 2.15 on restore it.

Both are written where the command runs. Invariant: a directory appears whole or not at all;
`backup.json` is written last, when the rest is whole and on stable storage.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.clock import SystemClock
from penstock.errors import InternalError, UsageError
from penstock.format.golang.archive import END, MAGIC, STATE_NAME, ArchiveEntry
from penstock.format.golang.s2 import encode_s2_stream
from penstock.limits import SNAPSHOT_PIECE_BYTES
from penstock.spark.archives.folder import ArchiveFolder, HashingFile, Manifest
from penstock.spark.archives.parquet import opened, row_columns
from penstock.spark.folder import MESSAGES_NAME
from penstock.spark.jobs.job import STREAM_DOCUMENT, OnProgress, Report
from penstock.spark.jobs.restore import begin_restore, named_config, rows_of
from penstock.spark.rows import encode_entries, raw_messages
from penstock.store.imports.build import StoreBuilder, StoreEnvironment, check_vacant, folder_beside
from penstock.store.imports.from_go import expiry_ns
from penstock.store.interface import RawMessage, StoreConfig
from penstock.store.vfs import OsFileSystem, remove_tree, write_atomically

DOCUMENT_VERSION = 1
"""The version of `stream.json` that servers read."""


def restore_blocks(
    place: str,
    target: str,
    *,
    name: str = "",
    allow_holes: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Build a stream's folder at `target`, which must be free, from an archive.

    Raise UsageError if something is there or the archive has holes, or CorruptStore if a file is
    not what was archived. Nothing is left behind then.
    """
    folder, manifest, report = begin_restore(place, dry_run=dry_run, allow_holes=allow_holes)
    files = OsFileSystem()
    target = os.path.abspath(target)
    check_vacant(files, target)
    report.outputs = [target]
    if dry_run:
        return report
    building = folder_beside(target, "restoring")
    config = StoreConfig(name=name or manifest.stream)
    environment = StoreEnvironment(files, SystemClock(), os.urandom, None)
    builder = StoreBuilder(os.path.join(building, MESSAGES_NAME), config, environment)
    try:
        _fill(builder, folder, manifest, on_progress)
        if manifest.config.get("name"):
            document = _document(manifest, name)
            path = os.path.join(building, STREAM_DOCUMENT)
            write_atomically(files, path, document, unique=os.urandom(8).hex())
        files.sync_dir(building)
        # Renaming replaces an empty folder at the target.
        files.rename(building, target)
        files.sync_dir(os.path.dirname(target))
    except BaseException:
        builder.abandon()
        remove_tree(files, building)
        raise
    return report


def _fill(
    builder: StoreBuilder, folder: ArchiveFolder, manifest: Manifest, on_progress: OnProgress | None
) -> None:
    expire = bool(manifest.config.get("allow_msg_ttl"))
    last_ns = max((each.last_ns for each in manifest.files), default=0)
    for batch in rows_of(folder, manifest, on_progress):
        builder.add(list(_with_expiries(batch)) if expire else raw_messages(*row_columns(batch)))
    built = builder.finish(last_seq=manifest.end - 1, last_time_ns=last_ns)
    if built.messages != manifest.messages:
        raise InternalError(f"restored {built.messages} messages of {manifest.messages}")


def _with_expiries(batch: pa.RecordBatch) -> Iterator[RawMessage]:
    for seq, time_ns, subject, headers, payload, _ in raw_messages(*row_columns(batch)):
        yield seq, time_ns, subject, headers, payload, expiry_ns(headers, time_ns)


def _document(manifest: Manifest, name: str) -> bytes:
    return msgspec.json.encode(
        {
            "version": DOCUMENT_VERSION,
            "created": manifest.created,
            "config": named_config(manifest, name),
        }
    )


DOCUMENT_NAME = "backup.json"
DATA_NAME = "stream.tar.s2"
DOCUMENT_TYPE = "io.nats.jetstream.api.v1.stream_snapshot_response"

_MESSAGE_BYTES = 30
_HEADERS_BYTES = 4
"""What a server counts for a message, and for its headers, in addition to their bytes."""


class _State(msgspec.Struct):
    """The state of a stream, as a server reports it."""

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
    on_progress: OnProgress | None = None,
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
    into.write(DATA_NAME, lambda file: _write(file, _pieces(folder, manifest, state, on_progress)))
    document: dict[str, Any] = {"type": DOCUMENT_TYPE, "config": config, "state": state}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    into.write(DOCUMENT_NAME, lambda file: _write(file, iter([text])))
    return report


def _write(file: HashingFile, pieces: Iterator[bytes]) -> None:
    for each in pieces:
        file.write(each)


def _pieces(
    folder: ArchiveFolder, manifest: Manifest, state: _State, on_progress: OnProgress | None
) -> Iterator[bytes]:
    told = ArchiveEntry(STATE_NAME, payload=msgspec.json.encode(state))
    plain = bytearray(MAGIC + told.encode())
    for batch in rows_of(folder, manifest, on_progress):
        plain += encode_entries(*row_columns(batch))
        if len(plain) >= SNAPSHOT_PIECE_BYTES:
            yield encode_s2_stream(bytes(plain))
            plain.clear()
    yield encode_s2_stream(bytes(plain + END.encode()))


def _state_of(folder: ArchiveFolder, manifest: Manifest) -> _State:
    """Return the state that a server would report: it is written before the messages."""
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
    # Servers leave out trailing zeros.
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}".rstrip("0").rstrip(".") + "Z"
