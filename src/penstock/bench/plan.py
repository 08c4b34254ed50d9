"""What a bench is: who publishes what to whom, and what every load process has to do.

Plain data and arithmetic. A `Plan` is cut into `Job`s, one for each load process; what such a
process tells while it works is a `Report`. Both cross a pipe as JSON lines.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from penstock.client.connect import ClientTls
from penstock.client.credentials import Credentials, parse_url
from penstock.errors import UsageError
from penstock.limits import (
    BENCH_CLIENTS_MAX,
    BENCH_LAPS_MAX,
    BENCH_PIECE_BYTES,
    BENCH_PIECES_AHEAD,
    BENCH_REQUESTS_MAX,
    BENCH_RING_BYTES_MAX,
    BENCH_STORED_MAX,
    PAYLOAD_BYTES_MAX,
)

FRAME_OVERHEAD_BYTES = 24
"""About the bytes of a frame without its payload; only the size of a piece depends on it."""


class Kind(StrEnum):
    """What a bench measures."""

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
"""Kinds whose publishers wait for the receivers."""

CONSUMED = frozenset({Kind.JSFETCH, Kind.JSPUSH})
"""Kinds that read a stream through consumers; it is filled once, and read by every run."""

ANSWERED = frozenset({Kind.REQREP, Kind.JSPUB, Kind.JSGET})
"""Kinds in which each message is a request, whose latency is reported."""

STREAMED = CONSUMED | {Kind.JSPUB, Kind.JSGET}
"""Kinds that have streams of their own."""

DRAIN = "drain"
"""The consumer that reads what is published meanwhile."""

DRAIN_PULLS = 2
"""Its pulls that wait at a time: while the messages of one are acknowledged, the next is there."""

STORED_DEFAULT = 1_000_000
"""The default number of messages in a stream that consumers read: about a second's worth."""


class Storage(StrEnum):
    """Where a stream is stored."""

    FILE = "file"
    MEMORY = "memory"


class Ack(StrEnum):
    """How messages are acknowledged."""

    NONE = "none"
    EXPLICIT = "explicit"


class Counted(StrEnum):
    """A header that each published message has with another number."""

    NONE = ""
    MESSAGE_ID = "Nats-Msg-Id"
    LAST_OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence"
    """As it is, where one publisher uses all subjects of the plan in turn."""


class Role(StrEnum):
    """What one load process does."""

    PUBLISH = "publish"
    RECEIVE = "receive"
    REQUEST = "request"
    ANSWER = "answer"
    FETCH = "fetch"
    TAKE = "take"
    """Receive what a consumer pushes."""


class Target(msgspec.Struct, frozen=True):
    """A server to measure, and how to log in."""

    url: str
    credentials: Credentials = Credentials()
    tls: ClientTls | None = None
    pid: int = 0
    """The server's process on this machine: its processor time is measured. 0 for none."""

    def __repr__(self) -> str:
        """Return the address, without secrets."""
        return f"Target({parse_url(self.url)})"


