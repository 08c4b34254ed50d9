"""Pipelines out of files: Python that makes one, or YAML that describes one.

A Python file is run as it is, with its folder on the path of imports: whoever runs it trusts it.
What it raises is told with its own line. Used by the command line.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

from penstock.errors import UsageError
from penstock.spark.pipelines.declared import read_document
from penstock.spark.pipelines.pipeline import Pipeline

MODULE = "penstock_pipeline"
"""The name under which a file is run: not `__main__`, so that it can run itself too."""


def load_pipeline(path: Path) -> Pipeline:
    """Read a file; raises UsageError that names file and line, and OSError."""
    if path.suffix in (".yaml", ".yml"):
        try:
            return read_document(path.read_text(), str(path))
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: no text: {error.reason}") from None
    if path.suffix != ".py":
        raise UsageError(f"{path}: a pipeline is a .py or a .yaml file")
    pipelines = [each for each in _run(path).values() if isinstance(each, Pipeline)]
    if len(set(map(id, pipelines))) != 1:
        found = "no pipeline" if not pipelines else "several pipelines"
        raise UsageError(f"{path}: one belongs in a file, as in pipeline = Pipeline(…); {found}")
    return pipelines[0]


def _run(path: Path) -> dict[str, object]:
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=MODULE)
    except OSError:
        raise
    except Exception as error:  # it is the user's own code: anything can come
        raise UsageError(_told(path, error)) from error


def _told(path: Path, error: Exception) -> str:
    """Say what a file raised, and where in it."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(path):
            line = frame.lineno
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
    return f"{path}:{line or 1}: {kind}{what}"
