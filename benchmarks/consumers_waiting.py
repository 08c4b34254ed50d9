"""How soon a message reaches pulls that wait for it, in turns with nats-server.

Once as a thousand pulls of one consumer, of which one gets the message; and once as a thousand
consumers with a pull each, all of which get it. The time goes from the publish to the delivery, by
one process that does both; nothing else is under way meanwhile. Penstock delivers what is on stable
storage: a message delivered and then lost with the power would leave another one under its
sequence, which its consumer would pass over. So the goals are against a nats-server with
`sync_interval: always`, and for streams in memory; the default, which syncs every two minutes,
is shown beside them.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import Row, Sizes, at_most, folder_in, percentile, ratio, take_turns
from penstock.bench.loops import count_messages
from penstock.bench.plan import Storage
from penstock.bench.servers import OURS, BenchServer, find_executable, with_jetstream
from penstock.client.client import Client
from penstock.client.jetstream import JetStream

REFERENCE = "nats-server"
SYNCED = f"{REFERENCE} synced"
PAYLOAD = b"x" * 128
TURNS = 20
"""Turns that the messages are shared out to."""

WARM_PART = 10
"""The first turn is preceded by so small a part of it whose times do not count."""

EXPIRES_NS = 3_600 * 10**9
TO_ALL_PART = 100
"""So many times fewer messages where each of them is delivered to all."""


class Waiting:
    """Pulls that wait on one server, and a client that publishes."""

    def __init__(self, url: str, pulls: int, *, consumers: int, storage: Storage) -> None:
        """Make a stream and its consumers, and send the pulls, equally many to each consumer."""
        self._sender = Client.connect(url, timeout_s=60)
        self._holder = Client.connect(url, timeout_s=60)
        self._inbox = b"%b.held" % self._holder.new_inbox()
        self._sid = self._holder.subscribe(self._inbox + b".*")
        self._subject = b"arriving.%b.%d" % (storage.encode(), consumers)
        self._wish = json.dumps({"batch": 1, "expires": EXPIRES_NS}).encode()
        self._pulls = pulls
        self._name = f"ARRIVING_{storage}_{consumers}"
        self._make(consumers, storage)
        self._numbers = [number % consumers for number in range(pulls)]
        for number in self._numbers:
            self._pull(number)
        self._settle()

    def _make(self, consumers: int, storage: Storage) -> None:
        streams = JetStream(self._sender)
        config = {"name": self._name, "subjects": [self._subject.decode()], "storage": storage}
        streams.call(f"STREAM.CREATE.{self._name}", config)
        for number in range(consumers):
            name = f"c{number}"
            asked = {
                "stream_name": self._name,
                "config": {
                    "name": name,
                    "durable_name": name,
                    "ack_policy": "none",
                    "max_waiting": self._pulls,
                },
            }
            streams.call(f"CONSUMER.CREATE.{self._name}.{name}", asked)

    def _pull(self, number: int) -> None:
        subject = b"$JS.API.CONSUMER.MSG.NEXT.%b.c%d" % (self._name.encode(), number)
        self._holder.publish(subject, self._wish, reply=b"%b.%d" % (self._inbox, number))

    def _settle(self) -> None:
        # The server has then read everything of either connection.
        self._holder.flush()
        self._sender.flush()

    def one_gets_it(self) -> float:
        """Return the seconds until a message has reached one pull, and send the next pull."""
        started = self._publish()
        self._holder.next_message(self._sid)
        taken = time.perf_counter() - started
        self._pull(0)
        self._settle()
        return taken

    def most_get_it(self) -> float:
        """Return the seconds until 99 of 100 pulls have had a message."""
        most = self._pulls * 99 // 100
        started = self._publish()
        count_messages(self._holder.wire, most)
        taken = time.perf_counter() - started
        count_messages(self._holder.wire, self._pulls - most)
        for number in self._numbers:
            self._pull(number)
        self._settle()
        return taken

    def _publish(self) -> float:
        self._sender.publish(self._subject, PAYLOAD)
        started = time.perf_counter()
        self._sender.send()
        return started

    def close(self) -> None:
        """Close both connections."""
        self._sender.close()
        self._holder.close()


def run(sizes: Sizes, folder: Path) -> list[Row]:
    """Measure, and return the rows of the table."""
    reference = [find_executable(REFERENCE)]
    pulls = sizes.waiting_pulls
    with folder_in(folder, "waiting") as place, contextlib.ExitStack() as stack:
        urls = {
            name: stack.enter_context(BenchServer(name, command)).url
            for name, command in (
                ("penstock", with_jetstream(OURS, place / "ours")),
                (REFERENCE, with_jetstream(reference, place / "theirs")),
                (SYNCED, with_jetstream(reference, place / "synced", sync="always")),
            )
        }

        def waiting(*names: str, consumers: int, storage: Storage) -> dict[str, Waiting]:
            made = {
                name: Waiting(urls[name], pulls, consumers=consumers, storage=storage)
                for name in names
            }
            for one in made.values():
                stack.callback(one.close)
            return made

        both = ("penstock", REFERENCE)
        return [
            *_one_rows(waiting(*urls, consumers=1, storage=Storage.FILE), sizes, ""),
            *_one_rows(
                waiting(*both, consumers=1, storage=Storage.MEMORY), sizes, " on a stream in memory"
            ),
            _all_row(waiting(*both, consumers=pulls, storage=Storage.FILE), sizes),
        ]


def _one_rows(waiting: dict[str, Waiting], sizes: Sizes, where: str) -> list[Row]:
    count = max(sizes.arrivals // TURNS, 1)
    actions = [one.one_gets_it for one in waiting.values()]
    taken = dict(zip(waiting, _in_turns(actions, TURNS, count), strict=True))
    times_us = {
        name: [1e6 * one for turn in turns for one in turn] for name, turns in taken.items()
    }
    shown = {
        name: f"p99 {percentile(values, 99):.0f} µs, p50 {percentile(values, 50):.0f} µs"
        for name, values in times_us.items()
    }
    samples = {name: [percentile(turn, 99) for turn in turns] for name, turns in taken.items()}
    ours, *others = waiting
    return [
        Row(
            "consumers-waiting",
            f"one message at {sizes.waiting_pulls:,} waiting pulls of a consumer{where}: p99, of"
            f" {name}",
            percentile(times_us[ours], 99) / percentile(times_us[name], 99),
            "x",
            None if name == REFERENCE and not where else at_most(1),
            f"{shown[ours]}; {name} {shown[name]}; {len(times_us[ours]):,} messages",
            {each: samples[each] for each in (ours, name)},
        )
        for name in others
    ]


def _all_row(waiting: dict[str, Waiting], sizes: Sizes) -> Row:
    rounds = max(sizes.arrivals // TO_ALL_PART, 1)
    for one in waiting.values():
        one.most_get_it()
    ours, theirs = take_turns(rounds, *(one.most_get_it for one in waiting.values()))
    shown = [f"{1000 * statistics.median(values):.3g} ms" for values in (ours, theirs)]
    return Row(
        "consumers-waiting",
        f"one message at {sizes.waiting_pulls:,} consumers with a waiting pull each: p99, of"
        f" {REFERENCE}",
        ratio(ours, theirs),
        "x",
        at_most(1),
        f"{shown[0]}; {REFERENCE} {shown[1]}; {rounds:,} messages",
        {"penstock": ours, REFERENCE: theirs},
    )


def _in_turns(actions: list[Callable[[], float]], turns: int, each: int) -> list[list[list[float]]]:
    """Call each action so many times in a turn; return each one's results, turn by turn."""
    for action in actions:
        for _ in range(max(each // WARM_PART, 1)):
            action()
    results: list[list[list[float]]] = [[] for _ in actions]
    for _ in range(turns):
        for place, action in enumerate(actions):
            results[place].append([action() for _ in range(each)])
    return results
