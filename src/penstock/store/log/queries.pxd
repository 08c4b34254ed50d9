# What other compiled questions stand on; see questions.pyx.

from libc.stdint cimport uint8_t, uint32_t

from penstock.store.log.ledger cimport Ledger
from penstock.subjects cimport SubjectFilter


cdef const uint8_t* marks(bytes wanted) noexcept
cdef SubjectFilter narrowing(SubjectFilter subject_filter)
cdef bint find_blocks(
    Ledger ledger, SubjectFilter subject_filter, uint32_t* low, uint32_t* high
) except -1
