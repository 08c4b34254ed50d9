# A set of sequences; see sequence_set.pyx. `has`, `put_range` and `drop_range` are inherited.

from penstock.format.range_leaves cimport RangeLeaves


cdef class SequenceSet(RangeLeaves):
    pass
