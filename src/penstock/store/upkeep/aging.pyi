"""Removing what has outlived its time, as many messages as there are in one go."""

from penstock.store.log.ledger import Ledger
from penstock.store.upkeep.expiry import Expiries, Timekeeper

def remove_aged(
    ledger: Ledger, expiries: Expiries, times: Timekeeper, age_ns: int, now_ns: int
) -> int:
    """Remove what is older than an age at a time of the age clock; return how many messages."""

def remove_expired(ledger: Ledger, expiries: Expiries, now_ns: int) -> int:
    """Remove what has a time to live that has run out; return how many messages."""
