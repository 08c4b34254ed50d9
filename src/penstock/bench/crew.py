"""Load processes: started when they are needed, kept for the next run, ended with the crew.

    with Crew() as crew:
        run = crew.run(plan, Target("nats://127.0.0.1:4222"))

All get ready first, then all are told to start; the time of a run goes from there to the last
message. Publishers are told how far they may go as the receivers report, so that no receiver falls
behind by more than `Plan.ahead` messages. Any failure ends every process.
"""

from __future__ import annotations

import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

import msgspec

from penstock.bench.plan import (
    CONSUMED,
    PACED,
    STREAMED,
    Done,
    Failed,
    Job,
    Kind,
    Leave,
    Plan,
    Progress,
    Ready,
    Report,
    Role,
    Target,
)
from penstock.bench.streams import FilledStreams, as_filling, fresh_consumers, fresh_streams
from penstock.clock import SystemClock
from penstock.errors import BenchFailed

PIPE_READ_BYTES = 65_536

Tell = Callable[[int, int], None]
"""Called with the messages that were counted, and how many there are in all."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run measured."""

    messages: int
    """Those that the rate is of: received, or else published."""

    payload_bytes: int
    seconds: float
    latency_hundredths_ns: tuple[int, ...] = ()

    @property
    def messages_per_second(self) -> float:
        """The rate."""
        return self.messages / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """The rate of payload bytes, in millions."""
        return self.payload_bytes / self.seconds / 1e6

    def latency_us(self, percent: int) -> float:
        """Give the microseconds within which so many percent of the requests were answered."""
        return self.latency_hundredths_ns[percent] / 1e3


