"""Message ids within their window, compared with a list of all that ever came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.publish.message_ids import MessageIds

WINDOW_NS = 10


def known_by_list(seen: list[tuple[bytes, int, int]], message_id: bytes, now_ns: int) -> int:
    for each, seq, time_ns in reversed(seen):
        if each == message_id and now_ns - time_ns < WINDOW_NS:
            return seq
    return 0


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from((b"a", b"b", b"c", b"d")))))
def test_an_id_is_known_within_the_window_and_no_longer(steps: list[tuple[int, bytes]]) -> None:
    ids = MessageIds()
    ids.window_ns = WINDOW_NS
    seen: list[tuple[bytes, int, int]] = []
    now_ns = 0
    for seq, (passed_ns, message_id) in enumerate(steps, 1):
        now_ns += passed_ns
        expected = known_by_list(seen, message_id, now_ns)

        assert ids.find(message_id, now_ns) == expected
        if not expected:
            ids.remember(message_id, seq, now_ns)
            seen.append((message_id, seq, now_ns))


def prune_all(ids: MessageIds, now_ns: int) -> int:
    turns = 1
    while ids.prune(now_ns):
        turns += 1
    return turns


def test_a_whole_window_is_not_cleared_at_once() -> None:
    ids = MessageIds()
    ids.window_ns = WINDOW_NS
    for number in range(10_000):
        ids.remember(b"%d" % number, number + 1, 0)

    assert ids.find(b"9999", WINDOW_NS) == 0
    assert len(ids) > 9_000
    ids.remember(b"9999", 10_001, WINDOW_NS)
    assert ids.find(b"9999", WINDOW_NS) == 10_001
    assert prune_all(ids, WINDOW_NS) > 2
    assert len(ids) == 1
    assert ids.find(b"9999", WINDOW_NS) == 10_001


def test_many_ids_come_and_go() -> None:
    ids = MessageIds()
    ids.window_ns = 1000
    for number in range(10_000):
        ids.remember(b"%d" % number, number + 1, number)

    assert ids.find(b"9500", 9999) == 9501
    assert ids.find(b"8000", 9999) == 0
    prune_all(ids, 9999)
    assert len(ids) == 1000
    prune_all(ids, 20_000)
    assert len(ids) == 0
    ids.remember(b"again", 1, 20_000)
    assert ids.find(b"again", 20_001) == 1


def test_without_a_window_only_the_last_id_is_known() -> None:
    ids = MessageIds()
    ids.remember(b"a", 7, 0)

    assert len(ids) == 0
    assert ids.find(b"a", 0) == 0
    assert (ids.last(7), ids.last(8)) == (b"a", b"")
