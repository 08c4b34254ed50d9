"""An archive as a Delta table: the log beside the files, for engines that read Delta.

The manifest decides; the table follows it. A commit has the manifest's number as Delta's own mark
of a transaction, so that it is not made twice, and a missing one is made by the next run. Needs
`penstock[delta]`; no jar.
"""

from __future__ import annotations

import json

from penstock.errors import UsageError
from penstock.spark.archives.folder import ArchiveFolder, FileEntry, Manifest
from penstock.spark.archives.parquet import FILE_SCHEMA

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction, create_table_with_add_actions
except ImportError:
    raise UsageError("Delta tables need deltalake: pip install 'penstock[delta]'") from None


def commit_delta(place: str, manifest: Manifest) -> None:
    """Commit every file of the manifest to the Delta table in the archive's folder."""
    where = ArchiveFolder(place).place
    app = f"penstock-archive {manifest.stream} {manifest.created}"
    properties = CommitProperties(app_transactions=[Transaction(app, manifest.number)])
    schema = Schema.from_arrow(FILE_SCHEMA)
    if not DeltaTable.is_deltatable(where):
        create_table_with_add_actions(
            where,
            schema,
            [_action(each) for each in manifest.files],
            mode="error",
            name=manifest.stream,
            commit_properties=properties,
        )
        return
    table = DeltaTable(where)
    if (table.transaction_version(app) or 0) >= manifest.number:
        return
    known = {each.rpartition("/")[2] for each in table.file_uris()}
    added = [each for each in manifest.files if each.name.rpartition("/")[2] not in known]
    table.create_write_transaction(
        [_action(each) for each in added], "append", schema, commit_properties=properties
    )


def _action(entry: FileEntry) -> AddAction:
    # No statistics of sequences: an entry has the range it answers for, which may be wider.
    stats = {
        "numRecords": entry.messages,
        "minValues": {"time_ns": entry.first_ns},
        "maxValues": {"time_ns": entry.last_ns},
        "nullCount": {"time_ns": 0},
    }
    return AddAction(
        entry.name, entry.file_bytes, {}, entry.last_ns // 1_000_000, True, json.dumps(stats)
    )
