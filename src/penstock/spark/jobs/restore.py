"""The job `restore`: an archive becomes a stream again, in one of three ways.

    publish     its messages are published: new sequences and times, the old ones in headers
    blocks      a directory of blocks: the same sequences, times, headers and gaps
    snapshot    a backup of the stream, as `penstock stream restore` and the `nats` tool take it

Only the first needs a server. Blocks and snapshots are written where the command runs, beside
their place, and appear when every file was read and proved to be what was archived.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import UsageError
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.manifest import Manifest, load_manifest
from penstock.spark.archives.rows import read_exact
from penstock.spark.jobs.report import Report
from penstock.spark.jobs.work import Tell


def begin_restore(
    place: str, *, dry_run: bool, allow_holes: bool
) -> tuple[ArchiveFolder, Manifest, Report]:
    """Open an archive for restoring; raises UsageError where it has holes that nobody allowed."""
    folder = ArchiveFolder(place)
    manifest = load_manifest(folder)
    holes = manifest.holes()
    if holes and not allow_holes:
        first, last = holes[0]
        raise UsageError(
            f"{place} has nothing of the sequences from {first} to {last}, which were gone before "
            "they were archived; allow holes to restore the rest"
        )
    report = Report("restore", place, dry_run=dry_run, parts=len(manifest.files))
    report.counts |= {"messages": manifest.messages, "bytes": manifest.bytes}
    report.counts |= {"first": manifest.first, "end": manifest.end}
    return folder, manifest, report


def rows_of(
    folder: ArchiveFolder, manifest: Manifest, tell: Tell | None
) -> Iterator[pa.RecordBatch]:
    """Yield an archive's messages in their order, and tell how many files are done."""
    for number, entry in enumerate(manifest.files):
        if tell is not None:
            tell(number, len(manifest.files))
        yield from read_exact(folder, [entry])
    if tell is not None:
        tell(len(manifest.files), len(manifest.files))


def named_config(manifest: Manifest, name: str) -> dict[str, object]:
    """Give the stream's configuration under a name; raises UsageError where none is known."""
    if not manifest.config.get("name"):
        raise UsageError(
            "the archive was made of a directory that says nothing of the stream's configuration"
        )
    return {**manifest.config, "name": name or manifest.stream}
