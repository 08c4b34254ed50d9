"""What filters want of a stream's blocks, remembered: where to look, and what was found there.

A filter's span tells which blocks can hold anything for it at all. A selection has the entries that
a filter wants of one sealed block, where these are few: with it, neither the block's index nor its
other entries need be looked at again.

What always holds: a selection has every wanted entry of its block, dead or not, and is held against
the block before it is used; a span never leaves out a block that holds a wanted message; what is
remembered is bounded.

Under the store's lock.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.format.block_index cimport BlockIndex
from penstock.store.block_account cimport Block
from penstock.store.ledger cimport Ledger
from penstock.store.questions cimport find_blocks
from penstock.subjects cimport SubjectFilter

cdef enum:
    # One message in so many of a block at the most: of more, the index itself is as good.
    PART_MAX = 8
    # Selections of one stream together: a filter for a hundredth of 20 million messages.
    BYTES_MAX = 8388608
    # What a selection costs beside its items.
    OVERHEAD_BYTES = 256
    SPANS_MAX = 1024
    # A span is found anew when so many blocks came behind it.
    BLOCKS_BEHIND_MAX = 16


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

    cdef int fill(self, BlockIndex index, const uint8_t* marks) except -1:
        # Take over the marked entries of an index, unless they are too many.
        cdef uint64_t count = index.count_entries(0, marks, NULL)
        cdef int64_t ordinal = index.next_entry(0, marks, NULL)
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
            ordinal = index.next_entry(ordinal + 1, marks, NULL)
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
