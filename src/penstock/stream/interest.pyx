"""Who wants the messages of a stream, as the publish path asks before it stores one.

Consumers stand above streams in the layers: `consumer.needs` answers for them. It is asked for
every message of a stream that keeps messages for its consumers only, so both are compiled.

Thread: the event loop's.
"""

from libc.stdint cimport uint8_t


cdef class Interest:
    """Nobody wants anything: what a stream without consumers has."""

    cdef bint is_any(self) noexcept:
        return False

    cdef bint has(self, const uint8_t* subject, size_t size) except -1:
        return False

    def wants(self, bytes subject not None):
        """Return True if a message that is about to be stored is for a consumer or a fed stream."""
        return self.has(subject, len(subject))
