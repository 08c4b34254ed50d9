"""The job `migrate`: streams of Go's server, and directories of JSON lines, become ours.

A tree is searched for streams; a task imports one with the store's own code. Streams of Go's server
keep their accounts, configurations, messages and consumers:

    TARGET/jetstream/ACCOUNT/streams/STREAM/stream.json, msgs/, consumers/NAME/

which is the layout of our server's `store_dir`. JSON lines hold only messages: they become
directories of blocks, TARGET/NAME. The server of the source must be stopped first.

Invariant: sources are only read. A stream's folder appears whole or not at all, so that a second
run imports the missing ones. What could not be imported is a finding; the rest is imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, UsageError
from penstock.format.files import LocalFolder
from penstock.format.golang.directory import GoStreamReader, is_go_stream_directory
from penstock.format.layout import CONSUMERS_NAME, LEGACY_NAME, is_stream_directory
from penstock.format.state.consumer import encode_consumer_state
from penstock.limits import MIGRATED_TREE_DEPTH_MAX
from penstock.spark.blocks.scan import StreamDirectory
from penstock.spark.folder import MESSAGES_NAME
from penstock.spark.jobs.job import STREAM_DOCUMENT, Finding, OnProgress, Report, run_parts
from penstock.spark.jobs.restore_files import DOCUMENT_VERSION
from penstock.store.imports.build import ImportReport, folder_beside, make_folders
from penstock.store.imports.from_go import import_go_stream, to_consumer_state
from penstock.store.imports.from_json_lines import import_json_lines
from penstock.store.interface import StoreConfig
from penstock.store.vfs import FileSystem, OsFileSystem, remove_tree, write_atomically

JOB = "migrate"

CONSUMER_DOCUMENT = "consumer.json"
CONSUMER_STATE = "state"


class MigrateTask(msgspec.Struct, frozen=True):
    """One stream: its folder, and the folder that it is imported to."""

    source: str
    target: str
    is_go: bool
    key_file: str = ""


class Migrated(msgspec.Struct):
    """The result for a stream."""

    is_new: bool = True
    messages: int = 0
    bytes: int = 0
    consumers: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)


def migrate(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    key_file: str = "",
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Import every stream of a tree; raise UsageError if there is none."""
    parts = list(find_parts(source, os.path.abspath(target), key_file))
    if not parts:
        raise UsageError(f"{source}: no stream of Go's server and no {LEGACY_NAME} here")
    report = Report(JOB, source, dry_run=dry_run, parts=len(parts))
    files = OsFileSystem()
    missing = [part for part in parts if not files.exists(part.target)]
    report.parts_skipped = len(parts) - len(missing)
    report.outputs = [part.target for part in missing]
    report.add(streams=len(missing))
    if dry_run:
        return report
    for each in run_parts(spark, migrate_part, missing, on_progress):
        report.add(messages=each.messages, bytes=each.bytes, consumers=each.consumers)
        report.findings += each.findings
    return report


# In the driver


def find_parts(source: str, target: str, key_file: str = "") -> Iterator[MigrateTask]:
    """Yield the streams of a tree, in order; raise UsageError if two have the same target."""
    taken: dict[str, str] = {}
    for path, is_go in _find(os.path.abspath(source), MIGRATED_TREE_DEPTH_MAX):
        part = MigrateTask(path, _target_of(path, target, is_go=is_go), is_go, key_file)
        if part.target in taken:
            raise UsageError(f"{path} and {taken[part.target]} would both become {part.target}")
        taken[part.target] = path
        yield part


def _find(path: str, depth: int) -> Iterator[tuple[str, bool]]:
    try:
        names = LocalFolder(path).list_names()
    except (NotADirectoryError, FileNotFoundError):
        return
    if is_go_stream_directory(path):
        yield path, True
    elif LEGACY_NAME in names:
        yield path, False
    elif depth and not is_stream_directory(names):
        for name in names:
            # Go's server removes folders whose names begin with a dot.
            if not name.startswith("."):
                yield from _find(os.path.join(path, name), depth - 1)


