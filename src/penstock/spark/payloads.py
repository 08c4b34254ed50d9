"""Payloads that were packed before they were published, unpacked again.

Nothing is unpacked beyond what a message may hold: what is packed comes from outside, and a small
payload can be made to unpack to any size. Pure; any thread.
"""

from __future__ import annotations

import zlib

from penstock.errors import FormatError
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.limits import PAYLOAD_BYTES_MAX
from penstock.spark.reading_options import PayloadCompression


def unpack(batch: ColumnBatch, packed: PayloadCompression) -> ColumnBatch:
    """Give a batch with its payloads unpacked; raises FormatError with the sequence."""
    if packed is PayloadCompression.NONE or not batch.payloads:
        return batch
    builder = ColumnBuilder()
    for each in batch.messages():
        payload = _inflated(each.seq, each.payload)
        builder.append(
            each.seq, each.timestamp_ns, each.offset, each.subject, each.headers, payload
        )
    return builder.take(batch.block)


def _inflated(seq: int, payload: bytes) -> bytes:
    # A message without payload, as a marker of a removal, was not packed.
    if not payload:
        return b""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(payload, PAYLOAD_BYTES_MAX)
    except zlib.error as error:
        raise FormatError(
            f"the payload of sequence {seq} is not packed with zlib: {error}"
        ) from None
    if not unpacking.eof:
        raise FormatError(
            f"the payload of sequence {seq} is cut short, or more than {PAYLOAD_BYTES_MAX} bytes"
        )
    return data
