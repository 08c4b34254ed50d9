"""The job `migrate`: streams of Go's server, and directories of JSON lines, become ours.

A tree is searched for streams; each is a part, and a task brings one over with the store's own
code. Streams of Go's server keep their accounts, configurations, messages and consumers:

    TARGET/jetstream/ACCOUNT/streams/STREAM/stream.json, msgs/, consumers/NAME/

which is what our server has in its `store_dir`. JSON lines know nothing but messages: they become
directories of blocks, TARGET/NAME. Stop the server whose files they are first.

What always holds: sources are only read; a stream's folder appears whole or not at all, so that a
run that is done again goes on with those that are not there yet. What could not be brought over is
a finding, and the rest is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, UsageError
from penstock.format.consumer_state import encode_consumer_state
from penstock.format.files import LocalFolder
from penstock.format.golang.directory import GoStreamReader, is_go_stream_directory
from penstock.format.layout import CONSUMERS_NAME, LEGACY_NAME, is_stream_directory
from penstock.spark.blocks.scan import Place
from penstock.spark.folders import MESSAGES_NAME
from penstock.spark.jobs.archive_origin import STREAM_DOCUMENT
from penstock.spark.jobs.report import Finding, Report
from penstock.spark.jobs.restore_blocks import DOCUMENT_VERSION
from penstock.spark.jobs.work import Tell, run_parts
from penstock.store.building import folder_beside, make_folders
from penstock.store.go_import import ImportReport, import_go_stream, to_consumer_state
from penstock.store.interface import StoreConfig
from penstock.store.json_import import import_json_lines
from penstock.store.vfs import FileSystem, OsFileSystem, remove_tree, write_atomically

JOB = "migrate"
TREE_DEPTH_MAX = 8
"""How far below a folder streams are looked for: Go's server has them four deep."""

CONSUMER_DOCUMENT = "consumer.json"
CONSUMER_STATE = "state"


class MigratePart(msgspec.Struct, frozen=True):
    """One stream: where it is, and where it goes."""

    source: str
    target: str
    is_go: bool
    key_file: str = ""


class Migrated(msgspec.Struct):
    """What a task brought over."""

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
    tell: Tell | None = None,
) -> Report:
    """Bring every stream of a tree over; raises UsageError where there is none."""
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
    for each in run_parts(spark, migrate_part, missing, tell):
        report.add(messages=each.messages, bytes=each.bytes, consumers=each.consumers)
        report.findings += each.findings
    return report


# In the driver


def find_parts(source: str, target: str, key_file: str = "") -> Iterator[MigratePart]:
    """Yield the streams of a tree, in order; raises UsageError where two go to one place."""
    taken: dict[str, str] = {}
    for path, is_go in _find(os.path.abspath(source), TREE_DEPTH_MAX):
        part = MigratePart(path, _target_of(path, target, is_go=is_go), is_go, key_file)
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
            # Go's server removes what begins with a dot.
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


def migrate_part(part: MigratePart) -> Migrated:
    """Bring one stream over; raises WrongKey, CorruptStore, StoreLocked, OSError."""
    files = OsFileSystem()
    if files.exists(part.target):
        # Another attempt at this part was quicker.
        return Migrated(is_new=False)
    if part.is_go:
        return _migrate_go(files, part)
    make_folders(files, os.path.dirname(part.target))
    name = os.path.basename(part.target)
    return _migrated(part, import_json_lines(part.source, part.target, StoreConfig(name=name)))


def _migrate_go(files: FileSystem, part: MigratePart) -> Migrated:
    make_folders(files, os.path.dirname(part.target))
    # Servers pass over what ends like this.
    lock_path = folder_beside(part.target, "lock.tmp")
    lock = files.lock(lock_path)
    try:
        if files.exists(part.target):
            return Migrated(is_new=False)
        return _build_go(files, part, folder_beside(part.target, "migrating.tmp"))
    finally:
        files.unlink(lock_path)
        lock.release()


def _build_go(files: FileSystem, part: MigratePart, building: str) -> Migrated:
    if files.exists(building):
        # An attempt was killed.
        remove_tree(files, building)
    secret = Place("", "", part.key_file).secret()
    messages = os.path.join(building, MESSAGES_NAME)
    make_folders(files, building)
    try:
        imported = import_go_stream(part.source, messages, go_key=secret)
        reader = GoStreamReader(part.source, key=secret)
        _write_document(files, os.path.join(building, STREAM_DOCUMENT), reader.config)
        consumers = _write_consumers(files, building, reader)
        files.sync_dir(building)
        files.rename(building, part.target)
        files.sync_dir(os.path.dirname(part.target))
    except BaseException:
        remove_tree(files, building)
        raise
    return _migrated(part, imported, consumers)


def _migrated(part: MigratePart, imported: ImportReport, consumers: int = 0) -> Migrated:
    done = Migrated(True, imported.messages, imported.bytes, consumers)
    if imported.missing:
        done.findings.append(
            Finding("missing", part.source, f"{imported.missing} messages could not be read")
        )
    done.findings += [Finding("damage", part.source, str(each)) for each in imported.damage]
    done.findings += [Finding("problem", part.source, each) for each in imported.problems]
    done.findings += [
        Finding("unsupported", part.source, each)
        for each in imported.unsupported
        if each.startswith("num_replicas")
    ]
    return done


def _write_document(files: FileSystem, path: str, config: Mapping[str, Any], **more: Any) -> None:
    # What Go's server adds to a configuration has names with capitals.
    settings = {key: value for key, value in config.items() if key.islower()}
    # One server keeps one copy.
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
            # The import has told of it: the consumer begins anew.
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
