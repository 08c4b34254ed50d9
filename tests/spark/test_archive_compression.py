"""How an archive's columns are compressed: by what is in them, and always in the same way."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import schema
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.parquet import (
    SOURCE_COLUMNS,
    FileTask,
    read_exact,
    shrinks,
    write_file,
)


def random_payloads(count: int, size: int = 128) -> list[bytes]:
    chance = random.Random(7)
    return [chance.randbytes(size) for _ in range(count)]


def texts(count: int) -> list[bytes]:
    return [b'{"order": %d, "status": "created", "currency": "EUR"}' % n for n in range(count)]


def column(payloads: list[bytes]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(payloads, pa.binary())])


@pytest.mark.parametrize("count", [1, 5, 9, 2000])
def test_payloads_that_are_random_do_not_shrink(count: int) -> None:
    assert not shrinks(column(random_payloads(count)))


@pytest.mark.parametrize("count", [20, 2000])
def test_payloads_that_are_texts_shrink(count: int) -> None:
    assert shrinks(column(texts(count)))


def test_payloads_that_differ_are_looked_at_all_over_the_column() -> None:
    assert shrinks(column(random_payloads(500) + texts(4000)))


def test_what_is_empty_is_as_good_as_what_shrinks() -> None:
    assert shrinks(column([]))
    assert shrinks(column([b"", b""]))


def test_large_payloads_are_not_copied_whole() -> None:
    # Each begins with noise and goes on with zeros, of which a sample is to see nothing.
    payloads = [each + bytes(100_000) for each in random_payloads(20, 1024)]

    assert not shrinks(column(payloads))


@given(st.lists(st.integers(0, 300), max_size=5), st.booleans())
def test_how_a_column_is_cut_makes_no_difference(cuts: list[int], is_text: bool) -> None:
    payloads = (texts if is_text else random_payloads)(300)
    places = [0, *sorted(cuts), 300]
    pieces = [
        pa.array(payloads[start:end], pa.binary()) for start, end in itertools.pairwise(places)
    ]

    assert shrinks(pa.chunked_array(pieces)) is is_text


@pytest.mark.parametrize(
    ("payloads", "codec"), [(random_payloads(300), "SNAPPY"), (texts(300), "ZSTD")]
)
def test_a_file_is_compressed_as_its_payloads_ask_for(
    payloads: list[bytes], codec: str, tmp_path: Path
) -> None:
    folder = ArchiveFolder(str(tmp_path))
    numbers = list(range(1, 301))
    values = [numbers, numbers, [b"orders"] * 300, [b""] * 300, payloads]
    arrays = [pa.array(each, kind.arrow) for each, kind in zip(values, SOURCE_COLUMNS, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema(SOURCE_COLUMNS))

    entry = write_file(folder, FileTask("ORDERS", "then", 1, 300), iter([batch]))

    group = pq.ParquetFile(folder.full(entry.name)).metadata.row_group(0)
    codecs = {
        group.column(place).path_in_schema: group.column(place).compression
        for place in range(group.num_columns)
    }
    assert (codecs["data"], codecs["subject"]) == (codec, "ZSTD")
    assert pa.Table.from_batches(read_exact(folder, [entry])).column("data").to_pylist() == payloads
