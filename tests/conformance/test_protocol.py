"""The client protocol, raw: the same bytes to the real server and to ours, the same bytes back."""

from __future__ import annotations

import pytest

from tests.conformance import scripts
from tests.conformance.conftest import PairWith
from tests.conformance.scripts import FULL, HEADERS, LAX, QUIET, Script
from tests.conformance.servers import Pair
from tests.conformance.transcripts import Peer, Step, comparable, frames_of, play, say

pytestmark = pytest.mark.oracle


def steps_of(script: Script) -> list[Step]:
    return script if isinstance(script, list) else [say(script)]


def assert_same(pair: Pair, script: Script) -> None:
    steps = steps_of(script)

    assert play(pair.ours.port, steps) == play(pair.reference.port, steps)


def shown(script: Script) -> str:
    return repr(steps_of(script)[-1].data[-60:])


@pytest.mark.parametrize("script", scripts.OPERATIONS, ids=shown)
def test_operations_are_read_in_any_case_and_with_either_line_end(
    pair: Pair, script: Script
) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.GARBAGE, ids=shown)
def test_garbage_and_half_frames_end_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.SUBSCRIBING, ids=shown)
def test_subscribing_is_answered_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.PUBLISHING, ids=shown)
def test_publishing_is_answered_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.HEADED, ids=shown)
def test_headers_are_passed_on_or_stripped_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.CONNECTS, ids=shown)
def test_connect_is_understood_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.LONG_LINES, ids=shown)
def test_a_control_line_may_be_so_long_and_no_longer(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.SUBJECTS, ids=shown)
def test_subjects_and_wildcards_match_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.RESERVED, ids=shown)
def test_what_belongs_to_servers_is_refused_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.NO_RESPONDERS, ids=shown)
def test_a_request_that_nobody_takes_is_answered_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.AUTO_UNSUBSCRIBING, ids=shown)
def test_subscriptions_end_by_themselves_alike(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


@pytest.mark.parametrize("script", scripts.ECHO, ids=shown)
def test_a_client_without_echo_does_not_hear_itself(pair: Pair, script: Script) -> None:
    assert_same(pair, script)


EVERY_OPERATION = (
    FULL + "SUB foo.* 1\r\nSUB foo.bar q 2\r\nPUB foo.bar re 5\r\nhello\r\nPING\r\n"
    f"HPUB foo.x 12 14\r\n{HEADERS}hi\r\nUNSUB 2 1\r\nPONG\r\n+OK\r\nINFO {{}}\r\nUNSUB 1\r\n"
    "PUB foo.bar 0\r\n\r\n"
).encode()


@pytest.mark.parametrize("place", range(1, len(EVERY_OPERATION)))
def test_operations_may_be_cut_at_any_byte(pair: Pair, place: int) -> None:
    whole = play(pair.reference.port, [say(EVERY_OPERATION)])
    peer = Peer(pair.ours.port)

    peer.send(EVERY_OPERATION[:place])
    peer.expect_pongs(EVERY_OPERATION.count(b"PING") - len(peer.pings_in(EVERY_OPERATION[:place])))
    peer.send_uncounted(EVERY_OPERATION[place:])
    peer.wait()
    peer.wait()
    peer.close()

    assert comparable(frames_of(bytes(peer.received))) == whole["a"].frames


def test_operations_may_come_byte_by_byte(pair: Pair) -> None:
    whole = play(pair.reference.port, [say(EVERY_OPERATION)])
    peer = Peer(pair.ours.port)

    for byte in EVERY_OPERATION:
        peer.send_uncounted(bytes([byte]))
    peer.expect_pongs(EVERY_OPERATION.count(b"PING"))
    peer.wait()
    peer.wait()
    peer.close()

    assert comparable(frames_of(bytes(peer.received))) == whole["a"].frames


def test_each_message_goes_to_one_member_of_a_queue_group(pair: Pair) -> None:
    script = [
        *(say(QUIET + "SUB foo q 1\r\nSUB foo p 2\r\nSUB foo 3\r\n", name) for name in "bcd"),
        say(QUIET + "".join(f"PUB foo {len(str(n))}\r\n{n}\r\n" for n in range(200))),
    ]

    for server in (pair.reference, pair.ours):
        received = play(server.port, script)
        members = [frame for name in "bcd" for frame in received[name].frames]
        for sid, copies in ((b"1", 1), (b"2", 1), (b"3", 3)):
            bodies = [f.split()[-1] for f in members if f.startswith(b"MSG foo " + sid)]
            assert sorted(bodies) == sorted(b"%d" % n for n in range(200) for _ in range(copies))
        for name in "bcd":
            # Among three, 200 messages miss a fair member once in 10 ** 35 runs.
            assert any(f.startswith(b"MSG foo 1") for f in received[name].frames)


@pytest.mark.parametrize("first", ["UNSUB 1 2\r\n", ""])
def test_messages_reach_other_clients_in_the_order_they_were_published(
    pair: Pair, first: str
) -> None:
    script = [
        say(LAX + "SUB foo.> 1\r\n" + first, "b"),
        say("".join(f"PUB foo.{n % 3} {len(str(n))}\r\n{n}\r\n" for n in range(50))),
        say("PUB foo.bar 4\r\nlast\r\n", "b"),
    ]

    assert_same(pair, script)


def test_a_closed_connection_takes_its_subscriptions_along(pair: Pair) -> None:
    script = [
        say(FULL + "SUB r 1\r\n"),
        say(QUIET + "SUB foo 1\r\n", "b"),
        say("GARBAGE", "b"),
        say("PUB foo r 0\r\n\r\n"),
    ]

    assert_same(pair, script)


@pytest.mark.parametrize("maximum", [1, 64, 1024])
def test_the_largest_payload_is_the_configured_one(pair_with: PairWith, maximum: int) -> None:
    pair = pair_with(f"max_payload: {maximum}")

    for size in (maximum - 1, maximum, maximum + 1):
        assert_same(pair, f"{LAX}SUB foo 1\r\nPUB foo {size}\r\n{'x' * size}\r\n")


@pytest.mark.parametrize("length", [30, 31, 32, 33, 34])
def test_the_longest_line_is_the_configured_one(pair_with: PairWith, length: int) -> None:
    pair = pair_with("max_control_line: 32")

    assert_same(pair, f"SUB {'x' * (length - 2)} 1\r\n")
    assert_same(pair, [say(f"SUB {'x' * length}", wait=False)])