def _target_of(path: str, target: str, *, is_go: bool) -> str:
    name = os.path.basename(path)
    if not is_go:
        return os.path.join(target, name)
    streams = os.path.dirname(path)
    account = os.path.basename(os.path.dirname(streams))
    if os.path.basename(streams) != "streams" or not account:
        account = "$G"
    return os.path.join(target, "jetstream", account, "streams", name)


# In tasks


def migrate_part(task: MigrateTask) -> Migrated:
    """Import one stream; raise WrongKey, CorruptStore, StoreLocked or OSError."""
    files = OsFileSystem()
    if files.exists(task.target):
        # Another attempt at this task was quicker.
        return Migrated(is_new=False)
    if task.is_go:
        return _migrate_go(files, task)
    make_folders(files, os.path.dirname(task.target))
    name = os.path.basename(task.target)
    return _migrated(task, import_json_lines(task.source, task.target, StoreConfig(name=name)))


def _migrate_go(files: FileSystem, task: MigrateTask) -> Migrated:
    make_folders(files, os.path.dirname(task.target))
    # Servers ignore names with this ending.
    lock_path = folder_beside(task.target, "lock.tmp")
    lock = files.lock(lock_path)
    try:
        if files.exists(task.target):
            return Migrated(is_new=False)
        return _build_go(files, task, folder_beside(task.target, "migrating.tmp"))
    finally:
        files.unlink(lock_path)
        lock.release()


def _build_go(files: FileSystem, task: MigrateTask, building: str) -> Migrated:
    if files.exists(building):
        # An attempt was killed.
        remove_tree(files, building)
    secret = StreamDirectory("", "", task.key_file).secret()
    messages = os.path.join(building, MESSAGES_NAME)
    make_folders(files, building)
    try:
        imported = import_go_stream(task.source, messages, go_key=secret)
        reader = GoStreamReader(task.source, key=secret)
        _write_document(files, os.path.join(building, STREAM_DOCUMENT), reader.config)
        consumers = _write_consumers(files, building, reader)
        files.sync_dir(building)
        files.rename(building, task.target)
        files.sync_dir(os.path.dirname(task.target))
    except BaseException:
        remove_tree(files, building)
        raise
    return _migrated(task, imported, consumers)


def _migrated(task: MigrateTask, imported: ImportReport, consumers: int = 0) -> Migrated:
    done = Migrated(True, imported.messages, imported.bytes, consumers)
    if imported.missing:
        done.findings.append(
            Finding("missing", task.source, f"{imported.missing} messages could not be read")
        )
    done.findings += [Finding("damage", task.source, str(each)) for each in imported.damage]
    done.findings += [Finding("problem", task.source, each) for each in imported.problems]
    done.findings += [
        Finding("unsupported", task.source, each)
        for each in imported.unsupported
        if each.startswith("num_replicas")
    ]
    return done


def _write_document(files: FileSystem, path: str, config: Mapping[str, Any], **more: Any) -> None:
    # Keys that Go's server adds to a configuration have capitals.
    settings = {key: value for key, value in config.items() if key.islower()}
    # A single server keeps one replica.
    settings["num_replicas"] = 1
    document = {
        "version": DOCUMENT_VERSION,
        **more,
        "created": config.get("Created"),
        "config": settings,
    }
    write_atomically(files, path, msgspec.json.encode(document), unique=_unique())


def _write_consumers(files: FileSystem, building: str, reader: GoStreamReader) -> int:
    written = 0
    for consumer in reader.consumers():
        folder = os.path.join(building, CONSUMERS_NAME, consumer.name)
        try:
            state = consumer.state and encode_consumer_state(to_consumer_state(consumer.state))
        except PenstockError:
            # The import has reported it: the consumer starts anew.
            state = None
        files.make_dirs(folder)
        path = os.path.join(folder, CONSUMER_DOCUMENT)
        _write_document(files, path, consumer.config, name=consumer.name)
        if state:
            path = os.path.join(folder, CONSUMER_STATE)
            write_atomically(files, path, state, unique=_unique())
        files.sync_dir(os.path.dirname(folder))
        written += 1
    return written


def _unique() -> str:
    return os.urandom(8).hex()
