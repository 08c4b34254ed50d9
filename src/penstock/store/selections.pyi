"""What filters want of a stream's blocks, remembered; only compiled code can use it."""

from penstock.store.ledger import Ledger

class Selection:
    """What one filter wants of one sealed block, in order."""

class Span:
    """Where a filter's messages lie."""

class Selections:
    """What is remembered of one stream."""

    def __init__(self, ledger: Ledger) -> None: ...
