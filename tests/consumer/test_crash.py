"""Kills in the middle of publishing, fetching and acknowledging.

What a client was told to be done stays done, what it published and was told to be stored is
delivered, and only what was not confirmed comes again.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.testing.servers import ServerProcess, server_process
from tests.consumer.delivered import MS, Life
from tests.support.nats_client import Delivery


def _next(life: Life, subject: str) -> Delivery:
    """Wait for a message: clients listen to each other's answers too."""
    while True:
        found = life.next_delivery()
        if found.subject == subject:
            return found


class _Load:
    """What clients were told before the server was killed."""

    def __init__(self) -> None:
        self.stored: set[bytes] = set()
        self.confirmed: set[bytes] = set()
        self.enough = threading.Event()

    def publish(self, port: int, round_number: int) -> None:
        try:
            with Life(port, "S") as life:
                for number in range(100_000):
                    payload = b"%d-%d" % (round_number, number)
                    life.publish("S.a", payload, reply="_IN.stored")
                    if b'"seq"' in _next(life, "_IN.stored").payload:
                        self.stored.add(payload)
        except (OSError, ConnectionError):
            return

    def work(self, port: int) -> None:
        done = 0
        try:
            with Life(port, "S") as life:
                while True:
                    life.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", reply="_IN.work")
                    message = _next(life, "S.a")
                    assert message.payload not in self.confirmed
                    life.publish(message.reply, b"+ACK", reply="_IN.done")
                    _next(life, "_IN.done")
                    self.confirmed.add(message.payload)
                    done += 1
                    if done == 20:
                        self.enough.set()
        except (OSError, ConnectionError):
            self.enough.set()


def _kill_under_load(server: ServerProcess, load: _Load, round_number: int) -> None:
    load.enough.clear()
    threads = [
        threading.Thread(target=load.publish, args=(server.port, round_number)),
        threading.Thread(target=load.work, args=(server.port,)),
    ]
    for thread in threads:
        thread.start()
    try:
        assert load.enough.wait(60)
    finally:
        server.kill()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.slow
def test_nothing_confirmed_is_lost_or_comes_again(tmp_path: Path) -> None:
    load = _Load()
    server = server_process(store_dir=tmp_path)
    with Life(server.port, "S") as life:
        life.stream()
        life.consumer(ack_wait=100 * MS)
    for round_number in range(3):
        _kill_under_load(server, load, round_number)
        server = server_process(store_dir=tmp_path)

    expected = load.stored - load.confirmed
    delivered: set[bytes] = set()
    with server, Life(server.port, "S") as life:
        while expected - delivered:
            life.pull(1)
            message = _next(life, "S.a")
            delivered.add(message.payload)
            life.publish(message.reply, b"+ACK", reply="_IN.done")
            _next(life, "_IN.done")

    assert len(load.confirmed) >= 60
    assert not delivered & load.confirmed
