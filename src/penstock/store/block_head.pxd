# A block file as a stream's directory shows it; see block_head.pyx.

from libc.stdint cimport uint32_t, uint64_t

from penstock.format.block cimport BlockHeader


cdef class BlockHead:
    cdef readonly uint32_t number
    cdef readonly str path
    cdef readonly uint64_t size
    # The header's bytes as they were found.
    cdef readonly bytes image
    cdef public BlockHeader header
    # What is the matter with the header; it was mended if there is one all the same.
    cdef public str reason
    cdef public bint is_foreign
    # The header is that of records which may all be of one commit.
    cdef public bint has_one_commit
    # What a block without a header held, where something tells.
    cdef public uint64_t first_seq
    cdef public uint64_t last_seq
