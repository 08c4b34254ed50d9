"""Bytes waiting to be sent to one receiver: one growing buffer, sent from its front.

An empty outbox holds no memory beyond a small buffer. Outboxes that fill and empty all the time
take their large buffers from a few that all of them share: fresh memory costs a page fault every
4 KiB. An outbox has no limit of its own: `net.link` compares `pending` with `max_pending` before it
appends.

One thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

cdef extern from "sys/socket.h" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    enum:
        MSG_DONTWAIT
        MSG_NOSIGNAL

cdef enum:
    ROOM_START = 4096
    # A buffer that grew beyond this is given back when it runs empty.
    ROOM_KEPT = 16384
    # The size of the shared buffers, and how many are kept at the most: 4 MiB.
    SPARE_ROOM = 262144
    SPARES_MAX = 16

cdef uint8_t* spares[16]
cdef int spares_count = 0


cdef uint8_t* _take_spare() noexcept nogil:
    # Return a shared buffer, or a new one of its size; NULL where there is no memory.
    global spares_count
    if spares_count:
        spares_count -= 1
        return spares[spares_count]
    return <uint8_t*>malloc(SPARE_ROOM)


cdef class Outbox:
    """Bytes waiting for one receiver."""

    def __dealloc__(self):
        free(self.data)

    cdef size_t pending(self) noexcept nogil:
        return self.end - self.start

    cdef uint8_t* reserve(self, size_t more) except NULL:
        # Return room for `more` bytes at the end; the caller moves `end` when it has filled them.
        cdef size_t room
        cdef uint8_t* grown
        if self.end + more <= self.room:
            return self.data + self.end
        if self.room < SPARE_ROOM and self.end - self.start + more <= SPARE_ROOM and (
            self.is_busy or self.end - self.start + more > ROOM_KEPT
        ):
            return self._move_to_spare()
        if self.start:
            memmove(self.data, self.data + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
            if self.end + more <= self.room:
                return self.data + self.end
        room = self.room * 2 if self.room else ROOM_START
        while room < self.end + more:
            room *= 2
        grown = <uint8_t*>realloc(self.data, room)
        if grown == NULL:
            raise MemoryError
        self.data = grown
        self.room = room
        return self.data + self.end

    cdef uint8_t* _move_to_spare(self) except NULL:
        cdef uint8_t* spare = _take_spare()
        if spare == NULL:
            raise MemoryError
        if self.end > self.start:
            memcpy(spare, self.data + self.start, self.end - self.start)
        free(self.data)
        self.data = spare
        self.room = SPARE_ROOM
        self.end -= self.start
        self.start = 0
        return self.data + self.end

    cdef int put(self, const void* data, size_t size) except -1:
        if size == 0:
            return 0
        memcpy(self.reserve(size), data, size)
        self.end += size
        return 0

    cdef Py_ssize_t send(self, int fd) noexcept nogil:
        # Send what the socket takes; return the bytes left over, -1 if the connection is gone.
        cdef ssize_t sent
        while self.start < self.end:
            sent = c_send(
                fd, self.data + self.start, self.end - self.start, MSG_DONTWAIT | MSG_NOSIGNAL
            )
            if sent < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    return self.end - self.start
                return -1
            self.start += sent
        # An outbox that needed little of a shared buffer begins with its own the next time.
        self.is_busy = self.end > ROOM_KEPT
        self.start = self.end = 0
        if self.room > ROOM_KEPT:
            self.release()
        return 0

    cdef void release(self) noexcept nogil:
        global spares_count
        if self.room == SPARE_ROOM and spares_count < SPARES_MAX:
            spares[spares_count] = self.data
            spares_count += 1
        else:
            free(self.data)
        self.data = NULL
        self.start = self.end = self.room = 0

    def append(self, bytes data not None):
        """Add bytes."""
        self.put(<const char*>data, len(data))

    def send_to(self, int fd):
        """Send what a socket takes; return the bytes left over, -1 if the connection is gone."""
        return self.send(fd)

    def send_behind(self, int fd, bytes data not None):
        """Send what waits and bytes behind it; return what is left over as `send_to` does.

        Bytes that the socket takes at once are not copied.
        """
        cdef const uint8_t* rest = data
        cdef size_t size = len(data)
        cdef ssize_t sent
        while size and self.start == self.end:
            sent = c_send(fd, rest, size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    break
                return -1
            rest += sent
            size -= sent
        self.put(rest, size)
        return self.send(fd) if size else 0

    def take(self):
        """Remove and return everything that waits."""
        taken = PyBytes_FromStringAndSize(<char*>self.data + self.start, self.end - self.start)
        self.start = self.end = 0
        if self.room > ROOM_KEPT:
            self.release()
        return taken

    def clear(self):
        """Drop everything that waits, and free its memory."""
        self.release()

    def __len__(self):
        return self.pending()
