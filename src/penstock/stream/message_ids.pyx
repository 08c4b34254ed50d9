"""The message ids that a stream has seen within its window, and under which sequences.

What always holds: an id is known from the moment its message is stored until the window has passed;
no longer, so that what is kept is bounded by what comes in within one window.

One thread: the event loop's.
"""

from collections import deque

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc


cdef class MessageIds:
    """The ids; see the module."""

    def __cinit__(self):
        self.seqs = {}
        self.order = deque()
        self.last_id = b""

    def __dealloc__(self):
        free(self.times)

    def __len__(self):
        return self.count

    cpdef uint64_t find(self, bytes message_id, int64_t now_ns) except? 0xFFFFFFFFFFFFFFFF:
        """Give the sequence of an id; 0 where it is not known, or no longer."""
        self.prune(now_ns)
        found = self.seqs.get(message_id)
        return 0 if found is None else <uint64_t>found

    cpdef int remember(self, bytes message_id, uint64_t seq, int64_t time_ns) except -1:
        """Keep the id of a message that was stored at a time, not before the last one."""
        self.last_id = message_id
        self.last_id_seq = seq
        if self.window_ns <= 0:
            return 0
        if self.count == self.room:
            self._grow()
        self.seqs[message_id] = seq
        self.order.append(message_id)
        self.times[(self.start + self.count) % self.room] = time_ns
        self.count += 1
        return 0

    cpdef int prune(self, int64_t now_ns) except -1:
        """Forget what is older than the window."""
        while self.count and now_ns - self.times[self.start] >= self.window_ns:
            self.seqs.pop(self.order.popleft(), None)
            self.start = (self.start + 1) % self.room
            self.count -= 1
        if not self.count and self.room:
            free(self.times)
            self.times = NULL
            self.room = self.start = 0
        return 0

    def last(self, uint64_t last_seq):
        """Give the id of the message with the stream's last sequence; empty where it had none."""
        return self.last_id if self.last_id_seq == last_seq else b""

    cdef int _grow(self) except -1:
        cdef size_t room = max(self.room * 2, 64), place
        cdef int64_t* times = <int64_t*>malloc(room * sizeof(int64_t))
        if times == NULL:
            raise MemoryError
        for place in range(self.count):
            times[place] = self.times[(self.start + place) % self.room]
        free(self.times)
        self.times = times
        self.room = room
        self.start = 0
        return 0
