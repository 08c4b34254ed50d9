"""What a start costs, beside nats-server: time until a client's first PONG, and processor time.

Test suites of clients start hundreds of servers, and every deployment waits for one. Both servers
start in turns with nothing stored, plain and with JetStream, as people start them: by their
executables. The client tries to connect every half millisecond. The processor time is that of all
threads of the server when the PONG is there.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Row, Sizes, at_most, folder_in, ratio, si
from penstock.bench.servers import find_executable, processor_ns
from penstock.errors import BenchFailed

OURS = "penstock-server"
REFERENCE = "nats-server"
RETRY_S = 0.0005
WAIT_S = 60.0
GOALS_S = {"plain": 0.080, "with JetStream": 0.110}
"""Of our time to the first PONG on an idle machine; Go's is out of an interpreter's reach."""


@dataclass(slots=True)
class Starts:
    """What the starts of one server cost."""

    seconds: list[float] = field(default_factory=list)
    processor_s: list[float] = field(default_factory=list)


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    rows = []
    for what, goal_s in GOALS_S.items():
        starts = {name: Starts() for name in (OURS, REFERENCE)}
        for _ in range(sizes.starts):
            for name, measured in starts.items():
                with folder_in(folder, "start") as place:
                    streams = () if what == "plain" else ("-js", "-sd", str(place))
                    _start([find_executable(name), *streams], measured)
        ours, theirs = starts[OURS], starts[REFERENCE]
        rows += [
            Row(
                "start",
                f"start {what}: time to the first PONG",
                statistics.median(ours.seconds),
                "s",
                at_most(goal_s),
                f"{REFERENCE} {si(statistics.median(theirs.seconds), 's')}",
                {OURS: ours.seconds, REFERENCE: theirs.seconds},
            ),
            Row(
                "start",
                f"start {what}: processor time, of {REFERENCE}",
                ratio(ours.processor_s, theirs.processor_s),
                "x",
                None,
                f"{si(statistics.median(ours.processor_s), 's')};"
                f" {REFERENCE} {si(statistics.median(theirs.processor_s), 's')}",
                {OURS: ours.processor_s, REFERENCE: theirs.processor_s},
            ),
        ]
    return rows


def _start(command: Sequence[str], measured: Starts) -> None:
    # The system chooses the port and does not soon give it to others.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = time.perf_counter()
    process = subprocess.Popen(
        [*command, "-a", "127.0.0.1", "-p", str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with _connected(process, port) as client:
            client.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            answer = b""
            while b"PONG\r\n" not in answer:
                received = client.recv(65_536)
                if not received:
                    raise BenchFailed(f"server {command[0]}", "it closed the connection")
                answer += received
            measured.seconds.append(time.perf_counter() - before)
            measured.processor_s.append(processor_ns(process.pid) / 1e9)
    finally:
        process.kill()
        process.wait()


def _connected(process: subprocess.Popen[bytes], port: int) -> socket.socket:
    last = time.monotonic() + WAIT_S
    while process.poll() is None and time.monotonic() < last:
        client = socket.socket()
        client.settimeout(WAIT_S)
        # From the server's own address, the system may choose the server's port to connect from
        # before the server has it: the connection is then one to itself, and succeeds.
        client.bind(("127.0.0.2", 0))
        with contextlib.suppress(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
            return client
        client.close()
        time.sleep(RETRY_S)
    raise BenchFailed("start", "no server listened")
