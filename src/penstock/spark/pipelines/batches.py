"""Writing a query's batches, one at a time, as Spark hands them over.

A batch that is run again after a crash is the same batch under the same number, so that whoever
writes can tell that it was written. What goes wrong is passed on in one line: Spark takes a trace
apart in a way that ends its own thread if it is long, and a query whose thread has ended so looks
as if it were done.

Called by Spark in the driver; through Spark Connect a copy is, on the server's side.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping

from pyspark.sql import DataFrame

from penstock.errors import PenstockError
from penstock.spark.pipelines.checking import EXACTLY_ONCE
from penstock.spark.pipelines.failures import first_line


class BatchFailed(PenstockError):
    """A batch could not be written."""


class BatchWriter(ABC):
    """Writes the batches of one query; see the module."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._query_id = ""
        self.failure = ""

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch; raises BatchFailed."""
        try:
            self.write(batch, batch_id)
        except Exception as error:  # noqa: BLE001 - Spark's edge: whatever it is becomes one line
            self.failure = first_line(error)
            raise BatchFailed(self.failure) from None

    @abstractmethod
    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it was written."""

    def query_id(self, batch: DataFrame) -> str:
        """Give the id of the query, which is that of its checkpoint.

        A query that was begun anew counts its batches anew, and must not be taken for the old one.
        """
        if not self._query_id:
            noted = batch.sparkSession.read.text(f"{self._checkpoint}/metadata").first()
            assert noted is not None, "Spark writes it before the first batch"
            self._query_id = json.loads(noted[0])["id"]
        return self._query_id


class FormatWriter(BatchWriter):
    """Writes to one of our formats."""

    def __init__(
        self, format_name: str, options: Mapping[str, str], checkpoint: str, order: list[str]
    ) -> None:
        """`order` names the columns by which rows are sorted; with none they stay as they are."""
        super().__init__(checkpoint)
        self._format = format_name
        self._options = dict(options)
        self._order = order

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        options = dict(self._options)
        if options.get("delivery") == EXACTLY_ONCE:
            options |= {"sinkId": self.query_id(batch), "version": str(batch_id)}
        if self._order:
            batch = batch.sortWithinPartitions(*self._order)
        batch.write.format(self._format).mode("append").options(**options).save()
