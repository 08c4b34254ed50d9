"""Which messages of a stream its consumers still need."""

from collections.abc import Callable
from typing import Protocol, final

from penstock.consumer.pending import Pending
from penstock.stream.consumers_port import FedStream
from penstock.stream.interest import Interest
from penstock.subjects import SubjectFilter

class _Held(Protocol):
    def __contains__(self, stream_seq: int, /) -> bool: ...

@final
class Position:
    """Where one consumer is in its stream, and which messages it still needs."""

    cursor: int
    chosen: list[int]
    subjects: SubjectFilter | None
    by_floor: bool
    held: _Held | None
    def __init__(self, pending: Pending) -> None:
        """Begin at the first message. `pending` are the consumer's unacknowledged deliveries."""
        ...

    def matches(self, subject: bytes) -> bool:
        """Return True if the consumer delivers messages of a subject."""
        ...

    def needs(self, stream_seq: int, subject: bytes) -> bool:
        """Return True if a message of the stream must be kept for the consumer."""
        ...

    def drop_chosen(self, stream_seq: int) -> None:
        """Remove a message from the chosen ones, if it is one of them."""
        ...

@final
class StreamNeeds(Interest):
    """What the consumers of one stream need, and the streams that read from it."""

    @property
    def positions(self) -> dict[str, Position]:
        """The consumers' positions, by name."""
        ...

    def __init__(self, fed_streams: list[FedStream], load_subject: Callable[[int], bytes]) -> None:
        """`load_subject(stream_seq)` returns a message's subject, b"" if the message is gone."""
        ...

    def needs(self, stream_seq: int, subject: bytes | None = None) -> bool:
        """Return True if a consumer or a fed stream needs a message.

        The subject is loaded only if it is not given and a filter must be compared with it.
        """
        ...
