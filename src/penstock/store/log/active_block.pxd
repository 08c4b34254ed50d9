# The block being written; see active_block.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex


cdef class Chunk:
    cdef uint8_t* data
    cdef readonly size_t size
    cdef size_t room
    # Where in the block file it belongs.
    cdef readonly uint64_t start


cdef class ActiveBlock:
    cdef readonly BlockIndex index
    cdef readonly uint32_t number
    cdef readonly uint64_t seed
    cdef readonly str path
    # The file, once the committer has made it.
    cdef public object file
    # What the block's file will hold once everything is written.
    cdef readonly uint64_t bytes
    # How long the file is on stable storage: behind the records come zeros, room for more.
    cdef public uint64_t file_bytes
    cdef uint8_t* pending
    cdef size_t pending_room
    cdef uint64_t pending_at
    # How much was taken at once lately, at the most: the next will be about as much.
    cdef readonly size_t usual_bytes
    # Chunks on their way to the disk and a few already there, newest last.
    cdef list recent
    cdef size_t recent_bytes
    cdef size_t in_flight

    cdef int append(
        self, uint8_t flags, const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size, const uint8_t* payload, size_t payload_size,
        int64_t expires_ns, uint64_t seq, int64_t timestamp_ns, uint32_t message_size,
    ) except -1
    cpdef int append_skip(self, uint64_t seq, uint64_t count, int64_t timestamp_ns) except -1
    cdef int _reserve(self, size_t more) except -1
    cdef bytes read(self, uint64_t offset, size_t size)
