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
    # How many files a job writes at the most: the end of a full block, and what follows it.
    PARTS_MAX = 4


cdef struct DoneList:
    # Readable while there is something in the list.
    int fd
    Task* first
    Task* last


cdef struct Part:
    # The file; with a path it is made, and -1 until then.
    int fd
    const char* path
    const uint8_t* data
    size_t size
    uint64_t offset


cdef struct Task:
    const CallTable* calls
    Part[4] parts  # PARTS_MAX
    int count
    # Where paths begin, and the folder of files that are made; NULL where none is.
    int root
    const char* folder
    # Zeros to write behind the last part, and how many were.
    size_t room
    bint syncs
    int mark_fd
    uint8_t[64] mark
    size_t mark_size
    uint64_t mark_offset
    int state
    # The system's error number, 0 where there was none, and which part it is of, if it is of one.
    int error
    int reached
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
    # Of each part: its chunk, the path of its file, and that as the system wants it.
    cdef list chunks
    cdef list paths
    cdef list encoded
    cdef bytes folder
    cdef object root
    cdef object finish
    cdef DoneJobs done_jobs

    cdef Part* _add(self, str path, SystemCalls calls, Chunk chunk) except NULL
