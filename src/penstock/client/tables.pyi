"""Messages by the batch over a wire: columns from what a consumer delivers, publishes from rows."""

from typing_extensions import Buffer

from penstock.client.wire import Message, Wire
from penstock.format.columns import ColumnBuilder

def publish_rows(
    wire: Wire,
    subject_offsets: Buffer,
    subjects: Buffer,
    header_offsets: Buffer,
    headers: Buffer,
    payload_offsets: Buffer,
    payloads: Buffer,
    inbox: bytes,
    in_flight: int,
) -> int:
    """Publish a message for each row, and wait until all are acknowledged; give duplicates."""
    ...

def collect(
    wire: Wire, builder: ColumnBuilder, sid: bytes, last_seq: int, rows_max: int, bytes_max: int
) -> tuple[Message | None, bool]:
    """Add messages that a consumer delivers to the columns, making no object of any."""
    ...
