"""The quick way out: message after message from a place in the stream, no Python object for each.

`begin` finds the place and `next` gives one wanted message after another, up to a sequence, as they
lie in their records; `end` lets go of the store. Records that lie behind each other are read many
at a time. What is not plainly there, an envelope or a damaged record, is left to the store's
`load`. What is done with is taken out for good by `remove`.

What always holds: every record is verified before it is given: checksum, place and sequence. The
store may be added to and messages may be removed between two calls of `next`, in the same thread.

One thread: whoever owns the stream. The store's lock is held from `begin` to `end`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from penstock.format.block_index cimport Entry
from penstock.format.record cimport (
    FLAG_DELETED, FLAG_ENVELOPED, FLAG_SKIP, FLAG_TOMBSTONE, PARSED_WHOLE, checksum_holds, parse,
)
from penstock.store.active_block cimport ActiveBlock, Chunk
from penstock.store.block_account cimport Block
from penstock.store.questions cimport marks, narrowing
from penstock.store.selections cimport Selections

from penstock.errors import CorruptStore

cdef enum:
    # What is read at once: some hundred messages, and still in the processor's caches when sent.
    WINDOW_BYTES = 65536


cdef class Outtake:
    """The quick way out; see the module."""

    def __init__(self, engine):
        self.engine = engine
        self.lock = engine.lock
        self.ledger = engine.ledger
        self.selections = Selections(engine.ledger)

    cdef int begin(self, SubjectFilter subject_filter, uint64_t seq, uint64_t until) except -1:
        self.lock.acquire()
        self.subject_filter = narrowing(subject_filter)
        self.until = min(until, self.ledger.last_seq) if self.ledger.messages else 0
        self.block = None
        self.seq = seq - 1 if seq else 0
        self.span = None
        try:
            if self.subject_filter is not None:
                self.span = self.selections.span(self.subject_filter)
        except BaseException:
            self.lock.release()
            raise
        return 0

    cdef int end(self) except -1:
        self.block = None
        self.index = None
        self.selection = None
        self.wanted = None
        self.lock.release()
        return 0

    cdef int remove(self, uint64_t seq) except -1:
        # Remove a message as the store's own `remove` does; `tell_removed` must follow.
        self.lock.acquire()
        try:
            self.engine.check_writable()
            self.ledger.remove(seq)
        finally:
            self.lock.release()
        return 0

    cdef int tell_removed(self) except -1:
        # Have what was removed written.
        self.engine.changed()
        return 0

    cdef bint _enter(self, uint64_t seq) except -1:
        # Go to the block that may hold the first wanted message from `seq` on.
        cdef Py_ssize_t place = max(self.ledger.block_at(seq), 0)
        cdef Block block
        for place in range(place, len(self.ledger.blocks)):
            block = self.ledger.blocks[place]
            if block.base_seq > self.until:
                return False
            if block.live == 0 or block.last_seq < seq:
                continue
            if self.span is not None and not self.span.may_hold(block.number):
                continue
            if self._look_into(block, seq):
                self.block = block
                return True
        return False

    cdef bint _look_into(self, Block block, uint64_t seq) except -1:
        # Make ready to go through a block; False where nothing in it is wanted.
        self.wanted = None
        self.index = None
        self.selection = None
        self.ordinal = -1
        if self.subject_filter is not None:
            self.selection = self.selections.find(block, self.subject_filter)
        if self.selection is None or self.selection.is_dense:
            self.index = self.ledger.index_of(block)
        if self.selection is None and self.subject_filter is not None:
            self.selection = self.selections.make(block, self.index, self.subject_filter)
        if self.selection is not None and self.selection.is_dense:
            self.selection = None
        if self.selection is not None:
            self.place = self.selection.lower_bound(max(seq, block.base_seq) - block.base_seq)
            return self.place < self.selection.count
        if self.subject_filter is not None:
            self.wanted = self.ledger.wanted(self.index, self.subject_filter)
            self.wanted_subjects = self.index.subject_count
            if not self.wanted:
                return False
        self.ordinal = max(self.index.lower_bound(seq), block.first_live)
        return True

    cdef int64_t _next_entry(self, Entry* entry) except -2:
        # The ordinal of the next wanted message in the block at hand, and its entry; -1 for none.
        cdef int64_t ordinal, place
        if self.selection is not None:
            place = self.selection.next_live(self.place, self.block.dead_bits())
            if place < 0:
                return -1
            self.place = <uint32_t>place + 1
            entry[0] = self.selection.items[place].entry
            return self.selection.items[place].ordinal
        if self.wanted is not None and self.wanted_subjects != self.index.subject_count:
            # The block was added to since.
            self.wanted = self.ledger.wanted(self.index, self.subject_filter)
            self.wanted_subjects = self.index.subject_count
        ordinal = self.index.next_entry(self.ordinal, marks(self.wanted), self.block.dead_bits())
        if ordinal >= 0:
            entry[0] = self.index.entries[ordinal]
        return ordinal

    cdef Taken next(self) except *:
        cdef int64_t ordinal
        cdef Entry entry
        cdef bint is_next
        cdef const uint8_t* start
        while True:
            if self.block is None and not self._enter(self.seq + 1):
                return TAKEN_NONE
            ordinal = self._next_entry(&entry)
            if ordinal >= 0:
                break
            self.seq = max(self.seq, self.block.last_seq)
            self.block = None
            if self.seq >= self.until:
                return TAKEN_NONE
        if self.block.base_seq + entry.seq_delta > self.until:
            return TAKEN_NONE
        is_next = ordinal == self.ordinal
        self.seq = self.block.base_seq + entry.seq_delta
        self.ordinal = ordinal + 1
        try:
            start = self._record_bytes(&entry, is_next)
        except CorruptStore:
            return TAKEN_UNREAD
        if (
            start == NULL
            or parse(start, entry.length, &self.record) != PARSED_WHOLE
            or self.record.length != entry.length
            or self.record.seq != self.seq
            or self.record.flags & (FLAG_DELETED | FLAG_SKIP | FLAG_TOMBSTONE | FLAG_ENVELOPED)
            or not checksum_holds(start, &self.record, self.block.seed + entry.offset)
        ):
            return TAKEN_UNREAD
        return TAKEN_WHOLE

    cdef const uint8_t* _record_bytes(self, const Entry* entry, bint is_next) except? NULL:
        # Where a record's bytes are; they stay until the next are asked for.
        cdef uint64_t offset = entry.offset
        cdef Block block = self.block
        if (
            self.window is None or self.window_number != block.number
            or self.window_generation != block.generation or offset < self.window_at
            or offset + entry.length > self.window_at + <uint64_t>len(self.window)
        ):
            self.window = self._read_stretch(
                offset, entry.length, WINDOW_BYTES if is_next else entry.length
            )
            self.window_at = offset
            self.window_number = block.number
            self.window_generation = block.generation
        return <const uint8_t*>PyBytes_AS_STRING(self.window) + (offset - self.window_at)

    cdef bytes _read_stretch(self, uint64_t offset, size_t size, size_t more):
        # At least `size` bytes of the block and up to `more`, whatever is at hand.
        cdef ActiveBlock active = self.block.active
        cdef Chunk chunk
        cdef uint64_t end = self.block.bytes
        if active is not None:
            if offset >= active.pending_at:
                return active.read(offset, max(size, min(more, active.bytes - offset)))
            end = active.pending_at
            for chunk in reversed(active.recent):
                if offset >= chunk.start:
                    more = min(more, chunk.start + chunk.size - offset)
                    return PyBytes_FromStringAndSize(
                        <char*>chunk.data + (offset - chunk.start), max(size, more)
                    )
                end = chunk.start
        if self.block.files is None:
            self.ledger.files_opener(self.block)
        return self.block.files.read(offset, max(size, min(more, end - offset)))
