"""The first bytes of many files, in one go: what an open asks of every block of a stream.

One pass over the system's calls, without the interpreter and without its lock, so that it costs
little more than the calls themselves, and other threads go on where the disk is slow.

What always holds: no file stays open, and any failure is raised as the system names it.

Called by the operating system's file system alone. Any thread.
"""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CLOEXEC, O_DIRECTORY, O_RDONLY, openat
from posix.unistd cimport SEEK_END, close, lseek, pread

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)

cdef struct Start:
    const char* name
    int64_t size
    ssize_t got


cdef int read_start(int folder, Start* start, char* data, size_t size) noexcept nogil:
    # 0, or the number of the system's error.
    cdef int fd = openat(folder, start.name, O_RDONLY | O_CLOEXEC)
    cdef int failure = 0
    while fd < 0 and errno == EINTR:
        fd = openat(folder, start.name, O_RDONLY | O_CLOEXEC)
    if fd < 0:
        return errno
    start.size = lseek(fd, 0, SEEK_END)
    start.got = pread(fd, data, size, 0)
    while start.got < 0 and errno == EINTR:
        start.got = pread(fd, data, size, 0)
    if start.size < 0 or start.got < 0:
        failure = errno
    close(fd)
    return failure


def read_file_starts(str folder not None, names, size_t size):
    """Give the length and up to `size` first bytes of each of a folder's files."""
    cdef list encoded = [PyUnicode_EncodeFSDefault(name) for name in names]
    cdef list found = []
    cdef Py_ssize_t count = len(encoded), place = 0
    cdef int fd = os.open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef int failure = 0
    cdef Start* starts = <Start*>malloc((count or 1) * sizeof(Start))
    cdef char* data = <char*>malloc((count or 1) * (size or 1))
    try:
        if starts == NULL or data == NULL:
            raise MemoryError
        for place in range(count):
            starts[place].name = <bytes>encoded[place]
        with nogil:
            place = 0
            while place < count:
                failure = read_start(fd, &starts[place], data + place * size, size)
                if failure:
                    break
                place += 1
        if failure:
            raise OSError(failure, os.strerror(failure), f"{folder}/{names[place]}")
        for place in range(count):
            image = PyBytes_FromStringAndSize(data + place * size, starts[place].got)
            found.append((starts[place].size, image))
        return found
    finally:
        free(data)
        free(starts)
        close(fd)
