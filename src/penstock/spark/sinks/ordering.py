"""Frames whose rows are written in order, and in the same order when they are computed again.

Spark divides rows anew at a shuffle, and a task gets them in the order in which they come.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.errors import UsageError


def write_ordered(
    frame: DataFrame, *columns: str, by: str = "subject", partitions: int | None = None
) -> DataFrame:
    """Give a frame whose rows of one `by` are written by one task, sorted by columns.

    Without columns they are sorted by `sequence`. Where the columns tell all rows of a task apart,
    its rows come in the same order each time; with the number of `partitions` fixed they are also
    divided in the same way, on whichever cluster. Raises UsageError for a column that is missing.
    """
    keys = columns or ("sequence",)
    missing = [name for name in (by, *keys) if name not in frame.columns]
    if missing:
        raise UsageError(f"to be written in order a frame needs the column {missing[0]}")
    if partitions is None:
        return frame.repartition(by).sortWithinPartitions(*keys)
    return frame.repartition(partitions, by).sortWithinPartitions(*keys)
