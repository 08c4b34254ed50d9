"""The job `replay`: messages of a stream or directory are published into another stream.

    at-least-once    a run, or a task, that is done again publishes again
    dedupe           with an id each, so that the stream drops what it had within its window
    exactly-once     in atomic batches with fences; a run goes on where the last one ended

For exactly-once delivery the target stream holds the plan beside the fences of the tasks: which
sequences a run publishes, and how. An interrupted run is finished by the next one as it was
planned, before new messages: the same command, run repeatedly, keeps a copy. A stored plan that
does not fit the options is refused.
"""

from __future__ import annotations

import json

import msgspec
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.client.jetstream import JetStream
from penstock.errors import FormatError, UsageError
from penstock.format.hashing import xxh64
from penstock.format.sequence_set import SequenceSet
from penstock.spark.connection import streams_of
from penstock.spark.jobs.inputs import SELECTING, Input, between, find_origin
from penstock.spark.jobs.job import OnProgress, Report, run_parts
from penstock.spark.jobs.republish import (
    STORED_ROWS,
    RepublishTask,
    SubjectMap,
    republish_part,
)
from penstock.spark.sinks.fences import Committed, FenceSubjects, read_committed, write_committed
from penstock.spark.sinks.settings import Delivery, Sink, read_sink

JOB = "replay"
PLAN = "plan"
_ROWS = StructType([StructField("subject", StringType()), StructField("data", BinaryType())])


class Plan(msgspec.Struct, frozen=True):
    """What a run publishes: which sequences, in how many tasks, and a digest of how."""

    first: int
    end: int
    parallel: int
    how: str


PendingPlans = list[tuple[int | None, Plan]]
"""Plans that are to be run, each with the sequence of the stored plan that it replaces; None if the
plan itself is stored, or none is stored."""


class ReplayOptions(msgspec.Struct, frozen=True):
    """How messages are published."""

    target: dict[str, str]
    """Options of the format `penstock` for writing: servers, stream, sinkId and so on."""

    delivery: Delivery = Delivery.EXACTLY_ONCE
    maps: tuple[SubjectMap, ...] = ()
    parallel: int = 1
    speed: float = 0.0
    rule: str = ""
    """A text for anything else that decides which messages are published."""

    def sink(self, version: int) -> Sink:
        """Return the sink of a run; raise UsageError if the stream does not allow it."""
        options = {**self.target, "delivery": str(self.delivery)}
        if self.delivery is not Delivery.AT_LEAST_ONCE:
            options.setdefault("sinkId", JOB)
        if self.delivery is Delivery.EXACTLY_ONCE:
            options["version"] = str(version)
        return replace(read_sink(options, _ROWS), shape=STORED_ROWS)


def replay(
    spark: SparkSession,
    source: Input,
    replaying: ReplayOptions,
    *,
    job: str = JOB,
    dropped: SequenceSet | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> Report:
    """Publish an input into a stream; raise UsageError before anything is published."""
    if replaying.parallel < 1 or replaying.speed < 0:
        raise UsageError("a replay has at least one task, and no speed below 0")
    first, end = bounds_of(source)
    sink = replaying.sink(end)
    report = Report(job, source.shown, dry_run=dry_run, outputs=[sink.target.stream])
    work = _Work(spark, source, replaying, (dropped or SequenceSet()).encode())
    if replaying.delivery is not Delivery.EXACTLY_ONCE:
        stretches: PendingPlans = [(None, Plan(first, end, replaying.parallel, ""))]
    else:
        stretches = work.stretches(sink, first, end)
    for last, plan in stretches:
        report.parts += plan.parallel
        report.add(sequences=plan.end - plan.first, published=0, present=0)
        if not dry_run:
            work.run(report, plan, last, on_progress)
    if not stretches:
        report.parts_skipped = replaying.parallel
    return report


def bounds_of(source: Input) -> tuple[int, int]:
    """Return the first sequence that an input has now, and the one behind the last."""
    origin = find_origin(source.whole())
    return origin.first, max(origin.end, origin.first)


class _Work(msgspec.Struct, frozen=True):
    """One replay, in the driver."""

    spark: SparkSession
    source: Input
    replaying: ReplayOptions
    dropped: bytes

    def how(self) -> str:
        """Return a digest that tells a replay from one that publishes something else."""
        given = {
            name.lower(): text
            for name, text in self.source.options.items()
            if name.lower() in (*SELECTING, "stream", "path")
        }
        maps = [[each.pattern, each.gives] for each in self.replaying.maps]
        told = json.dumps([given, maps, self.replaying.rule], sort_keys=True)
        return f"{xxh64(told.encode()):016x}"

    def stretches(self, sink: Sink, first: int, end: int) -> PendingPlans:
        """Return the plans to run for exactly-once delivery; raise UsageError."""
        place = FenceSubjects(sink.target.stream, sink.fence_prefix, sink.target.sink_id)
        wanted = Plan(first, end, self.replaying.parallel, self.how())
        with streams_of(sink.connection) as streams:
            found, seq = _read_plan(streams, place)
            committed = read_committed(streams, place)
            if found is None and committed is not None:
                raise UsageError(
                    f"{place.subject(PLAN)}: something was written with this sinkId, and no plan "
                    "tells what: give another sinkId"
                )
            if found is None:
                return [(0, wanted)] if end > first else []
            if (found.how, found.parallel) != (wanted.how, wanted.parallel):
                raise UsageError(
                    f"{place.subject(PLAN)}: a replay with this sinkId was begun with another "
                    "source, filter, map or number of tasks: give another sinkId"
                )
        done = committed is not None and committed.batch >= found.end
        rest: PendingPlans = [] if done else [(None, found)]
        if end > found.end:
            rest.append((seq, replace(wanted, first=max(found.end, first))))
        return rest

    def run(
        self, report: Report, plan: Plan, last: int | None, on_progress: OnProgress | None
    ) -> None:
        """Publish the sequences of a plan, after the plan itself is stored if it must be."""
        sink = self.replaying.sink(plan.end)
        place = FenceSubjects(sink.target.stream, sink.fence_prefix, sink.target.sink_id)
        if last is not None:
            with streams_of(sink.connection) as streams:
                _write_plan(streams, place, plan, last)
        parts = tuple(between(self.source, plan.first, plan.end).parts())
        tasks = [
            RepublishTask(
                parts,
                sink,
                self.replaying.maps,
                number,
                plan.parallel,
                self.replaying.speed,
                self.dropped,
            )
            for number in range(plan.parallel)
        ]
        for each in run_parts(self.spark, republish_part, tasks, on_progress):
            report.add(published=each.published, present=each.present)
        if sink.is_exact:
            with streams_of(sink.connection) as streams:
                write_committed(streams, place, Committed(plan.end), plan.parallel)


def _read_plan(streams: JetStream, place: FenceSubjects) -> tuple[Plan | None, int]:
    found = streams.find(place.stream, last_by_subj=place.subject(PLAN))
    if found is None:
        return None, 0
    try:
        return msgspec.json.decode(found.payload, type=Plan), found.seq
    except msgspec.MsgspecError as error:
        raise FormatError(f"{place.subject(PLAN)}: no plan of a replay: {error}") from None


def _write_plan(streams: JetStream, place: FenceSubjects, plan: Plan, last: int) -> None:
    # Of two runs at the same time one is refused.
    headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % last
    subject = place.subject(PLAN).encode()
    streams.publish(subject, msgspec.json.encode(plan), headers=headers)
