"""The loops of load processes: publishing many, counting, answering, requesting, consuming."""

from __future__ import annotations

import itertools
import socket
import threading
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.loops import (
    answer_many,
    consume_many,
    count_messages,
    publish_many,
    publish_ring,
    request_many,
)
from penstock.client.wire import Wire
from penstock.errors import FormatError, RefusedByServer

Ends = tuple[Wire, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Return a wire and the server's end of its connection."""
    here, there = socket.socketpair()
    here.settimeout(None)
    there.settimeout(20)
    with here, there:
        yield Wire(here.fileno()), there


def read_all(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += sock.recv(size - len(data))
    return data


@pytest.mark.parametrize("count", [0, 1, 2, 5_000, 20_000])
@pytest.mark.parametrize("size", [0, 16, 300_000])
def test_a_message_is_published_as_often_as_asked(ends: Ends, count: int, size: int) -> None:
    wire, server = ends
    count = count if size < 1000 else min(count, 3)
    frame = b"PUB a %d\r\n%b\r\n" % (size, b"x" * size)
    wanted = b"PING\r\n" + frame * count + b"PONG\r\n"
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_all(server, len(wanted))))
    reader.start()

    wire.write(b"PING\r\n")
    publish_many(wire, b"a", b"x" * size, count)
    wire.write(b"PONG\r\n")
    wire.send()

    reader.join()
    assert got == [wanted]


RING = [b"PUB a.%d 2\r\nhi\r\n" % number for number in range(3)]


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 2), (1, 2), (2, 2), (7, 20_000)])
def test_frames_of_a_ring_are_published_in_turns(ends: Ends, first: int, count: int) -> None:
    wire, server = ends
    frames = b"".join(RING[(first + place) % len(RING)] for place in range(count))
    wanted = b"PING\r\n" + frames + b"PONG\r\n"
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_all(server, len(wanted))))
    reader.start()

    wire.write(b"PING\r\n")
    publish_ring(wire, b"".join(RING), len(RING[0]), first, count)
    wire.write(b"PONG\r\n")
    wire.send()

    reader.join()
    assert got == [wanted]


@pytest.mark.parametrize(
    ("ring", "frame_bytes", "first"),
    [(b"", 3, 0), (b"abc", 0, 0), (b"abcd", 3, 0), (b"abc", 3, -1)],
)
def test_a_ring_of_no_whole_frames_is_refused(
    ends: Ends, ring: bytes, frame_bytes: int, first: int
) -> None:
    with pytest.raises(ValueError, match="whole frames"):
        publish_ring(ends[0], ring, frame_bytes, first, 1)


FRAMES = [
    b"MSG a 1 2\r\nhi\r\n",
    b"MSG a 1 2\r\nho\r\n",
    b"MSG a 1 5\r\nMSG a\r\n",
    b"MSG ab 1 2\r\nhi\r\n",
    b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    b"PING\r\n",
    b"MSG e 9 0\r\n\r\n",
]
"""Alike ones, ones that only begin alike, one that is no message, and the end."""


@given(st.lists(st.sampled_from(FRAMES)), st.integers(1, 40), st.data())
def test_messages_are_counted_up_to_the_end_however_they_are_cut(
    frames: list[bytes], wanted: int, data: st.DataObject
) -> None:
    stream = b"".join([*frames, FRAMES[-1], b"PONG\r\n"])
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=4).map(sorted))
    messages = [frame for frame in [*frames, FRAMES[-1]] if frame != b"PING\r\n"]
    expected = min(messages.index(FRAMES[-1]), wanted)
    # Packets are read one at a time, as they were sent.
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        wire = Wire(here.fileno())
        for start, end in itertools.pairwise([0, *places, len(stream)]):
            if start < end:
                there.sendall(stream[start:end])

        assert count_messages(wire, wanted, b"9") == expected
        rest = len(messages) - expected - (expected < wanted)
        assert count_messages(wire, rest) == rest
        assert wire.wait_pong(1) == []


def test_a_line_too_long_to_be_remembered_is_counted_too(ends: Ends) -> None:
    wire, server = ends
    server.sendall(b"MSG %b 1 2\r\nhi\r\n" % (b"a" * 600) * 3)

    assert count_messages(wire, 3) == 3


