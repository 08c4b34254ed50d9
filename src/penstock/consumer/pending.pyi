"""What a consumer delivered and clients have not acknowledged, and when each is due again."""

from collections.abc import Iterable, Mapping
from typing import final

@final
class Pending:
    """The unacknowledged deliveries of one consumer."""

    expects_none: bool
    delivered_consumer_seq: int
    delivered_stream_seq: int
    floor_consumer_seq: int
    floor_stream_seq: int

    @property
    def count(self) -> int:
        """How many are pending."""
        ...

    @property
    def waits_ns(self) -> tuple[int, ...]:
        """How long to wait after each delivery."""
        ...

    @property
    def redelivered(self) -> dict[int, int]:
        """Deliveries after the first, by stream sequence."""
        ...

    def __init__(self, waits_ns: tuple[int, ...]) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, stream_seq: int) -> bool: ...
    def deliver(self, stream_seq: int, consumer_seq: int, now_ns: int) -> None:
        """Note a delivery. A message that is pending keeps its first consumer sequence."""
        ...

    def ack(self, stream_seq: int) -> bool:
        """Remove an acknowledged message; return False if it was not pending."""
        ...

    def ack_up_to(self, stream_seq: int, consumer_seq: int) -> list[int]:
        """Remove all messages up to one; return the stream sequences of those that were pending."""
        ...

    def give_up(self, stream_seq: int) -> None:
        """Remove a message that was not acknowledged; the floor stays below it."""
        ...

    def pass_over(self, stream_seqs: list[int], cursor: int) -> None:
        """Remove messages that are no longer in the stream.

        If none is left, all before `cursor` counts as delivered and acknowledged.
        """
        ...

    def start_at(self, stream_seq: int) -> None:
        """Forget all; a stream sequence is the first that was not delivered."""
        ...

    def restore(
        self,
        delivered: tuple[int, int],
        floor: tuple[int, int],
        entries: Iterable[tuple[int, int, int]],
        redelivered: Mapping[int, int],
    ) -> None:
        """Take over a saved state: (consumer, stream) sequences, entries, redeliveries."""
        ...

    def remove_up_to(self, stream_seq: int) -> list[tuple[int, int]]:
        """Remove all up to a sequence; return their (stream sequence, consumer sequence)."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def first(self) -> tuple[int, int] | None:
        """Return (stream sequence, consumer sequence) of the first message; None without any."""
        ...

    def time_of(self, stream_seq: int) -> int | None:
        """Return when a message was delivered; None if it is not pending."""
        ...

    def consumer_seq_of(self, stream_seq: int) -> int:
        """Return the consumer sequence of a message's first delivery; 0 if it is not pending."""
        ...

    def entries(self) -> list[tuple[int, int, int]]:
        """Return (stream sequence, consumer sequence, time) of all messages, in order."""
        ...

    def packed(self) -> bytes:
        """Return all messages as bytes for `unpacked`, which any thread may call."""
        ...

    def wait(self, waits_ns: tuple[int, ...]) -> None:
        """Change to other waits."""
        ...

    def put_off(self, stream_seq: int, time_ns: int) -> bool:
        """Have the wait for a message begin at a time; return False if it is not pending."""
        ...

    def queue(self, stream_seq: int) -> bool:
        """Note that a message waits to be delivered again.

        Return False if it is not pending, or waits already.
        """
        ...

    def is_queued(self, stream_seq: int) -> bool:
        """Return True if a message waits to be delivered again."""
        ...

    def next_due_ns(self) -> int | None:
        """Return when the next message is due; None if none is."""
        ...

    def take_due(self, now_ns: int) -> list[int]:
        """Return the due sequences, in order; they have no deadline until they are noted again."""
        ...

def unpacked(data: bytes) -> list[tuple[int, int, int]]:
    """Return [(stream sequence, consumer sequence, time)] of what `Pending.packed` returned."""
    ...
