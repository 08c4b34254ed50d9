"""From bytes that came in to bytes in the receivers' outboxes."""

from __future__ import annotations

import socket
from random import Random

import pytest

from penstock.net.link import Link
from penstock.routing.applied_mappings import Chance
from penstock.routing.hub import Hub, Service
from penstock.routing.sublist import Sublist, Subscription
from penstock.routing.transforms import Destination, SubjectMappings
from penstock.security.publishing import PublishPermissions, ResponsePermissions
from penstock.subjects import SubjectFilter
from tests.routing.recording import RecordingLink

HEADERS = b"NATS/1.0\r\n\r\n"


class Room:
    """A hub and its links, all in one account."""

    def __init__(self) -> None:
        self.hub = Hub(7)
        self.sublist = Sublist()

    def link(self) -> RecordingLink:
        return RecordingLink(self.hub, self.sublist)

    def subscribe(
        self, link: RecordingLink, subject: bytes, sid: bytes = b"1", queue: bytes | None = None
    ) -> Subscription:
        added = Subscription(link, subject, sid, queue)
        self.sublist.insert(added)
        return added


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_message_reaches_every_plain_subscription(room: Room) -> None:
    sender, receiver = room.link(), room.link()
    room.subscribe(receiver, b"a.*")
    room.subscribe(receiver, b"a.b", b"2")
    room.subscribe(sender, b">", b"3")

    sender.feed(b"PUB a.b re 2\r\nhi\r\n")

    assert receiver.sent == b"MSG a.b 2 re 2\r\nhi\r\nMSG a.b 1 re 2\r\nhi\r\n"
    assert sender.sent == b"MSG a.b 3 re 2\r\nhi\r\n"


def test_sizes_are_passed_on_as_they_were_written(room: Room) -> None:
    sender = room.link()
    room.subscribe(sender, b"a")

    sender.feed(b"PUB a 002\r\nhi\r\nHPUB a 012 0014\r\n" + HEADERS + b"hi\r\n")

    assert sender.sent == b"MSG a 1 002\r\nhi\r\nHMSG a 1 012 0014\r\n" + HEADERS + b"hi\r\n"


def test_headers_are_left_out_for_who_did_not_ask_for_them(room: Room) -> None:
    sender, plain = room.link(), room.link()
    plain.headers = False
    room.subscribe(plain, b"a")

    sender.feed(b"HPUB a 12 14\r\n" + HEADERS + b"hi\r\n")

    assert plain.sent == b"MSG a 1 2\r\nhi\r\n"


def test_a_link_without_headers_may_not_send_them(room: Room) -> None:
    sender = room.link()
    sender.headers = False

    sender.feed(b"HPUB a 12 14\r\n")

    assert sender.noted == [("violation", "headers", "")]


def test_nobody_hears_itself_without_echo(room: Room) -> None:
    sender = room.link()
    sender.echo = False
    room.subscribe(sender, b"a")
    room.subscribe(sender, b"a", b"2", b"q")

    sender.feed(b"PUB a 0\r\n\r\n")

    assert sender.sent == b""


def test_one_member_of_each_group_gets_a_message_and_all_get_their_share(room: Room) -> None:
    sender, members = room.link(), [room.link() for _ in range(4)]
    for member in members:
        room.subscribe(member, b"a", b"1", b"q")

    sender.feed(b"PUB a 1\r\nx\r\n" * 4000)

    shares = [member.sent.count(b"MSG a 1 1\r\n") for member in members]
    assert sum(shares) == 4000
    assert min(shares) > 800


def test_a_member_that_cannot_take_it_passes_it_on(room: Room) -> None:
    sender, gone, there = room.link(), room.link(), room.link()
    room.subscribe(gone, b"a", b"1", b"q")
    room.subscribe(there, b"a", b"1", b"q")
    gone.closed = True

    sender.feed(b"PUB a 1\r\nx\r\n" * 20)

    assert there.sent.count(b"MSG") == 20


