# Group commit; see committer.pyx.

from libc.stdint cimport int64_t, uint64_t

from penstock.store.commit.disk_threads cimport DiskJob


cdef class Batch:
    cdef readonly uint64_t last_seq
    cdef readonly int64_t last_time_ns
    cdef readonly uint64_t ticket
    # The block that is still being written when the batch is taken.
    cdef readonly object current
    # (block, chunk) in order.
    cdef readonly list chunks
    # Blocks that are full and have room behind them, which is cut off before anything is written to
    # a later one.
    cdef readonly list roomy


cdef class Committer:
    cdef object steps
    # Guards what follows; those who wait for a turn are told through the condition, if there are.
    cdef object lock
    cdef object turn_ended
    cdef int waiting
    cdef bint is_busy
    cdef bint is_wanted
    cdef bint is_started
    cdef readonly int exclusive_claims
    # What the turn waits for; the thread that takes it away from here finishes it.
    cdef DiskJob job
    cdef Batch batch
    cdef int64_t interval_ns
    cdef object __weakref__

    cdef bint _take_turn(self, object unless, bint is_exclusive) except -1
    cdef int _end_turn(self) except -1
    cdef int _begin(self) except -1
    cpdef on_done(self, DiskJob job)
    cdef int _conclude(self, Batch batch, DiskJob job) except -1
    cdef int _complete(self, Batch batch, DiskJob job) except -1
