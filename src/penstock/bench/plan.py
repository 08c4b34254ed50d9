"""What a bench is: who publishes what to whom, and what every load process has to do.

Plain data and arithmetic. A `Plan` is cut into `Job`s, one for each load process; what such a
process tells while it works is a `Report`. Both cross a pipe as JSON lines.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.client.address import parse_url
from penstock.client.credentials import Credentials
from penstock.client.opening import ClientTls
from penstock.errors import UsageError
from penstock.limits import (
    BENCH_CLIENTS_MAX,
    BENCH_LAPS_MAX,
    BENCH_PIECE_BYTES,
    BENCH_PIECES_AHEAD,
    BENCH_REQUESTS_MAX,
    BENCH_STORED_MAX,
    PAYLOAD_BYTES_MAX,
)

FRAME_OVERHEAD_BYTES = 24
"""About what a frame has beside its payload; only the size of a piece depends on it."""


class Kind(StrEnum):
    """What is measured."""

    PUB = "pub"
    SUB = "sub"
    PUBSUB = "pubsub"
    FANOUT = "fanout"
    QUEUE = "queue"
    REQREP = "reqrep"
    JSPUB = "jspub"
    JSGET = "jsget"
    JSFETCH = "jsfetch"
    JSPUSH = "jspush"


PACED = frozenset({Kind.PUBSUB, Kind.FANOUT, Kind.QUEUE})
"""Those whose publishers wait for the receivers."""

CONSUMED = frozenset({Kind.JSFETCH, Kind.JSPUSH})
"""Those that read a stream through consumers; it is filled once, and read by every run."""

ANSWERED = frozenset({Kind.REQREP, Kind.JSPUB, Kind.JSGET})
"""Those in which each message is a request, and its latency is told."""

STREAMED = CONSUMED | {Kind.JSPUB, Kind.JSGET}
"""Those that have streams of their own."""

STORED_DEFAULT = 1_000_000
"""Messages of a stream that consumers read, where nothing else is said: in a second or less."""


class Storage(StrEnum):
    """Where a stream is kept."""

    FILE = "file"
    MEMORY = "memory"


class Ack(StrEnum):
    """What consumers want to hear of each message."""

    NONE = "none"
    EXPLICIT = "explicit"


class Role(StrEnum):
    """What one load process does."""

    PUBLISH = "publish"
    RECEIVE = "receive"
    REQUEST = "request"
    ANSWER = "answer"
    FETCH = "fetch"
    TAKE = "take"
    """Takes what a consumer pushes."""


class Target(msgspec.Struct, frozen=True):
    """A server to be measured, and how to get in."""

    url: str
    credentials: Credentials = Credentials()
    tls: ClientTls | None = None

    def __repr__(self) -> str:
        """Leave out what may be secret."""
        return f"Target({parse_url(self.url)})"


class Plan(msgspec.Struct, frozen=True):
    """One bench; `messages` are all that are published, whoever publishes them."""

    kind: Kind
    messages: int
    size_bytes: int
    publishers: int = 1
    """Or those who send requests."""
    subscribers: int = 1
    """Or those who answer requests, as one queue group; or those who read through consumers."""
    in_flight: int = 1
    """Requests of one publisher that wait for their answer at a time; or pulls."""
    subject: str = "bench"
    streams: int = 1
    """Streams that the publishers share out among themselves."""
    storage: Storage = Storage.FILE
    spread: int = 0
    """Subjects of a stream, all of which are used; 0 for a single one."""
    stored: int = STORED_DEFAULT
    """Messages of the stream that consumers read, from the first to the last and once more."""
    one_in: int = 1
    """Consumers have a filter that lets one in so many messages pass; 1 for no filter."""
    batch: int = 500
    """Messages that one pull asks for."""
    ack: Ack = Ack.NONE

    def check(self) -> None:
        """Raise UsageError where it cannot be run."""
        for name, value, most in (
            ("msgs", self.messages, None),
            ("publishers", self.publishers, BENCH_CLIENTS_MAX),
            ("subscribers", self.subscribers, BENCH_CLIENTS_MAX),
            ("in-flight", self.in_flight, BENCH_REQUESTS_MAX),
            ("streams", self.streams, BENCH_CLIENTS_MAX),
            ("stored", self.stored, BENCH_STORED_MAX),
            ("batch", self.batch, BENCH_REQUESTS_MAX),
            ("one-in", self.one_in, BENCH_STORED_MAX),
        ):
            if value < 1 or (most is not None and value > most):
                bound = f"from 1 to {most:,}" if most else "at least 1"
                raise UsageError(f"--{name} must be {bound}, not {value:,}")
        if not 0 <= self.size_bytes <= PAYLOAD_BYTES_MAX:
            raise UsageError(f"--size must be from 0 to {PAYLOAD_BYTES_MAX:,} bytes")
        if not 0 <= self.spread <= BENCH_REQUESTS_MAX:
            raise UsageError(f"--subjects must be from 0 to {BENCH_REQUESTS_MAX:,}")
        if self.kind in ANSWERED and self.messages > BENCH_REQUESTS_MAX:
            raise UsageError(f"--msgs must be at most {BENCH_REQUESTS_MAX:,} for requests")
        if self.one_in > max(self.spread, 1) or self.one_in > self.stored:
            raise UsageError(f"--one-in {self.one_in:,} wants as many --subjects and --stored")
        if self.kind in CONSUMED and self.messages > self.consumed_max:
            raise UsageError(f"--msgs must be at most {self.consumed_max:,} of so few --stored")
        if self.messages < self.publishers:
            raise UsageError(f"--msgs must be at least {self.publishers}, one for each publisher")
        words = self.subject.split(".")
        if not self.subject.isprintable() or " " in self.subject or {"", "*", ">"} & set(words):
            raise UsageError(f"nobody can publish to the subject {self.subject!r}")

    @property
    def received(self) -> int:
        """Messages that arrive in all, at all who subscribe."""
        if self.kind is Kind.PUB:
            return 0
        each_gets_all = self.kind in (Kind.SUB, Kind.PUBSUB, Kind.FANOUT, Kind.JSPUSH)
        return self.messages * (self.subscribers if each_gets_all else 1)

    @property
    def counted(self) -> int:
        """The messages that the rate is of: those that arrived, or else those published."""
        return self.received or self.messages

    @property
    def counted_role(self) -> Role:
        """Who counts them."""
        if self.kind in ANSWERED:
            return Role.REQUEST
        if self.kind in CONSUMED:
            return Role.FETCH if self.kind is Kind.JSFETCH else Role.TAKE
        return Role.PUBLISH if self.kind is Kind.PUB else Role.RECEIVE

    @property
    def piece(self) -> int:
        """Messages that go by between two reports of a process."""
        return max(1, BENCH_PIECE_BYTES // (self.size_bytes + FRAME_OVERHEAD_BYTES))

    @property
    def ahead(self) -> int:
        """Messages that may be under way, so that no receiver falls far behind."""
        return BENCH_PIECES_AHEAD * self.piece

    def jobs(self, target: Target) -> list[Job]:
        """Cut it into what each process does; those who listen come first."""
        listening = [self._listening(target)] * self.subscribers if self.has_listeners else []
        if self.kind is Kind.SUB:
            return listening
        if self.kind in CONSUMED:
            return [self._consuming(target, place) for place in range(self.subscribers)]
        share, more = divmod(self.messages, self.publishers)
        role = Role.REQUEST if self.kind in ANSWERED else Role.PUBLISH
        return listening + [
            self._job(
                target, role, share + (place < more), subject=self._subject(place % self.streams)
            )
            for place in range(self.publishers)
        ]

    @property
    def has_listeners(self) -> bool:
        """Whether processes of ours receive or answer."""
        return self.kind is not Kind.PUB and self.kind not in STREAMED

    @property
    def laps(self) -> list[int]:
        """How many messages are read of one consumer after another; each begins the stream."""
        whole, rest = divmod(self.messages, self._lap)
        return [self._lap] * whole + ([rest] if rest else [])

    @property
    def consumed_max(self) -> int:
        """The most messages that a run can read."""
        return BENCH_LAPS_MAX * self._lap

    @property
    def _lap(self) -> int:
        return self.stored // self.one_in

    def consumer_name(self, lap: int, place: int) -> str:
        """Give the name of the consumer that the one in a place reads in a lap."""
        return f"lap_{lap}" if self.kind is Kind.JSFETCH else f"lap_{lap}_{place}"

    def deliver_subject(self, lap: int, place: int) -> str:
        """Give where a consumer pushes to."""
        return f"{self.subject}.to.{lap}.{place}"

    @property
    def filter_subject(self) -> str:
        """What consumers read; "" for everything."""
        return f"{self.subject}.0.0.*" if self.one_in > 1 else ""

    def stream_name(self, place: int) -> str:
        """Give the name of the stream in a place."""
        return f"{self.subject}_{place}".replace(".", "_")

    def _subject(self, place: int) -> str:
        """Give what the publishers of the stream in a place send to; a number is behind a dot."""
        if self.kind not in STREAMED:
            return self.subject
        stored = f"{self.subject}.{place}" + ("." if self.spread else "")
        if self.kind is Kind.JSPUB:
            return stored
        return f"$JS.API.DIRECT.GET.{self.stream_name(place)}.{stored}"

    def _listening(self, target: Target) -> Job:
        if self.kind is Kind.REQREP:
            return self._job(target, Role.ANSWER, self.messages, queue="bench")
        if self.kind is Kind.QUEUE:
            # A member's share of a piece: what all have not reported yet is then below a piece.
            piece = max(1, self.piece // self.subscribers)
            return self._job(target, Role.RECEIVE, self.messages, queue="bench", piece=piece)
        return self._job(target, Role.RECEIVE, self.messages)

    def _consuming(self, target: Target, place: int) -> Job:
        # Who pull share the messages of each lap; whoever is pushed to gets them all.
        shares, laps = [], self.laps
        for messages in laps:
            share, more = divmod(messages, self.subscribers)
            shares.append(share + (place < more) if self.kind is Kind.JSFETCH else messages)
        job = self._job(target, self.counted_role, sum(shares))
        return msgspec.structs.replace(
            job,
            stream=self.stream_name(0),
            laps=[
                Lap(self.consumer_name(lap, place), self.deliver_subject(lap, place), messages)
                for lap, messages in enumerate(shares)
            ],
        )

    def _job(
        self,
        target: Target,
        role: Role,
        messages: int,
        *,
        subject: str = "",
        queue: str = "",
        piece: int = 0,
    ) -> Job:
        return Job(
            role=role,
            target=target,
            subject=subject or self.subject,
            messages=messages,
            piece=piece or self.piece,
            size_bytes=0 if self.kind is Kind.JSGET else self.size_bytes,
            spread=self.spread,
            in_flight=self.in_flight,
            queue=queue,
            ends=self.publishers if self.kind is not Kind.SUB else 0,
            paced=self.kind in PACED,
            has_listeners=self.has_listeners,
            groups=self.one_in,
            batch=self.batch,
            ack=self.ack,
        )


class Lap(msgspec.Struct, frozen=True):
    """What is read of one consumer: so many messages, which it may push to a subject."""

    consumer: str
    deliver_subject: str
    messages: int


class Job(msgspec.Struct, frozen=True, tag="job"):
    """What one load process does in one run."""

    role: Role
    target: Target
    subject: str
    messages: int
    """Those to publish, or the most that can arrive."""
    piece: int
    """Messages between two reports."""
    size_bytes: int
    in_flight: int
    queue: str
    ends: int
    """Publishers that will say that they are done; 0 where nobody will."""
    paced: bool
    """Whether a publisher waits for leave, so that no receiver falls far behind."""
    has_listeners: bool
    """Whether somebody wants to be told that a publisher is done."""
    spread: int
    """Numbers that the subjects of requests end in, where there are several."""
    groups: int
    """Groups that these numbers are in, which then stand before them."""
    batch: int
    ack: Ack
    stream: str = ""
    laps: list[Lap] = []
    """The consumers to be read, one after another."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process is connected and waits for the signal."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """So many messages have been sent or received so far."""

    messages: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The job is done. Times are of the monotonic clock, which all processes share."""

    messages: int
    first_ns: int
    last_ns: int
    latency_hundredths_ns: list[int] = []
    """The fastest request, then the slowest of each hundredth part; for requests only."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job could not be done."""

    reason: str


Report = Ready | Progress | Done | Failed


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """What the process is told in a run: it may have sent so many messages in all."""

    messages: int
