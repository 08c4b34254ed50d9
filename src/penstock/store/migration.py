"""Migration at open: the old `messages.jsonl` becomes blocks, and goes when they are in place.

    1  the messages are written as a store of its own into `migrating/`, and synced
    2  an empty file `migrating/COMPLETE` says that they are all there
    3  the store's files move up, one by one; both folders are synced
    4  `messages.jsonl` is removed, then `migrating/` with what is left in it

Before 2 is durable an interrupted migration starts again from the original; after it, it goes on
where it stopped. So at every moment the original or a whole set of blocks is on stable storage, and
no message is lost or doubled.

What always holds: a line that cannot be read ends the opening and leaves everything as it was; a
torn last line, which no write had finished, is kept in `quarantine/` and noted.

Called once, by the opening of a store, under its lock and before recovery.
"""

from __future__ import annotations

import os

import msgspec

from penstock.errors import CorruptStore
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
from penstock.store.building import StoreBuilder, Surroundings, make_folders
from penstock.store.engine import Engine
from penstock.store.json_lines import JsonLines, TornLine
from penstock.store.vfs import remove_tree, write_atomically

COMPLETE_NAME = "COMPLETE"


class Migration(msgspec.Struct):
    """What a migration did."""

    messages: int = 0
    notes: list[str] = msgspec.field(default_factory=list)


def migrate_json_lines(engine: Engine) -> Migration:
    """Bring a directory of the old layout into the new one; does nothing in any other.

    Raises CorruptStore for a line that cannot be read, and where blocks stand beside the original
    that no migration put there.
    """
    files = engine.files
    original = engine.file_path(LEGACY_NAME)
    folder = engine.file_path(MIGRATING_NAME)
    migration = Migration()
    complete = files.exists(os.path.join(folder, COMPLETE_NAME))
    if not complete and files.exists(original):
        _build(engine, migration)
        complete = True
    if complete:
        _move_up(engine)
        if files.exists(original):
            files.unlink(original)
            files.sync_dir(engine.path)
    if files.is_dir(folder):
        foreign = set(files.list_names(folder)) - {COMPLETE_NAME, LOCK_NAME}
        if foreign:
            migration.notes.append(f"{MIGRATING_NAME}/{min(foreign)}: not ours, left alone")
        else:
            remove_tree(files, folder)
            files.sync_dir(engine.path)
    return migration


def _store_files(engine: Engine, folder: str) -> list[str]:
    """Give the names of a folder's files that make up a store."""
    return [
        name
        for name in engine.files.list_names(folder)
        if block_number(name) is not None
        or index_number(name) is not None
        or name in (STATE_NAME, HIGH_WATER_NAME)
    ]


def _build(engine: Engine, migration: Migration) -> None:
    """Write all messages into `migrating/`, and say that they are there."""
    standing = _store_files(engine, engine.path)
    if standing:
        reason = f"stands beside {standing[0]}, and no migration was under way: move one of them"
        raise CorruptStore(engine.file_path(LEGACY_NAME), 0, reason)
    file = engine.files.open(engine.file_path(LEGACY_NAME), "read")
    try:
        _write_blocks(engine, JsonLines(file), migration)
    finally:
        file.close()
    # From here on nothing is taken back: where the mark may be durable its blocks must stay.
    _mark_complete(engine)


def _write_blocks(engine: Engine, lines: JsonLines, migration: Migration) -> None:
    surroundings = Surroundings(engine.files, engine.clock, engine.random_bytes, engine.key)
    builder = StoreBuilder(engine.file_path(MIGRATING_NAME), engine.config, surroundings)
    try:
        for messages in lines.batches():
            builder.add(messages)
            migration.messages += len(messages)
        if lines.torn is not None:
            _keep_aside(engine, lines.torn)
            migration.notes.append(
                f"{LEGACY_NAME}: the last line, from byte {lines.torn.offset} on, is torn: "
                f"kept in {QUARANTINE_NAME}"
            )
        builder.finish()
    except BaseException:
        builder.abandon()
        raise


def _keep_aside(engine: Engine, torn: TornLine) -> None:
    # Under a name that is the same at every attempt: one torn line leaves one file.
    folder = engine.file_path(QUARANTINE_NAME)
    make_folders(engine.files, folder)
    for name in engine.files.list_names(folder):
        if name.startswith(f"{LEGACY_NAME}-") and name.endswith(TEMPORARY_SUFFIX):
            engine.files.unlink(os.path.join(folder, name))
    path = os.path.join(folder, f"{LEGACY_NAME}-{torn.offset}-torn")
    write_atomically(engine.files, path, torn.data, unique=engine.unique())


def _mark_complete(engine: Engine) -> None:
    folder = engine.file_path(MIGRATING_NAME)
    file = engine.files.open(os.path.join(folder, COMPLETE_NAME), "create")
    try:
        file.sync_data()
    finally:
        file.close()
    engine.files.sync_dir(folder)


def _move_up(engine: Engine) -> None:
    """Move the store's files to where they belong; those that are there already have moved."""
    folder = engine.file_path(MIGRATING_NAME)
    for name in _store_files(engine, folder):
        target = engine.file_path(name)
        if engine.files.exists(target):
            raise CorruptStore(target, 0, f"stands where {MIGRATING_NAME}/{name} must go")
        engine.files.rename(os.path.join(folder, name), target)
    engine.files.sync_dir(folder)
    engine.files.sync_dir(engine.path)
