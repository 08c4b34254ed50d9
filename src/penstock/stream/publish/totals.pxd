# The values of counters, at hand; see totals.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.protocol.headers cimport Value


cdef struct Total:
    # The message that has the value, and the value.
    uint64_t seq
    int64_t value


cdef class Totals:
    cdef Total* slots
    # The body of the message at hand.
    cdef uint8_t[32] body
    cdef size_t body_size

    cdef bint find(self, object store, uint64_t seq, uint64_t place, int64_t* value) except -1
    cdef int keep(self, uint64_t seq, uint64_t place, int64_t value) except -1
    cdef void write(self, int64_t value) noexcept


cdef uint64_t hash_of(const uint8_t* text, size_t size) noexcept nogil
cdef bint is_number(const Value* text) noexcept nogil
cdef bint read_number(const uint8_t* text, size_t size, int64_t* number) noexcept nogil
