"""What can be asked of a ledger: next, last of a subject, how many, what is missing."""

from penstock.format.sequence_set import SequenceSet
from penstock.store.log.ledger import Ledger
from penstock.subjects import SubjectFilter

def find_next(ledger: Ledger, subject_filter: SubjectFilter | None, seq: int) -> int | None:
    """Return the first live sequence from `seq` on that the filter (None: all) wants, or None."""
    ...

def find_previous(ledger: Ledger, subject_filter: SubjectFilter | None, seq: int) -> int | None:
    """Return the last live sequence up to `seq` that the filter (None: all) wants, or None."""
    ...

def find_from_time(ledger: Ledger, time_ns: int) -> int | None:
    """Return the first live sequence whose time is not before `time_ns`, or None."""
    ...

def find_last(ledger: Ledger, subject: bytes, up_to: int | None = None) -> int | None:
    """Return the newest live sequence of one subject, or None."""
    ...

def find_lasts(
    ledger: Ledger, subject_filter: SubjectFilter, up_to: int | None = None
) -> list[int]:
    """Return the newest live sequence of every subject that the filter wants, in order."""
    ...

def find_ends(ledger: Ledger, subject_filter: SubjectFilter) -> dict[bytes, tuple[int, int, int]]:
    """Return {subject: (messages, first sequence, last sequence)} for a filter."""
    ...

def count_from(ledger: Ledger, subject_filter: SubjectFilter | None, seq: int) -> int:
    """Return the number of live messages from `seq` on that the filter (None: all) wants."""
    ...

def find_gaps(ledger: Ledger) -> SequenceSet:
    """Return the sequences between first and last that have no live message.

    It costs what is missing: a block without a gap is not looked into.
    """
    ...
