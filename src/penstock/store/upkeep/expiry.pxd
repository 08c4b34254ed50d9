# What of a stream expires when; see expiry.pyx.

from libc.stdint cimport int64_t, uint64_t

from penstock.format.sequence_set cimport SequenceSet
from penstock.store.upkeep.expiry_wheel cimport ExpiryWheel


cdef struct Era:
    # From this sequence on: how far stamps and the wall clock were ahead of the age clock.
    uint64_t first_seq
    int64_t stamp_ahead_ns
    int64_t wall_ahead_ns


cdef class Timekeeper:
    cdef object clock
    cdef int64_t start_ns
    # At least one, ascending.
    cdef Era* eras
    cdef size_t count
    cdef size_t room

    cpdef int64_t age_now_ns(self) except? -1
    cpdef int64_t born_ns(self, uint64_t seq, int64_t stamp_ns) noexcept
    cpdef int64_t due_ns(self, uint64_t seq, int64_t expires_ns) noexcept
    cdef int _note(self, uint64_t seq, int64_t stamp_ns, int64_t now_ns) except -1
    cdef int _begin_era(self, Era era) except -1
    cdef const Era* _era(self, uint64_t seq) noexcept


cdef class Expiries:
    cdef Timekeeper times
    # What expires when, by the age clock of `times`.
    cdef readonly ExpiryWheel wheel
    # What is never too old.
    cdef readonly SequenceSet lasting

    cpdef int remember(self, uint64_t seq, int64_t expires_ns) except -1
    cpdef int forget(self, uint64_t seq, int64_t expires_ns) except -1
