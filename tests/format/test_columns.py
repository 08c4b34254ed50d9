"""Columns hold what was put into them, packed as Arrow wants them."""

from __future__ import annotations

import struct
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.format.columns import ColumnBatch, ColumnBuilder, MessageRow

messages = st.lists(
    st.builds(
        MessageRow,
        seq=st.integers(0, 2**64 - 1),
        timestamp_ns=st.integers(-(2**63), 2**63 - 1),
        subject=st.binary(max_size=30),
        headers=st.binary(max_size=30),
        payload=st.binary(max_size=300),
        offset=st.integers(0, 2**64 - 1),
    ),
    max_size=40,
)


def put(builder: ColumnBuilder, message: MessageRow) -> None:
    builder.append(
        message.seq,
        message.timestamp_ns,
        message.offset,
        message.subject,
        message.headers,
        message.payload,
    )


def filled(rows: list[MessageRow], builder: ColumnBuilder | None = None) -> ColumnBatch:
    builder = builder or ColumnBuilder()
    for row in rows:
        put(builder, row)
    return builder.take(9)


@given(messages)
def test_rows_come_back_as_they_were_added(rows: list[MessageRow]) -> None:
    batch = filled(rows)

    assert (batch.block, batch.count, len(batch)) == (9, len(rows), len(rows))
    assert list(batch.messages()) == rows


@given(messages)
def test_each_column_is_one_buffer_with_one_offset_more_than_rows(rows: list[MessageRow]) -> None:
    batch = filled(rows)
    count = len(rows)

    assert batch.sequences == struct.pack(f"<{count}Q", *(row.seq for row in rows))
    assert batch.timestamps == struct.pack(f"<{count}q", *(row.timestamp_ns for row in rows))
    assert batch.offsets == struct.pack(f"<{count}Q", *(row.offset for row in rows))
    for offsets, data, cells in (
        (batch.subject_offsets, batch.subjects, [row.subject for row in rows]),
        (batch.header_offsets, batch.headers, [row.headers for row in rows]),
        (batch.payload_offsets, batch.payloads, [row.payload for row in rows]),
    ):
        assert data == b"".join(cells)
        ends = struct.unpack(f"<{count + 1}i", offsets)
        assert ends[0] == 0
        assert [data[start:end] for start, end in pairwise(ends)] == cells


@given(messages, messages)
def test_a_builder_starts_afresh_after_each_batch(
    first: list[MessageRow], second: list[MessageRow]
) -> None:
    builder = ColumnBuilder()

    filled(first, builder)

    assert builder.count == builder.data_bytes() == 0
    assert list(filled(second, builder).messages()) == second


@given(st.lists(messages, max_size=5))
def test_batches_can_be_put_together(parts: list[list[MessageRow]]) -> None:
    builder = ColumnBuilder()
    for part in parts:
        builder.extend(filled(part))
    rows = [row for part in parts for row in part]

    assert builder.take(9) == filled(rows)


def test_a_batch_whose_columns_do_not_fit_it_is_refused() -> None:
    batch = filled([MessageRow(1, 0, b"s", b"h", b"p")])

    for wrong in ({"sequences": b""}, {"subjects": b"ss"}, {"payload_offsets": bytes(4)}):
        with pytest.raises(UsageError, match="not as long as its batch"):
            ColumnBuilder().extend(msgspec.structs.replace(batch, **wrong))


@pytest.mark.parametrize(("headers", "payloads"), [(True, False), (False, True), (False, False)])
def test_columns_that_are_not_wanted_are_empty_with_offsets_of_zero(
    *, headers: bool, payloads: bool
) -> None:
    rows = [MessageRow(seq, 0, b"s", b"hhh", b"ppppp") for seq in range(3)]

    batch = filled(rows, ColumnBuilder(headers=headers, payloads=payloads))

    assert batch.headers == (b"hhh" * 3 if headers else b"")
    assert batch.payloads == (b"ppppp" * 3 if payloads else b"")
    if not headers:
        assert batch.header_offsets == bytes(16)
    if not payloads:
        assert batch.payload_offsets == bytes(16)


def test_the_bytes_held_are_those_of_the_wanted_data() -> None:
    builder = ColumnBuilder(headers=False)
    put(builder, MessageRow(1, 2, b"abc", b"not kept", b"12345"))

    assert (builder.count, builder.data_bytes()) == (1, 8)


def test_numbers_that_do_not_fit_are_refused_and_nothing_is_added() -> None:
    builder = ColumnBuilder()

    for row in (MessageRow(-1, 0, b"", b"", b""), MessageRow(2**64, 0, b"", b"", b"")):
        with pytest.raises(OverflowError):
            put(builder, row)
    with pytest.raises(TypeError):
        builder.append(1, 0, 0, b"", b"", None)  # type: ignore[arg-type]  # a careless caller

    assert builder.count == 0
    assert list(builder.take(1).messages()) == []
