from penstock.store.log.fast_scan import Scanner

class MessageIds:
    """The message ids that a stream has seen within its window."""

    window_ns: int
    is_ready: bool
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def find(self, message_id: bytes, now_ns: int) -> int:
        """Return the sequence of an id; 0 if it is unknown or too old."""
    def remember(self, message_id: bytes, seq: int, time_ns: int) -> int:
        """Add the id of a message that was stored at a time, not before the last one."""
    def prune(self, now_ns: int, count_max: int = ...) -> bool:
        """Remove some ids older than the window; return True if there are more."""
    def clear(self) -> None:
        """Forget every id."""
    def last(self, last_seq: int) -> bytes:
        """Return the id of the message with the stream's last sequence; empty if it had none."""

def collect(
    message_ids: MessageIds, scanner: Scanner, seq: int, until: int, count_max: int
) -> tuple[int, int, bool]:
    """Add the ids of stored messages, from `seq` up to `until`, or of the first `count_max`.

    Returns (where to go on, how many were looked at, whether the message there must be loaded).
    """
