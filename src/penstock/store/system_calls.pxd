# The system calls of compiled code as a table; see system_calls.pyx.

from posix.types cimport off_t


# As the system's own: -1 and errno for a failure. Any thread, with or without the interpreter lock.
cdef struct CallTable:
    ssize_t (*pread)(int fd, void* data, size_t size, off_t offset) noexcept nogil
    ssize_t (*pwrite)(int fd, const void* data, size_t size, off_t offset) noexcept nogil
    int (*fdatasync)(int fd) noexcept nogil
    # Opens a file of an open folder to be read.
    int (*open_in)(int folder, const char* name) noexcept nogil
    off_t (*length)(int fd) noexcept nogil
    int (*close)(int fd) noexcept nogil
    # Makes a file that is not there yet, to be read and written; `root` is where paths begin.
    int (*create)(int root, const char* path) noexcept nogil
    # Puts a folder's entries on stable storage. Returns 0 or the error number.
    int (*sync_folder)(int root, const char* path) noexcept nogil


cdef class SystemCalls:
    cdef CallTable table
