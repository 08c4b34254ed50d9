"""Columns from what a consumer delivers over a wire."""

from penstock.client.wire import ReceivedMessage, Wire
from penstock.format.columns import ColumnBuilder

def collect(
    wire: Wire, builder: ColumnBuilder, sid: bytes, last_seq: int, rows_max: int, bytes_max: int
) -> tuple[ReceivedMessage | None, bool]:
    """Add messages that a consumer delivers to columns, without an object per message."""
    ...
