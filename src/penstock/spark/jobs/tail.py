"""The job `tail`: an archive that follows its stream, by Structured Streaming.

The query only says when there is something new; its rows are never read. Each of its batches runs
the job `archive`, whose tasks read the stream themselves and whose manifest says how far they have
come. So a batch that Spark runs again archives nothing twice, a query needs no checkpoint of its
own to go on, and `archive` may be run beside it by hand: of two that write one manifest, one does.

Every batch leaves a file for each of its parts: let them be far apart, or large.
"""

from __future__ import annotations

import tempfile

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import PenstockError
from penstock.spark.archives.folder import AlreadyThere, ArchiveFolder
from penstock.spark.archives.manifest import find_manifest
from penstock.spark.jobs.archive import TableFormat, archive
from penstock.spark.jobs.inputs import BlockFormat, Input
from penstock.spark.jobs.report import Report


class Tail:
    """One archive being kept up to its stream; `report` is what it has done so far."""

    def __init__(
        self,
        spark: SparkSession,
        source: Input,
        target: str,
        *,
        table: TableFormat = TableFormat.PARQUET,
        allow_holes: bool = False,
    ) -> None:
        self._spark = spark
        self._source = source
        self._target = target
        self._table = table
        self._allow_holes = allow_holes
        self._failure: PenstockError | OSError | None = None
        self.report = Report("tail", source.shown)

    def run(self, *, every_s: float | None = None) -> Report:
        """Follow the stream until the query is stopped; without `every_s` up to its end of now.

        Raises what `archive` raises.
        """
        with tempfile.TemporaryDirectory(prefix="penstock-tail-") as checkpoint:
            query = self.start(checkpoint, every_s=every_s)
            try:
                query.awaitTermination()
            except StreamingQueryException:
                if self._failure is None:
                    raise
                raise self._failure from None
            finally:
                query.stop()
        return self.report

    def start(self, checkpoint: str, *, every_s: float | None = None) -> StreamingQuery:
        """Begin to follow the stream; `checkpoint` is a place for Spark's own notes."""
        manifest = find_manifest(ArchiveFolder(self._target))
        options = {
            **self._source.options,
            "startingOffsets": "earliest" if manifest is None else str(manifest.end),
            # What was lost is for the archive to say, which knows what it has.
            "failOnDataLoss": "false",
            "columns": "sequence",
        }
        path = options.pop("path", None) if self._source.format == BlockFormat else None
        frame = self._spark.readStream.format(self._source.format).options(**options).load(path)
        writer = frame.writeStream.foreachBatch(self._on_batch)
        writer = writer.option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True)
            if every_s is None
            else writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        )
        return writer.start()

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        try:
            done = archive(
                self._spark,
                self._source,
                self._target,
                table=self._table,
                allow_holes=self._allow_holes,
            )
        except AlreadyThere:
            # Another job has archived it: the next batch goes on behind that.
            return
        except (PenstockError, OSError) as error:
            self._failure = error
            raise
        self.report.parts += done.parts
        self.report.parts_skipped += done.parts_skipped
        self.report.outputs += done.outputs
        self.report.counts |= {name: done.counts[name] for name in ("first", "end")}
        self.report.add(
            **{name: done.counts[name] for name in ("files", "messages", "bytes", "file_bytes")}
        )
