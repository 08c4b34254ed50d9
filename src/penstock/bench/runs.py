"""Runs of a plan: once, or several servers in turns.

    with LoadProcesses() as processes:
        run = processes.run(plan, Target("nats://127.0.0.1:4222"))

Load processes are started when they are needed and kept for the next run. All get ready first, then
all are started; the time of a run goes from there to the last message. Publishers get allowances as
the receivers report, so that no receiver falls behind by more than `Plan.ahead` messages. Any
failure ends every process.

Servers are compared in turns (A, B, A, B, …), so that a machine that slows down meanwhile slows
down both. Every server gets its own number of messages, unless one was asked for: as many as take
about the wanted time.
"""

from __future__ import annotations

import selectors
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType

import msgspec

from penstock.bench.plan import (
    ANSWERED,
    CONSUMED,
    PACED,
    STREAMED,
    Allowance,
    Done,
    Failed,
    Job,
    Kind,
    Plan,
    Progress,
    Ready,
    Report,
    Role,
    Target,
)
from penstock.bench.servers import processor_ns, processor_ns_since
from penstock.bench.streams import (
    FilledStreams,
    as_filling,
    create_drain,
    fresh_consumers,
    fresh_streams,
)
from penstock.clock import SystemClock
from penstock.errors import BenchFailed
from penstock.limits import BENCH_GROWTH_MAX, BENCH_REQUESTS_MAX

PIPE_READ_BYTES = 65_536

Tell = Callable[[int, int], None]
"""Called with the number of messages counted so far, and the number in all."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run measured."""

    messages: int
    """The messages that the rate counts: received, or else published."""

    payload_bytes: int
    seconds: float
    latency_hundredths_ns: tuple[int, ...] = ()
    processor_ns: int = 0
    """The server's processor time; 0 if its process is not known."""

    @property
    def message_ns(self) -> float:
        """The server's processor time for one message."""
        return self.processor_ns / self.messages

    @property
    def cores(self) -> float:
        """How many processors the server used; below 1, it waited."""
        return self.processor_ns / 1e9 / self.seconds

    @property
    def messages_per_second(self) -> float:
        """The rate in messages."""
        return self.messages / self.seconds

    @property
    def megabytes_per_second(self) -> float:
        """The rate of payload bytes, in millions."""
        return self.payload_bytes / self.seconds / 1e6

    def latency_us(self, percent: int) -> float:
        """Return the microseconds within which `percent` of the requests were answered."""
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
        """Return the descriptor that reports come from."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, what: Job | Allowance) -> None:
        """Send a line; that the process has ended shows when its reports are read."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(what) + b"\n")
        except BrokenPipeError:
            return

    def receive(self) -> list[Report]:
        """Return the reports that have come; call it when there is something to read."""
        assert self._process.stdout is not None
        data = self._process.stdout.read(PIPE_READ_BYTES)
        if not data:
            return [Failed("a load process ended before its time")]
        *lines, self._tail = (self._tail + data).split(b"\n")
        return [self._reports.decode(line) for line in lines]

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


