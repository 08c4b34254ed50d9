"""Messages of one key go one after another, those of different keys side by side."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import nats
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from penstock.consumer.extensions import key_order
from penstock.testing.servers import ServerProcess, server_process, start_server
from tests.support.nats_client import Delivery, NatsClient

HOUR_NS = 3_600_000_000_000
LIMIT = 4
KEYS = "abc"


class Member(NatsClient):
    """A client of a consumer `C` of a stream `S`, whose keys are the second tokens."""

    def make(self, **config: Any) -> None:
        self.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]})
        fields = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": HOUR_NS}
        fields |= {"metadata": {"penstock.key_token": "2"}} | config
        self.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": fields})

    def pull(self, count: int) -> None:
        self.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"%d" % count, reply="_IN.pulled")
        self.publish("_IN.done")

    def say(self, message: Delivery, what: bytes) -> None:
        self.publish(message.reply, what, reply="_IN.done")

    def store(self, *keys: str) -> None:
        for key in keys:
            self.publish(f"S.{key}", reply="_IN.done")

    def until_done(self, messages: int, *, times: int = 1) -> list[Delivery]:
        """Wait for answers and for so many messages, in any order; then nothing else may come."""
        found: list[Delivery] = []
        while times or len(found) < messages:
            each = self.next_delivery()
            if each.reply.startswith("$JS.ACK"):
                found.append(each)
            else:
                times -= 1
        self.publish("_IN.end")
        end = self.next_delivery()
        assert end.subject == "_IN.end", f"{end} came unexpectedly"
        return found

    def take(self, count: int) -> list[Delivery]:
        """Ask for messages, and wait for them."""
        self.pull(count)
        return self.until_done(count)


def told(message: Delivery) -> tuple[int, int]:
    """Return the stream sequence of a message, and how often it was delivered."""
    deliveries, stream_seq = message.reply.split(".")[4:6]
    return int(stream_seq), int(deliveries)


class KeyMachine(RuleBasedStateMachine):
    """A consumer that lives through everything, and what it should do."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.server = server_process(store_dir=Path(self.folder.name))
        self.member = Member(self.server.port)
        self.last_seq = 0
        self.restarts = 0
        self.wanted = 0
        self.undelivered: dict[int, str] = {}
        self.pending: dict[int, str] = {}
        self.deliveries: dict[int, int] = {}
        self.again: list[int] = []
        self.replies: dict[int, Delivery] = {}

    @initialize()
    def begin(self) -> None:
        self.member.make(max_ack_pending=LIMIT)

    def _expect(self) -> list[tuple[int, int]]:
        """Go on in the model; give what is delivered."""
        expected = []
        while self.wanted:
            if self.again:
                seq = self.again.pop(0)
            elif len(self.pending) < LIMIT and (free := self._first_free()) is not None:
                seq = free
                self.pending[seq] = self.undelivered.pop(seq)
            else:
                break
            self.wanted -= 1
            self.deliveries[seq] = self.deliveries.get(seq, 0) + 1
            expected.append((seq, self.deliveries[seq]))
        return expected

    def _first_free(self) -> int | None:
        busy = set(self.pending.values())
        return min((seq for seq, key in self.undelivered.items() if key not in busy), default=None)

    def _go_on(self, *, times: int = 1) -> None:
        expected = self._expect()
        found = self.member.until_done(len(expected), times=times)
        assert [told(message) for message in found] == expected
        for message in found:
            self.replies[told(message)[0]] = message

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6))
    def publish(self, keys: list[str]) -> None:
        for key in keys:
            self.last_seq += 1
            self.undelivered[self.last_seq] = key
            self.member.store(key)
            self._go_on()

    @rule(count=st.integers(1, 5))
    def pull(self, count: int) -> None:
        self.wanted += count
        self.member.pull(count)
        self._go_on()

    def _chosen(self, choice: int) -> int:
        """Return a message that is pending and not waiting to be delivered again."""
        out = [seq for seq in self.pending if seq not in self.again]
        return out[choice % len(out)]

    @precondition(lambda self: len(self.pending) > len(self.again))
    @rule(choice=st.integers(0, 9), what=st.sampled_from([b"+ACK", b"+TERM"]))
    def finish(self, choice: int, what: bytes) -> None:
        seq = self._chosen(choice)
        del self.pending[seq]
        self.member.say(self.replies[seq], what)
        self._go_on()

    @precondition(lambda self: len(self.pending) > len(self.again))
    @rule(choice=st.integers(0, 9))
    def nak(self, choice: int) -> None:
        seq = self._chosen(choice)
        self.again.append(seq)
        self.member.say(self.replies[seq], b"-NAK")
        self._go_on()

    @precondition(lambda self: self.pending or self.undelivered)
    @rule(choice=st.integers(0, 99))
    def remove(self, choice: int) -> None:
        seqs = sorted({**self.pending, **self.undelivered})
        seq = seqs[choice % len(seqs)]
        for each in (self.pending, self.undelivered):
            each.pop(seq, None)
        if seq in self.again:
            self.again.remove(seq)
        body = b'{"seq": %d}' % seq
        self.member.publish("$JS.API.STREAM.MSG.DELETE.S", body, reply="_IN.done")
        self._go_on()

    @precondition(lambda self: self.restarts < 1 and self.undelivered)
    @rule()
    def restart(self) -> None:
        self.restarts += 1
        self.wanted = 0
        # What was asked for again and not delivered is due when its time is over.
        while self.again:
            self.wanted += 1
            self.member.pull(1)
            self._go_on()
        self.member.close()
        self.server.stop()
        self.server = server_process(store_dir=Path(self.folder.name))
        self.member = Member(self.server.port)

    @invariant()
    def the_consumer_tells_of_all_that_is_left(self) -> None:
        if not self.last_seq:
            return
        info = self.member.api("CONSUMER.INFO.S.C")
        assert info["num_ack_pending"] == len(self.pending)
        assert info["num_pending"] == len(self.undelivered)
        left = min([*self.pending, *self.undelivered], default=self.last_seq + 1)
        assert info["ack_floor"]["stream_seq"] < left

    def teardown(self) -> None:
        self.member.close()
        self.server.kill()
        self.folder.cleanup()


