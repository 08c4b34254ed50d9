"""One block as a checkpoint tells of it.

    offset  size  field
         0     4  block number
         4     4  generation
         8     8  base sequence
        16     8  last sequence
        24     4  entries of its index, removed ones included
        28     4  live messages
        32     8  file bytes
        40     8  live message bytes
        48     8  live disk bytes
        56     8  first time, Unix ns
        64     8  last time, Unix ns
        72     4  messages with a time to live
        76     4  length of the bitmap of removed entries
        80        that bitmap

Little-endian. Compiled, because an open reads one for every block of the stream. Pure; any thread.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.errors import CorruptStore

cimport cython

from penstock.format.wire cimport get_u32, get_u64, put_u32, put_u64

cdef enum:
    FIXED_SIZE = 80


# It holds no more than bytes: there is no circle for a collector to find, in one for every block.
@cython.no_gc
cdef class BlockSummary:
    """One block in a checkpoint; `dead` is the bitmap of removed entries. Never changed."""

    def __init__(self, uint32_t number, uint32_t generation, uint64_t base_seq, uint64_t last_seq,
                 uint32_t count, uint32_t live, uint64_t bytes, uint64_t live_bytes,
                 uint64_t live_disk_bytes, int64_t first_time_ns, int64_t last_time_ns,
                 uint32_t expiring, dead):
        self.number = number
        self.generation = generation
        self.base_seq = base_seq
        self.last_seq = last_seq
        self.count = count
        self.live = live
        self.bytes = bytes
        self.live_bytes = live_bytes
        self.live_disk_bytes = live_disk_bytes
        self.first_time_ns = first_time_ns
        self.last_time_ns = last_time_ns
        self.expiring = expiring
        self.dead = dead

    def __eq__(self, other):
        if not isinstance(other, BlockSummary):
            return NotImplemented
        return encode_summary(self) == encode_summary(other)

    def __repr__(self):
        return f"BlockSummary(number={self.number}, generation={self.generation})"


def encode_summary(BlockSummary summary not None):
    """Give a summary's bytes, its bitmap included."""
    cdef uint8_t image[FIXED_SIZE]
    put_u32(image, summary.number)
    put_u32(image + 4, summary.generation)
    put_u64(image + 8, summary.base_seq)
    put_u64(image + 16, summary.last_seq)
    put_u32(image + 24, summary.count)
    put_u32(image + 28, summary.live)
    put_u64(image + 32, summary.bytes)
    put_u64(image + 40, summary.live_bytes)
    put_u64(image + 48, summary.live_disk_bytes)
    put_u64(image + 56, <uint64_t>summary.first_time_ns)
    put_u64(image + 64, <uint64_t>summary.last_time_ns)
    put_u32(image + 72, summary.expiring)
    put_u32(image + 76, <uint32_t>len(summary.dead))
    return image[:FIXED_SIZE] + summary.dead


cdef BlockSummary decode_summary(const uint8_t* image, uint32_t dead_bytes):
    cdef BlockSummary summary = BlockSummary.__new__(BlockSummary)
    summary.number = get_u32(image)
    summary.generation = get_u32(image + 4)
    summary.base_seq = get_u64(image + 8)
    summary.last_seq = get_u64(image + 16)
    summary.count = get_u32(image + 24)
    summary.live = get_u32(image + 28)
    summary.bytes = get_u64(image + 32)
    summary.live_bytes = get_u64(image + 40)
    summary.live_disk_bytes = get_u64(image + 48)
    summary.first_time_ns = <int64_t>get_u64(image + 56)
    summary.last_time_ns = <int64_t>get_u64(image + 64)
    summary.expiring = get_u32(image + 72)
    summary.dead = PyBytes_FromStringAndSize(<const char*>image + FIXED_SIZE, dead_bytes)
    return summary


def decode_summaries(bytes data not None, Py_ssize_t at, Py_ssize_t end, uint32_t count,
                     str path not None):
    """Read `count` summaries from data[at:end]; give them and where they end.

    Raises CorruptStore where they do not fit.
    """
    cdef const uint8_t* image = data
    cdef uint32_t dead_bytes
    cdef list summaries = []
    assert 0 <= at <= end <= len(data), "a part of the data"
    for _ in range(count):
        if end - at < FIXED_SIZE:
            raise CorruptStore(path, at, "checkpoint cut off")
        dead_bytes = get_u32(image + at + 76)
        if end - at - FIXED_SIZE < dead_bytes:
            raise CorruptStore(path, at + FIXED_SIZE, "checkpoint cut off")
        summaries.append(decode_summary(image + at, dead_bytes))
        at += FIXED_SIZE + dead_bytes
    return summaries, at
