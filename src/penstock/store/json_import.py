"""Importing a directory of JSON lines: its messages become a new store, and it stays as it is.

What always holds: the source is only read; the target appears whole or not at all; a line that
cannot be read ends the import. A torn last line, which no write had finished, is left out and told.

Called by the command line and by jobs; one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.clock import Clock, SystemClock
from penstock.format.envelope import StoreKey
from penstock.format.layout import LEGACY_NAME
from penstock.store.building import StoreBuilder, Surroundings, check_vacant, folder_beside
from penstock.store.go_import import ImportReport
from penstock.store.interface import StoreConfig
from penstock.store.json_lines import JsonLines
from penstock.store.vfs import FileSystem, OsFileSystem


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
    surroundings = Surroundings(files, clock or SystemClock(), random_bytes, key)
    file = files.open(os.path.join(source_path, LEGACY_NAME), "read")
    try:
        lines = JsonLines(file)
        builder = StoreBuilder(folder_beside(target_path, "importing"), config, surroundings)
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
