"""Bytes that wait for a receiver, and a real socket that takes them."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.outbox import Outbox


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Return both ends of a connection; the first sends without waiting."""
    here, there = socket.socketpair()
    here.setblocking(False)
    there.settimeout(20)
    with here, there:
        yield here, there


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_what_was_appended_is_taken_in_order(parts: list[bytes]) -> None:
    outbox = Outbox()

    for part in parts:
        outbox.append(part)

    assert len(outbox) == sum(map(len, parts))
    assert outbox.take() == b"".join(parts)
    assert len(outbox) == 0


def test_an_empty_outbox_gives_nothing_and_sends_nothing() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert Outbox().send_to(here.fileno()) == 0
    assert Outbox().take() == b""


def test_a_socket_that_takes_everything_leaves_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = ends
    outbox = Outbox()
    outbox.append(b"hello")

    assert outbox.send_to(here.fileno()) == 0
    assert there.recv(100) == b"hello"


def test_what_a_full_socket_does_not_take_waits_and_keeps_its_order(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = ends
    outbox = Outbox()
    payload = bytes(range(256)) * 16_384
    outbox.append(payload)
    received = b""

    left = outbox.send_to(here.fileno())
    assert 0 < left == len(outbox) < len(payload)
    outbox.append(b"the end")
    while len(received) < len(payload) + 7:
        received += there.recv(1_000_000)
        outbox.send_to(here.fileno())

    assert received == payload + b"the end"
    assert len(outbox) == 0


def test_a_connection_that_is_gone_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    there.close()
    outbox = Outbox()
    outbox.append(b"x")

    assert outbox.send_to(here.fileno()) == -1


def test_a_cleared_outbox_is_empty_and_can_be_used_again() -> None:
    outbox = Outbox()
    outbox.append(b"x" * 1_000_000)

    outbox.clear()
    outbox.append(b"new")

    assert outbox.take() == b"new"