def test_a_subscription_ends_with_its_last_message(room: Room) -> None:
    sender = room.link()
    room.subscribe(sender, b"a").max_messages = 2

    sender.feed(b"PUB a 1\r\n1\r\nPUB a 1\r\n2\r\nPUB a 1\r\n3\r\n")

    assert sender.sent == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\n"
    assert sender.ended == [b"1"]
    assert room.sublist.count == 0


def test_denied_subjects_are_not_delivered_and_not_counted(room: Room) -> None:
    sender = room.link()
    limited = room.subscribe(sender, b"a.*")
    limited.deny = SubjectFilter([b"a.secret"])

    sender.feed(b"PUB a.secret 1\r\n1\r\nPUB a.open 1\r\n2\r\n")

    assert sender.sent == b"MSG a.open 1 1\r\n2\r\n"
    assert limited.delivered == 1


def test_who_asks_and_reaches_nobody_is_told(room: Room) -> None:
    sender, other = room.link(), room.link()
    sender.no_responders = True
    room.subscribe(other, b"r.*", b"7")
    room.subscribe(sender, b"r.*", b"9")

    sender.feed(b"PUB nobody r.1 0\r\n\r\nPUB nobody 0\r\n\r\n")

    head = b"HMSG r.1 9 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n"
    assert (sender.sent, other.sent) == (head, b"")


def test_verbose_acknowledges_before_it_delivers(room: Room) -> None:
    sender = room.link()
    sender.verbose = True
    room.subscribe(sender, b"a")

    sender.feed(b"PUB a 0\r\n\r\n")

    assert sender.sent == b"+OK\r\nMSG a 1 0\r\n\r\n"


def test_a_pedantic_line_is_looked_at_once_however_it_comes(room: Room) -> None:
    sender = room.link()
    sender.pedantic = True

    for piece in (b"PUB a 2\r\n", b"h", b"i", b"\r", b"\nPUB b 0\r\n\r\n"):
        sender.feed(piece)

    assert sender.noted == [("line", b"a"), ("line", b"b")]


@pytest.mark.parametrize(("size", "allowed"), [(9, True), (10, True), (11, False)])
def test_a_payload_is_as_large_as_allowed_and_no_larger(
    room: Room, size: int, allowed: bool
) -> None:
    sender = room.link()
    sender.max_payload = 10

    sender.feed(b"PUB a %d\r\n" % size)

    refused = [("violation", "payload", "Maximum Payload Violation")]
    assert sender.noted == ([] if allowed else refused)