class Plan(msgspec.Struct, frozen=True):
    """One bench; `messages` are those of all publishers together."""

    kind: Kind
    messages: int
    size_bytes: int
    publishers: int = 1
    """The number of publishers, or of clients that send requests."""
    subscribers: int = 1
    """The number of subscribers, of clients that answer (one queue group), or of readers."""
    in_flight: int = 1
    """Requests of one publisher, or pulls of one reader, that wait at a time."""
    subject: str = "bench"
    streams: int = 1
    """Streams that the publishers share out among themselves."""
    storage: Storage = Storage.FILE
    spread: int = 0
    """The number of subjects of the stream, or of plain messages; 0 for a single one."""
    stored: int = STORED_DEFAULT
    """Messages in the stream that consumers read, from the first to the last, and again."""
    one_in: int = 1
    """Consumers have a filter that matches one message in so many; 1 for no filter."""
    batch: int = 500
    """Messages that one pull asks for."""
    ack: Ack = Ack.NONE
    config: dict[str, Any] = {}
    """Fields of the streams' configuration, besides the usual ones."""
    headers: str = ""
    """Header lines of each published message, each with its end; {stream} is the stream's name."""
    counted_header: Counted = Counted.NONE
    filled: int = 0
    """Messages that the stream holds before its publisher begins: whole rounds of its subjects."""
    drained: bool = False
    """A consumer reads and acknowledges what is published; the run lasts until it has all."""

    def check(self) -> None:
        """Raise UsageError if the plan cannot be run."""
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
        if self.kind not in STREAMED and self._ring_bytes > BENCH_RING_BYTES_MAX:
            most = BENCH_RING_BYTES_MAX // (self.size_bytes + FRAME_OVERHEAD_BYTES)
            raise UsageError(f"--subjects must be at most {most:,} for messages of this --size")
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
        """Messages that arrive at all subscribers together."""
        if self.kind is Kind.PUB:
            return 0
        each_gets_all = self.kind in (Kind.SUB, Kind.PUBSUB, Kind.FANOUT, Kind.JSPUSH)
        return self.messages * (self.subscribers if each_gets_all else 1)

    @property
    def counted(self) -> int:
        """The messages that the rate counts: those that arrive, or else those published."""
        return self.received or self.messages

    @property
    def counted_role(self) -> Role:
        """The role of the processes that count them."""
        if self.kind in ANSWERED:
            return Role.REQUEST
        if self.kind in CONSUMED:
            return Role.FETCH if self.kind is Kind.JSFETCH else Role.TAKE
        return Role.PUBLISH if self.kind is Kind.PUB else Role.RECEIVE

    @property
    def piece(self) -> int:
        """Messages between two reports of a process."""
        return max(1, BENCH_PIECE_BYTES // (self.size_bytes + FRAME_OVERHEAD_BYTES))

    @property
    def _ring_bytes(self) -> int:
        # A publisher keeps a frame for each of its subjects.
        return self.spread * (self.size_bytes + FRAME_OVERHEAD_BYTES)

    @property
    def ahead(self) -> int:
        """Messages that may be on their way, so that no receiver falls far behind."""
        return BENCH_PIECES_AHEAD * self.piece

    def jobs(self, target: Target) -> list[Job]:
        """Return what each process does; receivers come first."""
        listening = [self._listening(target)] * self.subscribers if self.has_listeners else []
        if self.kind is Kind.SUB:
            return listening
        if self.kind in CONSUMED:
            return [self._consuming(target, place) for place in range(self.subscribers)]
        if self.drained:
            listening = [self._draining(target)]
        share, more = divmod(self.messages, self.publishers)
        role = Role.REQUEST if self.kind in ANSWERED else Role.PUBLISH
        return listening + [
            self._job(
                target,
                role,
                share + (place < more),
                subject=self._subject(place % self.streams),
                headers=self.headers.format(stream=self.stream_name(place % self.streams)),
            )
            for place in range(self.publishers)
        ]

    @property
    def has_listeners(self) -> bool:
        """True if load processes receive or answer."""
        return self.kind is not Kind.PUB and self.kind not in STREAMED

    @property
    def laps(self) -> list[int]:
        """How many messages are read of each consumer in turn; each begins the stream."""
        whole, rest = divmod(self.messages, self._lap)
        return [self._lap] * whole + ([rest] if rest else [])

    @property
    def consumed_max(self) -> int:
        """The maximum number of messages that a run can read."""
        return BENCH_LAPS_MAX * self._lap

    @property
    def _lap(self) -> int:
        return self.stored // self.one_in

    def consumer_name(self, lap: int, place: int) -> str:
        """Return the name of the consumer that reader `place` reads in a lap."""
        return f"lap_{lap}" if self.kind is Kind.JSFETCH else f"lap_{lap}_{place}"

    def deliver_subject(self, lap: int, place: int) -> str:
        """Return the deliver subject of a consumer."""
        return f"{self.subject}.to.{lap}.{place}"

    @property
    def filter_subject(self) -> str:
        """The filter of consumers; "" for none."""
        return f"{self.subject}.0.0.*" if self.one_in > 1 else ""

    def stream_name(self, place: int) -> str:
        """Return the name of the stream with a number."""
        return f"{self.subject}_{place}".replace(".", "_")

    def _subject(self, place: int) -> str:
        """Return the subject that the publishers of a stream send to."""
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
        # Pulling readers share the messages of each lap; a reader that is pushed to gets them all.
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

    def _draining(self, target: Target) -> Job:
        job = self._job(target, Role.FETCH, self.messages)
        return msgspec.structs.replace(
            job,
            stream=self.stream_name(0),
            in_flight=DRAIN_PULLS,
            ack=Ack.EXPLICIT,
            laps=[Lap(DRAIN, "", self.messages)],
        )

    @property
    def _shift(self) -> int:
        # What the value of the counted header is, beyond the number of the message.
        if self.counted_header is not Counted.LAST_OF_SUBJECT:
            return 0
        return self.filled - max(self.spread, 1) + 1

    def _job(
        self,
        target: Target,
        role: Role,
        messages: int,
        *,
        subject: str = "",
        queue: str = "",
        piece: int = 0,
        headers: str = "",
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
            headers=headers,
            counted=self.counted_header,
            shift=self._shift,
        )


class Lap(msgspec.Struct, frozen=True):
    """One consumer to read: how many messages, and the subject it pushes to, if it does."""

    consumer: str
    deliver_subject: str
    messages: int


class Job(msgspec.Struct, frozen=True, tag="job"):
    """What one load process does in one run."""

    role: Role
    target: Target
    subject: str
    messages: int
    """The messages to publish, or the maximum that can arrive."""
    piece: int
    """Messages between two reports."""
    size_bytes: int
    in_flight: int
    queue: str
    ends: int
    """The number of publishers that will send an end message; 0 if none will."""
    paced: bool
    """The publisher waits for its `Allowance`, so that no receiver falls far behind."""
    has_listeners: bool
    """Receivers wait for the publisher's end message."""
    spread: int
    """How many different numbers the subjects end in; 0 for a single subject."""
    groups: int
    """How many groups these numbers are in; the group then stands before the number."""
    batch: int
    ack: Ack
    headers: str
    counted: str
    """The name of a header with the message's number plus `shift`; "" for none."""
    shift: int
    stream: str = ""
    laps: list[Lap] = []
    """The consumers to read, one after another."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process is connected and waits for the start."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How many messages were sent or received so far."""

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


class Allowance(msgspec.Struct, frozen=True, tag="leave"):
    """How many messages a process may have sent in all; the first one starts the run."""

    messages: int
