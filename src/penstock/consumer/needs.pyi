"""Which messages of a stream its consumers still need, and how many one has still to deliver."""

from collections.abc import Callable
from typing import Protocol, final

from penstock.consumer.pending import Pending
from penstock.store.filestore import FileStore
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
@final
class PendingCount:
    """How many messages a consumer has still to deliver for the first time."""

    def __init__(self, store: FileStore, subjects: SubjectFilter | None) -> None: ...
    @property
    def subjects(self) -> SubjectFilter | None: ...
    def forget(self) -> None:
        """Have the store counted again the next time."""

    def delivered(self, count: int, cursor: int) -> None:
        """Note that `count` of the counted messages were delivered, up to a new cursor."""

    def count(self, cursor: int) -> int:
        """Return the number of matching messages from a cursor on."""

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
