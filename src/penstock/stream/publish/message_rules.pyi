from penstock.stream.publish.message import IncomingMessage
from penstock.stream.publish.rules import Rules

class MessageRules(Rules):
    """The rules of one stream, for messages that are Python objects."""

    @property
    def may_roll_up(self) -> bool:
        """Whether messages may roll others up."""
    def judge(self, message: IncomingMessage, now_ns: int) -> None:
        """Check a single message at a time, and note in it what was found; raise ApiError.

        Raise AlreadyStored if the stream has a message with its id.
        """
    def renamed(self, subject: bytes) -> bytes:
        """Return the subject under which a message is stored."""
    def copied_to(self, subject: bytes) -> bytes | None:
        """Return the subject under which a stored message is published again, or None."""
    def record_size(self, message: IncomingMessage) -> int:
        """Return what a message counts for in its stream's bytes."""
    def check_sealed(self) -> None:
        """Raise ApiError if the stream takes no messages."""
    def last_seq_of(self, subject: bytes) -> int:
        """Return the last sequence of a subject or of all subjects of a pattern; 0 for none."""
    def expected_last_seq(self, message: IncomingMessage) -> int | None:
        """Return the sequence that the stream is expected to end with, or None."""
    def expected_subject_seq(self, message: IncomingMessage) -> tuple[bytes, int] | None:
        """Return the subject that is expected to end with a sequence, and the sequence (0: none).

        Return None if the message expects nothing of a subject. Raise ApiError if it names a
        subject alone.
        """
    def check_last_id(self, message: IncomingMessage) -> None:
        """Raise ApiError if the stream's last message has another id than expected, or none."""
    def check_rollup(self, message: IncomingMessage) -> None:
        """Note in a message what it rolls up; raise ApiError if that is not allowed."""
    def settle_ttl(self, message: IncomingMessage, now_ns: int) -> int:
        """Note in a message how many seconds it lives: 0 as long as others, -1 for ever.

        Return when it expires if it is stored at a time, 0 if only the stream's limits count. Its
        header says the same from here on. Raise ApiError if it is malformed.
        """
    def check_counted(self, message: IncomingMessage) -> None:
        """Raise ApiError for a counter whose new value is larger than a message may be."""
    def check_record(self, message: IncomingMessage) -> None:
        """Raise ApiError for a message whose record would be larger than a block can hold."""
    def check_member(self, message: IncomingMessage) -> None:
        """Raise ApiError for headers of a member that the stream does not take."""
    def note_id(self, message: IncomingMessage, now_ns: int) -> int:
        """Note a message's id in it; return the sequence of the stored message with it, or 0."""
    def check_not_marked(self, message: IncomingMessage) -> None:
        """Raise ApiError for the header that only a sourcing stream may set."""
    def check_present(self, message: IncomingMessage) -> None:
        """Raise ApiError for a message without an increment in a stream of counters."""
