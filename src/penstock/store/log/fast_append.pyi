from penstock.store.commit.durability import Durability
from penstock.store.log.log import Log

class Appender:
    """The quick way in for messages; `put` and its like are for compiled code."""

    def __init__(self, log: Log, durability: Durability) -> None: ...
    def begin(self) -> None:
        """Stamp the messages that come until `end`; raises where the store takes no writes."""
    def begin_placed(self, seq: int) -> None:
        """Expect messages with their places, up to `end`; raises where there are no writes."""
    def end(self) -> None:
        """Have what was put made durable."""
