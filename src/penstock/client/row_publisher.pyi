"""Rows of columns as messages: published one by one with an acknowledgement each, or in batches."""

from typing import final

from typing_extensions import Buffer

from penstock.client.wire import Wire

@final
class Rows:
    """Columns whose rows are messages."""

    @property
    def count(self) -> int: ...
    def __init__(
        self,
        subjects: tuple[Buffer, Buffer],
        headers: tuple[Buffer, Buffer] | None,
        payloads: tuple[Buffer, Buffer],
    ) -> None:
        """Take (offsets, bytes) of each column, None for no headers; raise FormatError."""
        ...

    def end_of(self, first: int, rows_max: int, bytes_max: int) -> tuple[int, int]:
        """Return where a part ends that begins at `first`, and its bytes."""
        ...

    def hashed(self, first: int, end: int, seed: int) -> int:
        """Return a hash over rows that continues `seed`, however the rows are split."""
        ...

    def put_members(
        self,
        wire: Wire,
        first: int,
        end: int,
        batch_id: bytes,
        number: int,
        bytes_max: int,
        inbox: bytes | None = None,
    ) -> None:
        """Publish rows as members of an atomic batch, numbered from `number`."""
        ...

@final
class RowPublisher:
    """Publishes rows and waits for the acknowledgement of each; rows are numbered from 0 on."""

    @property
    def duplicates(self) -> int: ...
    def __init__(self, wire: Wire, inbox: bytes, in_flight: int, bytes_max: int) -> None:
        """Have `in_flight` rows unacknowledged at a time; acks come to `inbox`, dot, number."""
        ...

    def publish(self, rows: Rows) -> None:
        """Publish rows; the last ones may still be unacknowledged when this returns."""
        ...

    def finish(self) -> None:
        """Wait until all rows are acknowledged; raise as `publish` does."""
        ...
