"""What Spark says when a statement fails, as one line for people.

Errors of Spark carry a plan or a stack of calls behind them; what people need is their first line,
and where an error of ours is inside, that one. Nothing secret is in either.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from penstock import errors
from penstock.errors import PenstockError, QueryFailed, UsageError
from penstock.spark.failures import error_of_ours
from penstock.spark.sql.catalog import Catalog

_NO_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt): .+)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.MULTILINE)
_WRAPPING = re.compile(r"^\[[A-Z_.0-9]+\] ?|;? ?SQLSTATE: \w+.*$")


FAILURES = (PySparkException, Py4JError)
"""What Spark raises; the second kind while a result is fetched."""


def as_ours(error: Exception, catalog: Catalog) -> PenstockError:
    """Give an error of Spark as one of ours."""
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
    """Give the kind of an error of ours: wrong usage, or a failure of what was rightly asked."""
    known = getattr(errors, name, None)
    if known is None:
        # What is not in the one tree is a kind of wrong usage where a query is planned.
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
