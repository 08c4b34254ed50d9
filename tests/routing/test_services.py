"""Requests and answers between accounts: what goes through, and what is waited for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock.routing.applied_mappings import Chance
from penstock.routing.hub import Hub
from penstock.routing.services import ServiceAnswers, ServiceDoor
from penstock.routing.subject_transform import SubjectTransform
from penstock.routing.sublist import Receiver, Sublist, Subscription
from penstock.routing.transforms import Destination, SubjectMappings
from tests.routing.recording import RecordingLink

WAIT_NS = 60
INFO = b"NATS/1.0\r\nNats-Request-Info: me\r\n\r\n"


class Account:
    """Where the service is."""

    mappings: Any = None


class Import:
    """An import between two accounts, and a client in each of them."""

    def __init__(self, *, is_single: bool = True, waiting_max: int = 100) -> None:
        self.now_ns = 0
        self.hub = Hub(1, lambda: self.now_ns)
        self.here, self.there = Sublist(), Sublist()
        self.account = Account()
        self.introduced: list[Receiver] = []
        self.watched: list[ServiceAnswers] = []
        bytes_ = itertools.count()
        self.answers = ServiceAnswers(
            self,
            self.hub,
            self.there,
            self.here,
            random_bytes=lambda size: bytes(next(bytes_) // 7 % 256 for _ in range(size)),
            is_single=is_single,
            wait_ns=WAIT_NS,
            waiting_max=waiting_max,
        )
        rename = SubjectTransform("ask.*", "far.ask.$1")
        self.door = ServiceDoor(self, self.hub, self.there, self.answers, rename, self.account)
        self.here.insert(Subscription(self.door, b"ask.*", b"1"))
        self.client, self.service = (
            RecordingLink(self.hub, sublist) for sublist in (self.here, self.there)
        )

    def on_waiting(self, answers: ServiceAnswers) -> None:
        self.watched.append(answers)

    def introduction_of(self, client: Receiver) -> bytes:
        self.introduced.append(client)
        return b"me"

    def pass_traced_request(self, came_as: bytes, message: Any) -> None:
        """Nothing is traced."""

    def pass_traced_answer(self, *about: Any) -> None:
        """Nothing is traced."""

    def subscribe(self, link: RecordingLink, subject: bytes) -> None:
        link.sublist.insert(Subscription(link, subject, b"9"))

    def asked(self) -> list[bytes]:
        """Return what the service got, in parts: line, headers and body."""
        return taken(self.service).split(b"\r\n")


@pytest.fixture
def shared() -> Import:
    made = Import()
    made.subscribe(made.service, b"far.ask.*")
    made.subscribe(made.client, b"box")
    return made


def taken(link: RecordingLink) -> bytes:
    """Return what a client was sent since the last time."""
    sent, link.sent = link.sent, b""
    return sent


def reply_of(line: bytes) -> bytes:
    return line.split()[3]


def test_a_request_goes_there_with_its_introduction_and_its_answer_comes_back(
    shared: Import,
) -> None:
    shared.client.feed(b"PUB ask.1 box 2\r\nhi\r\n")
    line, *rest = shared.asked()
    reply = reply_of(line)

    assert line == b"HMSG far.ask.1 9 %b %d %d" % (reply, len(INFO), len(INFO) + 2)
    assert b"\r\n".join(rest) == INFO + b"hi\r\n"
    assert reply.startswith(b"_R_.")
    assert shared.answers.awaits(reply)
    shared.service.feed(b"PUB %b 3\r\nyes\r\n" % reply)
    assert taken(shared.client) == b"MSG box 9 3\r\nyes\r\n"
    assert not shared.answers.awaits(reply)


def test_headers_stay_and_an_introduction_of_the_clients_own_does_not(shared: Import) -> None:
    headers = b"NATS/1.0\r\nA: b\r\nNats-Request-Info: root\r\n\r\n"

    shared.client.feed(b"HPUB ask.1 %d %d\r\n%bhi\r\n" % (len(headers), len(headers) + 2, headers))

    assert shared.asked()[1:] == [b"NATS/1.0", b"A: b", b"Nats-Request-Info: me", b"", b"hi", b""]


def test_a_client_is_introduced_once_until_it_changes(shared: Import) -> None:
    shared.client.feed(b"PUB ask.1 0\r\n\r\n" * 3)
    assert shared.introduced == [shared.client]

    shared.client.introductions = None
    shared.client.feed(b"PUB ask.1 0\r\n\r\n")

    assert len(shared.introduced) == 2


def test_a_request_that_nobody_takes_is_not_waited_for() -> None:
    shared = Import()

    shared.client.feed(b"PUB ask.1 box 0\r\n\r\n")
    shared.subscribe(shared.service, b"_R_.>")

    assert shared.answers.sweep() is None


def test_several_answers_end_with_an_empty_one() -> None:
    shared = Import(is_single=False)
    shared.subscribe(shared.service, b"far.ask.*")
    shared.subscribe(shared.client, b"box")

    shared.client.feed(b"PUB ask.1 box 0\r\n\r\n")
    reply = reply_of(shared.asked()[0])
    shared.service.feed(b"PUB %b 1\r\na\r\nPUB %b 1\r\nb\r\n" % (reply, reply))
    assert shared.answers.awaits(reply)
    shared.service.feed(b"PUB %b 0\r\n\r\nPUB %b 1\r\nc\r\n" % (reply, reply))

    assert not shared.answers.awaits(reply)
    expected = b"MSG box 9 1\r\na\r\nMSG box 9 1\r\nb\r\nMSG box 9 0\r\n\r\n"
    assert taken(shared.client) == expected


def test_an_answer_may_be_a_request_again(shared: Import) -> None:
    shared.client.feed(b"PUB ask.1 box 0\r\n\r\n")
    reply = reply_of(shared.asked()[0])

    shared.service.feed(b"PUB %b more 1\r\na\r\n" % reply)
    back = reply_of(taken(shared.client).split(b"\r\n")[0])
    shared.subscribe(shared.service, b"more")
    shared.client.feed(b"PUB %b 1\r\nb\r\n" % back)

    assert back.startswith(b"_R_.")
    assert taken(shared.service) == b"MSG more 9 1\r\nb\r\n"


def test_a_message_that_is_stored_keeps_its_subject(shared: Import) -> None:
    shared.client.feed(b"PUB ask.1 box 0\r\n\r\n")
    reply = reply_of(shared.asked()[0])

    shared.hub.publish_as(shared.there, reply, b"orders.7", b"$JS.ACK.S.C.1", b"", b"x")
    shared.hub.flush()

    assert taken(shared.client) == b"MSG orders.7 9 $JS.ACK.S.C.1 1\r\nx\r\n"


def test_what_is_mapped_there_goes_to_where_it_is_mapped(shared: Import) -> None:
    destinations = {"far.ask.*": [Destination("far.ask.mapped")]}
    shared.account.mappings = SubjectMappings(destinations, random_below=Chance(1))

    shared.client.feed(b"PUB ask.1 0\r\n\r\n")

    assert shared.asked()[0].startswith(b"HMSG far.ask.mapped 9 ")


def test_a_request_does_not_come_back_to_its_door() -> None:
    shared = Import()
    shared.there.insert(Subscription(shared.door, b"far.ask.*", b"1"))

    shared.client.feed(b"PUB ask.1 box 0\r\n\r\n")

    assert shared.answers.sweep() is None


def test_an_answer_that_does_not_come_is_given_up(shared: Import) -> None:
    early = shared.answers.expect(b"early")
    shared.now_ns = 40
    shared.hub.flush()
    late = shared.answers.expect(b"late")
    shared.now_ns = 60

    assert shared.answers.sweep() == 40
    assert [shared.answers.awaits(each) for each in (early, late)] == [False, True]
    assert shared.watched == [shared.answers]
    shared.now_ns = 100
    assert shared.answers.sweep() is None
    shared.answers.expect(b"again")
    assert shared.watched == [shared.answers] * 2


def test_answers_that_are_waited_for_are_bounded() -> None:
    shared = Import(waiting_max=3)

    expected = [shared.answers.expect(b"r%d" % number) for number in range(5)]

    waited = [shared.answers.awaits(each) for each in expected]
    assert waited == [False, False, True, True, True]


def test_a_closed_import_waits_for_nothing_and_leaves_nothing(shared: Import) -> None:
    before = shared.there.count
    reply = shared.answers.expect(b"box")
    assert shared.there.count == before + 1

    shared.answers.close()

    assert shared.there.count == before
    assert not shared.answers.awaits(reply)
