"""How the columns of an archive's files are written: encodings, codecs, statistics, checksums.

Payloads are most of a file. If they shrink, they are compressed with zstd. If they do not (random,
encrypted, compressed before), zstd would take a third of a task's time for nothing: they are
written with snappy, which gives up at once and still shrinks later payloads that do compress.

Invariant: the choice follows from a file's first group of rows alone, so that the same messages
make the same bytes. Pure; loaded by executors.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NUMBERS = ("sequence", "timestamp", "time_ns")
"""Stored as differences, they are small: there is nothing left to compress."""

_ZSTD_LEVEL = 1
"""The next levels take half as long again and save a few per cent."""

_SAMPLES = 8
_SAMPLE_ROWS = 64
_SAMPLE_BYTES = 1024
"""Of each payload. All samples are some hundred KiB and take less than a millisecond."""

_WORTHWHILE = 0.9
"""The part of their size that zstd must bring payloads down to."""


def writer_options(first: pa.Table) -> dict[str, Any]:
    """Return the options of Parquet's writer, chosen by the first rows of a file."""
    codecs = {
        **dict.fromkeys((*_NUMBERS, "subject_raw"), "none"),
        **dict.fromkeys(("subject", "headers"), "zstd"),
        "data": "zstd" if shrinks(first.column("data")) else "snappy",
    }
    return {
        "compression": codecs,
        "compression_level": {
            name: _ZSTD_LEVEL for name, codec in codecs.items() if codec == "zstd"
        },
        "use_dictionary": ["subject"],
        "column_encoding": dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
        "write_statistics": [*_NUMBERS, "subject"],
        "write_page_checksum": True,
    }


def shrinks(payloads: pa.ChunkedArray) -> bool:
    """Return True if compressing payloads is worthwhile, by samples from all over the column."""
    step = max(len(payloads) // _SAMPLES, 1)
    taken = [
        payload
        for start in range(0, len(payloads), step)
        for payload in pc.binary_slice(
            # No row twice: repeated samples always shrink.
            payloads.slice(start, min(step, _SAMPLE_ROWS)),
            0,
            _SAMPLE_BYTES,
        ).to_pylist()
    ]
    sample = b"".join(taken)
    if not sample:
        return True
    packed = pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(sample, asbytes=True)
    return len(packed) < _WORTHWHILE * len(sample)