class LoadProcesses:
    """The load processes; see the module."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._workers: list[Worker] = []
        self._filled = FilledStreams(lambda plan, target: self._run(plan, target, None))

    def run(self, plan: Plan, target: Target, tell: Tell | None = None) -> Run:
        """Run a bench once; raise BenchFailed."""
        if plan.kind not in STREAMED:
            return self._run(plan, target, tell)
        if plan.kind in CONSUMED:
            made = self._filled.get(plan, target)
            with fresh_consumers(made, target):
                return self._run(made, target, tell)
        with fresh_streams(plan, target) as made:
            if plan.kind is Kind.JSGET:
                self._run(as_filling(made), target, None)
            elif plan.filled:
                self._run(as_filling(made, plan.filled), target, None)
            if plan.drained:
                create_drain(made, target)
            return self._run(made, target, tell)

    def _run(self, plan: Plan, target: Target, tell: Tell | None) -> Run:
        jobs = plan.jobs(target)
        while len(self._workers) < len(jobs):
            self._workers.append(Worker())
        course = RunInProgress(plan, jobs, self._workers[: len(jobs)], tell)
        try:
            course.get_ready()
            processor_before_ns = processor_ns(target.pid) if target.pid else 0
            started_ns = self._clock.monotonic_ns()
            done = course.go()
            used_ns = processor_ns_since(target.pid, processor_before_ns) if target.pid else 0
        except BaseException:
            # Some processes are still at work on a run that is over.
            self.end()
            raise
        run = _judge(plan, jobs, done, started_ns)
        return replace(run, processor_ns=used_ns)

    def end(self) -> None:
        """Kill every process; the next run starts new ones. Filled streams stay."""
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def __enter__(self) -> LoadProcesses:
        """Return the object itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill every process, and remove the streams that were filled."""
        self.end()
        self._filled.remove()


class RunInProgress:
    """One run under way: what the processes have reported."""

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
        """Send the jobs, and wait until every process is connected."""
        for worker, job in zip(self._workers, self._jobs, strict=True):
            worker.send(job)
        self._listen(lambda: self._ready == len(self._jobs))

    def go(self) -> list[Done]:
        """Start the run, and wait until every process is done."""
        for worker, job in zip(self._workers, self._jobs, strict=True):
            if job.role is not Role.PUBLISH:
                worker.send(Allowance(0))
        self._send_allowances()
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
            self._send_allowances()
            self._show()
        else:
            self._passed[place] = report.messages
            self._done[place] = report
            self._send_allowances()
            self._show()

    def _show(self) -> None:
        if self._tell is not None:
            self._tell(sum(self._passed[place] for place in self._counted), self._plan.counted)

    def _send_allowances(self) -> None:
        # A publisher may send its share of what the receivers have had, and a bit more.
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
                worker.send(Allowance(-(-allowed * job.messages // plan.messages)))


def _judge(plan: Plan, jobs: Sequence[Job], done: Sequence[Done], started_ns: int) -> Run:
    # Combine the reports of all processes.
    of: dict[Role, list[Done]] = {role: [] for role in Role}
    for job, report in zip(jobs, done, strict=True):
        of[job.role].append(report)
    consumed = of[Role.FETCH] + of[Role.TAKE]
    arrived = sum(report.messages for report in of[Role.RECEIVE] + of[Role.REQUEST] + consumed)
    # Where a consumer reads what is published, each message arrives there, and so does its ack.
    expected = 2 * plan.received if plan.drained else plan.received
    if arrived != expected:
        raise BenchFailed(plan.kind, f"{arrived:,} messages came instead of {expected:,}")
    timed = consumed + of[Role.REQUEST] if plan.drained else consumed
    timed = timed or of[Role.RECEIVE] or of[Role.REQUEST] or of[Role.PUBLISH]
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


FIRST_REQUESTS = 2_000
"""The requests of the first try, which finds out how many are wanted."""

TRUSTED_PART = 0.2
"""A try that took this part of the wanted time is long enough to know the rate."""


@dataclass(slots=True)
class Series:
    """One server and what its runs measured."""

    name: str
    target: Target
    plan: Plan
    runs: list[Run] = field(default_factory=list)

    def median(self, of: Callable[[Run], float]) -> float:
        """Return the median of a measure over the runs."""
        return statistics.median(of(run) for run in self.runs)

    @property
    def best(self) -> float:
        """The highest rate, in messages per second."""
        return max(run.messages_per_second for run in self.runs)


def sized(processes: LoadProcesses, plan: Plan, target: Target, seconds: float) -> Plan:
    """Return the plan with as many messages as take about `seconds` on this server."""
    least, most = _least(plan), _most(plan)
    count = FIRST_REQUESTS if plan.kind in ANSWERED else plan.ahead
    while True:
        count = min(max(count, least), most)
        tried = processes.run(with_messages(plan, count), target)
        growth = seconds / tried.seconds
        if tried.seconds >= TRUSTED_PART * seconds or count >= most:
            return with_messages(plan, min(max(int(count * growth), least), most))
        count = int(count * min(growth * TRUSTED_PART * 2, BENCH_GROWTH_MAX)) + 1


def _least(plan: Plan) -> int:
    # Enough that half of the time as many are in flight as may be.
    if plan.kind in CONSUMED:
        return min(2 * plan.subscribers * plan.in_flight * plan.batch, plan.consumed_max)
    return plan.publishers * (2 * plan.in_flight if plan.kind in ANSWERED else 1)


def _most(plan: Plan) -> int:
    if plan.kind in CONSUMED:
        return plan.consumed_max
    return BENCH_REQUESTS_MAX if plan.kind in ANSWERED else 10**12


def with_messages(plan: Plan, messages: int) -> Plan:
    """Return the plan with another number of messages."""
    return msgspec.structs.replace(plan, messages=messages)


def in_turns(
    processes: LoadProcesses, all_series: Sequence[Series], runs: int, tell: Tell | None = None
) -> None:
    """Run every series `runs` times, in turns."""
    total = runs * sum(series.plan.counted for series in all_series)
    before = 0
    for _ in range(runs):
        for series in all_series:
            report = None if tell is None else partial(_tell_sum, tell, before, total)
            series.runs.append(processes.run(series.plan, series.target, report))
            before += series.plan.counted


def _tell_sum(tell: Tell, before: int, total: int, done: int, _of_run: int) -> None:
    tell(before + done, total)


def ratio(ours: Series, theirs: Series, of: Callable[[Run], float]) -> float:
    """Return the median of the ratios of a measure, turn by turn."""
    return statistics.median(
        of(our) / of(their) for our, their in zip(ours.runs, theirs.runs, strict=True)
    )
