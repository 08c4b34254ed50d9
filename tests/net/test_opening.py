"""How many handshakes may start in a second."""

from __future__ import annotations

from penstock.net.opening import SECOND_NS, HandshakeRate
from penstock.testing.clock import FakeClock


def test_so_many_may_start_in_a_second_and_no_more() -> None:
    rate = HandshakeRate(2, FakeClock())

    assert [rate.allows() for _ in range(4)] == [True, True, False, False]


def test_the_next_second_allows_as_many_again() -> None:
    clock = FakeClock()
    rate = HandshakeRate(2, clock)
    for _ in range(5):
        rate.allows()

    clock.advance_ns(SECOND_NS - 1)
    assert not rate.allows()
    clock.advance_ns(1)

    assert [rate.allows() for _ in range(3)] == [True, True, False]