def test_every_request_is_answered_with_its_own_bytes(ends: Ends) -> None:
    wire, server = ends
    server.sendall(
        b"MSG a 1 re.1 2\r\nhi\r\nPING\r\nMSG a 1 0\r\n\r\n"
        b"HMSG a 1 re.2 12 14\r\nNATS/1.0\r\n\r\nho\r\nMSG a 1 re.3 0\r\n\r\nMSG e 9 0\r\n\r\n"
    )

    assert answer_many(wire, b"9") == 3

    answers = (
        b"PUB re.1 2\r\nhi\r\nPONG\r\nHPUB re.2 12 14\r\nNATS/1.0\r\n\r\nho\r\nPUB re.3 0\r\n\r\n"
    )
    assert read_all(server, len(answers)) == answers


def answer(server: socket.socket, waves: list[tuple[list[int], list[int]]]) -> None:
    """Read the requests of each wave, and then answer those that it names."""
    for asked, answered in waves:
        for place in asked:
            request = b"PUB q in.%d 2\r\nhi\r\n" % place
            assert read_all(server, len(request)) == request
        server.sendall(b"".join(b"MSG in.%d 1 2\r\nhi\r\n" % place for place in answered))


def test_so_many_requests_are_in_flight_as_allowed_and_each_is_timed(ends: Ends) -> None:
    wire, server = ends
    waves = [([0, 1, 2], [1]), ([3], [0, 3]), ([4], [2, 4])]
    thread = threading.Thread(target=answer, args=(server, waves))
    thread.start()
    latencies_ns = array("q", bytes(8 * 5))

    request_many(wire, b"q", b"in", b"hi", 3, latencies_ns)

    thread.join()
    assert all(latency > 0 for latency in latencies_ns)


def test_requests_are_spread_over_all_subjects_and_may_be_answered_with_headers(
    ends: Ends,
) -> None:
    wire, server = ends
    server.sendall(
        b"".join(
            b"HMSG in.%d 1 17 18\r\nNATS/1.0\r\na:b\r\n\r\nx\r\n" % place for place in range(5)
        )
    )
    latencies_ns = array("q", bytes(8 * 5))

    request_many(wire, b"q.", b"in", b"", 5, latencies_ns, spread=5)

    sent = read_all(server, 5 * len(b"PUB q.0 in.0 0\r\n\r\n"))
    subjects = {line.split()[1] for line in sent.splitlines() if line}
    assert subjects == {b"q.%d" % number for number in range(5)}
    assert all(latency > 0 for latency in latencies_ns)


def hpub(place: int, lines: bytes, payload: bytes) -> bytes:
    block = b"NATS/1.0\r\n%b\r\n" % lines
    sizes = (len(block), len(block) + len(payload))
    return b"HPUB q in.%d %d %d\r\n%b%b\r\n" % (place, *sizes, block, payload)


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({"headers": b"Nats-TTL: 1h\r\n"}, [b"Nats-TTL: 1h\r\n"] * 12),
        ({"counted": b"Id"}, [b"Id: %d\r\n" % place for place in range(12)]),
        (
            {"headers": b"a:b\r\n", "counted": b"Last", "shift": -9},
            [b"a:b\r\nLast: %d\r\n" % max(place - 9, 0) for place in range(12)],
        ),
        (
            {"counted": b"Last", "shift": 95},
            [b"Last: %d\r\n" % (place + 95) for place in range(12)],
        ),
    ],
)
def test_requests_have_the_headers_that_are_asked_for(
    ends: Ends, more: dict[str, Any], values: list[bytes]
) -> None:
    wire, server = ends
    server.sendall(b"".join(b"MSG in.%d 1 0\r\n\r\n" % place for place in range(12)))

    request_many(wire, b"q", b"in", b"hi", 12, array("q", bytes(8 * 12)), **more)

    wanted = b"".join(hpub(place, lines, b"hi") for place, lines in enumerate(values))
    assert read_all(server, len(wanted)) == wanted


