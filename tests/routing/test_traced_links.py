"""Which messages a link hands to the Python half to be traced, and what becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.hub import Hub, Service
from penstock.routing.sublist import Sublist, Subscription
from tests.routing.recording import RecordingLink

ASKED = b"Nats-Trace-Dest: x"
PARENT = b"TraceParent: 00-a-b-01"


class TracedLink(RecordingLink):
    """Notes what it is asked to trace; `answer` says how such a message goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bytes, bytes | None, bytes, bytes]] = []
        self.oversized: list[tuple[bytes, bytes, int]] = []
        self.answer: bytes | None = None
        self.sublist.insert(Subscription(self, b"a", b"1"))

    def publish_traced(
        self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes
    ) -> bytes | None:
        self.asked.append((subject, reply, headers, body))
        return self.answer

    def on_oversized(self, subject: bytes, headers: bytes, size: int) -> None:
        self.oversized.append((subject, headers, size))


def block(*lines: bytes) -> bytes:
    return b"\r\n".join((b"NATS/1.0", *lines, b"", b""))


def published(headers: bytes, *, sizes: bytes = b"%d %d") -> bytes:
    return b"HPUB a re " + sizes % (len(headers), len(headers) + 2) + b"\r\n" + headers + b"hi\r\n"


def test_a_message_that_was_traced_goes_no_further() -> None:
    link = TracedLink()
    headers = block(b"Key: v", ASKED)

    link.feed(published(headers))

    assert link.asked == [(b"a", b"re", headers, b"hi")]
    assert link.sent == b""
    assert link.in_msgs == 1


def test_a_message_goes_on_as_it_came() -> None:
    link = TracedLink()
    link.answer = headers = block(ASKED)

    link.feed(published(headers, sizes=b"0%d 00%d"))

    assert link.sent == b"HMSG a 1 re 032 0034\r\n" + headers + b"hi\r\n"


def test_a_message_goes_on_with_other_headers() -> None:
    link = TracedLink()
    link.answer = block(b"Other: v")

    link.feed(published(block(ASKED), sizes=b"0%d 00%d"))

    assert link.sent == b"HMSG a 1 re 22 24\r\n" + block(b"Other: v") + b"hi\r\n"


@pytest.mark.parametrize(
    "line", [b"nats-trace-dest: x", b"X-Nats-Trace-Dest: x", b"Nats-Trace-Destination: x", PARENT]
)
def test_other_headers_do_not_ask(line: bytes) -> None:
    link = TracedLink()

    link.feed(published(block(line)))

    assert link.asked == []
    assert link.out_msgs == 1


@pytest.mark.parametrize("line", [PARENT, b"traceparent:1234", ASKED])
def test_parents_ask_where_they_are_looked_for(line: bytes) -> None:
    link = TracedLink()
    link.traces_parents = True

    link.feed(published(block(b"Key: v", line)))

    assert len(link.asked) == 1


PIECES = (
    b"Nats-Trace-Dest:",
    b"Nats-Trace-Dest",
    b"traceParent:",
    b"\n",
    b"\r\n",
    b":",
    b"x",
    b"N",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join), st.booleans())
def test_a_name_counts_at_the_start_of_a_line(start: bytes, parents: bool) -> None:
    link = TracedLink()
    link.traces_parents = parents
    # What could be a value of any use.
    headers = start + b"y" * 16

    link.feed(published(headers))

    lines = headers.split(b"\n")[1:]
    asks = any(line.startswith(b"Nats-Trace-Dest:") for line in lines)
    asks |= parents and any(line.lower().startswith(b"traceparent:") for line in lines)
    assert bool(link.asked) == asks


def test_a_message_that_is_too_large_is_told_of_if_its_headers_are_there() -> None:
    for came in (b"", block(ASKED)[:20], block(ASKED) + b"body", block(b"Key: v")):
        link = TracedLink()
        link.max_payload = 50
        link.feed(b"HPUB a %d 500\r\n" % len(block(ASKED)) + came)

        told = [(b"a", block(ASKED), 500)] if ASKED in came else []
        assert link.oversized == told


def test_a_message_is_given_to_one_subscription_as_its_sender() -> None:
    sender, receiver = TracedLink(), RecordingLink(Hub(7), Sublist())
    publishers: list[object] = []
    hub = sender.hub
    service = Service(lambda *_: publishers.append(hub.publisher))

    assert hub.give(sender, Subscription(receiver, b"*", b"5"), b"x", None, b"", b"hi")
    assert hub.give(sender, Subscription(service, b"*", b"5"), b"x", None, b"", b"hi")
    sender.echo = False
    assert not hub.give(sender, Subscription(sender, b"*", b"5"), b"x", None, b"", b"hi")

    assert publishers == [sender]
    assert hub.publisher is None
    receiver.hub.flush()
    assert receiver.sent == b"MSG x 5 2\r\nhi\r\n"


def test_what_was_looked_at_is_taken_off_the_turn() -> None:
    class Patient(TracedLink):
        def publish_traced(self, *message: object) -> bytes | None:
            self.asked.append(message)  # type: ignore[arg-type]  # as they came
            self.spend(100)
            return None

        def on_long_turn(self) -> None:
            self.held = True

    link = Patient()
    link.feed(published(block(ASKED)) * 20)

    assert 0 < len(link.asked) < 20
    while link.held:
        link.release()
    assert len(link.asked) == 20
