# What a stream has room for; see capacity.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.store.log.ledger cimport Ledger


cdef enum Refusal:
    NOT_REFUSED
    TOO_LARGE
    SUBJECT_FULL
    MESSAGES_FULL
    BYTES_FULL


cdef class Capacity:
    cdef Ledger ledger
    # Limits; 0 for none.
    cdef uint64_t messages_max
    cdef uint64_t bytes_max
    # Of headers and payload of one message together.
    cdef uint64_t body_bytes_max
    cdef uint64_t per_subject_max
    cdef bint discards_new
    # With discard new: a full subject refuses, rather than dropping its oldest message.
    cdef bint full_subject_refuses
    # A message of any size may be refused.
    cdef bint can_refuse
    # Limits were lowered, and what is beyond them is being removed in slices.
    cdef public bint is_behind

    cdef Refusal refusal(
        self, const uint8_t* subject, size_t subject_size, size_t headers_size,
        size_t payload_size, uint32_t keep,
    ) except *
    cdef int _raise(self, Refusal refusal) except -1
    cdef int trim_to_limit(self) except -1
    cdef uint64_t removable(self, uint64_t appended) noexcept
    cdef int trim_appended(self, uint64_t keep) except -1
    cpdef int make_room(self, uint32_t keep) except -1
    cpdef uint64_t enforce_totals(self, uint64_t count_max=*) except? 0xFFFFFFFFFFFFFFFF