def test_a_receiver_that_falls_behind_is_cut_and_others_are_served(room: Room) -> None:
    sender, slow, quick = room.link(), room.link(), room.link()
    slow.max_pending = 500
    room.subscribe(slow, b"a")
    room.subscribe(quick, b"a")

    sender.feed(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n" + b"PUB a 400\r\n" + b"y" * 400 + b"\r\n")

    assert slow.noted == [("slow",)]
    assert quick.sent.count(b"MSG") == 2


def test_nothing_is_read_from_a_closed_link(room: Room) -> None:
    sender = room.link()

    sender.feed(b"NONSENSE\r\nPING\r\n")
    sender.feed(b"PING\r\n")

    assert sender.noted == [("violation", "parse", "Unknown Protocol Operation")]


def test_before_it_is_authorized_a_link_may_only_connect(room: Room) -> None:
    early, right = room.link(), room.link()
    early.authorized = right.authorized = False

    early.feed(b"PING\r\n")
    right.feed(b"connect {}\r\n")

    assert early.noted == [("violation", "authorization", "Authorization Violation")]
    assert right.noted == [("connect", b"{}")]


def test_a_held_link_goes_on_where_it_stopped(room: Room) -> None:
    link = room.link()
    link.feed(b"PI")
    link.held = True

    link.feed(b"NG\r\nPONG\r\n")
    assert link.noted == []
    link.release()

    assert link.noted == [("ping",), ("pong",)]


def test_what_may_not_be_published_goes_nowhere(room: Room) -> None:
    sender, receiver = room.link(), room.link()
    sender.publishing = PublishPermissions((b"a.*",), (b"a.secret",))
    room.subscribe(receiver, b">")

    sender.feed(b"".join(b"PUB %b 0\r\n\r\n" % each for each in (b"a.1", b"a.secret", b"b") * 2))

    assert receiver.sent == b"MSG a.1 1 0\r\n\r\n" * 2
    assert sender.noted == [("refused", b"a.secret"), ("refused", b"b")] * 2


def test_a_publish_goes_on_with_the_subject_that_it_is_mapped_to(room: Room) -> None:
    sender, receiver = room.link(), room.link()
    long = "x" * 300
    destinations = {"in.*": [Destination(f"out.$1.{long}")], "gone": [Destination("gone", 0)]}
    sender.mappings = SubjectMappings(destinations, random_below=Chance(1)).applied
    room.subscribe(receiver, b">")

    sender.feed(
        b"".join(b"PUB %b 0\r\n\r\n" % each for each in (b"in.1", b"other", b"gone", b"in.2"))
    )

    got = receiver.sent.split(b"\r\n")[::2]
    out = [f"MSG out.{number}.{long} 1 0".encode() for number in (1, 2)]
    assert got == [out[0], b"MSG other 1 0", out[1], b""]


def test_chance_is_fair_and_spreads_messages_over_the_weights(room: Room) -> None:
    sender, receiver = room.link(), room.link()
    destinations = {"a": [Destination("b", 30), Destination("c", 60), Destination("a", 10)]}
    sender.mappings = SubjectMappings(destinations, random_below=Chance(7)).applied
    room.subscribe(receiver, b"*")

    sender.feed(b"PUB a 0\r\n\r\n" * 10_000)

    found = [receiver.sent.count(b"MSG %b " % name) for name in (b"a", b"b", b"c")]
    assert sum(found) == 10_000
    assert all(
        abs(got - wanted) < 300 for got, wanted in zip(found, (1000, 3000, 6000), strict=True)
    )


def test_a_reply_that_was_delivered_may_be_answered_once(room: Room) -> None:
    sender, answering = room.link(), room.link()
    answering.publishing = PublishPermissions(())
    answering.responses = ResponsePermissions(answering.publishing, 1, 0)
    room.subscribe(answering, b"a")
    room.subscribe(sender, b"re")

    sender.feed(b"PUB a re 0\r\n\r\nPUB a 0\r\n\r\n")
    answering.feed(b"PUB re 1\r\nx\r\n" * 2 + b"PUB b 0\r\n\r\n")

    assert sender.sent == b"MSG re 1 1\r\nx\r\n"
    assert answering.noted == [("refused", b"re"), ("refused", b"b")]


def test_a_service_is_called_with_the_parts_of_a_message(room: Room) -> None:
    calls: list[tuple[bytes, bytes | None, bytes, bytes]] = []
    service = Service(lambda *parts: calls.append(parts))
    room.sublist.insert(Subscription(service, b"svc", b"1"))

    room.link().feed(b"HPUB svc re 12 14\r\n" + HEADERS + b"hi\r\nPUB svc 0\r\n\r\n")

    assert calls == [(b"svc", b"re", HEADERS, b"hi"), (b"svc", None, b"", b"")]


def test_the_servers_own_messages_are_routed_and_counted(room: Room) -> None:
    receiver = room.link()
    room.subscribe(receiver, b"a")

    taken = room.hub.publish(room.sublist, b"a", b"re", HEADERS, b"hi")
    room.hub.flush()

    assert taken == 1
    assert receiver.sent == b"HMSG a 1 re 12 14\r\n" + HEADERS + b"hi\r\n"
    assert (receiver.out_msgs, receiver.out_bytes) == (1, 14)


def test_messages_and_bytes_are_counted_on_both_sides(room: Room) -> None:
    sender, receiver = room.link(), room.link()
    room.subscribe(receiver, b"a")

    sender.feed(b"PUB a 2\r\nhi\r\nPUB nobody 3\r\nabc\r\n")

    assert (sender.in_msgs, sender.in_bytes, sender.out_msgs) == (2, 5, 0)
    assert (receiver.out_msgs, receiver.out_bytes, receiver.in_msgs) == (1, 2, 0)
    assert (room.hub.in_msgs, room.hub.in_bytes) == (2, 5)
    assert (room.hub.out_msgs, room.hub.out_bytes) == (1, 2)


def test_what_was_let_go_is_forgotten(room: Room) -> None:
    link = room.link()
    link.feed(b"PUB a 1000\r\n" + b"x" * 500)
    link.out.append(b"waiting")

    link.closed = True
    freed_bytes = link.let_go()

    assert freed_bytes > 500
    assert len(link.out) == 0
    assert link.let_go() == 0


class BrokenLink(RecordingLink):
    """A link that cannot send."""

    def drain(self) -> None:
        raise RuntimeError("broken")


def test_a_receiver_that_fails_does_not_keep_bytes_from_the_others(room: Room) -> None:
    broken, other = BrokenLink(room.hub, room.sublist), room.link()
    room.subscribe(broken, b"a")
    room.subscribe(other, b"a")

    with pytest.raises(RuntimeError, match="broken"):
        room.link().feed(b"PUB a 1\r\nx\r\n")
    room.hub.flush()
    room.link().feed(b"PUB b 0\r\n\r\n")

    assert other.sent == b"MSG a 1 1\r\nx\r\n"


class PatientLink(RecordingLink):
    """A link that lets others have their turn when it is told to."""

    def on_long_turn(self) -> None:
        self.held = True


def test_a_link_that_costs_much_goes_on_when_others_have_had_their_turn(room: Room) -> None:
    sender, receiver = PatientLink(room.hub, room.sublist), room.link()
    for number in range(1_000):
        room.subscribe(receiver, b"a", b"%d" % number)

    sender.feed(b"PUB a 0\r\n\r\n" * 250)

    for messages in (100, 200, 250):
        assert receiver.out_msgs == messages * 1_000
        sender.release()
    assert sender.in_msgs == 250


def test_what_a_service_does_counts_as_more_than_a_delivery(room: Room) -> None:
    sender = PatientLink(room.hub, room.sublist)
    calls: list[bytes] = []
    service = Service(lambda subject, *_: calls.append(subject))
    room.sublist.insert(Subscription(service, b"svc", b"1"))

    sender.feed(b"PUB svc 0\r\n\r\n" * 600)

    assert 400 < len(calls) < 600
    sender.release()
    assert len(calls) == 600


@pytest.mark.parametrize("seed", range(4))
def test_large_messages_are_whole_wherever_the_reads_part_them(room: Room, seed: int) -> None:
    random = Random(seed)
    receiver = room.link()
    receiver.max_pending = 2**30
    room.subscribe(receiver, b"a")
    near, far = socket.socketpair()
    with near, far:
        sender = Link(room.hub, near.fileno())
        sender.sublist, sender.authorized, sender.max_payload = room.sublist, True, 4_000_000
        sender.verbose = sender.pedantic = False
        # Among them some that are longer than a read, and than what is kept before one.
        sizes = [1, 131_072, 1_048_576, 3_000_000] + [random.randrange(200_000) for _ in range(40)]
        random.shuffle(sizes)
        payloads = [random.randbytes(size) for size in sizes]
        said = memoryview(b"".join(b"PUB a %d\r\n%b\r\n" % (len(p), p) for p in payloads))
        far.setblocking(False)
        while said:
            said = said[far.send(said[: random.randrange(1, 300_000)]) :]
            sender.on_readable()

    assert receiver.sent == b"".join(b"MSG a 1 %d\r\n%b\r\n" % (len(p), p) for p in payloads)
