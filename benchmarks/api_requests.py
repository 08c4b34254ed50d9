"""Requests to the JetStream API, in turns with nats-server.

Each kind of request is measured by its rate and by the processor time that the server takes for it;
and while very many or very long requests are under way, by the longest wait of a client that does
nothing but ping.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compared import REFERENCE, Runs, compared_row, metered
from benchmarks.measure import Row, Sizes, at_least, at_most, folder_in
from penstock.bench.loops import request_many
from penstock.bench.runs import Run
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.client.client import Client
from penstock.client.credentials import parse_url
from penstock.client.jetstream import JetStream

ROUNDS_MAX = 3
IN_FLIGHT = 100
SUBJECTS = 10_000
CONSUMERS = 1_000
STREAMS = 1_000
CROWD_SUBJECTS = 400_000
"""Subjects of the stream that is asked for all of them."""

PAYLOAD = b"x" * 128
CREATED_IN_FLIGHT = 50
PING_INTERVAL_S = 0.005
PUBLISHED_PART = 5_000
GOAL = at_least(2)
WAIT_MS_MAX = 20.0
"""As long as a turn of the event loop may last."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request."""

    what: str
    endpoint: str
    body: bytes = b""
    in_flight: int = 20


CASES = [
    Case("STREAM.INFO", "STREAM.INFO.PLAIN"),
    Case("STREAM.INFO with {subjects} subjects", "STREAM.INFO.MANY", b'{"subjects_filter":">"}', 5),
    Case("STREAM.MSG.GET by sequence", "STREAM.MSG.GET.PLAIN", b'{"seq":100}', IN_FLIGHT),
    Case(
        "STREAM.MSG.GET of the last by subject",
        "STREAM.MSG.GET.MANY",
        b'{"last_by_subj":"many.77"}',
        IN_FLIGHT,
    ),
    Case(
        "STREAM.MSG.GET of the next by subject",
        "STREAM.MSG.GET.MANY",
        b'{"seq":1,"next_by_subj":"many.77"}',
        IN_FLIGHT,
    ),
    Case("CONSUMER.INFO", "CONSUMER.INFO.PLAIN.c0"),
    Case("CONSUMER.NAMES of {consumers}", "CONSUMER.NAMES.PLAIN"),
    Case("CONSUMER.LIST of {consumers}", "CONSUMER.LIST.PLAIN", in_flight=5),
    Case("STREAM.NAMES of {streams}", "STREAM.NAMES"),
    Case("STREAM.LIST of {streams}", "STREAM.LIST", in_flight=5),
]


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much the streams have that are asked for."""

    messages: int
    subjects: int
    consumers: int
    streams: int
    crowd_subjects: int
    crowd_requests: int

    @classmethod
    def of(cls, sizes: Sizes) -> Amounts:
        """Return what a benchmark of these sizes uses."""
        return cls(
            messages=min(1_000, sizes.consumed),
            subjects=min(SUBJECTS, sizes.gotten_subjects),
            consumers=min(CONSUMERS, sizes.idle_consumers),
            streams=min(STREAMS, sizes.idle_consumers),
            crowd_subjects=min(CROWD_SUBJECTS, sizes.distinct_subjects),
            crowd_requests=2 * min(STREAMS, sizes.idle_consumers),
        )

    def shown(self, text: str) -> str:
        """Return a text with the numbers in it."""
        return text.format(
            subjects=f"{self.subjects:,}",
            consumers=f"{self.consumers:,}",
            streams=f"{self.streams:,}",
        )


class Asked:
    """One server with its streams, and a client that asks."""

    def __init__(self, server: BenchServer, amounts: Amounts) -> None:
        self.url = server.url
        self.name = server.name
        self._server = server
        self._client = Client.connect(server.url, timeout_s=120)
        self._streams = JetStream(self._client)
        self._amounts = amounts
        self._inbox = self._client.new_inbox()
        self._client.subscribe(self._inbox + b".*")
        self._make()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _make(self) -> None:
        amounts = self._amounts
        for name in ("PLAIN", "MANY", "CROWD"):
            config = {"name": name, "subjects": [f"{name.lower()}.>"], "max_msgs_per_subject": 1}
            limit = {} if name != "PLAIN" else {"max_msgs_per_subject": -1}
            self._streams.call(f"STREAM.CREATE.{name}", config | limit)
        self._call_all(
            (
                f"STREAM.CREATE.s{place}",
                {"name": f"s{place}", "subjects": [f"s{place}.>"], "storage": "memory"},
            )
            for place in range(amounts.streams)
        )
        self._publish(b"plain.", amounts.messages)
        self._publish(b"many.", amounts.subjects)
        self._publish(b"crowd.", amounts.crowd_subjects)
        self._call_all(
            (f"CONSUMER.CREATE.PLAIN.c{place}", _consumer(f"c{place}"))
            for place in range(amounts.consumers)
        )

    def _call_all(self, calls: Iterable[tuple[str, dict[str, object]]]) -> None:
        waiting: deque[bytes] = deque()
        for endpoint, document in calls:
            waiting.append(self._streams.begin(endpoint, document))
            if len(waiting) >= CREATED_IN_FLIGHT:
                self._streams.read(self._client.next_answer(waiting.popleft()))
        while waiting:
            self._streams.read(self._client.next_answer(waiting.popleft()))

    def _publish(self, start: bytes, count: int) -> None:
        """Publish a message to each of `count` subjects, and wait until all are stored."""
        for place in range(count):
            self._client.publish(b"%b%d" % (start, place), PAYLOAD)
            if place % PUBLISHED_PART == 0:
                # The acknowledgement of one that follows says that the others are stored.
                self._streams.publish(start + b"0", PAYLOAD)
        self._streams.publish(start + b"0", PAYLOAD)

    def ask(self, case: Case, count: int) -> Run:
        """Send requests; return the run."""
        latencies_ns = array("q", bytes(8 * count))
        subject = f"$JS.API.{case.endpoint}".encode()
        wire, inbox, body = self._client.wire, self._inbox, case.body

        def ask_all() -> int:
            request_many(wire, subject, inbox, body, case.in_flight, latencies_ns)
            return count

        return metered(self._server, ask_all)

    def count_within(self, case: Case, seconds: float) -> int:
        """Return how many requests take so long, about."""
        count = case.in_flight
        while True:
            run = self.ask(case, count)
            if run.seconds > seconds / 4:
                return max(int(run.messages_per_second * seconds), case.in_flight)
            count *= 4

    def longest_wait_ms(self, case: Case, count: int) -> float:
        """Send requests in one write; return the longest wait of another client's pings."""
        with _plain_socket(self.url) as asking, _plain_socket(self.url) as pinging:
            frame = b"PUB $JS.API.%b box %d\r\n%b\r\n" % (
                case.endpoint.encode(),
                len(case.body),
                case.body,
            )
            asking.sendall(b"SUB box 1\r\nPING\r\n")
            _read_until(asking, b"PONG\r\n", 1)
            is_over = threading.Event()
            waits: list[float] = []
            pings = threading.Thread(target=_ping, args=(pinging, is_over, waits))
            pings.start()
            try:
                asking.sendall(frame * count)
                _read_until(asking, b"MSG box 1 ", count)
            finally:
                is_over.set()
                pings.join()
        return 1000 * max(waits)


