# Threads that write and sync without the interpreter; see disk_threads.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.store.log.active_block cimport Chunk
from penstock.store.system_calls cimport CallTable, SystemCalls


cdef enum:
    NEW = 0
    QUEUED = 1
    UNDER_WAY = 2
    DONE = 3
    MARK_BYTES_MAX = 64


cdef struct DoneList:
    # Readable while there is something in the list.
    int fd
    Task* first
    Task* last


cdef struct Task:
    const CallTable* calls
    int fd
    const uint8_t* data
    size_t size
    uint64_t offset
    # Zeros to write behind the data, and how many were.
    size_t room
    bint syncs
    int mark_fd
    uint8_t[64] mark
    size_t mark_size
    uint64_t mark_offset
    int state
    # The system's error number, 0 where there was none.
    int error
    int64_t took_ns
    # Neighbours in the queue, and then the next in the list of those that are done.
    Task* before
    Task* after
    DoneList* done
    # The DiskJob, which has a reference for being queued or in that list.
    void* job


cdef class DoneJobs:
    cdef DoneList list


cdef class DiskJob:
    cdef Task task
    cdef SystemCalls calls
    cdef str path
    cdef Chunk chunk
    cdef object finish
    cdef DoneJobs done_jobs
