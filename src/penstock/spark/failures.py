"""Errors of ours, found again in what Spark tells of them.

Spark hands on the text of a worker's error within traces of two languages. What was raised last
stands last. Pure.
"""

from __future__ import annotations

import re

_OURS = re.compile(r"^(?:.*\s)?penstock\.[\w.]*\.(?P<kind>[A-Z]\w+): (?P<text>.+)$", re.MULTILINE)


def error_of_ours(text: str) -> tuple[str, str] | None:
    """Give the kind of the last error of ours and what it says; None where there is none."""
    found = list(_OURS.finditer(text))
    return (found[-1]["kind"], found[-1]["text"].strip()) if found else None
