"""What went wrong, in one line: Spark tells it with plans and traces of two languages. Pure."""

from __future__ import annotations

import re

from penstock.spark.failures import error_of_ours

_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_NOISE = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ", re.DOTALL)
_STATE = re.compile(r" ?SQLSTATE: \w+")


def first_line(error: BaseException) -> str:
    """Give what an error says, without what surrounds it."""
    text = str(error)
    if found := _RAISED.findall(text):
        return str(found[-1]).strip()
    if ours := error_of_ours(text):
        return ours[1]
    # What was raised in a Python worker comes last in its trace.
    if raised := _PYTHON.findall(text):
        return str(raised[-1]).strip()
    plain = _STATE.sub("", _NOISE.sub("", text)).strip()
    return plain.splitlines()[0] if plain else type(error).__name__


def is_slow_start(reason: str) -> bool:
    """Tell whether nothing was wrong but that a Python process took too long to start."""
    return reason.startswith("Python worker failed to connect back")
