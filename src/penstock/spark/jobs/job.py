"""What every job uses: its parts run in Spark's tasks, and its report.

A task runs one part, also through Spark Connect. The function and the parts are pickled; a result
comes back as bytes in one row. Spark runs a part that fails again, so a function must allow to be
run twice. `run_parts` raises an error of a task as the same class if it is one of ours.

A report has the same facts for people, programs and the exit code.
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

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock import errors
from penstock.errors import PenstockError

Part = TypeVar("Part")
Result = TypeVar("Result")

OnProgress = Callable[[int, int], None]
"""Called with the number of parts that are done, and of all parts."""

LOOK_EVERY_S = 0.2
SCHEMA = StructType([StructField("part", LongType()), StructField("result", BinaryType())])
"""A StructType, because the JVM would have to parse text first."""

_RAISED = re.compile(r"<<penstock (?P<kind>\w+)>>(?P<text>.*?)<<end>>", re.DOTALL)
"""The JVM keeps only the text of an error. With these marks the driver finds its class again."""

_runs = itertools.count(1)


def run_parts(
    spark: SparkSession,
    work: Callable[[Part], Result],
    parts: Sequence[Part],
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """Return each part's result, in the order of the parts; raise what a part raised."""
    if not parts:
        return []
    frame = _frame(spark, _one_row, work, parts, SCHEMA)
    with running(spark, len(parts), on_progress):
        rows = frame.collect()
    found = {row["part"]: pickle.loads(bytes(row["result"])) for row in rows}
    return [found[number] for number in range(len(parts))]


def part_rows(
    spark: SparkSession,
    work: Callable[[Part], Iterator[pa.RecordBatch]],
    parts: Sequence[Part],
    schema: str,
) -> DataFrame:
    """Return the rows that parts yield as a frame, for results that are too large for the
    driver."""
    return _frame(spark, _all_rows, work, parts, schema)


@contextlib.contextmanager
def running(
    spark: SparkSession, total: int, on_progress: OnProgress | None = None
) -> Iterator[None]:
    """Report the progress of parts that Spark runs within; raise what a part raised."""
    with _telling(spark, total, on_progress):
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
    # PySpark collects garbage after every task and visits all imported objects each time,
    # which takes longer than a small task. They are frozen once in a worker: modules are no
    # garbage.
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
    # The constructors of errors take their parts; only the text is known here.
    ours: PenstockError = kind.__new__(kind)
    ours.args = (told["text"],)
    return ours


@contextlib.contextmanager
def _telling(spark: SparkSession, total: int, on_progress: OnProgress | None) -> Iterator[None]:
    if on_progress is None:
        yield
        return
    on_progress(0, total)
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        # Spark Connect does not report single tasks before all are done.
        yield
        on_progress(total, total)
        return
    group = f"penstock job {next(_runs)}"
    is_over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(context, group, total, on_progress, is_over), daemon=True
    )
    context.setJobGroup(group, "parts of a job")
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    on_progress(total, total)


def _watch(
    context: Any, group: str, total: int, on_progress: OnProgress, is_over: threading.Event
) -> None:
    tracker = context.statusTracker()
    while not is_over.wait(LOOK_EVERY_S):
        stages = [
            info
            for job in tracker.getJobIdsForGroup(group)
            for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
            if (info := tracker.getStageInfo(stage)) is not None
        ]
        on_progress(min(sum(each.numCompletedTasks for each in stages), total), total)


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong: its kind, where it is, and what it is."""

    kind: str
    where: str
    what: str


class Report(msgspec.Struct):
    """What a job did, or would do with `dry_run`."""

    job: str
    of: str
    """The input: a stream, a directory or an archive."""

    dry_run: bool = False
    parts: int = 0
    parts_skipped: int = 0
    """Parts that an earlier run has done."""

    counts: dict[str, int] = msgspec.field(default_factory=dict)
    outputs: list[str] = msgspec.field(default_factory=list)
    findings: list[Finding] = msgspec.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 if there is a finding, else 0."""
        return 1 if self.findings else 0

    def add(self, **counts: int) -> None:
        """Add to the counts."""
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0) + value
