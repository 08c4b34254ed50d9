"""What is live in one block, by its index: messages, bytes, the first of them, and their subjects.

An index keeps the entries of removed messages; the tombstones that tell of them may stand in any
later block. So whoever adds up a directory gathers all tombstones first and then asks here, block
by block.

Pure; any thread, with a table of its own.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.block_index cimport BlockIndex, Entry
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport SubjectTable


def add_live(BlockIndex index not None, SequenceSet removed not None, SubjectTable table not None):
    """Count the entries that were not removed, in all and under their subjects in `table`.

    Gives (messages, bytes, first sequence, first time); without a message all are 0.
    """
    cdef uint64_t messages = 0, size = 0, first_seq = 0, seq
    cdef int64_t first_time_ns = 0
    cdef uint32_t ordinal
    cdef uint32_t item
    cdef const Entry* entry
    cdef const uint8_t* name
    cdef size_t name_size = 0
    with nogil:
        for ordinal in range(index.count):
            entry = &index.entries[ordinal]
            seq = index.base_seq + entry.seq_delta
            if removed.has(seq):
                continue
            if messages == 0:
                first_seq = seq
                first_time_ns = entry.timestamp_ns
            messages += 1
            size += entry.size
            name = index.subject_name(entry.subject, &name_size)
            item = <uint32_t>table.intern(name, name_size)
            table.count_up(item, index.number, seq, 1)
    return messages, size, first_seq, first_time_ns
