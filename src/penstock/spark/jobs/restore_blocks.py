"""Restoring an archive as a directory of blocks: every message with its sequence and its time.

    TARGET/msgs/         the blocks
    TARGET/stream.json   the stream's configuration, where the archive knows it

So TARGET, as a stream's folder of a server that is not running, is a stream when it starts.

What always holds: TARGET appears whole or not at all. The store's own code writes the blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pyarrow as pa

from penstock.clock import SystemClock
from penstock.errors import InternalError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import Manifest
from penstock.spark.archives.rows import row_columns
from penstock.spark.folders import MESSAGES_NAME
from penstock.spark.jobs.archive_origin import STREAM_DOCUMENT
from penstock.spark.jobs.report import Report
from penstock.spark.jobs.restore import begin_restore, named_config, rows_of
from penstock.spark.jobs.work import Tell
from penstock.spark.rows import raw_messages
from penstock.store.building import StoreBuilder, Surroundings, check_vacant, folder_beside
from penstock.store.go_import import expiry_ns
from penstock.store.interface import RawMessage, StoreConfig
from penstock.store.vfs import OsFileSystem, remove_tree, write_atomically

DOCUMENT_VERSION = 1
"""Of `stream.json`, as servers read it."""


def restore_blocks(
    place: str,
    target: str,
    *,
    name: str = "",
    allow_holes: bool = False,
    dry_run: bool = False,
    tell: Tell | None = None,
) -> Report:
    """Build a stream's folder at `target`, which must be free, from an archive.

    Raises UsageError where something is there or the archive has holes, CorruptStore where a file
    is not what was archived; nothing is left behind then.
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
    surroundings = Surroundings(files, SystemClock(), os.urandom, None)
    builder = StoreBuilder(os.path.join(building, MESSAGES_NAME), config, surroundings)
    try:
        _fill(builder, folder, manifest, tell)
        if manifest.config.get("name"):
            document = _document(manifest, name)
            path = os.path.join(building, STREAM_DOCUMENT)
            write_atomically(files, path, document, unique=os.urandom(8).hex())
        files.sync_dir(building)
        # An empty folder at the target gives way.
        files.rename(building, target)
        files.sync_dir(os.path.dirname(target))
    except BaseException:
        builder.abandon()
        remove_tree(files, building)
        raise
    return report


def _fill(
    builder: StoreBuilder, folder: ArchiveFolder, manifest: Manifest, tell: Tell | None
) -> None:
    expire = bool(manifest.config.get("allow_msg_ttl"))
    last_ns = max((each.last_ns for each in manifest.files), default=0)
    for batch in rows_of(folder, manifest, tell):
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
