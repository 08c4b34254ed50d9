"""The load process: `python -m penstock.bench.load`, started by `penstock.bench.crew`.

Jobs come as JSON lines on stdin, reports go as JSON lines to stdout, until stdin ends. The bytes
are moved by the compiled wire client, a buffer at a time; Python runs once for every piece of a
megabyte, so that the load is not what is measured.
"""

from __future__ import annotations

import signal
import sys
from array import array
from collections.abc import Iterator

import msgspec

from penstock.bench.plan import Ack, Done, Failed, Job, Lap, Leave, Progress, Ready, Report, Role
from penstock.client.client import Client
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.limits import BENCH_PIECES_UNPACED, BENCH_WAIT_S

END_SUFFIX = ".end"
"""Where publishers say that they are done. Each subscriber's messages come in their order, so all
of a publisher's messages are there before its end is."""

ACK_PAYLOADS = {Ack.NONE: b"", Ack.EXPLICIT: b"+ACK"}


class Load:
    """One process's side of the pipe; `run` does a job."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._leave = msgspec.json.Decoder(Leave)

    def tell(self, report: Report) -> None:
        """Send a report."""
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()

    def _wait_for_leave(self) -> int:
        line = sys.stdin.buffer.readline()
        if not line:
            raise SystemExit(0)
        return self._leave.decode(line).messages

    def run(self, job: Job) -> Done:
        """Connect, wait for the signal, and do the job."""
        with Client.connect(
            job.target.url,
            credentials=job.target.credentials,
            tls=job.target.tls,
            name="penstock bench",
            timeout_s=BENCH_WAIT_S,
        ) as client:
            if job.role is Role.RECEIVE:
                return self._receive(client, job)
            if job.role is Role.ANSWER:
                return self._answer(client, job)
            self.tell(Ready())
            allowed = self._wait_for_leave()
            if job.role in (Role.FETCH, Role.TAKE):
                return self._consume(client, job)
            publish = self._publish if job.role is Role.PUBLISH else self._request
            return publish(client, job, allowed)

    def _publish(self, client: Client, job: Job, allowed: int) -> Done:
        subject, payload = job.subject.encode(), b"x" * job.size_bytes
        started_ns = self._clock.monotonic_ns()
        sent = 0
        step = job.piece if job.paced else BENCH_PIECES_UNPACED * job.piece
        while sent < job.messages:
            while allowed <= sent:
                allowed = self._wait_for_leave()
            count = min(step, allowed - sent, job.messages - sent)
            client.publish_many(subject, payload, count)
            client.send()
            sent += count
            if not job.paced:
                self.tell(Progress(sent))
        client.publish(subject + END_SUFFIX.encode())
        client.flush()
        return Done(sent, started_ns, self._clock.monotonic_ns())

    def _receive(self, client: Client, job: Job) -> Done:
        ends_sid = self._listen(client, job)
        seen = ended = 0
        first_ns = 0
        while seen < job.messages:
            # Of the first message the time is taken, for who does not know when it was sent.
            wanted = min(job.piece, job.messages - seen) if seen else 1
            got = client.count_messages(wanted, end_sid=ends_sid)
            first_ns = first_ns or self._clock.monotonic_ns()
            seen += got
            if got < wanted:
                ended += 1
                if ended == job.ends:
                    break
            elif seen < job.messages:
                self.tell(Progress(seen))
        return Done(seen, first_ns, self._clock.monotonic_ns())

    def _request(self, client: Client, job: Job, _allowed: int) -> Done:
        subject, payload = job.subject.encode(), b"x" * job.size_bytes
        latencies_ns = array("q", bytes(8 * job.messages))
        started_ns = self._clock.monotonic_ns()
        client.request_many(
            subject,
            payload,
            job.in_flight,
            latencies_ns,
            spread=job.spread,
            groups=job.groups,
        )
        ended_ns = self._clock.monotonic_ns()
        if job.has_listeners:
            client.publish(subject + END_SUFFIX.encode())
            client.flush()
        return Done(job.messages, started_ns, ended_ns, hundredths(latencies_ns))

    def _consume(self, client: Client, job: Job) -> Done:
        read = _fetched if job.role is Role.FETCH else _taken
        started_ns = self._clock.monotonic_ns()
        seen = 0
        for lap in job.laps:
            for piece in read(client, job, lap):
                seen += piece
                self.tell(Progress(seen))
        if job.ack is not Ack.NONE:
            # The server has then read every acknowledgement.
            client.flush()
        return Done(seen, started_ns, self._clock.monotonic_ns())

    def _answer(self, client: Client, job: Job) -> Done:
        ends_sid = self._listen(client, job)
        started_ns = self._clock.monotonic_ns()
        answered = sum(client.answer_many(ends_sid) for _ in range(job.ends))
        return Done(answered, started_ns, self._clock.monotonic_ns())

    def _listen(self, client: Client, job: Job) -> bytes:
        # Subscribe, say so and wait for the signal; gives the id of the subscription to the ends.
        queue = job.queue.encode() or None
        client.subscribe(job.subject.encode(), queue=queue)
        ends_sid = client.subscribe((job.subject + END_SUFFIX).encode()) if job.ends else b""
        client.flush()
        self.tell(Ready())
        self._wait_for_leave()
        return ends_sid


def _fetched(client: Client, job: Job, lap: Lap) -> Iterator[int]:
    # Read a consumer by pulling; gives the messages of each piece once they are there.
    for piece in _pieces(job, lap):
        client.fetch_many(
            job.stream.encode(),
            lap.consumer.encode(),
            piece,
            batch=job.batch,
            in_flight=job.in_flight,
            ack=ACK_PAYLOADS[job.ack],
            expires_s=BENCH_WAIT_S,
        )
        yield piece


def _taken(client: Client, job: Job, lap: Lap) -> Iterator[int]:
    # Read a consumer that pushes, as soon as somebody listens.
    sid = client.subscribe(lap.deliver_subject.encode())
    for piece in _pieces(job, lap):
        client.pass_pushed(piece, ack=ACK_PAYLOADS[job.ack])
        yield piece
    client.unsubscribe(sid)


def _pieces(job: Job, lap: Lap) -> Iterator[int]:
    # Of whole batches, so that no pull is smaller than it need be.
    step = -(-BENCH_PIECES_UNPACED * job.piece // job.batch) * job.batch
    for start in range(0, lap.messages, step):
        yield min(step, lap.messages - start)


def hundredths(values: array[int]) -> list[int]:
    """Give the least value and the greatest of each hundredth part, 101 in all."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return [ordered[-(-last * part // 100)] for part in range(101)]


def main() -> None:
    """Do jobs until there are no more."""
    # Whoever started this ends it; a Ctrl-C at the terminal is told to them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load = Load()
    orders = msgspec.json.Decoder(Job | Leave)
    for line in iter(sys.stdin.buffer.readline, b""):
        order = orders.decode(line)
        if isinstance(order, Leave):
            # It crossed the last messages of the run that it was meant for.
            continue
        try:
            load.tell(load.run(order))
        except BrokenPipeError:
            return
        except (PenstockError, OSError) as error:
            load.tell(Failed(str(error)))
            return


if __name__ == "__main__":
    main()