@pytest.mark.slow
def test_whatever_happens_each_key_stays_in_order() -> None:
    run_state_machine_as_test(
        KeyMachine,
        settings=settings(max_examples=5, stateful_step_count=30, report_multiple_bugs=False),
    )


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_each_key_stays_in_order_for_a_long_time() -> None:
    run_state_machine_as_test(
        KeyMachine, settings=settings(max_examples=200, stateful_step_count=60)
    )


def test_the_messages_of_a_key_wait_for_each_other_and_for_nobody_else(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Member(server.port) as member:
        member.make()
        member.store(*"aabac")
        member.until_done(0, times=5)

        first = member.take(3)
        member.pull(2)
        member.until_done(0)
        member.say(first[0], b"-NAK")
        (again,) = member.until_done(1)
        member.say(again, b"+ACK")
        (second,) = member.until_done(1)

        assert [told(message) for message in first] == [(1, 1), (3, 1), (5, 1)]
        assert told(again) == (1, 2)
        assert told(second) == (2, 1)


def test_a_message_that_was_delivered_too_often_makes_way(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Member(server.port) as member:
        member.make(max_deliver=1, ack_wait=50_000_000)
        member.store("a", "a", "a.long")
        member.until_done(0, times=3)

        member.pull(3)

        assert [told(each) for each in member.until_done(3)] == [(1, 1), (2, 1), (3, 1)]


def test_a_letter_that_is_owed_keeps_its_key(tmp_path: Path) -> None:
    metadata = {"penstock.key_token": "2", "penstock.dead_letter": "dead"}
    with server_process(store_dir=tmp_path) as server, Member(server.port) as member:
        member.make(metadata=metadata)
        member.store(*"ab", *"ab")
        member.until_done(0, times=4)
        one, _ = member.take(2)
        member.say(one, b"+TERM")
        member.until_done(0)
        member.pull(1)
        member.until_done(0)

        member.subscribe("dead")
        letter, message = member.next_delivery(), member.next_delivery()

        assert letter.subject == "dead"
        assert told(message) == (3, 1)


def test_a_stream_that_is_kept_by_interest_keeps_what_is_held(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Member(server.port) as member:
        member.make()
        member.api("STREAM.CREATE.Q", {"name": "Q", "subjects": ["Q.>"], "retention": "interest"})
        config = {
            "durable_name": "C",
            "ack_policy": "explicit",
            "metadata": {"penstock.key_token": "2"},
        }
        for name in ("C", "D"):
            config["durable_name"] = name
            member.api(f"CONSUMER.CREATE.Q.{name}", {"stream_name": "Q", "config": config})
        for key in "aab":
            member.publish(f"Q.{key}", reply="_IN.done")
        member.until_done(0, times=3)
        for name in ("C", "D"):
            member.publish(f"$JS.API.CONSUMER.MSG.NEXT.Q.{name}", b"2", reply="_IN.pulled")
        messages = [member.next_delivery() for _ in range(4)]
        for message in messages:
            if told(message)[0] == 3:
                member.say(message, b"+ACK")
                member.until_done(0)
        member.api("CONSUMER.DELETE.Q.D")

        state = member.api("STREAM.INFO.Q")["state"]

        assert (state["messages"], state["first_seq"]) == (2, 1)


def test_a_consumer_that_holds_as_much_as_it_may_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_order, "HELD_MESSAGES_MAX", 3)
    store = f'jetstream {{ store_dir: "{tmp_path}" }}'
    with start_server(settings=store) as server, Member(server.port) as member:
        member.make()
        member.store(*"aaaaab")
        member.until_done(0, times=6)
        member.pull(3)
        (first,) = member.until_done(1)
        member.say(first, b"+ACK")
        (second,) = member.until_done(1)
        member.say(second, b"+ACK")
        rest = member.until_done(1)

        member.pull(1)
        rest += member.until_done(1)

        assert [told(each)[0] for each in rest] == [3, 6]


class _Members:
    """Clients that share a consumer, and what each key's messages went through."""

    def __init__(self, url: str, seed: int, until: int) -> None:
        self.url = url
        self.until = until
        self.enough = asyncio.Event()
        self.random = random.Random(seed)
        self.busy: set[str] = set()
        self.done: defaultdict[str, list[int]] = defaultdict(list)
        self.confirmed: dict[str, int] = {}
        self.finished = 0
        self.most = 0

    async def work(self) -> None:
        client = await nats.connect(self.url, allow_reconnect=False)
        try:
            worker = await client.jetstream().pull_subscribe_bind("C", "S")
            while True:
                for message in await worker.fetch(self.random.randint(1, 3), timeout=60):
                    await self._process(client, message)
        finally:
            await client.close()

    async def _process(self, client: Client, message: Msg) -> None:
        key, number = message.subject, int(message.data)
        assert key not in self.busy
        self.busy.add(key)
        self.most = max(self.most, len(self.busy))
        for _ in range(self.random.randint(0, 20)):
            await asyncio.sleep(0)
        self.busy.remove(key)
        if self.random.random() < 0.2:
            await message.nak()
            return
        self.done[key].append(number)
        await client.request(message.reply, b"+ACK", timeout=60)
        self.confirmed[key] = number
        self.finished += 1
        info = await client.jetstream(timeout=60).consumer_info("S", "C")
        if self.finished >= self.until or not (info.num_pending or info.num_ack_pending):
            self.enough.set()


def _refuse_all(server: ServerProcess) -> None:
    """Have everything delivered again that was out before a kill, without waiting for its time."""
    with Member(server.port) as member:
        info = member.api("CONSUMER.INFO.S.C")
        top = info["delivered"]
        for seq in range(info["ack_floor"]["stream_seq"] + 1, top["stream_seq"] + 1):
            subject = f"$JS.ACK.S.C.1.{seq}.{top['consumer_seq']}.0.0"
            member.publish(subject, b"-NAK", reply="_IN.done")
            member.until_done(0)


async def _serve_members(server: ServerProcess, members: _Members) -> None:
    """Have members work until they have finished enough messages, or all; then kill."""
    tasks = [asyncio.create_task(members.work()) for _ in range(4)]
    enough = asyncio.create_task(members.enough.wait())
    await asyncio.wait([*tasks, enough], return_when=asyncio.FIRST_COMPLETED)
    server.kill()
    enough.cancel()
    for task in tasks:
        # A client that waits for messages does not notice that its server is gone.
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert not isinstance(result, AssertionError), result


@pytest.mark.slow
def test_members_share_keys_in_order_also_across_kills(tmp_path: Path) -> None:
    server = server_process(store_dir=tmp_path)

    async def begin() -> None:
        async with await nats.connect(server.url) as client:
            js = client.jetstream(timeout=60)
            await js.add_stream(StreamConfig(name="S", subjects=["S.>"]))
            config = ConsumerConfig(
                durable_name="C",
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=3_600,
                metadata={"penstock.key_token": "2"},
            )
            await js.add_consumer("S", config)
            for number in range(40):
                for key in range(8):
                    await js.publish(f"S.{key}", b"%d" % number)

    asyncio.run(begin())
    done: dict[str, int] = {}
    confirmed: dict[str, int] = {}
    most = 0
    for round_number, until in enumerate((60, 60, 60, 1_000)):
        members = _Members(server.url, round_number, until)
        asyncio.run(asyncio.wait_for(_serve_members(server, members), 100))
        for key, numbers in members.done.items():
            # What was not confirmed before a kill comes once more, and nothing is passed over.
            assert confirmed.get(key, -1) < numbers[0] <= done.get(key, -1) + 1
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            done[key] = numbers[-1]
        confirmed |= members.confirmed
        most = max(most, members.most)
        server = server_process(store_dir=tmp_path)
        _refuse_all(server)
    server.kill()

    assert most > 1
    assert set(done.values()) == {39}
    assert len(done) == 8
