"""The load process: `python -m penstock.bench.load`, started by `penstock.bench.runs`.

Jobs come as JSON lines on stdin, reports go as JSON lines to stdout, until stdin ends. The compiled
loops move the bytes, a buffer at a time; Python runs once per megabyte, so that the load process is
not the bottleneck.
"""

from __future__ import annotations

import json
import signal
import sys
from array import array
from collections.abc import Iterator

import msgspec

from penstock.bench.loops import (
    answer_many,
    consume_many,
    count_messages,
    publish_many,
    publish_ring,
    request_many,
)
from penstock.bench.plan import (
    Ack,
    Allowance,
    Done,
    Failed,
    Job,
    Lap,
    Progress,
    Ready,
    Report,
    Role,
)
from penstock.client.client import Client
from penstock.clock import SystemClock
from penstock.errors import PenstockError
from penstock.limits import BENCH_PIECES_UNPACED, BENCH_WAIT_S

END_SUFFIX = ".end"
"""The suffix of the subject for end messages. Messages to a subscriber keep their order: all of a
publisher's messages arrive before its end message."""

ACK_PAYLOADS = {Ack.NONE: b"", Ack.EXPLICIT: b"+ACK"}


SPREAD_SUFFIX = ".s."
"""What stands between the subject of a bench and a number, where it has several subjects."""

SPREAD_STEP = 2_654_435_761
"""Subjects follow each other by this step, so that neighbours are not used in turn. A prime, and
larger than any number of subjects: so every subject has its turn."""


class Load:
    """The jobs of one load process; `run` does one."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._allowances = msgspec.json.Decoder(Allowance)

    def tell(self, report: Report) -> None:
        """Send a report."""
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()

    def _wait_for_allowance(self) -> int:
        line = sys.stdin.buffer.readline()
        if not line:
            raise SystemExit(0)
        return self._allowances.decode(line).messages

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
            allowed = self._wait_for_allowance()
            if job.role in (Role.FETCH, Role.TAKE):
                return self._consume(client, job)
            publish = self._publish if job.role is Role.PUBLISH else self._request
            return publish(client, job, allowed)

    def _publish(self, client: Client, job: Job, allowed: int) -> Done:
        subject, payload = job.subject.encode(), b"x" * job.size_bytes
        ring = ring_of_frames(subject, payload, job.spread) if job.spread else b""
        started_ns = self._clock.monotonic_ns()
        sent = 0
        step = job.piece if job.paced else BENCH_PIECES_UNPACED * job.piece
        while sent < job.messages:
            while allowed <= sent:
                allowed = self._wait_for_allowance()
            count = min(step, allowed - sent, job.messages - sent)
            if ring:
                publish_ring(client.wire, ring, len(ring) // job.spread, sent, count)
            else:
                publish_many(client.wire, subject, payload, count)
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
            # The time of the first message is noted: the publisher may be another program.
            wanted = min(job.piece, job.messages - seen) if seen else 1
            got = count_messages(client.wire, wanted, ends_sid)
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
        send_requests(
            client,
            subject,
            payload,
            job.in_flight,
            latencies_ns,
            spread=job.spread,
            groups=job.groups,
            headers=job.headers.encode(),
            counted=job.counted.encode(),
            shift=job.shift,
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
        answered = sum(answer_many(client.wire, ends_sid) for _ in range(job.ends))
        return Done(answered, started_ns, self._clock.monotonic_ns())

    def _listen(self, client: Client, job: Job) -> bytes:
        # Subscribe, report it and wait for the start; return the id of the end subscription.
        queue = job.queue.encode() or None
        is_spread = job.spread and job.role is Role.RECEIVE
        pattern = f"{job.subject}{SPREAD_SUFFIX}*" if is_spread else job.subject
        client.subscribe(pattern.encode(), queue=queue)
        ends_sid = client.subscribe((job.subject + END_SUFFIX).encode()) if job.ends else b""
        client.flush()
        self.tell(Ready())
        self._wait_for_allowance()
        return ends_sid


def send_requests(
    client: Client,
    subject: bytes,
    payload: bytes,
    in_flight: int,
    latencies_ns: array[int],
    *,
    spread: int = 0,
    groups: int = 1,
    headers: bytes = b"",
    counted: bytes = b"",
    shift: int = 0,
) -> None:
    """Send one request per element of `latencies_ns`, as `loops.request_many` does."""
    inbox = client.new_inbox()
    sid = client.subscribe(inbox + b".*")
    request_many(
        client.wire,
        subject,
        inbox,
        payload,
        in_flight,
        latencies_ns,
        spread,
        groups,
        headers,
        counted,
        shift,
    )
    client.unsubscribe(sid)


def _fetched(client: Client, job: Job, lap: Lap) -> Iterator[int]:
    # Read a consumer by pulling; yield the number of messages of each piece.
    for piece in _pieces(job, lap):
        _fetch(client, job, lap.consumer, piece)
        yield piece


def _fetch(client: Client, job: Job, consumer: str, count: int) -> None:
    # Pull `count` messages and acknowledge them, the last ones with a smaller batch.
    inbox = client.new_inbox() + b".pull"
    sid = client.subscribe(inbox)
    whole = count - count % job.batch
    for part, batch in ((whole, job.batch), (count - whole, count - whole)):
        body = json.dumps({"batch": batch, "expires": int(BENCH_WAIT_S * 1e9)})
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{job.stream}.{consumer}"
        ask = f"PUB {subject} {inbox.decode()} {len(body)}\r\n{body}\r\n".encode()
        consume_many(client.wire, part, ACK_PAYLOADS[job.ack], ask, batch, job.in_flight)
    client.unsubscribe(sid)


def _taken(client: Client, job: Job, lap: Lap) -> Iterator[int]:
    # Read a consumer that pushes; it begins when its subject has a subscriber.
    sid = client.subscribe(lap.deliver_subject.encode())
    for piece in _pieces(job, lap):
        consume_many(client.wire, piece, ACK_PAYLOADS[job.ack])
        yield piece
    client.unsubscribe(sid)


def _pieces(job: Job, lap: Lap) -> Iterator[int]:
    # Pieces of whole batches, so that no pull is smaller than it need be.
    step = -(-BENCH_PIECES_UNPACED * job.piece // job.batch) * job.batch
    for start in range(0, lap.messages, step):
        yield min(step, lap.messages - start)


def ring_of_frames(subject: bytes, payload: bytes, spread: int) -> bytes:
    """Return one PUB for each of `spread` subjects, all of the same length, in a mixed order."""
    digits = len(str(spread - 1))
    return b"".join(
        b"PUB %b%b%0*d %d\r\n%b\r\n"
        % (
            subject,
            SPREAD_SUFFIX.encode(),
            digits,
            place * SPREAD_STEP % spread,
            len(payload),
            payload,
        )
        for place in range(spread)
    )


def hundredths(values: array[int]) -> list[int]:
    """Return the least value, and the greatest of each hundredth part: 101 in all."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return [ordered[-(-last * part // 100)] for part in range(101)]


def main() -> None:
    """Do jobs until stdin ends."""
    # The parent ends this process; a Ctrl-C at the terminal is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load = Load()
    orders = msgspec.json.Decoder(Job | Allowance)
    for line in iter(sys.stdin.buffer.readline, b""):
        order = orders.decode(line)
        if isinstance(order, Allowance):
            # An allowance that arrived after the end of its run.
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
