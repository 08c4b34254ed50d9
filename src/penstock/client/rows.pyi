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
        """Take (offsets, bytes) of each column, None for no headers; raises FormatError."""
        ...

    def end_of(self, first: int, rows_max: int, bytes_max: int) -> tuple[int, int]:
        """Give where a part ends that begins at `first`, and its bytes."""
        ...

    def hashed(self, first: int, end: int, seed: int) -> int:
        """Go on with a hash over rows: the same whichever way they are divided into columns."""
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
    """Publishes rows and sees to it that each is acknowledged; rows are numbered from 0 on."""

    @property
    def duplicates(self) -> int: ...
    def __init__(self, wire: Wire, inbox: bytes, in_flight: int, bytes_max: int) -> None:
        """Let so many wait for acknowledgement at a time, which comes to `inbox`, dot, number."""
        ...

    def publish(self, rows: Rows) -> None:
        """Publish rows; the last ones still wait for their acknowledgements when this returns."""
        ...

    def finish(self) -> None:
        """Wait until all rows are acknowledged; raises as `publish` does."""
        ...
