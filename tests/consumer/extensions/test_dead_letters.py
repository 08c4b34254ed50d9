"""Messages that are given up arrive elsewhere, exactly once, and say why."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.js.api import RetentionPolicy, StreamConfig

from penstock.testing.servers import ServerProcess, server_process
from tests.consumer.letters import WAIT_S, Work, at_work, told
from tests.support.settling import settle


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(store_dir=tmp_path_factory.mktemp("store")) as process:
        yield process


def test_a_message_that_was_delivered_too_often_becomes_a_letter(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        advised = await work.client.subscribe(
            f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{work.name}.>"
        )
        await work.begin(max_deliver=2, ack_wait=0.1)
        await work.publish("good", "bad")
        good, _ = await work.fetch(2)
        await good.ack_sync()
        await work.fetch(1)

        (letter,) = await work.letters(1)

        assert (letter.subject, letter.data) == (work.dead, b"bad")
        assert told(letter) == {
            "Stream": work.name,
            "Consumer": "worker",
            "Sequence": "2",
            "Subject": f"{work.name}.bad",
            "Deliveries": "2",
            "Reason": "max_deliver",
        }
        advisory = json.loads((await advised.next_msg(timeout=WAIT_S)).data)
        assert (advisory["stream_seq"], advisory["deliveries"]) == (2, 2)
        await work.until_pending(0)
        info = await work.js.consumer_info(work.name, "worker")
        assert info.ack_floor is not None
        assert (info.ack_floor.stream_seq, info.num_redelivered) == (2, 0)

    at_work(server.url, "EXHAUSTED", program)


def test_a_message_that_is_refused_too_often_becomes_a_letter(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(max_deliver=2)
        await work.publish("bad", "good")
        for _ in range(2):
            (message,) = await work.fetch()
            await message.nak()

        (message,) = await work.fetch()
        (letter,) = await work.letters(1)

        assert message.data == b"good"
        assert (letter.data, told(letter)["Deliveries"]) == (b"bad", "2")
        await work.until_pending(1)

    at_work(server.url, "NAKED", program)


def test_a_message_that_is_terminated_becomes_a_letter_that_says_why(
    server: ServerProcess,
) -> None:
    async def program(work: Work) -> None:
        advised = await work.client.subscribe(
            f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{work.name}.>"
        )
        await work.begin()
        await work.publish("a")
        (message,) = await work.fetch()
        await work.term(message, "no such order\r\nX-Injected: 1")

        (letter,) = await work.letters(1)

        found = told(letter)
        assert (found["Reason"], found["Deliveries"]) == ("terminated", "1")
        assert found["Text"] == "no such order  X-Injected: 1"
        assert "X-Injected" not in (letter.headers or {})
        advisory = json.loads((await advised.next_msg(timeout=WAIT_S)).data)
        assert advisory["reason"].startswith("no such order")

    at_work(server.url, "TERMINATED", program)


def test_headers_are_kept_and_do_not_tell_the_other_stream_what_to_do(
    server: ServerProcess,
) -> None:
    async def program(work: Work) -> None:
        await work.begin(stream={"allow_rollup_hdrs": True})
        own = {"X-Own": "1", "Nats-Msg-Id": "m1", "Nats-Rollup": "sub"}
        await work.publish("a", headers=own)
        (message,) = await work.fetch()
        await work.term(message)

        (letter,) = await work.letters(1)

        headers = letter.headers or {}
        assert headers["X-Own"] == "1"
        assert headers["Penstock-Original-Nats-Msg-Id"] == "m1"
        assert headers["Penstock-Original-Nats-Rollup"] == "sub"
        assert headers["Nats-Msg-Id"].startswith(f"{work.name}.worker.1.")
        assert "Nats-Rollup" not in headers

    at_work(server.url, "HEADERS", program)


def test_a_work_queue_keeps_a_message_until_its_letter_is_stored(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(letters=False, stream={"retention": RetentionPolicy.WORK_QUEUE})
        await work.publish("a", "b")
        for message in await work.fetch(2):
            await work.term(message)
        assert (await work.js.stream_info(work.name)).state.messages == 2

        await work.make_letters()
        letters = await work.letters(2)
        await work.until_pending(0)

        assert [letter.data for letter in letters] == [b"a", b"b"]
        assert (await work.js.stream_info(work.name)).state.messages == 0

    at_work(server.url, "QUEUE", program)


def test_what_is_owed_is_not_delivered_again_whatever_clients_say(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(letters=False, ack_wait=0.05, max_ack_pending=2)
        await work.publish("a", "b", "c")
        first, second = await work.fetch(2)
        await work.term(first, "no")
        for what in (b"+WPI", b"-NAK", b'-NAK {"delay": 1}', b"+TERM again"):
            await work.client.request(first.reply, what, timeout=WAIT_S)
        await second.ack_sync()

        third, again = await work.fetch(2)

        # As many are out as may be: the one that is owed, and this one.
        assert (third.data, again.data) == (b"c", b"c")
        await again.ack_sync()
        await work.until_pending(1)

    at_work(server.url, "OWED", program)


def test_a_message_that_is_acknowledged_after_all_is_no_letter(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(letters=False)
        await work.publish("a", "b")
        late, dead = await work.fetch(2)
        await work.term(late)
        await work.term(dead)
        await work.client.request(late.reply, b"+ACK", timeout=WAIT_S)

        await work.make_letters()
        letters = await work.letters(1)
        await work.until_pending(0)

        assert [letter.data for letter in letters] == [b"b"]

    at_work(server.url, "LATE", program)


def test_a_letter_that_is_refused_is_sent_until_it_is_taken(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(letters=False)
        await work.make_letters(max_msg_size=10)
        await work.publish("a")
        (message,) = await work.fetch()
        await work.term(message)
        server.wait_for("wait: message size exceeds maximum allowed")

        config = StreamConfig(name=f"{work.name}-dead", subjects=[work.dead], max_msg_size=-1)
        await work.js.update_stream(config)

        assert len(await work.letters(1)) == 1

    at_work(server.url, "REFUSED", program)


def test_without_a_stream_subscribers_get_the_letter(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(letters=False)
        await work.publish("a", "b")
        one, two = await work.fetch(2)
        await work.term(one)
        await work.until_pending(2)

        listener = await work.client.subscribe(work.dead)
        first = await listener.next_msg(timeout=WAIT_S)
        await work.term(two)
        second = await listener.next_msg(timeout=WAIT_S)

        assert (first.data, second.data) == (b"a", b"b")
        await work.until_pending(0)

    at_work(server.url, "LISTENED", program)


def test_a_letter_that_comes_back_to_its_own_consumer_ends_there(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(stream={"max_msgs": 100})
        await work.publish("a")
        (message,) = await work.fetch()
        await work.term(message)
        await work.letters(1)
        # Only now does the stream take its own letters.
        await work.js.delete_stream(f"{work.name}-dead")
        subjects = [f"{work.name}.>", work.dead]
        await work.js.update_stream(StreamConfig(name=work.name, subjects=subjects, max_msgs=100))
        await work.publish("b")
        for _ in range(2):
            (message,) = await work.fetch()
            await work.term(message)
        await work.until_pending(0)
        await work.publish("c")
        (message,) = await work.fetch()

        assert message.data == b"c"
        assert (await work.js.stream_info(work.name)).state.messages == 4

    at_work(server.url, "CYCLE", program)


def test_letters_can_be_turned_off_and_sent_elsewhere(server: ServerProcess) -> None:
    async def program(work: Work) -> None:
        await work.begin(letters=False)
        await work.publish("a", "b")
        first, second = await work.fetch(2)
        await work.term(first)
        await work.consume(metadata={})
        await work.until_pending(1)

        await work.consume()
        await work.term(second)
        await work.consume(metadata={"penstock.dead_letter": f"{work.dead}.other"})
        listener = await work.client.subscribe(f"{work.dead}.other")
        letter = await listener.next_msg(timeout=WAIT_S)

        assert letter.data == b"b"
        await work.until_pending(0)

    at_work(server.url, "CHANGED", program)


@pytest.mark.parametrize("kill", [True, False])
def test_what_is_owed_outlives_the_server(tmp_path: Path, kill: bool) -> None:
    async def owe(work: Work) -> None:
        await work.begin(letters=False, max_deliver=1, ack_wait=0.05)
        await work.publish("a", "b", "c")
        terminated, _ = await work.fetch(2)
        await work.term(terminated, "why not")
        # Its wait is over when another letter waits.
        await work.until_pending(2)

    async def receive(work: Work) -> None:
        (next_one,) = await work.fetch(1)
        assert next_one.data == b"c"
        await next_one.ack_sync()
        await work.make_letters()
        letters = await work.letters(2)
        await work.until_pending(0)

        assert [letter.data for letter in letters] == [b"a", b"b"]
        assert [told(letter)["Reason"] for letter in letters] == ["terminated", "max_deliver"]
        assert told(letters[0])["Text"] == "why not"

    first = server_process(store_dir=tmp_path)
    at_work(first.url, "S", owe)
    if kill:
        first.kill()
    else:
        first.stop()
    with server_process(store_dir=tmp_path) as second:
        at_work(second.url, "S", receive)


def test_a_letter_that_arrived_before_a_crash_is_found_and_not_sent_again(tmp_path: Path) -> None:
    async def owe(work: Work) -> None:
        await work.begin(letters=False)
        await work.publish("a", "b")
        for message in await work.fetch(2):
            await work.term(message)

    async def receive(work: Work) -> None:
        # Message ids are forgotten at once: only what is stored tells.
        await work.make_letters(duplicate_window=0.1)
        assert len(await work.letters(2)) == 2
        await work.until_pending(0)

    async def look_again(work: Work) -> None:
        await work.until_pending(0)
        assert len(await work.letters(2)) == 2

    with server_process(store_dir=tmp_path) as server:
        at_work(server.url, "S", owe)
    (path,) = tmp_path.glob("**/streams/S/consumers/worker/state")
    owing = path.read_bytes()
    with server_process(store_dir=tmp_path) as server:
        at_work(server.url, "S", receive)
    # As if the crash had come before the consumer's progress was written.
    path.write_bytes(owing)
    with server_process(store_dir=tmp_path) as server:
        at_work(server.url, "S", look_again)


async def _terminate_all(work: Work, confirmed: set[bytes], until: int) -> None:
    """Terminate messages, until so many were confirmed: then in the middle of it."""
    worker = await work.js.pull_subscribe_bind("worker", work.name)

    async def terminate(message: Msg) -> None:
        await work.term(message)
        confirmed.add(message.data)
        if len(confirmed) >= until:
            raise asyncio.CancelledError

    while True:
        messages = await worker.fetch(10, timeout=WAIT_S)
        await asyncio.gather(*(terminate(message) for message in messages))


def _kill_while_terminating(server: ServerProcess, confirmed: set[bytes], until: int) -> None:
    async def program() -> None:
        work = await Work.connect(server.url, "S")
        with contextlib.suppress(asyncio.CancelledError):
            await _terminate_all(work, confirmed, until)
        server.kill()
        await work.client.close()

    asyncio.run(asyncio.wait_for(program(), 100))


@pytest.mark.slow
def test_after_kills_every_confirmed_termination_has_exactly_one_letter(tmp_path: Path) -> None:
    confirmed: set[bytes] = set()

    async def begin(work: Work) -> None:
        await work.begin(letters=False, ack_wait=0.2, max_ack_pending=50)
        await work.make_letters(duplicate_window=0.1)
        await work.publish(*(f"{number}" for number in range(400)))
        await settle(work.client)

    async def look(work: Work) -> None:
        await work.until_pending(0)
        letters = await work.letters(len(confirmed))
        bodies = [letter.data for letter in letters]
        assert len(bodies) == len(set(bodies))
        assert confirmed <= set(bodies)

    server = server_process(store_dir=tmp_path)
    at_work(server.url, "S", begin)
    for round_number in range(4):
        _kill_while_terminating(server, confirmed, 23 * (round_number + 1))
        server = server_process(store_dir=tmp_path)
    with server:
        at_work(server.url, "S", look)


async def _waste(work: Work, chance: random.Random, until: int) -> None:
    """Take messages and finish none of them, until so many were taken."""
    worker = await work.js.pull_subscribe_bind("worker", work.name)
    taken = 0
    while taken < until:
        for message in await worker.fetch(20, timeout=WAIT_S):
            taken += 1
            what = chance.choice((b"", b"-NAK", b"+TERM", b"+TERM no"))
            if what:
                await work.client.publish(message.reply, what)


def _kill_while_wasting(server: ServerProcess, chance: random.Random) -> bool:
    """Kill a server that is given work in vain; tell whether all of it was given up."""

    async def program() -> bool:
        work = await Work.connect(server.url, "S")
        try:
            await asyncio.wait_for(_waste(work, chance, chance.randint(20, 120)), 5)
        except TimeoutError:
            info = await work.js.consumer_info("S", "worker")
            return not (info.num_pending or info.num_ack_pending)
        finally:
            server.kill()
            await work.client.close()
        return False

    return asyncio.run(asyncio.wait_for(program(), 100))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_after_many_kills_every_message_that_nobody_finished_has_exactly_one_letter(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)

    async def begin(work: Work) -> None:
        await work.begin(letters=False, ack_wait=0.2, max_deliver=2, max_ack_pending=50)
        await work.make_letters(duplicate_window=0.1)
        await work.publish(*(f"{number}" for number in range(1_000)))

    async def look(work: Work) -> None:
        await work.until_pending(0)
        letters = await work.letters(1_000)
        assert sorted(int(letter.data) for letter in letters) == list(range(1_000))

    server = server_process(store_dir=tmp_path)
    at_work(server.url, "S", begin)
    while not _kill_while_wasting(server, chance):
        server = server_process(store_dir=tmp_path)
    with server_process(store_dir=tmp_path) as server:
        at_work(server.url, "S", look)
