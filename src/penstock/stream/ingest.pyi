from typing import Any, Protocol

from penstock.routing.hub import Hub
from penstock.routing.sublist import Receiver, Sublist
from penstock.store.intake import Intake
from penstock.stream.message_ids import MessageIds
from penstock.stream.tracing import StreamTrace

class _Careful(Protocol):
    """The Python half of a stream's publish path."""

    def take(
        self,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
        *,
        trace: StreamTrace | None = None,
    ) -> None:
        """Judge and store a message that wants a closer look."""
    def on_stored(self) -> None:
        """Messages came in the quick way, and the buffer they came in is done."""
    def on_members(self) -> None:
        """Members of atomic batches did so."""

class _Room(Protocol):
    """How much room atomic batches have, and what of it is taken."""

    messages_max: int
    bytes_max: int
    bytes: int

class AckQueue:
    """Acknowledgements in the order in which they will be sent; for compiled code."""

    @property
    def count(self) -> int: ...

class Members:
    """The members of an atomic batch that is not committed."""

    is_touched: bool
    @property
    def entries(self) -> list[Any]:
        """Plain ones as (subject, headers, body), others as they are."""
    @property
    def bytes(self) -> int:
        """What they take."""
    def __init__(self, room: _Room) -> None:
        """Take room for them from `room`, which all batches of the server share."""
    def add(self, entry: object, size: int) -> bool:
        """Keep a member of so many bytes; False where there is no room for it."""

class Ingest(Receiver):
    """One stream's publish path."""

    bytes_left: int
    careful: bool
    silent: bool
    @property
    def durable_seq(self) -> int: ...
    @property
    def open_batches(self) -> dict[bytes, Members]:
        """The atomic batches that may have plain members, by their ids."""
    @property
    def waiting_count(self) -> int:
        """How many acknowledgements wait."""
    def __init__(
        self,
        hub: Hub,
        sublist: Sublist,
        stream: _Careful,
        ack_start: bytes,
        message_ids: MessageIds,
    ) -> None: ...
    def attach(self, intake: Intake, durable_seq: int) -> None:
        """Put messages into this store from now on, which is durable up to a sequence."""
    def take_traced(
        self,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
        trace: StreamTrace,
    ) -> None:
        """Take a message that is traced, and tell the trace what becomes of it."""
    def finish_batch(self) -> None:
        """Have what was taken so far made durable, before the end of the buffer."""
    def hold(self, seq: int, reply: bytes, body: bytes, headers: bytes = b"") -> None:
        """Answer `reply` with `body` when a sequence is durable, behind all that waits."""
    def ack(self, seq: int, more: bytes = b"") -> bytes:
        """Give the acknowledgement of a message, with what there is more to say of it."""
    def duplicate_ack(self, seq: int) -> bytes:
        """Give the answer for a message that is there already."""
    def release(self, durable_seq: int) -> None:
        """Send the acknowledgements of what is durable."""
