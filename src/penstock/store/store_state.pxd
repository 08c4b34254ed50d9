# A stream in numbers; see store_state.pyx.

from libc.stdint cimport int64_t, uint64_t


cdef class StoreState:
    cdef readonly uint64_t messages
    cdef readonly uint64_t bytes
    cdef readonly uint64_t first_seq
    cdef readonly int64_t first_time_ns
    cdef readonly uint64_t last_seq
    cdef readonly int64_t last_time_ns
    # Sequences between first and last without a message.
    cdef readonly uint64_t deleted
    cdef readonly uint64_t subjects
    # Everything up to here is on stable storage (in the file, with a sync interval).
    cdef readonly uint64_t durable_seq
    # Damage that was found and not yet repaired.
    cdef readonly tuple lost

    cdef tuple _fields(self)
