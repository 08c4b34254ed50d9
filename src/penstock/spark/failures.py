"""Errors of Spark as one line: what went wrong, without plans and traces of two languages.

Spark passes on the text of a worker's error within its own traces; the last error in it is the
cause. `as_ours` is for SQL, `first_line` for pipelines. No text holds a secret. Pure.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from penstock import errors
from penstock.errors import PenstockError, QueryFailed, UsageError

if TYPE_CHECKING:
    from penstock.spark.sql.catalog import Catalog

_OURS = re.compile(r"^(?:.*\s)?penstock\.[\w.]*\.(?P<kind>[A-Z]\w+): (?P<text>.+)$", re.MULTILINE)


def error_of_ours(text: str) -> tuple[str, str] | None:
    """Return the class name and the text of our last error in a trace; None if it has none."""
    found = list(_OURS.finditer(text))
    return (found[-1]["kind"], found[-1]["text"].strip()) if found else None


_NO_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt): .+)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_WRAPPING = re.compile(r"^\[[A-Z_.0-9]+\] ?|;? ?SQLSTATE: \w+.*$")


FAILURES = (PySparkException, Py4JError)
"""The errors that Spark raises; the second while a result is fetched."""


def as_ours(error: Exception, catalog: Catalog) -> PenstockError:
    """Return one of our errors for an error of Spark."""
    text = str(error)
    if found := error_of_ours(text):
        kind, said = found
        return _kind_of(kind, error)(said)
    if isinstance(error, PySparkException) and error.getCondition() == _NO_TABLE:
        return UsageError(_no_table(error, catalog))
    if "Traceback" in text and (raised := _RAISED.findall(text)):
        return QueryFailed(raised[-1])
    if isinstance(error, ParseException | AnalysisException):
        return UsageError(_first_line(text))
    causes = _CAUSE.findall(text)
    return QueryFailed(_first_line(causes[-1] if causes else text))


def _kind_of(name: str, error: Exception) -> type[PenstockError]:
    """Return UsageError for wrong usage, or QueryFailed if a correct query failed."""
    known = getattr(errors, name, None)
    if known is None:
        # An error outside `penstock.errors` that is raised while a query is planned is
        # wrong usage.
        return UsageError if isinstance(error, AnalysisException) else QueryFailed
    return UsageError if known is UsageError else QueryFailed


def _no_table(error: PySparkException, catalog: Catalog) -> str:
    name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
    known = catalog.names()
    listed = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    hint = catalog.nearest(name) or (f"there are: {listed}" if known else "there are none")
    return f"no table {name}; {hint}"


def _first_line(text: str) -> str:
    lines = [_WRAPPING.sub("", line.strip()) for line in text.splitlines()]
    return next((line.strip() for line in lines if line), "Spark gives no reason")


_USER_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_NOISE = re.compile(r"^\[STREAM_FAILED\] .*? terminated with exception: ", re.DOTALL)
_STATE = re.compile(r" ?SQLSTATE: \w+")


def first_line(error: BaseException) -> str:
    """Return the one line of an error that says what went wrong."""
    text = str(error)
    if found := _USER_RAISED.findall(text):
        return str(found[-1]).strip()
    if ours := error_of_ours(text):
        return ours[1]
    # The error of a Python worker is the last line of its trace.
    if raised := _PYTHON.findall(text):
        return str(raised[-1]).strip()
    plain = _STATE.sub("", _NOISE.sub("", text)).strip()
    return plain.splitlines()[0] if plain else type(error).__name__


def is_slow_start(reason: str) -> bool:
    """Return True if a query failed only because a Python process started too slowly."""
    return reason.startswith("Python worker failed to connect back")
