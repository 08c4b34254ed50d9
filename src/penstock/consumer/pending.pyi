"""What a consumer delivered and nobody has acknowledged, and when each is due again."""

from collections.abc import Iterable, Mapping
from typing import final

@final
class Pending:
    """The deliveries of one consumer that wait for their acknowledgement."""

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
        """Note a delivery. One of a message that is pending keeps its first consumer sequence."""
        ...

    def ack(self, stream_seq: int) -> bool:
        """Be done with one; False where it was not pending."""
        ...

    def ack_up_to(self, stream_seq: int, consumer_seq: int) -> list[int]:
        """Be done with all up to one; give the stream sequences of those that were pending."""
        ...

    def give_up(self, stream_seq: int) -> None:
        """Wait no more for one; nobody has acknowledged it, so the floor stays below it."""
        ...

    def pass_over(self, stream_seqs: list[int], cursor: int) -> None:
        """Forget some that are no longer in the stream, which begins before `cursor` at the latest.

        Where none is left, all before the cursor counts as delivered and acknowledged.
        """
        ...

    def start_at(self, stream_seq: int) -> None:
        """Begin anew: a stream sequence is the first that was not delivered."""
        ...

    def restore(
        self,
        delivered: tuple[int, int],
        floor: tuple[int, int],
        entries: Iterable[tuple[int, int, int]],
        redelivered: Mapping[int, int],
    ) -> None:
        """Take over what was kept: (consumer, stream) sequences, entries, redeliveries."""
        ...

    def remove_up_to(self, stream_seq: int) -> list[tuple[int, int]]:
        """Take out all up to a sequence; give their (stream sequence, consumer sequence)."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def first(self) -> tuple[int, int] | None:
        """Give (stream sequence, consumer sequence) of the first one; None where none is."""
        ...

    def time_of(self, stream_seq: int) -> int | None:
        """Tell when one was delivered; None where it is not pending."""
        ...

    def consumer_seq_of(self, stream_seq: int) -> int:
        """Give the consumer sequence of one's first delivery; 0 where it is not pending."""
        ...

    def entries(self) -> list[tuple[int, int, int]]:
        """Give (stream sequence, consumer sequence, time) of all, in order."""
        ...

    def packed(self) -> bytes:
        """Give all as bytes that `unpacked` reads, in another thread if need be."""
        ...

    def wait(self, waits_ns: tuple[int, ...]) -> None:
        """Go over to other waits."""
        ...

    def put_off(self, stream_seq: int, time_ns: int) -> bool:
        """Have one's wait begin at a time; False where it is not pending."""
        ...

    def queue(self, stream_seq: int) -> bool:
        """Note that one waits to be delivered again; False where it is not pending or does."""
        ...

    def is_queued(self, stream_seq: int) -> bool:
        """Whether one waits to be delivered again."""
        ...

    def next_due_ns(self) -> int | None:
        """Tell when the next one is due, or None."""
        ...

    def take_due(self, now_ns: int) -> list[int]:
        """Give the sequences that are due, in order; they have no deadline until they are noted."""
        ...

def unpacked(data: bytes) -> list[tuple[int, int, int]]:
    """Give [(stream sequence, consumer sequence, time)] of what `Pending.packed` gave."""
    ...
