"""Removing what has outlived its time, many messages in one go."""

from penstock.store.log.ledger import Ledger
from penstock.store.upkeep.expiry import Expiries, Timekeeper

def remove_aged(
    ledger: Ledger,
    expiries: Expiries,
    times: Timekeeper,
    age_ns: int,
    now_ns: int,
    count_max: int,
) -> int:
    """Remove what is older than an age at a time of the age clock; return how many messages.

    At most `count_max` are removed.
    """

def remove_expired(ledger: Ledger, expiries: Expiries, now_ns: int, count_max: int) -> int:
    """Take what has a time to live that has run out, at most `count_max`; return how many.

    Those that are still there are removed.
    """
