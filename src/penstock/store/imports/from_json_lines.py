"""Directories of JSON lines: imported into a new store, or migrated in place when one is opened.

An import reads `messages.jsonl` and builds a new store; the source stays as it is. A migration
replaces the old file by blocks in the same directory:

    1  the messages are written as a store of its own into `migrating/`, and synced
    2  an empty file `migrating/COMPLETE` says that they are all there
    3  the store's files move up, one by one; both folders are synced
    4  `messages.jsonl` is removed, then `migrating/` with what is left in it

Before 2 is durable an interrupted migration starts again from the original; after it, it goes on
where it stopped. So at every moment the original or a whole set of blocks is on stable storage, and
no message is lost or doubled.

Invariant: a line that cannot be read ends the import or the opening and leaves everything as it
was. A torn last line, which no write had finished, is left out: an import reports it, a migration
keeps it in `quarantine/` and notes it. The target of an import appears whole or not at all.

Thread: one. The import is called by the command line and by jobs; the migration by the opening of a
store, under its lock and before recovery.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from penstock.clock import Clock, SystemClock
from penstock.errors import CorruptStore
from penstock.format.envelope import StoreKey
from penstock.format.layout import (
    HIGH_WATER_NAME,
    LEGACY_NAME,
    LOCK_NAME,
    MIGRATING_NAME,
    QUARANTINE_NAME,
    STATE_NAME,
    TEMPORARY_SUFFIX,
    block_number,
    index_number,
)
from penstock.store.directory import StoreDirectory
from penstock.store.imports.build import (
    ImportReport,
    StoreBuilder,
    StoreEnvironment,
    check_vacant,
    folder_beside,
    make_folders,
)
from penstock.store.imports.json_lines import JsonLines, TornLine
from penstock.store.interface import StoreConfig
from penstock.store.vfs import FileSystem, OsFileSystem, remove_tree, write_atomically


def import_json_lines(
    source_path: str,
    target_path: str,
    config: StoreConfig,
    *,
    key: StoreKey | None = None,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> ImportReport:
    """Build a store at `target_path` from the `messages.jsonl` of a folder.

    Raises UsageError where something is at the target, CorruptStore for a line that cannot be read,
    StoreLocked, OSError; nothing is left behind then.
    """
    files = files or OsFileSystem()
    check_vacant(files, target_path)
    report = ImportReport(config.name)
    environment = StoreEnvironment(files, clock or SystemClock(), random_bytes, key)
    file = files.open(os.path.join(source_path, LEGACY_NAME), "read")
    try:
        lines = JsonLines(file)
        builder = StoreBuilder(folder_beside(target_path, "importing"), config, environment)
        try:
            for messages in lines.batches():
                builder.add(messages)
            built = builder.finish()
            builder.put_in_place(target_path)
        except BaseException:
            builder.abandon()
            raise
    finally:
        file.close()
    if lines.torn is not None:
        report.problems.append(
            f"{LEGACY_NAME}: the last line, from byte {lines.torn.offset} on, is torn: left out"
        )
    report.messages, report.bytes = built.messages, built.bytes
    report.first_seq, report.last_seq = built.first_seq, built.last_seq
    return report


COMPLETE_NAME = "COMPLETE"


class Migration(msgspec.Struct):
    """What a migration did."""

    messages: int = 0
    notes: list[str] = msgspec.field(default_factory=list)


def migrate_json_lines(
    directory: StoreDirectory, config: StoreConfig, environment: StoreEnvironment
) -> Migration:
    """Bring a directory of the old layout into the new one; does nothing in any other.

    Raises CorruptStore for a line that cannot be read, and where blocks stand beside the original
    that no migration put there.
    """
    files = directory.files
    original = directory.file_path(LEGACY_NAME)
    folder = directory.file_path(MIGRATING_NAME)
    migration = Migration()
    complete = files.exists(os.path.join(folder, COMPLETE_NAME))
    if not complete and files.exists(original):
        _build(directory, config, environment, migration)
        complete = True
    if complete:
        _move_up(directory)
        if files.exists(original):
            files.unlink(original)
            files.sync_dir(directory.path)
    if files.is_dir(folder):
        foreign = set(files.list_names(folder)) - {COMPLETE_NAME, LOCK_NAME}
        if foreign:
            migration.notes.append(f"{MIGRATING_NAME}/{min(foreign)}: not ours, left alone")
        else:
            remove_tree(files, folder)
            files.sync_dir(directory.path)
    return migration


def _store_files(directory: StoreDirectory, folder: str) -> list[str]:
    """Return the names of a folder's files that make up a store."""
    return [
        name
        for name in directory.files.list_names(folder)
        if block_number(name) is not None
        or index_number(name) is not None
        or name in (STATE_NAME, HIGH_WATER_NAME)
    ]


def _build(
    directory: StoreDirectory,
    config: StoreConfig,
    environment: StoreEnvironment,
    migration: Migration,
) -> None:
    """Write all messages into `migrating/`, and say that they are there."""
    standing = _store_files(directory, directory.path)
    if standing:
        reason = f"stands beside {standing[0]}, and no migration was under way: move one of them"
        raise CorruptStore(directory.file_path(LEGACY_NAME), 0, reason)
    file = directory.files.open(directory.file_path(LEGACY_NAME), "read")
    try:
        lines = JsonLines(file)
        path = directory.file_path(MIGRATING_NAME)
        _write_blocks(StoreBuilder(path, config, environment), directory, lines, migration)
    finally:
        file.close()
    # From here on nothing is taken back: where the mark may be durable its blocks must stay.
    _mark_complete(directory)


def _write_blocks(
    builder: StoreBuilder, directory: StoreDirectory, lines: JsonLines, migration: Migration
) -> None:
    try:
        for messages in lines.batches():
            builder.add(messages)
            migration.messages += len(messages)
        if lines.torn is not None:
            _keep_aside(directory, lines.torn)
            migration.notes.append(
                f"{LEGACY_NAME}: the last line, from byte {lines.torn.offset} on, is torn: "
                f"kept in {QUARANTINE_NAME}"
            )
        builder.finish()
    except BaseException:
        builder.abandon()
        raise


def _keep_aside(directory: StoreDirectory, torn: TornLine) -> None:
    # Under a name that is the same at every attempt: one torn line leaves one file.
    folder = directory.file_path(QUARANTINE_NAME)
    make_folders(directory.files, folder)
    for name in directory.files.list_names(folder):
        if name.startswith(f"{LEGACY_NAME}-") and name.endswith(TEMPORARY_SUFFIX):
            directory.files.unlink(os.path.join(folder, name))
    path = os.path.join(folder, f"{LEGACY_NAME}-{torn.offset}-torn")
    write_atomically(directory.files, path, torn.data, unique=directory.unique())


def _mark_complete(directory: StoreDirectory) -> None:
    folder = directory.file_path(MIGRATING_NAME)
    file = directory.files.open(os.path.join(folder, COMPLETE_NAME), "create")
    try:
        file.sync_data()
    finally:
        file.close()
    directory.files.sync_dir(folder)


def _move_up(directory: StoreDirectory) -> None:
    """Move the store's files to where they belong; those that are there already have moved."""
    folder = directory.file_path(MIGRATING_NAME)
    for name in _store_files(directory, folder):
        target = directory.file_path(name)
        if directory.files.exists(target):
            raise CorruptStore(target, 0, f"stands where {MIGRATING_NAME}/{name} must go")
        directory.files.rename(os.path.join(folder, name), target)
    directory.files.sync_dir(folder)
    directory.files.sync_dir(directory.path)