def _consumer(name: str) -> dict[str, object]:
    config = {"name": name, "mem_storage": True, "ack_policy": "explicit"}
    return {"stream_name": "PLAIN", "config": config | {"inactive_threshold": 3_600 * 10**9}}


@contextlib.contextmanager
def _plain_socket(url: str) -> Iterator[socket.socket]:
    server = parse_url(url)
    with socket.create_connection((server.host, server.port), timeout=120) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        _read_until(sock, b"PONG\r\n", 1)
        yield sock


def _read_until(sock: socket.socket, mark: bytes, count: int) -> None:
    """Read until a mark has come so many times; it may be cut in two by a read."""
    kept = b""
    while count > 0:
        data = sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        kept += data
        count -= kept.count(mark)
        kept = kept[-(len(mark) - 1) :]


def _ping(sock: socket.socket, is_over: threading.Event, waits: list[float]) -> None:
    while not is_over.wait(PING_INTERVAL_S) or not waits:
        started = time.perf_counter()
        sock.sendall(b"PING\r\n")
        _read_until(sock, b"PONG\r\n", 1)
        waits.append(time.perf_counter() - started)


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    amounts = Amounts.of(sizes)
    with folder_in(folder, "api") as place, contextlib.ExitStack() as stack:
        asked = []
        for name, command in (("penstock", OURS), (REFERENCE, (find_executable(REFERENCE),))):
            server = BenchServer(name, with_jetstream(command, place / name))
            asked.append(Asked(stack.enter_context(server), amounts))
            stack.callback(asked[-1].close)
        ours, theirs = asked
        return [
            *(_row(ours, theirs, case, sizes, amounts) for case in CASES),
            *_wait_rows(ours, theirs, amounts),
        ]


def _row(ours: Asked, theirs: Asked, case: Case, sizes: Sizes, amounts: Amounts) -> Row:
    sides = [(each, Runs(each.name)) for each in (ours, theirs)]
    counts = [each.count_within(case, sizes.breadth_seconds) for each, _ in sides]
    for _ in range(min(sizes.rounds, ROUNDS_MAX)):
        for (each, runs), count in zip(sides, counts, strict=True):
            runs.runs.append(each.ask(case, count))
    what = f"{amounts.shown(case.what)}, {case.in_flight} in flight"
    (_, our_runs), (_, their_runs) = sides
    return compared_row("api", what, our_runs, their_runs, GOAL, unit="req/s", either=True)


def _wait_rows(ours: Asked, theirs: Asked, amounts: Amounts) -> list[Row]:
    every = [
        (
            f"{amounts.crowd_requests:,} STREAM.LIST in one write",
            Case("", "STREAM.LIST"),
            amounts.crowd_requests,
        ),
        (
            f"20 STREAM.INFO with all of {amounts.crowd_subjects:,} subjects",
            Case("", "STREAM.INFO.CROWD", b'{"subjects_filter":">"}'),
            20,
        ),
    ]
    rows = []
    for what, case, count in every:
        our_ms, their_ms = (each.longest_wait_ms(case, count) for each in (ours, theirs))
        rows.append(
            Row(
                "api",
                f"longest wait of a pinging client, beside {what}",
                our_ms,
                "ms",
                at_most(WAIT_MS_MAX),
                f"{our_ms:.3g} ms; {REFERENCE} {their_ms:.3g} ms",
                {"penstock": [our_ms], REFERENCE: [their_ms]},
            )
        )
    return rows
