"""Reading message after message from a position of the stream, without a Python object for each.

`begin` finds the position and `next` reads one wanted message after another, up to a sequence, as
they lie in their records, or as they were before they were compressed; `find` reads a single one;
`end` releases the store. Adjacent records are read many at a time. An encrypted or damaged record
is left to the store's `load`. `remove` removes a message for good.

What filters want of the blocks is remembered. A filter's span says which blocks can hold anything
for it. A selection has the entries that a filter wants of one sealed block, if these are few: with
it, neither the block's index nor its other entries are looked at again.

Invariant: every record is verified before it is handed out: checksum, position and sequence. The
store may be added to and messages may be removed between two calls of `next`, in the same thread. A
selection has every wanted entry of its block, dead or not, and is compared with the block before it
is used; a span never leaves out a block that holds a wanted message; what is remembered is bounded.

Thread: the one that owns the stream. The store's lock is held from `begin` to `end`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.packing cimport Packer
from penstock.format.record cimport (
    FLAG_DELETED, FLAG_ENVELOPED, FLAG_SKIP, FLAG_TOMBSTONE, PARSED_WHOLE, checksum_holds, parse,
)
from penstock.store.log.active_block cimport ActiveBlock, Chunk
from penstock.store.log.block cimport Block
from penstock.store.log.ledger cimport Ledger
from penstock.store.log.queries cimport find_blocks, marks, narrowing
from penstock.subjects cimport SubjectFilter

from penstock.errors import CorruptStore

cdef enum:
    # What is read at once: some hundred messages, and still in the processor's caches when sent.
    WINDOW_BYTES = 65536
    # Messages that lie so close together are read together.
    NEAR_MAX = 8
    # One message in so many of a block at the most: of more, the index itself is as good.
    PART_MAX = 8
    # Selections of one stream together: a filter for a hundredth of 20 million messages.
    BYTES_MAX = 8388608
    # What a selection costs beside its items.
    OVERHEAD_BYTES = 256
    SPANS_MAX = 1024
    # A span is found anew when so many blocks came behind it.
    BLOCKS_BEHIND_MAX = 16


cdef class Scanner:
    """The quick way out; see the module."""

    def __init__(self, log not None, durability not None):
        self.packer = Packer()
        self.follow(log, durability)

    def follow(self, log not None, durability not None):
        """Look at this log from now on; not between `begin` and `end`."""
        self.health = log.health
        self.durability = durability
        self.lock = log.lock
        self.ledger = log.ledger
        self.selections = Selections(self.ledger)

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
        # Remove a message as the store's own `remove` does; `tell_removed` must follow. Nothing is
        # removed from a store that has failed: its owner reopens it, and does it then.
        self.lock.acquire()
        try:
            if self.health.failure is None:
                self.health.check_writable()
                self.ledger.remove(seq)
        finally:
            self.lock.release()
        return 0

    cdef int tell_removed(self) except -1:
        # Have what was removed written.
        self.durability.changed()
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
        return self._read(&entry, is_next)

    cdef Taken find(self, uint64_t seq) except *:
        # Read message `seq`; those asked for ascend, as a rule.
        cdef Py_ssize_t place
        cdef int64_t ordinal
        cdef bint is_next
        if self.block is None or not self.block.base_seq <= seq <= self.block.last_seq:
            place = self.ledger.block_at(seq)
            if place < 0 or seq > self.ledger.last_seq:
                return TAKEN_GONE
            self.block = self.ledger.blocks[place]
            self.index = self.ledger.index_of(self.block)
            self.ordinal = -1
        ordinal = self.index.find_seq(seq)
        if ordinal < 0 or self.block.is_dead(<uint32_t>ordinal):
            return TAKEN_GONE
        is_next = 0 <= self.ordinal <= ordinal <= self.ordinal + NEAR_MAX
        self.seq = seq
        self.ordinal = ordinal + 1
        return self._read(&self.index.entries[ordinal], is_next)

    cdef Taken _read(self, const Entry* entry, bint is_next) except *:
        # Read the record of message `seq`, and verify it.
        cdef const uint8_t* start
        try:
            start = self._record_bytes(entry, is_next)
        except CorruptStore:
            return TAKEN_UNREAD
        if (
            start == NULL
            or parse(start, entry.length, &self.record) != PARSED_WHOLE
            or self.record.length != entry.length
            or self.record.seq != self.seq
            or self.record.flags & (FLAG_DELETED | FLAG_SKIP | FLAG_TOMBSTONE)
            or not checksum_holds(start, &self.record, self.block.seed + entry.offset)
            or (self.record.flags & FLAG_ENVELOPED and not self._unpack())
        ):
            return TAKEN_UNREAD
        return TAKEN_WHOLE

    cdef bint _unpack(self) except -1:
        # Open the record's envelope; False if it is not just compressed, or is damaged.
        cdef const uint8_t* plain
        # In a block with a key, an envelope without a cipher is none of the store's.
        if self.block.header is None or self.block.header.cipher:
            return False
        plain = self.packer.unpack(
            self.record.payload, self.record.payload_size,
            &self.record.headers_size, &self.record.payload_size,
        )
        if plain == NULL:
            return False
        self.record.headers = plain
        self.record.payload = plain + self.record.headers_size
        return True

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


cdef class Selection:
    """What one filter wants of one sealed block, in order; see the module."""

    def __dealloc__(self):
        free(self.items)

    cdef bint is_of(self, Block block) noexcept:
        # Whether the block is still as it was.
        return (
            self.generation == block.generation and self.block_count == block.count
            and self.block_bytes == block.bytes and self.seed == block.seed
        )

    cdef int fill(self, BlockIndex index, const uint8_t* wanted) except -1:
        # Take over the marked entries of an index, unless they are too many.
        cdef uint64_t count = index.count_entries(0, wanted, NULL)
        cdef int64_t ordinal = index.next_entry(0, wanted, NULL)
        if count > index.count // PART_MAX:
            self.is_dense = True
            return 0
        self.items = <Chosen*>malloc(count * sizeof(Chosen))
        if self.items == NULL:
            raise MemoryError
        while ordinal >= 0:
            self.items[self.count].entry = index.entries[ordinal]
            self.items[self.count].ordinal = <uint32_t>ordinal
            self.count += 1
            ordinal = index.next_entry(ordinal + 1, wanted, NULL)
        return 0

    cdef uint32_t lower_bound(self, uint64_t seq_delta) noexcept:
        # The place of the first whose sequence is not below the block's first by less than this.
        cdef uint32_t low = 0, high = self.count, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.items[middle].entry.seq_delta < seq_delta:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int64_t next_live(self, uint32_t place, const uint8_t* dead) noexcept:
        # The first place from `place` on whose message is not gone; -1 for none.
        cdef uint32_t ordinal
        while place < self.count:
            ordinal = self.items[place].ordinal
            if dead == NULL or not (dead[ordinal >> 3] >> (ordinal & 7)) & 1:
                return place
            place += 1
        return -1


cdef class Span:
    """Where a filter's messages lie; see the module."""

    cdef bint may_hold(self, uint32_t number) noexcept:
        return self.low <= number <= self.high or number >= self.known


