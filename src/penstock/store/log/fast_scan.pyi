"""Reading message after message of a store; only compiled code can use it."""

from penstock.store.commit.durability import Durability
from penstock.store.log.ledger import Ledger
from penstock.store.log.log import Log

class Scanner:
    """The quick way out for message after message; only compiled code can use it."""

    def __init__(self, log: Log, durability: Durability) -> None: ...
    def follow(self, log: Log, durability: Durability) -> None:
        """Look at this log from now on; not between `begin` and `end`."""

class Selection:
    """What one filter wants of one sealed block, in order."""

class Span:
    """Where a filter's messages lie."""

class Selections:
    """What is remembered of one stream."""

    def __init__(self, ledger: Ledger) -> None: ...
