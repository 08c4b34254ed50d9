"""Reports of pipelines' flows: the document that a pipeline publishes, and its subject.

    $PENSTOCK.PIPELINE.<pipeline>.<flow>    {"state":"running","batch":7,"rows":1000,…}

Names are letters, digits, `_` and `-`, so that they can stand in subjects, labels, pages and paths.
Pure.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import msgspec

from penstock.limits import PIPELINE_NAME_LENGTH_MAX

SUBJECT_PREFIX = "$PENSTOCK.PIPELINE."

_NAME = rf"[A-Za-z0-9_-]{{1,{PIPELINE_NAME_LENGTH_MAX}}}"
_NAMED = re.compile(_NAME, re.ASCII)
_SUBJECT = re.compile(rf"{re.escape(SUBJECT_PREFIX)}({_NAME})\.({_NAME})", re.ASCII)

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class FlowState(StrEnum):
    """The state of a flow."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class FlowReport(msgspec.Struct, frozen=True):
    """The report of a flow, counted since its pipeline was started."""

    state: FlowState
    batch: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)] = -1
    """The last batch that is done; -1 before the first."""
    rows: Count = 0
    rows_per_second: Rate = 0.0
    lag_messages: Count = 0
    """Messages of its streams that it has not read yet."""
    dead_letters: Count = 0
    error: str = ""


def is_name(text: str) -> bool:
    """Return True if a pipeline or a flow may have this name."""
    return _NAMED.fullmatch(text) is not None


def subject_of(pipeline: str, flow: str) -> str:
    """Return the subject of a flow's reports."""
    return f"{SUBJECT_PREFIX}{pipeline}.{flow}"


def names_in(subject: bytes) -> tuple[str, str] | None:
    """Return the pipeline and the flow that a subject names, or None."""
    found = _SUBJECT.fullmatch(subject.decode("latin-1"))
    return None if found is None else (found[1], found[2])
