"""Which messages of a stream its consumers still need, and how many one has still to deliver.

`StreamNeeds` is the only answer to "may this message be removed?". Acknowledgements ask it for
every message (`ack_receiver`); `retention` asks it when a consumer goes, changes its filter or is
recovered.

A consumer needs a message that its filter matches if the message is

- not delivered yet: at the cursor or behind it, chosen when the consumer was created
  (`last_per_subject`), or held for its key;
- delivered and not acknowledged;
- given up after its last delivery: it stays until a client removes it.

With an ack policy other than explicit, a message is needed if it lies above the ack floor.

Invariant: a message that a consumer has chosen and was not given yet is needed.

Thread: the event loop's.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.consumer.pending cimport Pending
from penstock.store.store_state cimport StoreState
from penstock.stream.interest cimport Interest
from penstock.subjects cimport SubjectFilter


cdef class Position:
    """Where one consumer is in its stream, and which messages it still needs."""

    def __init__(self, Pending pending not None):
        """Begin at the first message. `pending` are the consumer's unacknowledged deliveries."""
        self.pending = pending
        self.cursor = 1
        self.chosen = []

    def matches(self, bytes subject not None):
        """Return True if the consumer delivers messages of a subject."""
        return self.subjects is None or self.subjects.matches(subject)

    def needs(self, uint64_t stream_seq, bytes subject not None):
        """Return True if a message of the stream must be kept for the consumer."""
        if self.subjects is not None and not self.subjects.matches(subject):
            return False
        return self.needs_matching(stream_seq)

    def drop_chosen(self, uint64_t stream_seq):
        """Remove a message from the chosen ones, if it is one of them."""
        if self.is_chosen(stream_seq):
            self.chosen.remove(stream_seq)

    cdef bint is_chosen(self, uint64_t stream_seq) except -1:
        cdef Py_ssize_t low = 0, high = len(self.chosen), middle
        while low < high:
            middle = low + (high - low) // 2
            if <uint64_t>self.chosen[middle] > stream_seq:
                low = middle + 1
            else:
                high = middle
        return low < len(self.chosen) and <uint64_t>self.chosen[low] == stream_seq

    cdef bint needs_matching(self, uint64_t stream_seq) except -1:
        # Of a message that the filter matches.
        if self.by_floor:
            return stream_seq > self.pending.floor_stream_seq
        if stream_seq >= self.cursor or self.pending.find(stream_seq) != NULL:
            return True
        if self.chosen and self.is_chosen(stream_seq):
            return True
        if self.held is not None and stream_seq in self.held:
            return True
        return stream_seq in self.pending.redelivered


@cython.final
cdef class PendingCount:
    """How many messages one consumer has still to deliver for the first time.

    A count is kept up to date by what was delivered and what came in. The store is counted again
    only if messages behind the cursor were removed.

    Invariant: the count is what counting the store anew would return.
    """

    def __init__(self, store, SubjectFilter subjects):
        self.store = store
        self.subjects = subjects

    def forget(self):
        """Have the store counted again the next time."""
        self.up_to = 0

    def delivered(self, int64_t count, uint64_t cursor):
        """Note that `count` of the counted messages were delivered, up to a new cursor."""
        self.total -= count
        self.cursor = cursor

    def count(self, uint64_t cursor):
        """Return the number of matching messages from a cursor on."""
        if cursor > <uint64_t>self.store.last_seq:
            self.up_to = 0
            return 0
        return self.count_in(self.store.state(), cursor)

    cdef int64_t count_in(self, StoreState state, uint64_t cursor) except? -1:
        # The same, of a store that is in this state.
        cdef bint removed_behind = state.deleted != self.deleted or state.first_seq > cursor
        if cursor > state.last_seq:
            self.up_to = 0
            return 0
        if self.up_to == 0 or self.cursor != cursor or removed_behind:
            self.total = self.store.count_pending(self.subjects, cursor)
        elif state.last_seq > self.up_to:
            self.total += <int64_t>self.store.count_pending(self.subjects, self.up_to + 1)
        self.cursor = cursor
        self.up_to = state.last_seq
        self.deleted = state.deleted
        return self.total


cdef class StreamNeeds(Interest):
    """What the consumers of one stream need, and the streams that read from it."""

    def __init__(self, list fed_streams not None, load_subject):
        """`load_subject(stream_seq)` returns a message's subject, b"" if the message is gone."""
        self.positions = {}
        self.fed_streams = fed_streams
        self.load_subject = load_subject

    def needs(self, uint64_t stream_seq, bytes subject=None):
        """Return True if a consumer or a fed stream needs a message.

        The subject is loaded only if it is not given and a filter must be compared with it.
        """
        return self.is_needed(stream_seq, subject)

    cdef bint is_any(self) noexcept:
        return len(self.positions) > 0

    cdef bint has(self, const uint8_t* subject, size_t size) except -1:
        cdef Position position
        for position in self.positions.values():
            if position.subjects is None or position.subjects.matches_raw(subject, size):
                return True
        if not self.fed_streams:
            return False
        name = subject[:size]
        return any([fed.wants(name) for fed in self.fed_streams])

    cdef bint runs_python(self) noexcept:
        # Whether `is_needed` may load a subject or ask a fed stream.
        cdef Position position
        if self.fed_streams:
            return True
        for position in self.positions.values():
            if position.subjects is not None:
                return True
        return False

    cdef bint is_needed(self, uint64_t stream_seq, bytes subject) except -1:
        cdef Position position
        for position in self.positions.values():
            if position.subjects is not None:
                if subject is None:
                    subject = self.load_subject(stream_seq)
                if not position.subjects.matches(subject):
                    continue
            if position.needs_matching(stream_seq):
                return True
        if not self.fed_streams:
            return False
        if subject is None:
            subject = self.load_subject(stream_seq)
        return any(fed.needs(stream_seq, subject) for fed in self.fed_streams)
