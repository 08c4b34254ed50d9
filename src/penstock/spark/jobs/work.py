"""Running a job's parts in Spark's tasks, one task a part, also through Spark Connect.

The function and the parts are pickled; a result travels back as bytes in one row. A part that fails
is tried again as Spark tries any task, so that a function must be fit to run twice. What a task
raises comes out of `run_parts` as an error of the same kind where it is one of ours.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock import errors
from penstock.errors import PenstockError

Part = TypeVar("Part")
Result = TypeVar("Result")

Tell = Callable[[int, int], None]
"""Called with how many parts are done, and how many there are."""

LOOK_EVERY_S = 0.2
SCHEMA = StructType([StructField("part", LongType()), StructField("result", BinaryType())])
"""Not as text, which the JVM would have to parse first."""

_RAISED = re.compile(r"<<penstock (?P<kind>\w+)>>(?P<text>.*?)<<end>>", re.DOTALL)
"""The JVM keeps the text of an error alone: it is put so that the driver finds its kind again."""

_runs = itertools.count(1)


def run_parts(
    spark: SparkSession,
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    tell: Tell | None = None,
) -> list[Result]:
    """Give each part's result, in the order of the parts; raises what a part raised."""
    if not parts:
        return []
    frame = _frame(spark, _one_row, work, parts, SCHEMA)
    with running(spark, len(parts), tell):
        rows = frame.collect()
    found = {row["part"]: pickle.loads(bytes(row["result"])) for row in rows}
    return [found[number] for number in range(len(parts))]


def part_rows(
    spark: SparkSession,
    work: Callable[[Part], Iterator[pa.RecordBatch]],
    parts: Sequence[Part],
    schema: str,
) -> DataFrame:
    """Give what the parts yield as a frame, for Spark to add up what is too much for the driver."""
    return _frame(spark, _all_rows, work, parts, schema)


@contextlib.contextmanager
def running(spark: SparkSession, total: int, tell: Tell | None = None) -> Iterator[None]:
    """Tell how far so many parts are that Spark runs meanwhile; raises what a part raised."""
    with _telling(spark, total, tell):
        try:
            yield
        except PySparkException as error:
            raise _of_ours(error) from error


_Rows = Callable[[int, Callable[[Any], Any], Any], Iterator[pa.RecordBatch]]


def _frame(
    spark: SparkSession,
    rows: _Rows,
    work: Callable[[Part], Any],
    parts: Sequence[Part],
    schema: StructType | str,
) -> DataFrame:
    pickled: list[bytes] = [cloudpickle.dumps((work, part)) for part in parts]  # type: ignore[no-untyped-call]

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                work, part = pickle.loads(pickled[number])
                _keep_what_is_loaded()
                try:
                    yield from rows(number, work, part)
                except (PenstockError, OSError) as error:
                    kind = type(error).__name__
                    raise RuntimeError(f"<<penstock {kind}>>{error}<<end>>") from error

    return spark.range(0, len(parts), 1, max(len(parts), 1)).mapInArrow(in_task, schema)


def _keep_what_is_loaded() -> None:
    # PySpark collects garbage behind every task, and looks at all that was ever imported each
    # time: longer than a small task takes. Once in a worker: modules are no garbage.
    if not gc.get_freeze_count():
        gc.freeze()


def _one_row(number: int, work: Callable[[Any], Any], part: Any) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch(
        [pa.array([number], pa.int64()), pa.array([pickle.dumps(work(part))], pa.binary())],
        names=["part", "result"],
    )


def _all_rows(_number: int, work: Callable[[Any], Any], part: Any) -> Iterator[pa.RecordBatch]:
    yield from work(part)


def _of_ours(error: PySparkException) -> Exception:
    told = _RAISED.search(str(error))
    if told is None:
        return error
    kind = getattr(errors, told["kind"], PenstockError)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        kind = PenstockError
    # Errors are made of their parts; here is only what they say.
    ours: PenstockError = kind.__new__(kind)
    ours.args = (told["text"],)
    return ours


@contextlib.contextmanager
def _telling(spark: SparkSession, total: int, tell: Tell | None) -> Iterator[None]:
    if tell is None:
        yield
        return
    tell(0, total)
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        # Through Spark Connect there is no word on single tasks before all are done.
        yield
        tell(total, total)
        return
    group = f"penstock job {next(_runs)}"
    is_over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, group, total, tell, is_over), daemon=True
    )
    context.setJobGroup(group, "parts of a job")
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    tell(total, total)


def _watch(context: Any, group: str, total: int, tell: Tell, is_over: threading.Event) -> None:
    tracker = context.statusTracker()
    while not is_over.wait(LOOK_EVERY_S):
        stages = [
            info
            for job in tracker.getJobIdsForGroup(group)
            for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
            if (info := tracker.getStageInfo(stage)) is not None
        ]
        tell(min(sum(each.numCompletedTasks for each in stages), total), total)
