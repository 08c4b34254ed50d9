"""The system calls that compiled code makes on a store's files, as a table that tests replace.

The disk threads, the reads of single messages and the first look at every block call the system
without the interpreter. Each of them takes the table from the file that it works on, or from the
root of the file system in which it makes one: a file of the operating system has `SYSTEM_CALLS`, a
file of the simulated disk has the table of `penstock.testing.simulated_calls`. So power cuts and
failing calls are tried on the code that servers run. A call costs one jump more than without the
table.

`read_file_starts` is here because it is nothing but system calls: one pass over all block files of
a stream without the interpreter and without its lock, so that it costs little more than the calls
themselves and other threads go on if the disk is slow.

Invariant: a table is never changed once a file has it. `read_file_starts` leaves no file open and
raises any failure as the system names it.

Thread: any.
"""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport (
    AT_FDCWD, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_RDWR, openat,
)
from posix.types cimport off_t
from posix.unistd cimport SEEK_END, close, fdatasync, fsync, lseek, pread, pwrite

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)

cdef struct Start:
    const char* name
    int64_t size
    ssize_t got


cdef int _open_in(int folder, const char* name) noexcept nogil:
    return openat(folder, name, O_RDONLY | O_CLOEXEC)


cdef off_t _length(int fd) noexcept nogil:
    return lseek(fd, 0, SEEK_END)


cdef int _create(int root, const char* path) noexcept nogil:
    return openat(root, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)


cdef int _sync_folder(int root, const char* path) noexcept nogil:
    cdef int fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef int failure = 0
    if fd < 0:
        return errno
    if fsync(fd) != 0:
        failure = errno
    close(fd)
    return failure


cdef class SystemCalls:
    """A table of system calls; this one is the operating system's."""

    def __cinit__(self):
        self.table.pread = pread
        self.table.pwrite = pwrite
        self.table.fdatasync = fdatasync
        self.table.open_in = _open_in
        self.table.length = _length
        self.table.close = close
        self.table.create = _create
        self.table.sync_folder = _sync_folder


SYSTEM_CALLS = SystemCalls()
SYSTEM_ROOT = <int>AT_FDCWD


cdef int _read_start(
    const CallTable* calls, int folder, Start* start, char* data, size_t size
) noexcept nogil:
    # 0, or the number of the system's error.
    cdef int fd = calls.open_in(folder, start.name)
    cdef int failure = 0
    while fd < 0 and errno == EINTR:
        fd = calls.open_in(folder, start.name)
    if fd < 0:
        return errno
    start.got = 0
    start.size = calls.length(fd)
    if start.size >= 0:
        start.got = calls.pread(fd, data, size, 0)
        while start.got < 0 and errno == EINTR:
            start.got = calls.pread(fd, data, size, 0)
    if start.size < 0 or start.got < 0:
        failure = errno
    calls.close(fd)
    return failure


def read_file_starts(folder, names, size_t size):
    """Return the length and up to `size` first bytes of each of an open folder's files."""
    cdef SystemCalls calls = folder.calls
    cdef int fd = folder.call_fd()
    cdef list encoded = [PyUnicode_EncodeFSDefault(name) for name in names]
    cdef list found = []
    cdef Py_ssize_t count = len(encoded), at = 0
    cdef int failure = 0
    cdef Start* starts = <Start*>malloc((count or 1) * sizeof(Start))
    cdef char* data = <char*>malloc((count or 1) * (size or 1))
    try:
        if starts == NULL or data == NULL:
            raise MemoryError
        for at in range(count):
            starts[at].name = <bytes>encoded[at]
        with nogil:
            at = 0
            while at < count:
                failure = _read_start(&calls.table, fd, &starts[at], data + at * size, size)
                if failure:
                    break
                at += 1
        if failure:
            raise OSError(failure, os.strerror(failure), f"{folder.path}/{names[at]}")
        for at in range(count):
            image = PyBytes_FromStringAndSize(data + at * size, starts[at].got)
            found.append((starts[at].size, image))
        return found
    finally:
        free(data)
        free(starts)