class Worker:
    """One load process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.bench.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._tail = b""
        self._reports = msgspec.json.Decoder(Report)

    def fileno(self) -> int:
        """Give the descriptor that reports come from."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, what: Job | Leave) -> None:
        """Send a line; one that has ended is found out by whoever waits for its reports."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(what) + b"\n")
        except BrokenPipeError:
            return

    def receive(self) -> list[Report]:
        """Give the reports that have come; to be called when there is something to read."""
        assert self._process.stdout is not None
        data = self._process.stdout.read(PIPE_READ_BYTES)
        if not data:
            return [Failed("a load process ended before its time")]
        *lines, self._tail = (self._tail + data).split(b"\n")
        return [self._reports.decode(line) for line in lines]

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class Crew:
    """The load processes; see the module."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._workers: list[Worker] = []
        self._filled = FilledStreams(lambda plan, target: self._run(plan, target, None))

    def run(self, plan: Plan, target: Target, tell: Tell | None = None) -> Run:
        """Run a bench once; raises BenchFailed."""
        if plan.kind not in STREAMED:
            return self._run(plan, target, tell)
        if plan.kind in CONSUMED:
            made = self._filled.get(plan, target)
            with fresh_consumers(made, target):
                return self._run(made, target, tell)
        with fresh_streams(plan, target) as made:
            if plan.kind is Kind.JSGET:
                self._run(as_filling(made), target, None)
            return self._run(made, target, tell)

    def _run(self, plan: Plan, target: Target, tell: Tell | None) -> Run:
        jobs = plan.jobs(target)
        while len(self._workers) < len(jobs):
            self._workers.append(Worker())
        course = Course(plan, jobs, self._workers[: len(jobs)], tell)
        try:
            course.get_ready()
            started_ns = self._clock.monotonic_ns()
            done = course.go()
        except BaseException:
            # Some are still at work on what nobody waits for any more.
            self.end()
            raise
        return _judge(plan, jobs, done, started_ns)

    def end(self) -> None:
        """End every process; the next run starts new ones. Filled streams stay."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def __enter__(self) -> Crew:
        """Give the crew itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process, and remove the streams that were filled."""
        self.end()
        self._filled.remove()


class Course:
    """One run under way: who has reported what."""

    def __init__(
        self, plan: Plan, jobs: Sequence[Job], workers: Sequence[Worker], tell: Tell | None
    ) -> None:
        self._plan = plan
        self._jobs = jobs
        self._workers = workers
        self._tell = tell
        self._ready = 0
        self._passed = [0] * len(jobs)
        self._done: list[Done | None] = [None] * len(jobs)
        self._allowed = 0
        self._counted = [place for place, job in enumerate(jobs) if job.role is plan.counted_role]

    def get_ready(self) -> None:
        """Give out the jobs, and wait until every process is connected."""
        for worker, job in zip(self._workers, self._jobs, strict=True):
            worker.send(job)
        self._listen(lambda: self._ready == len(self._jobs))

    def go(self) -> list[Done]:
        """Give the signal, and wait until every process is done."""
        for worker, job in zip(self._workers, self._jobs, strict=True):
            if job.role is not Role.PUBLISH:
                worker.send(Leave(0))
        self._give_leave()
        self._listen(lambda: None not in self._done)
        return [done for done in self._done if done is not None]

    def _listen(self, is_over: Callable[[], bool]) -> None:
        with selectors.DefaultSelector() as selector:
            for place, worker in enumerate(self._workers):
                selector.register(worker, selectors.EVENT_READ, place)
            while not is_over():
                for key, _ in selector.select():
                    for report in self._workers[key.data].receive():
                        self._take(key.data, report)

    def _take(self, place: int, report: Report) -> None:
        if isinstance(report, Ready):
            self._ready += 1
        elif isinstance(report, Failed):
            raise BenchFailed(self._plan.kind, report.reason)
        elif isinstance(report, Progress):
            self._passed[place] = report.messages
            self._give_leave()
            self._show()
        else:
            self._passed[place] = report.messages
            self._done[place] = report
            self._give_leave()
            self._show()

    def _show(self) -> None:
        if self._tell is not None:
            self._tell(sum(self._passed[place] for place in self._counted), self._plan.counted)

    def _give_leave(self) -> None:
        # Every publisher may have sent its part of what the receivers have had and a bit more.
        plan = self._plan
        allowed = plan.messages
        if plan.kind in PACED:
            passed = [self._passed[place] for place in self._counted]
            slowest = sum(passed) if plan.kind is Kind.QUEUE else min(passed)
            allowed = min(slowest + plan.ahead, plan.messages)
        if allowed == self._allowed:
            return
        self._allowed = allowed
        for worker, job in zip(self._workers, self._jobs, strict=True):
            if job.role is Role.PUBLISH:
                worker.send(Leave(-(-allowed * job.messages // plan.messages)))


def _judge(plan: Plan, jobs: Sequence[Job], done: Sequence[Done], started_ns: int) -> Run:
    # What the reports of all amount to.
    of: dict[Role, list[Done]] = {role: [] for role in Role}
    for job, report in zip(jobs, done, strict=True):
        of[job.role].append(report)
    consumed = of[Role.FETCH] + of[Role.TAKE]
    arrived = sum(report.messages for report in of[Role.RECEIVE] + of[Role.REQUEST] + consumed)
    if arrived != plan.received:
        raise BenchFailed(plan.kind, f"{arrived:,} messages came instead of {plan.received:,}")
    timed = consumed or of[Role.RECEIVE] or of[Role.REQUEST] or of[Role.PUBLISH]
    if plan.kind is Kind.SUB:
        started_ns = min(report.first_ns for report in timed)
    return Run(
        messages=plan.counted,
        payload_bytes=plan.counted * plan.size_bytes,
        seconds=max(max(report.last_ns for report in timed) - started_ns, 1) / 1e9,
        latency_hundredths_ns=_merged([report.latency_hundredths_ns for report in timed]),
    )


def _merged(parts: list[list[int]]) -> tuple[int, ...]:
    # The hundredths of several processes that sent equally many requests.
    values = sorted(value for part in parts for value in part)
    if not values:
        return ()
    last = len(values) - 1
    return tuple(values[-(-last * part // 100)] for part in range(101))
