"""The message ids that a stream has seen within its window, and under which sequences.

Invariant: an id is known from the moment its message is stored until the window has passed, and no
longer, so memory is bounded by the messages of one window. Old ids are removed a few at a time, so
that no message waits for a whole window to be cleared.

Thread: the event loop's.
"""

from collections import deque

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.store.log.fast_scan cimport TAKEN_NONE, TAKEN_UNREAD, Scanner, Taken
from penstock.protocol.headers cimport MESSAGE_ID, StreamHeaders, bytes_in, read_stream_headers


cdef enum:
    # How many one look-up removes at most: more than it adds, so that memory stays bounded.
    FORGOTTEN_BY_EACH = 16
    # The same of a timer: some tenths of a millisecond.
    FORGOTTEN_AT_ONCE = 2000


cdef class MessageIds:
    """The ids; see the module."""

    def __cinit__(self):
        self.numbers = {}
        self.order = deque()
        self.last_id = b""

    def __dealloc__(self):
        free(self.ring)

    def __len__(self):
        return self.count

    cpdef uint64_t find(self, bytes message_id, int64_t now_ns) except? 0xFFFFFFFFFFFFFFFF:
        """Return the sequence of an id; 0 if it is unknown or too old."""
        cdef Stored* stored
        self.prune(now_ns, FORGOTTEN_BY_EACH)
        found = self.numbers.get(message_id)
        if found is None:
            return 0
        stored = self._at(<uint64_t>found - self.first_number)
        return stored.seq if now_ns - stored.time_ns < self.window_ns else 0

    cpdef int remember(self, bytes message_id, uint64_t seq, int64_t time_ns) except -1:
        """Add the id of a message that was stored at a time, not before the last one."""
        cdef Stored* stored
        self.last_id = message_id
        self.last_id_seq = seq
        if self.window_ns <= 0:
            return 0
        if self.count == self.room:
            self._grow()
        self.numbers[message_id] = self.first_number + self.count
        self.order.append(message_id)
        stored = self._at(self.count)
        stored.time_ns = time_ns
        stored.seq = seq
        self.count += 1
        return 0

    cpdef bint prune(self, int64_t now_ns, uint32_t count_max=FORGOTTEN_AT_ONCE) except -1:
        """Remove some ids older than the window; return True if there are more."""
        while self.count and now_ns - self.ring[self.start].time_ns >= self.window_ns:
            if count_max == 0:
                return True
            count_max -= 1
            message_id = self.order.popleft()
            # It may have been added again since.
            if self.numbers[message_id] == self.first_number:
                del self.numbers[message_id]
            self.start = (self.start + 1) % self.room
            self.first_number += 1
            self.count -= 1
        if not self.count and self.room:
            free(self.ring)
            self.ring = NULL
            self.room = self.start = 0
            self.numbers = {}
            self.order = deque()
        return False

    def clear(self):
        """Forget every id."""
        self.count = 0
        self.last_id = b""
        self.last_id_seq = 0
        self.prune(0)

    cdef Stored* _at(self, size_t place) noexcept:
        return &self.ring[(self.start + place) % self.room]

    cpdef bytes last(self, uint64_t last_seq):
        """Return the id of the message with the stream's last sequence; empty if it had none."""
        return self.last_id if self.last_id_seq == last_seq else b""

    cdef int _grow(self) except -1:
        cdef size_t room = max(self.room * 2, 64), place
        cdef Stored* ring = <Stored*>malloc(room * sizeof(Stored))
        if ring == NULL:
            raise MemoryError
        for place in range(self.count):
            ring[place] = self._at(place)[0]
        free(self.ring)
        self.ring = ring
        self.room = room
        self.start = 0
        return 0


def collect(MessageIds message_ids not None, Scanner scanner not None, uint64_t seq,
            uint64_t until, uint32_t count_max):
    """Add the ids of stored messages, from `seq` up to `until`, or of the first `count_max`.

    Returns (where to go on, how many were looked at, whether the message there must be loaded).
    """
    cdef uint32_t count = 0
    cdef Taken taken
    scanner.begin(None, seq, until)
    try:
        while count < count_max:
            taken = scanner.next()
            if taken == TAKEN_NONE:
                return until + 1, count, False
            if taken == TAKEN_UNREAD:
                return scanner.seq, count, True
            _remember_stored(message_ids, scanner)
            count += 1
        return scanner.seq + 1, count, False
    finally:
        scanner.end()


cdef int _remember_stored(MessageIds message_ids, Scanner scanner) except -1:
    cdef StreamHeaders told
    cdef bytes message_id
    if not scanner.record.headers_size:
        return 0
    read_stream_headers(scanner.record.headers, scanner.record.headers_size, &told)
    message_id = bytes_in(&told, MESSAGE_ID)
    if message_id:
        message_ids.remember(message_id, scanner.seq, scanner.record.timestamp_ns)
    return 0
