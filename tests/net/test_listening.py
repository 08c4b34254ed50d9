"""Ports that are bound before they are needed: who connects waits, and what fails is told later."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

import pytest

from penstock.net.listener import PORT_MAX, ListeningSockets

HOST = "127.0.0.1"


@pytest.fixture
def sockets() -> Iterator[ListeningSockets]:
    made = ListeningSockets()
    yield made
    made.close()


@pytest.fixture
def port() -> int:
    """A port that was free a moment ago."""
    with ListeningSockets().take(HOST, 0) as listening:
        return int(listening.getsockname()[1])


def test_a_client_that_connects_before_a_port_is_taken_is_accepted_when_it_is(
    sockets: ListeningSockets, port: int
) -> None:
    sockets.bind_ahead(HOST, port)

    with socket.create_connection((HOST, port)) as client:
        with sockets.take(HOST, port) as listening:
            accepted, peer = listening.accept()
            accepted.close()

        assert peer == client.getsockname()


def test_a_port_that_is_in_use_is_told_when_it_is_taken_and_not_before(
    sockets: ListeningSockets, port: int
) -> None:
    with ListeningSockets().take(HOST, port):
        sockets.bind_ahead(HOST, port)

        with pytest.raises(OSError, match="in use") as caught:
            sockets.take(HOST, port)

    assert caught.value.errno == errno.EADDRINUSE


def test_a_port_that_was_in_use_and_is_free_again_can_be_taken(
    sockets: ListeningSockets, port: int
) -> None:
    with ListeningSockets().take(HOST, port):
        sockets.bind_ahead(HOST, port)

    with sockets.take(HOST, port) as listening:
        assert listening.getsockname() == (HOST, port)


def test_a_port_is_bound_ahead_only_once(sockets: ListeningSockets, port: int) -> None:
    sockets.bind_ahead(HOST, port)
    sockets.bind_ahead(HOST, port)

    with sockets.take(HOST, port), pytest.raises(OSError, match="in use"):
        sockets.take(HOST, port)


@pytest.mark.parametrize("any_or_none", [-1, 0, PORT_MAX + 1])
def test_a_port_that_nobody_can_know_yet_is_not_bound_ahead(
    sockets: ListeningSockets, any_or_none: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[object] = []
    monkeypatch.setattr(socket.socket, "bind", lambda self, place: bound.append(place))

    sockets.bind_ahead(HOST, any_or_none)

    assert bound == []


def test_a_port_that_nobody_took_is_free_after_closing(
    sockets: ListeningSockets, port: int
) -> None:
    sockets.bind_ahead(HOST, port)

    sockets.close()

    with ListeningSockets().take(HOST, port) as listening:
        assert listening.getsockname() == (HOST, port)