@pytest.mark.parametrize(
    "data",
    [
        b"MSG in.1 1 2\r\nhi\r\n",
        b"MSG in.x 1 2\r\nhi\r\n",
        b"MSG in. 1 2\r\nhi\r\n",
        b"MSG i 1 2\r\nhi\r\n",
        b"MSG in.99999999999999999999 1 2\r\nhi\r\n",
        b"MSG in.0 1 2\r\nhi\r\nMSG in.0 1 2\r\nhi\r\n",
        b"HMSG in.0 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        b"HMSG in.0 1 16 16\r\nNATS/1.0 404\r\n\r\n\r\n",
        b'MSG in.0 1 11\r\n{"error":{}}\r\n',
    ],
)
def test_what_answers_no_request_is_refused(ends: Ends, data: bytes) -> None:
    wire, server = ends
    server.sendall(data)

    with pytest.raises(FormatError):
        request_many(wire, b"q", b"in", b"hi", 1, array("q", bytes(16)))


def test_requests_may_be_spread_over_groups_of_subjects(ends: Ends) -> None:
    wire, server = ends
    server.sendall(b"".join(b"MSG in.%d 1 0\r\n\r\n" % place for place in range(6)))

    request_many(wire, b"q.", b"in", b"", 6, array("q", bytes(8 * 6)), spread=6, groups=2)

    sent = read_all(server, 6 * len(b"PUB q.0.0 in.0 0\r\n\r\n"))
    subjects = {line.split()[1] for line in sent.splitlines() if line}
    assert subjects == {b"q.%d.%d" % (number % 2, number) for number in range(6)}


def test_so_many_pulls_wait_as_allowed_and_every_message_is_acknowledged(ends: Ends) -> None:
    wire, server = ends
    asked = b"PUB next in 1\r\n2\r\n"

    def serve() -> None:
        assert read_all(server, 2 * len(asked)) == 2 * asked
        for wave in ((0, 1), (2, 3), (4, 5)):
            frames = [b"MSG s 1 ack.%d 2\r\nhi\r\n" % number for number in wave]
            server.sendall(b"".join(frames))
            acks = b"".join(b"PUB ack.%d 4\r\n+ACK\r\n" % number for number in wave)
            # Behind the first batch there is room for one more pull, and then for none.
            wanted = {*acks.splitlines(), *(asked.splitlines() if wave[0] == 0 else [])}
            got = read_all(server, len(acks) + (len(asked) if wave[0] == 0 else 0))
            assert set(got.splitlines()) == wanted

    thread = threading.Thread(target=serve)
    thread.start()
    consume_many(wire, 6, b"+ACK", asked, 2, 2)

    thread.join()


def status(block: bytes, *, reply: bytes = b"") -> bytes:
    """Return a message that is a header block alone."""
    return b"HMSG to 1 %b%d %d\r\n%b\r\n" % (reply, len(block), len(block), block)


@given(st.lists(st.integers(1, 200), max_size=6))
def test_what_is_pushed_is_counted_and_flow_control_is_answered(places: list[int]) -> None:
    request = status(b"NATS/1.0 100 FlowControl Request\r\n\r\n", reply=b"fc.1 ")
    stalled = status(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: fc.2\r\n\r\n")
    idle = status(b"NATS/1.0 100 Idle Heartbeat\r\n\r\n")
    stored = b"HMSG s 1 ack.1 17 18\r\nNATS/1.0\r\na:b\r\n\r\nx\r\n"
    text = stored + request + idle + b"MSG s 1 ack.2 1\r\nx\r\n" + stalled + stored
    here, there = socket.socketpair()
    there.settimeout(20)
    with here, there:
        cuts = [0, *sorted({place for place in places if place < len(text)}), len(text)]

        def send() -> None:
            for start, end in itertools.pairwise(cuts):
                there.sendall(text[start:end])

        thread = threading.Thread(target=send)
        thread.start()
        consume_many(Wire(here.fileno()), 3, b"")
        thread.join()

        answers = b"PUB fc.1 0\r\n\r\nPUB fc.2 0\r\n\r\n"
        assert read_all(there, len(answers)) == answers


def test_a_status_that_ends_a_delivery_ends_the_wait(ends: Ends) -> None:
    wire, server = ends
    server.sendall(status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n"))

    with pytest.raises(RefusedByServer) as refused:
        consume_many(wire, 1, b"")

    assert refused.value.reason == "409 Consumer Deleted"
