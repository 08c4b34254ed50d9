"""How fast a consumer may send: so many bytes a second, and a burst of the largest message's size.

A bucket holds as many bytes as may go at once, is full at first and fills at the rate. A message
goes when the bucket has its size, and takes it out. As in the reference server; only one that is
larger than the bucket, which would wait for ever there, goes when the bucket is full.

What always holds: within any time no more goes than the burst, what the time is worth, and one
message.

One thread: the event loop's.
"""

from __future__ import annotations

_SECOND_NS = 1_000_000_000


class RateLimit:
    """The bucket of one consumer; see the module."""

    __slots__ = ("_burst", "_filled_ns", "_level", "bits_per_s")

    def __init__(self, bits_per_s: int, burst_bytes: int) -> None:
        self.bits_per_s = bits_per_s
        # In bytes times nanoseconds, so that nothing is lost by rounding.
        self._burst = self._level = max(burst_bytes, 1) * _SECOND_NS
        self._filled_ns = 0

    @property
    def _bytes_per_s(self) -> int:
        return max(self.bits_per_s // 8, 1)

    def wait_ns(self, size: int, now_ns: int) -> int:
        """Tell how long a message must wait; 0 if it may go now."""
        passed_ns = max(now_ns - self._filled_ns, 0)
        self._filled_ns = now_ns
        self._level = min(self._level + passed_ns * self._bytes_per_s, self._burst)
        missing = min(size * _SECOND_NS, self._burst) - self._level
        return -(-missing // self._bytes_per_s) if missing > 0 else 0

    def spend(self, size: int) -> None:
        """A message has gone."""
        self._level -= size * _SECOND_NS


def rate_limit_of(old: RateLimit | None, bits_per_s: int, *, burst_bytes: int) -> RateLimit | None:
    """Give the limit of a rate; None for none. One that goes on with its rate keeps its level."""
    if not bits_per_s:
        return None
    if old is not None and old.bits_per_s == bits_per_s:
        return old
    return RateLimit(bits_per_s, burst_bytes)
