"""Results of SQL on their way out: as rows for people, as CSV, as JSON lines, as Parquet.

A result comes to the driver batch by batch, each as the bytes of an Arrow stream, so that it may be
larger than memory; the order of its rows is kept. Variants come as JSON. Works the same through
Spark Connect. Used in the driver; `_packed` runs in tasks.
"""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

_JSON = msgspec.json.Encoder(decimal_format="number")


class Result:
    """The result of a query; it is read once."""

    def __init__(self, frame: DataFrame, *, rows_max: int = 0) -> None:
        """Prepare a result; `rows_max` limits its rows, and 0 means all."""
        self.names = _distinct(frame.columns)
        kinds = [field.dataType for field in frame.schema.fields]
        self._variants = {place for place, kind in enumerate(kinds) if _holds_variants(kind)}
        # Columns have plain names on the way: Spark would take a dot in a name for a
        # field.
        plain_names = [f"c{place}" for place in range(len(kinds))]
        self._frame = frame.toDF(*plain_names).select(
            *(
                sf.to_json(name).alias(name) if place in self._variants else name
                for place, name in enumerate(plain_names)
            )
        )
        if rows_max:
            self._frame = self._frame.limit(rows_max)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result."""
        packed = self._frame.mapInArrow(_packed, "batch binary")
        for row in packed.toLocalIterator():
            with pa.ipc.open_stream(bytes(row[0])) as reader:
                yield from (batch.rename_columns(self.names) for batch in reader)

    def rows(self) -> Iterator[list[Any]]:
        """Yield the result row by row: values as Python has them, maps as dicts, variants read."""
        for batch in self.batches():
            columns = [
                batch.column(place).to_pylist(maps_as_pydicts="lossy")
                for place in range(len(self.names))
            ]
            for place in self._variants:
                columns[place] = [
                    None if text is None else msgspec.json.decode(text) for text in columns[place]
                ]
            yield from map(list, zip(*columns, strict=True))

    def write_json(self, file: BinaryIO) -> None:
        """Write a JSON object for each row, one a line."""
        for row in self.rows():
            file.write(_JSON.encode(dict(zip(self.names, row, strict=True))) + b"\n")

    def write_csv(self, file: BinaryIO) -> None:
        """Write a line of names, and one for each row."""
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        try:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(self.names)
            for row in self.rows():
                writer.writerow([plain(each) for each in row])
        finally:
            # The caller closes the file.
            text.detach()

    def write_parquet(self, file: BinaryIO) -> None:
        """Write a file of Parquet; variants are texts in it."""
        batches = self.batches()
        first = next(batches, None)
        schema = self._schema() if first is None else first.schema
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            if first is not None:
                writer.write_batch(first)
            for each in batches:
                writer.write_batch(each)

    def _schema(self) -> pa.Schema:
        return to_arrow_schema(self._frame.toDF(*self.names).schema)


def plain(value: Any) -> str:
    """Return a value as text: JSON for nested values, base64 for bytes, "" for null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = _JSON.encode(value).decode()
    is_one_word = isinstance(value, bytes | datetime.date | datetime.time | datetime.timedelta)
    return text.strip('"') if is_one_word else text


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        packed = pa.array([sink.getvalue().to_pybytes()], pa.binary())
        yield pa.record_batch([packed], names=["batch"])


def _holds_variants(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_variants(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _holds_variants(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_variants(kind.keyType) or _holds_variants(kind.valueType)
    return isinstance(kind, VariantType)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names without duplicates, ignoring case."""
    met: dict[str, int] = {}
    found = []
    for name in names:
        count = met[name.lower()] = met.get(name.lower(), 0) + 1
        found.append(name if count == 1 else f"{name}_{count}")
    return found
