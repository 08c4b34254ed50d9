"""Permissions, slow and obviously right: the oracle for `penstock.security.permissions`.

Entries are text; an entry with a space is a subject and a queue group.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.models.subjects import matches


def _selects(entry: str, subject: str) -> bool:
    """Compare literally; an empty token matches nothing."""
    return "" not in subject.split(".") and matches(entry.split()[0].encode(), subject.encode())


def _speaks_of(entry: str, queue: str) -> bool:
    """Return True if an entry with a group covers `queue`: the same name, or a matching pattern."""
    wanted, found = entry.split()[1].split("."), queue.split(".")
    if wanted == found:
        return True
    if "*" not in wanted and ">" not in wanted:
        return False
    for place, token in enumerate(wanted):
        if token == ">":
            return place < len(found)
        if place >= len(found) or found[place] in ("", ">") or token not in ("*", found[place]):
            return False
    return len(wanted) == len(found)


def may_publish(allow: Sequence[str] | None, deny: Sequence[str], subject: str) -> bool:
    if allow is not None and not any(_selects(entry, subject) for entry in allow):
        return False
    return not any(_selects(entry, subject) for entry in deny)


def may_subscribe(allow: Sequence[str], deny: Sequence[str], subject: str, queue: str) -> bool:
    plain = [entry for entry in allow if " " not in entry and _selects(entry, subject)]
    named = [entry for entry in allow if " " in entry and _selects(entry, subject)]
    allowed = not allow or bool(plain)
    if allow and queue and named:
        allowed = any(_speaks_of(entry, queue) for entry in named)
    return allowed and not is_denied(deny, subject, queue)


def is_denied(deny: Sequence[str], subject: str, queue: str) -> bool:
    """Return True if a message to `subject` is kept from a subscription in `queue`."""
    hits = [entry for entry in deny if _selects(entry, subject)]
    return any(" " not in entry or (queue and _speaks_of(entry, queue)) for entry in hits)
