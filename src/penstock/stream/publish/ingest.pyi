from typing import Any, Protocol

from penstock.routing.hub import Hub
from penstock.routing.sublist import Receiver, Sublist
from penstock.store.log.fast_append import Appender
from penstock.stream.consumers_port import ConsumersPort
from penstock.stream.publish.message import IncomingMessage, StreamTrace
from penstock.stream.publish.message_ids import MessageIds
from penstock.stream.publish.rules import Rules

class _Stream(Protocol):
    """The stream, as far as the compiled path calls it."""

    consumers: ConsumersPort
    def take(
        self,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
        *,
        trace: StreamTrace | None = None,
    ) -> None:
        """Judge a message that is rare, and store or refuse it."""
    def refusal(self, err_code: int, seq: int, text: str | None) -> bytes:
        """Return the answer to a publisher whose message breaks a rule."""
    def on_stored(self, expires_ns: int = 0) -> None:
        """Note that messages were stored, at the end of the buffer they came in.

        `expires_ns` is when the first of them expires that has a time for it, 0 for none.
        """
    def on_members(self) -> None:
        """Note that members were added to atomic batches."""
    def on_rolled_up(self, subject: bytes) -> None:
        """Note that a message has replaced those before it with its subject."""

class _Room(Protocol):
    """The server's quota for batches, as far as members count in it."""

    messages_max: int
    bytes_max: int
    bytes: int

class Members:
    """The members of an open atomic batch."""

    is_touched: bool
    @property
    def entries(self) -> list[Any]:
        """Plain ones as (subject, headers, body), others as they are."""
    @property
    def bytes(self) -> int:
        """Their size."""
    def __init__(self, room: _Room) -> None:
        """`room` is the server's quota for batches, which the members' bytes count in."""
    def add(self, entry: object, size: int) -> bool:
        """Add a member of so many bytes; return False if the quota is used up."""

class Ingest(Receiver):
    """One stream's publish path."""

    bytes_left: int
    last_skip_ns: int
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
        stream: _Stream,
        ack_start: bytes,
        message_ids: MessageIds,
    ) -> None: ...
    def attach(self, appender: Appender, rules: Rules, durable_seq: int) -> None:
        """Append to this store by these rules from now on; it is durable up to a sequence."""
    def take_traced(
        self,
        subject: bytes,
        reply: bytes | None,
        headers: bytes,
        body: bytes,
        trace: StreamTrace,
    ) -> None:
        """Take a traced message; the trace notes what becomes of it."""
    def finish_batch(self) -> None:
        """Commit what was appended so far, before the end of the buffer."""
    def hold(self, seq: int, reply: bytes, body: bytes, headers: bytes = b"") -> None:
        """Publish `body` to `reply` when a sequence is durable, behind all that waits."""
    def hold_copy(
        self, seq: int, time_ns: int, target: bytes, message: IncomingMessage, last_seq: int
    ) -> None:
        """Publish a stored message again to `target` when it is durable, behind all that waits.

        `last_seq` is the sequence of the message before it with its subject, 0 for none.
        """
    def ack(self, seq: int, more: bytes = b"") -> bytes:
        """Return the acknowledgement of a message, with more fields."""
    def duplicate_ack(self, seq: int) -> bytes:
        """Return the acknowledgement of a message that was stored before."""
    def refuse(self, durable_seq: int, body: bytes) -> None:
        """Answer what waits for more than a durable sequence with `body`: it will not be stored."""

    def release(self, durable_seq: int) -> None:
        """Send the acknowledgements of all messages up to a durable sequence."""
