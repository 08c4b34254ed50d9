"""The newest value of each key of a bucket, from its block files.

The driver finds out which message of each key is the newest, reading no value; tasks then read
their blocks and keep those messages. What they must find is known, so that a value which went away
meanwhile, because a server beside us goes on, fails the query instead of being left out.
"""

from __future__ import annotations

import bisect
import zlib
from array import array
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.spark import schema
from penstock.spark.blocks.scan import Stretch, scan
from penstock.spark.blocks.settings import Settings, plan
from penstock.spark.kv.rows import Newest, Rows, among
from penstock.spark.positions import DataLoss
from penstock.spark.reading_options import OnCorruptRecord


class NewestPartition(InputPartition):
    """What one task reads: the newest messages of their keys in a stretch of blocks."""

    def __init__(self, stretch: Stretch, sequences: array[int]) -> None:
        self.stretch = stretch
        self._packed = zlib.compress(sequences.tobytes(), 1)

    def sequences(self) -> pa.Array:
        """Give the sequences of the messages."""
        data = zlib.decompress(self._packed)
        return pa.Array.from_buffers(pa.int64(), len(data) // 8, [None, pa.py_buffer(data)])


def plan_newest(settings: Settings) -> list[InputPartition]:
    """Divide the keys of a bucket's directory among tasks, where their newest messages lie."""
    stretches = plan(settings)
    newest = Newest()
    for each in stretches:
        for batch in scan(each, [schema.SUBJECT, schema.SEQUENCE], settings.on_corrupt):
            newest.add(batch)
    sequences = array("q", newest.table().column(schema.SEQUENCE.name).to_pylist())
    parts: list[InputPartition] = []
    for each in stretches:
        low = bisect.bisect_left(sequences, each.blocks[0].base_seq)
        high = bisect.bisect_right(sequences, each.blocks[-1].last_seq)
        if low < high:
            parts.append(NewestPartition(each, sequences[low:high]))
    return parts


def read_newest(
    part: NewestPartition, rows: Rows, on_corrupt: OnCorruptRecord
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's keys; raises DataLoss where one has gone."""
    wanted = part.sequences()
    found = 0
    for batch in scan(part.stretch, rows.needed, on_corrupt):
        kept = among(batch, wanted)
        found += kept.num_rows
        yield rows.convert(kept)
    if found < len(wanted) and on_corrupt is OnCorruptRecord.FAIL:
        raise DataLoss(
            f"{part.stretch.place.path}: {len(wanted) - found} values went away while the bucket "
            "was read: give its server instead of the directory"
        )
