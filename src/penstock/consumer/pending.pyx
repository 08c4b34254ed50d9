"""What a consumer delivered and clients have not acknowledged, and when each is due again.

Deliveries lie packed in the order of the stream, which is the order in which they were first made.
Most are acknowledged in time: they wait in that order, which is also the order of their deadlines,
and cost nothing more. Only messages that were delivered again, put off or asked for are in a heap
by their deadlines.

Invariants: a message that waits to be delivered again (`queued`) has no deadline; every other one
has. A message was delivered once more than `redelivered` says.

Thread: the event loop's.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from heapq import heapify, heappop, heappush

cdef enum:
    # Its deadline stands in the heap.
    MOVED = 1
    # It waits to be delivered again.
    QUEUED = 2
    # Room for so many at first, and kept when none is pending.
    ROOM_START = 16


cdef class Pending:
    """The unacknowledged deliveries of one consumer; see the module."""

    def __init__(self, tuple waits_ns not None):
        """`waits_ns` are the waits after each delivery; the last one is for all further ones."""
        self.redelivered = {}
        self.moved = []
        self.waits_ns = waits_ns
        self.first_wait_ns = waits_ns[0]

    def __dealloc__(self):
        free(self.items)

    def __len__(self):
        return self.count

    def __contains__(self, uint64_t stream_seq):
        return self.find(stream_seq) != NULL

    # Progress

    cdef int note(self, uint64_t stream_seq, uint64_t consumer_seq, int64_t now_ns) except -1:
        # Note that a message was delivered.
        self.delivered_consumer_seq = consumer_seq
        self.delivered_stream_seq = max(self.delivered_stream_seq, stream_seq)
        if self.expects_none:
            self.floor_consumer_seq = consumer_seq
            self.floor_stream_seq = self.delivered_stream_seq
            return 0
        return self.add(stream_seq, consumer_seq, now_ns)

    cdef bint acknowledge(self, uint64_t stream_seq) except -1:
        # Remove one delivery; False if it was not pending.
        cdef uint64_t consumer_seq = self.drop(stream_seq)
        if self.redelivered:
            self.redelivered.pop(stream_seq, None)
        if not consumer_seq:
            return False
        self._move_floor(consumer_seq, stream_seq)
        return True

    cdef void _move_floor(self, uint64_t consumer_seq, uint64_t stream_seq) noexcept:
        # Put the floor right below the first delivery that is still pending.
        if not self.count:
            self.floor_consumer_seq = self.delivered_consumer_seq
            self.floor_stream_seq = self.delivered_stream_seq
        elif consumer_seq == self.floor_consumer_seq + 1:
            self.floor_consumer_seq = self.items[self.start].consumer_seq - 1
            self.floor_stream_seq = self.items[self.start].stream_seq - 1

    def deliver(self, uint64_t stream_seq, uint64_t consumer_seq, int64_t now_ns):
        """Note a delivery. A message that is pending keeps its first consumer sequence."""
        self.note(stream_seq, consumer_seq, now_ns)

    def ack(self, uint64_t stream_seq):
        """Remove an acknowledged message; return False if it was not pending."""
        return self.acknowledge(stream_seq)

    def ack_up_to(self, uint64_t stream_seq, uint64_t consumer_seq):
        """Remove all messages up to one; return the stream sequences of those that were pending."""
        cdef list gone = self.remove_up_to(stream_seq)
        self.floor_consumer_seq = max(self.floor_consumer_seq, consumer_seq)
        self.floor_stream_seq = max(self.floor_stream_seq, stream_seq)
        return [each for each, _ in gone]

    def give_up(self, uint64_t stream_seq):
        """Remove a message that was not acknowledged; the floor stays below it."""
        self.drop(stream_seq)

    def pass_over(self, list stream_seqs not None, uint64_t cursor):
        """Remove messages that are no longer in the stream.

        If none is left, all before `cursor` counts as delivered and acknowledged.
        """
        for stream_seq in stream_seqs:
            self.acknowledge(stream_seq)
        if not self.count:
            self.delivered_stream_seq = max(self.delivered_stream_seq, cursor - 1)
            self.floor_consumer_seq = self.delivered_consumer_seq
            self.floor_stream_seq = self.delivered_stream_seq

    def start_at(self, uint64_t stream_seq):
        """Forget all; a stream sequence is the first that was not delivered."""
        self.clear()
        self.floor_consumer_seq = self.delivered_consumer_seq = 0
        self.floor_stream_seq = self.delivered_stream_seq = stream_seq - 1

    def restore(self, tuple delivered not None, tuple floor not None, entries, redelivered):
        """Take over a saved state: (consumer, stream) sequences, entries, redeliveries."""
        self.clear()
        self.delivered_consumer_seq, self.delivered_stream_seq = delivered
        self.floor_consumer_seq, self.floor_stream_seq = floor
        self.redelivered.update(redelivered)
        for stream_seq, consumer_seq, time_ns in entries:
            self.add(stream_seq, consumer_seq, time_ns)
            self._schedule(self.find(stream_seq))

    # Coming and going

    cdef int _make_room(self) except -1:
        cdef size_t room
        cdef Delivery* grown
        if self.start > self.room // 2:
            memmove(
                self.items, self.items + self.start, (self.end - self.start) * sizeof(Delivery)
            )
            self.fresh -= min(self.start, self.fresh)
            self.end -= self.start
            self.start = 0
            return 0
        room = self.room * 2 if self.room else ROOM_START
        grown = <Delivery*>realloc(self.items, room * sizeof(Delivery))
        if grown == NULL:
            raise MemoryError
        self.items = grown
        self.room = room
        return 0

    cdef int add(self, uint64_t stream_seq, uint64_t consumer_seq, int64_t now_ns) except -1:
        # Note a delivery. A message that is pending keeps its first consumer sequence.
        cdef Delivery* item = self.find(stream_seq)
        cdef size_t place
        if item != NULL:
            item.time_ns = now_ns
            item.marks &= ~<unsigned int>QUEUED
            return self._schedule(item)
        if self.end == self.room:
            self._make_room()
        place = self.end
        while place > self.start and self.items[place - 1].stream_seq >= stream_seq:
            place -= 1
        if place < self.end and self.items[place].stream_seq == stream_seq:
            # The entry of a message that was acknowledged, and is delivered once more.
            item = &self.items[place]
        else:
            if place < self.end:
                memmove(
                    self.items + place + 1, self.items + place,
                    (self.end - place) * sizeof(Delivery),
                )
            self.end += 1
            item = &self.items[place]
        item.stream_seq = stream_seq
        item.consumer_seq = consumer_seq
        item.time_ns = now_ns
        item.marks = item.zero = 0
        self.count += 1
        if place + 1 < self.end:
            self._schedule(item)
        return 0

    cdef Delivery* find(self, uint64_t stream_seq) noexcept:
        cdef size_t low = self.start, high = self.end, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.items[middle].stream_seq < stream_seq:
                low = middle + 1
            else:
                high = middle
        if (
            low < self.end and self.items[low].stream_seq == stream_seq
            and self.items[low].consumer_seq
        ):
            return &self.items[low]
        return NULL

    cdef uint64_t drop(self, uint64_t stream_seq) noexcept:
        # Remove a delivery; its consumer sequence, or 0 if it is not pending.
        cdef Delivery* item = self.find(stream_seq)
        cdef uint64_t consumer_seq
        if item == NULL:
            return 0
        consumer_seq = item.consumer_seq
        item.consumer_seq = 0
        self.count -= 1
        self._pass_gone()
        return consumer_seq

    cdef void _pass_gone(self) noexcept:
        while self.start < self.end and self.items[self.start].consumer_seq == 0:
            self.start += 1
        if self.start == self.end:
            self.start = self.end = self.fresh = 0
            if self.room > 4096:
                free(self.items)
                self.items = NULL
                self.room = 0

    def remove_up_to(self, uint64_t stream_seq):
        """Remove all up to a sequence; return their (stream sequence, consumer sequence)."""
        cdef list gone = []
        cdef size_t place = self.start
        while place < self.end and self.items[place].stream_seq <= stream_seq:
            if self.items[place].consumer_seq:
                gone.append((self.items[place].stream_seq, self.items[place].consumer_seq))
                self.items[place].consumer_seq = 0
                self.count -= 1
                self.redelivered.pop(self.items[place].stream_seq, None)
            place += 1
        self._pass_gone()
        return gone

    def clear(self):
        """Forget everything."""
        self.start = self.end = self.fresh = self.count = 0
        self.moved.clear()
        self.redelivered.clear()

    def first(self):
        """Return (stream sequence, consumer sequence) of the first message; None without any."""
        if not self.count:
            return None
        return self.items[self.start].stream_seq, self.items[self.start].consumer_seq

    def time_of(self, uint64_t stream_seq):
        """Return when a message was delivered; None if it is not pending."""
        cdef Delivery* item = self.find(stream_seq)
        return None if item == NULL else item.time_ns

    def consumer_seq_of(self, uint64_t stream_seq):
        """Return the consumer sequence of a message's first delivery; 0 if it is not pending."""
        cdef Delivery* item = self.find(stream_seq)
        return 0 if item == NULL else item.consumer_seq

    def entries(self):
        """Return (stream sequence, consumer sequence, time) of all messages, in order."""
        cdef size_t place
        return [
            (self.items[place].stream_seq, self.items[place].consumer_seq,
             self.items[place].time_ns)
            for place in range(self.start, self.end) if self.items[place].consumer_seq
        ]

    def packed(self):
        """Return all messages as bytes for `unpacked`, which any thread may call."""
        return PyBytes_FromStringAndSize(
            <char*>(self.items + self.start), (self.end - self.start) * sizeof(Delivery)
        ) if self.count else b""

    # Deadlines

    cdef int64_t _due(self, const Delivery* item) except? -1:
        cdef Py_ssize_t again
        if not self.redelivered or len(self.waits_ns) == 1:
            return item.time_ns + self.first_wait_ns
        again = self.redelivered.get(item.stream_seq, 0)
        return item.time_ns + <int64_t>self.waits_ns[min(again, len(self.waits_ns) - 1)]

    cdef int _schedule(self, Delivery* item) except -1:
        item.marks |= MOVED
        heappush(self.moved, (self._due(item), item.stream_seq))
        return 0

    def wait(self, tuple waits_ns not None):
        """Change to other waits."""
        cdef size_t place
        self.waits_ns = waits_ns
        self.first_wait_ns = waits_ns[0]
        self.moved = [
            (self._due(&self.items[place]), self.items[place].stream_seq)
            for place in range(self.start, self.end)
            if self.items[place].consumer_seq and self.items[place].marks == MOVED
        ]
        heapify(self.moved)

    def put_off(self, uint64_t stream_seq, int64_t time_ns):
        """Have the wait for a message begin at a time; return False if it is not pending."""
        cdef Delivery* item = self.find(stream_seq)
        if item == NULL:
            return False
        item.time_ns = time_ns
        item.marks &= ~<unsigned int>QUEUED
        self._schedule(item)
        return True

    def queue(self, uint64_t stream_seq):
        """Note that a message waits to be delivered again.

        Return False if it is not pending, or waits already.
        """
        cdef Delivery* item = self.find(stream_seq)
        if item == NULL or item.marks & QUEUED:
            return False
        item.marks |= QUEUED | MOVED
        return True

    def is_queued(self, uint64_t stream_seq):
        """Return True if a message waits to be delivered again."""
        cdef Delivery* item = self.find(stream_seq)
        return item != NULL and item.marks & QUEUED != 0

    def next_due_ns(self):
        """Return when the next message is due; None if none is."""
        cdef Delivery* item
        fresh_ns = None
        while self.fresh < self.end and (
            self.fresh < self.start or not self.items[self.fresh].consumer_seq
            or self.items[self.fresh].marks
        ):
            self.fresh += 1
        if self.fresh < self.end:
            fresh_ns = self.items[self.fresh].time_ns + self.first_wait_ns
        while self.moved:
            item = self.find(self.moved[0][1])
            if item == NULL or item.marks != MOVED or self._due(item) != self.moved[0][0]:
                heappop(self.moved)
                continue
            if fresh_ns is None or self.moved[0][0] < fresh_ns:
                return self.moved[0][0]
            break
        return fresh_ns

    def take_due(self, int64_t now_ns):
        """Return the due sequences, in order; they have no deadline until they are noted again."""
        cdef Delivery* item
        cdef list due = []
        cdef size_t place
        self.next_due_ns()
        place = self.fresh
        while place < self.end:
            item = &self.items[place]
            if item.consumer_seq and not item.marks:
                if item.time_ns + self.first_wait_ns > now_ns:
                    break
                item.marks = MOVED
                due.append(item.stream_seq)
            place += 1
        while self.moved and self.moved[0][0] <= now_ns:
            due_ns, seq = heappop(self.moved)
            item = self.find(seq)
            if item != NULL and item.marks == MOVED and self._due(item) == due_ns:
                due.append(seq)
        due = sorted(set(due))
        return due


def unpacked(bytes data not None):
    """Return [(stream sequence, consumer sequence, time)] of what `Pending.packed` returned."""
    cdef const Delivery* items = <const Delivery*><const char*>data
    cdef size_t place
    return [
        (items[place].stream_seq, items[place].consumer_seq, items[place].time_ns)
        for place in range(len(data) // sizeof(Delivery)) if items[place].consumer_seq
    ]