cdef class Selections:
    """What is remembered of one stream; see the module."""

    def __init__(self, Ledger ledger not None):
        self.ledger = ledger
        self.selections = {}
        self.spans = {}

    cdef Span span(self, SubjectFilter subject_filter):
        # Where a filter's messages lie. Older blocks are never added to.
        cdef Span span = self.spans.get(subject_filter)
        cdef uint32_t last = (<Block>self.ledger.blocks[-1]).number if self.ledger.blocks else 0
        if span is not None and span.known <= last <= span.known + BLOCKS_BEHIND_MAX:
            return span
        span = Span()
        span.known = last
        if not find_blocks(self.ledger, subject_filter, &span.low, &span.high):
            span.low, span.high = 1, 0
        if len(self.spans) >= SPANS_MAX:
            self.spans.clear()
        self.spans[subject_filter] = span
        return span

    cdef Selection find(self, Block block, SubjectFilter subject_filter):
        # What was selected before of a sealed block, or None.
        cdef Selection found
        if block.active is not None:
            return None
        found = self.selections.get((block.number, subject_filter))
        return found if found is not None and found.is_of(block) else None

    cdef Selection make(self, Block block, BlockIndex index, SubjectFilter subject_filter):
        # Select from a block's index; None where the block may still change.
        cdef Selection made
        cdef bytes wanted
        if block.active is not None or index.count != block.count:
            return None
        wanted = index.wanted_subjects(subject_filter)
        made = Selection()
        made.generation = block.generation
        made.block_count = block.count
        made.block_bytes = block.bytes
        made.seed = block.seed
        if wanted:
            made.fill(index, <const uint8_t*>PyBytes_AS_STRING(wanted))
        self._keep((block.number, subject_filter), made)
        return made

    cdef int _keep(self, tuple key, Selection selection) except -1:
        # Remember it; the oldest give way.
        cdef Selection old = self.selections.pop(key, None)
        if old is not None:
            self.bytes -= OVERHEAD_BYTES + old.count * sizeof(Chosen)
        self.selections[key] = selection
        self.bytes += OVERHEAD_BYTES + selection.count * sizeof(Chosen)
        while self.bytes > BYTES_MAX and len(self.selections) > 1:
            old = self.selections.pop(next(iter(self.selections)))
            self.bytes -= OVERHEAD_BYTES + old.count * sizeof(Chosen)
        return 0
