"""What every job uses: its input, its parts run in Spark's tasks, and its report.

`Input` names what is read by a format and its options: a stream of a server, a directory of blocks,
or an archive. The format plans its parts (`StreamPart`), which tasks read. `find_origin` says which
stream an archive or a replay is made of, and which sequences it has now. It asks the stream's
server or reads its directory, before anything is planned. An archive answers for whole ranges of a
stream, so that an input that leaves messages out (by subject or by time) is refused.

A task runs one part, also through Spark Connect. The function and the parts are pickled; a result
comes back as bytes in one row. Spark runs a part that fails again, so a function must allow to be
run twice. `run_parts` raises an error of a task as the same class if it is one of ours.

A report has the same facts for people, programs and the exit code.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from penstock import errors
from penstock.errors import PenstockError, UsageError
from penstock.format.block import decode_block_header
from penstock.format.reader import StreamReader
from penstock.limits import STREAM_DOCUMENT_BYTES_MAX
from penstock.spark.archives import folder as archive_folder
from penstock.spark.archives import source as archive_source
from penstock.spark.archives.folder import ArchiveFolder
from penstock.spark.archives.scan import ArchiveUnion
from penstock.spark.blocks import settings as block_settings
from penstock.spark.connection import streams_of
from penstock.spark.part import StreamPart
from penstock.spark.streams import settings as stream_settings

# What is read

BlockFormat = block_settings.FORMAT
StreamFormat = stream_settings.FORMAT
ArchiveFormat = archive_folder.FORMAT

SELECTING = ("subject", "startingtimestamp", "endingtimestamp", "oncorruptrecord")
"""Options that leave messages out, other than the first and the last sequence."""


class Input(msgspec.Struct, frozen=True):
    """A stream, a directory or an archive, as options name it."""

    format: str
    options: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The path or the stream's name, for reports; nothing secret."""
        names = ("path", "stream", "streams", "streampattern")
        found = {name.lower(): text for name, text in self.options.items()}
        return next((found[name] for name in names if name in found), self.format)

    def whole(self) -> Input:
        """Return the input without the options that leave messages out."""
        kept = {name: text for name, text in self.options.items() if name.lower() not in SELECTING}
        return Input(self.format, kept)

    def parts(self) -> list[StreamPart]:
        """Return the parts that tasks read; raise UsageError, CorruptStore, OSError."""
        if self.format == BlockFormat:
            return block_settings.plan(block_settings.read_settings(self.options))
        if self.format == StreamFormat:
            return stream_settings.plan(stream_settings.read_settings(self.options))
        if self.format == ArchiveFormat:
            parts = archive_source.plan(archive_source.read_settings(self.options))
            if any(isinstance(each.source, ArchiveUnion) for each in parts):
                raise UsageError("a job reads an archive, or a stream: leave out union")
            return parts
        raise UsageError(
            f"a job reads {StreamFormat}, {BlockFormat} or {ArchiveFormat}, not {self.format!r}"
        )


STREAM_DOCUMENT = "stream.json"

_PARTIAL = (
    "subject",
    "startingtimestamp",
    "endingtimestamp",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "oncorruptrecord",
    "payloadcompression",
)
"""Options that leave messages out, or change them."""

_VOLATILE = ("_nats.level", "_nats.ver")
"""What a server writes of itself into a stream's metadata."""


class Origin(msgspec.Struct, frozen=True):
    """Which stream it is, and the sequences that it has now."""

    stream: str
    created: str
    config: dict[str, Any]
    first: int
    """The first sequence that it still has; one behind the last if it has none."""

    end: int
    """The first sequence that is still to come."""


def find_origin(source: Input) -> Origin:
    """Return the stream of an input; raise UsageError if it is not one whole stream."""
    given = {name.lower() for name in source.options}
    for name in _PARTIAL:
        if name in given:
            raise UsageError(f"an archive holds every message as it is: leave out {name}")
    if source.format == StreamFormat:
        return _of_server(source.options)
    if source.format == BlockFormat:
        return _of_directory(source.options)
    raise UsageError(f"a job reads {StreamFormat} or {BlockFormat}, not {source.format!r}")


def between(source: Input, first: int, end: int) -> Input:
    """Return the input for the sequences from `first` up to `end`, which is not read."""
    kept = {
        name: text
        for name, text in source.options.items()
        if name.lower() not in ("startingoffsets", "endingoffsets")
    }
    return Input(source.format, {**kept, "startingOffsets": str(first), "endingOffsets": str(end)})


def _of_server(options: Mapping[str, str]) -> Origin:
    settings = stream_settings.read_settings(options)
    found = stream_settings.find_streams(settings)
    if len(found) != 1:
        names = ", ".join(each.name for each in found)
        raise UsageError(f"an archive is of one stream, not of {len(found)}: {names}")
    facts = found[0]
    with streams_of(settings.connection) as streams:
        config = streams.call(f"STREAM.INFO.{facts.name}")["config"]
    first, end = stream_settings.bounds_of(settings, facts)
    return Origin(facts.name, facts.created, lasting(config), first, end)


def _of_directory(options: Mapping[str, str]) -> Origin:
    settings = block_settings.read_settings(options)
    directory, selection = settings.directory, settings.selection
    if directory.is_go:
        go = directory.open_go()
        config = dict(go.config)
        created = str(config.pop("Created", ""))
        name, first, last = go.name, go.state.first_seq, go.state.last_seq
    else:
        reader = directory.open()
        created, config = _document_of(directory.path)
        created = created or _identity(reader)
        name, first, last = directory.stream, first_live(reader), reader.last_seq
    return Origin(
        name,
        created,
        lasting(config),
        max(first, selection.first_seq, 1),
        min(last, selection.last_seq) + 1,
    )


def lasting(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stream's configuration without what depends on the server that was asked."""
    kept = dict(config)
    metadata = {
        name: text for name, text in (kept.get("metadata") or {}).items() if name not in _VOLATILE
    }
    kept["metadata"] = metadata
    return kept


def first_live(reader: StreamReader) -> int:
    """Return the first sequence that was not removed; one behind the last if all were."""
    at = 0
    for block in reader.blocks:
        at = max(at, block.base_seq)
        for low, high in reader.removed.ranges_between(at, reader.last_seq):
            if low > at:
                break
            at = high + 1
        if block.count and at <= block.last_seq:
            return at
    return reader.last_seq + 1


def _document_of(path: str) -> tuple[str, dict[str, Any]]:
    # A server keeps the stream's document beside its messages. An encrypted one cannot be read.
    for folder_path in (path, path.rstrip("/").removesuffix("/msgs")):
        folder = ArchiveFolder(folder_path)
        if folder.size(STREAM_DOCUMENT) < 0:
            continue
        try:
            document = json.loads(folder.read(STREAM_DOCUMENT, STREAM_DOCUMENT_BYTES_MAX))
            return str(document["created"]), dict(document["config"])
        except (ValueError, LookupError, TypeError):
            continue
    return "", {}


def _identity(reader: StreamReader) -> str:
    # The stream's salt stands in the header of every block.
    if not reader.blocks:
        return ""
    index = reader.load_index(reader.blocks[-1].number)
    return f"salt:{decode_block_header(index.header, reader.folder.path).salt:016x}"


# How parts are run, and what is reported

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
