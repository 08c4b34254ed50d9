from penstock.store.outtake import Outtake

class MessageIds:
    """The message ids that a stream has seen within its window."""

    window_ns: int
    is_ready: bool
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def find(self, message_id: bytes, now_ns: int) -> int:
        """Give the sequence of an id; 0 where it is not known, or no longer."""
    def remember(self, message_id: bytes, seq: int, time_ns: int) -> int:
        """Keep the id of a message that was stored at a time, not before the last one."""
    def prune(self, now_ns: int, count_max: int = ...) -> bool:
        """Forget some of what is older than the window; tell whether there is more of it."""
    def last(self, last_seq: int) -> bytes:
        """Give the id of the message with the stream's last sequence; empty where it had none."""

def collect(
    message_ids: MessageIds, outtake: Outtake, seq: int, until: int, count_max: int
) -> tuple[int, int, bool]:
    """Remember the ids of stored messages, from `seq` up to `until`, or of the first `count_max`.

    Returns (where to go on, how many were looked at, whether the message there must be loaded).
    """
