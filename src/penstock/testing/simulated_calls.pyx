"""System calls of compiled code, answered by a simulated disk.

`SIMULATED_CALLS` is a table as `penstock.store.system_calls` has one for the operating system. Its
calls take the interpreter lock and ask the file or folder that a descriptor leads to, which may
fail, write less than it was given, be interrupted or have lost power: an OSError becomes -1 and
errno, as compiled code sees it of the system.

Invariant: a descriptor is never used twice, and is none of the system's: after its file is closed
or gone, every call fails with EBADF. Any other exception of a simulated file is reported as
unraisable and is EIO to the caller.

Thread: any, with or without the interpreter lock.
"""

import itertools
import weakref

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EBADF, EIO
from libc.string cimport memcpy
from posix.types cimport off_t

from penstock.store.system_calls cimport SystemCalls

cdef extern from *:
    """
    #include <errno.h>
    static void set_errno(int code) { errno = code; }
    """
    void set_errno(int code) nogil

# Above any descriptor of the system's.
_NUMBERS = itertools.count(1_000_000)

# A file that nothing else holds is gone: a store that has crashed closes nothing.
_OPENED = weakref.WeakValueDictionary()


def new_descriptor(opened):
    """Return a descriptor that leads to a simulated file or folder until that is gone.

    A file has `call_read`, `call_write`, `call_sync`, `size` and `close`; a folder has `call_open`;
    where paths begin there are `call_create` and `call_sync_folder`.
    """
    fd = next(_NUMBERS)
    _OPENED[fd] = opened
    return fd


cdef object _find(int fd):
    opened = _OPENED.get(fd)
    if opened is None:
        raise OSError(EBADF, "no such descriptor")
    return opened


cdef ssize_t _failure(BaseException error) noexcept:
    # What a call returns for an exception: an error number below 0.
    if isinstance(error, OSError) and error.errno:
        return -<int>error.errno
    _report(error)
    return -EIO


cdef void _report(BaseException error) noexcept:
    # The interpreter reports what leaves a function that may not raise.
    raise error


cdef ssize_t _read(int fd, void* data, size_t size, off_t offset) noexcept with gil:
    cdef bytes found
    try:
        found = _find(fd).call_read(offset, size)
        memcpy(data, PyBytes_AS_STRING(found), len(found))
        return len(found)
    except BaseException as error:
        return _failure(error)


cdef ssize_t _write(int fd, const void* data, size_t size, off_t offset) noexcept with gil:
    try:
        return _find(fd).call_write(offset, PyBytes_FromStringAndSize(<const char*>data, size))
    except BaseException as error:
        return _failure(error)


cdef ssize_t _sync(int fd) noexcept with gil:
    try:
        _find(fd).call_sync()
        return 0
    except BaseException as error:
        return _failure(error)


cdef ssize_t _open(int folder, const char* name) noexcept with gil:
    cdef bytes encoded = name
    try:
        return _find(folder).call_open(encoded.decode("utf-8", "surrogateescape"))
    except BaseException as error:
        return _failure(error)


cdef ssize_t _measure(int fd) noexcept with gil:
    try:
        return _find(fd).size()
    except BaseException as error:
        return _failure(error)


cdef ssize_t _close(int fd) noexcept with gil:
    try:
        _find(fd).close()
        return 0
    except BaseException as error:
        return _failure(error)


cdef ssize_t _make(int root, const char* path) noexcept with gil:
    cdef bytes encoded = path
    try:
        return _find(root).call_create(encoded.decode("utf-8", "surrogateescape"))
    except BaseException as error:
        return _failure(error)


cdef ssize_t _settle(int root, const char* path) noexcept with gil:
    cdef bytes encoded = path
    try:
        _find(root).call_sync_folder(encoded.decode("utf-8", "surrogateescape"))
        return 0
    except BaseException as error:
        return _failure(error)


cdef inline ssize_t _returned(ssize_t outcome) noexcept nogil:
    # As the system returns it. The interpreter lock is let go of by now, which may set errno.
    if outcome < 0:
        set_errno(<int>-outcome)
        return -1
    return outcome


cdef ssize_t _pread(int fd, void* data, size_t size, off_t offset) noexcept nogil:
    return _returned(_read(fd, data, size, offset))


cdef ssize_t _pwrite(int fd, const void* data, size_t size, off_t offset) noexcept nogil:
    return _returned(_write(fd, data, size, offset))


cdef int _fdatasync(int fd) noexcept nogil:
    return <int>_returned(_sync(fd))


cdef int _open_in(int folder, const char* name) noexcept nogil:
    return <int>_returned(_open(folder, name))


cdef off_t _length(int fd) noexcept nogil:
    return _returned(_measure(fd))


cdef int _close_fd(int fd) noexcept nogil:
    return <int>_returned(_close(fd))


cdef int _create(int root, const char* path) noexcept nogil:
    return <int>_returned(_make(root, path))


cdef int _sync_folder(int root, const char* path) noexcept nogil:
    return <int>-_settle(root, path)


cdef class SimulatedCalls(SystemCalls):
    """The table of system calls that asks the simulated file of a descriptor."""

    def __cinit__(self):
        self.table.pread = _pread
        self.table.pwrite = _pwrite
        self.table.fdatasync = _fdatasync
        self.table.open_in = _open_in
        self.table.length = _length
        self.table.close = _close_fd
        self.table.create = _create
        self.table.sync_folder = _sync_folder


SIMULATED_CALLS = SimulatedCalls()
