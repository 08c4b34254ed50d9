"""Sorted disjoint ranges of uint64 in chunked leaves: what a SequenceSet is made of.

The ranges lie in leaves of at most 256, and the leaves in one sorted array, all outside Python's
heap: a look-up or a change is two binary searches and one short move of memory, and a range costs
16 bytes when ranges come in order and about 23 when they come at random.

Invariant: ranges ascend, and between two of them at least one sequence is missing (what
touches is merged); no leaf is empty; a change that fails for want of memory changes nothing. A
cursor is good until the next change.

For compiled code: Python sees it through sequence_set.pyx. One thread at a time.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from penstock.errors import UsageError

cdef enum:
    LEAF_RANGES_MAX = 256       # 4 KiB a leaf: what one insertion may have to move
    LEAF_RANGES_START = 4       # most sets hold a handful of ranges and must stay small
    LEAF_RANGES_FEW = 64        # below this a leaf looks for a neighbour to join
    LEAF_RANGES_JOINED = 192    # and joins only when the result has room to grow


cdef class RangeLeaves:
    """The ranges; see the module."""

    def __dealloc__(self):
        self.release()

    cdef bint has(self, uint64_t seq) noexcept nogil:
        cdef Cursor at = self.find(seq)
        return at.leaf < self.leaf_count and self.range_at(at).first <= seq

    cdef int put_range(self, uint64_t first, uint64_t last) except -1:
        cdef Cursor at, beyond
        cdef Range* held
        if first > last:
            raise UsageError(f"a range from {first} to {last} runs backwards")
        at = self.find(first - 1 if first else 0)
        if at.leaf == self.leaf_count or _lies_apart(last, self.range_at(at).first):
            return self._insert(at, first, last)
        held = self.range_at(at)
        if last > held.last:
            beyond = self.find(last)
            if beyond.leaf < self.leaf_count and not _lies_apart(last, self.range_at(beyond).first):
                last = self.range_at(beyond).last
                beyond = self.following(beyond)
            self._set_last(at, last)
            if first < held.first:
                self._set_first(at, first)
            self._erase(self.following(at), beyond)
        elif first < held.first:
            self._set_first(at, first)
        return 0

    cdef int drop_range(self, uint64_t first, uint64_t last) except -1:
        cdef Cursor at, beyond
        if first > last:
            raise UsageError(f"a range from {first} to {last} runs backwards")
        at = self.find(first)
        if at.leaf == self.leaf_count or self.range_at(at).first > last:
            return 0
        if self.range_at(at).first < first:
            if self.range_at(at).last > last:
                return self._open_hole(at, first, last)
            self._set_last(at, first - 1)
            at = self.following(at)
        beyond = self.find(last)
        if beyond.leaf < self.leaf_count and self.range_at(beyond).first <= last:
            if self.range_at(beyond).last == last:
                beyond = self.following(beyond)
            else:
                self._set_first(beyond, last + 1)
        self._erase(at, beyond)
        return 0

    # Places.

    cdef Cursor find(self, uint64_t seq) noexcept nogil:
        # The first range whose last is not below seq, or the end.
        cdef size_t low = 0
        cdef size_t high = self.leaf_count
        cdef size_t middle
        cdef uint32_t start = 0
        cdef uint32_t stop, half
        cdef Leaf* leaf
        if high == 0:
            return Cursor(0, 0)
        while high - low > 1:
            middle = (low + high) // 2
            if self.leaves[middle].first <= seq:
                low = middle
            else:
                high = middle
        leaf = &self.leaves[low]
        stop = leaf.count
        while start < stop:
            half = (start + stop) // 2
            if leaf.ranges[half].last < seq:
                start = half + 1
            else:
                stop = half
        return Cursor(low, start) if start < leaf.count else Cursor(low + 1, 0)

    cdef Cursor following(self, Cursor at) noexcept nogil:
        if at.index + 1 < self.leaves[at.leaf].count:
            return Cursor(at.leaf, at.index + 1)
        return Cursor(at.leaf + 1, 0)

    cdef Range* range_at(self, Cursor at) noexcept nogil:
        return &self.leaves[at.leaf].ranges[at.index]

    cdef void _set_first(self, Cursor at, uint64_t first) noexcept nogil:
        cdef Leaf* leaf = &self.leaves[at.leaf]
        cdef uint64_t more = leaf.ranges[at.index].first - first
        leaf.ranges[at.index].first = first
        leaf.first = leaf.ranges[0].first
        leaf.members += more
        self.members += more

    cdef void _set_last(self, Cursor at, uint64_t last) noexcept nogil:
        cdef Leaf* leaf = &self.leaves[at.leaf]
        cdef uint64_t more = last - leaf.ranges[at.index].last
        leaf.ranges[at.index].last = last
        leaf.members += more
        self.members += more

    # Growing. Memory is reserved first, so that a failure leaves everything as it was.

    cdef int _insert(self, Cursor at, uint64_t first, uint64_t last) except -1:
        cdef Leaf* leaf
        if at.index == 0 and at.leaf > 0 and (
            at.leaf == self.leaf_count or self.leaves[at.leaf - 1].count < LEAF_RANGES_MAX
        ):
            # Between two leaves: the end of the lower one is as good a place.
            at = Cursor(at.leaf - 1, self.leaves[at.leaf - 1].count)
        at = self._make_room(at)
        leaf = &self.leaves[at.leaf]
        memmove(
            &leaf.ranges[at.index + 1], &leaf.ranges[at.index],
            (leaf.count - at.index) * sizeof(Range),
        )
        leaf.ranges[at.index] = Range(first, last)
        leaf.count += 1
        leaf.first = leaf.ranges[0].first
        leaf.members += last - first + 1
        self.members += last - first + 1
        self.range_count += 1
        return 0

    cdef Cursor _make_room(self, Cursor at) except *:
        # Give the place where one more range fits that shall stand before `at`.
        cdef Leaf* leaf
        if self.leaf_count == 0:
            self._open_leaf(0, LEAF_RANGES_START)
            return at
        leaf = &self.leaves[at.leaf]
        if leaf.count < leaf.room:
            return at
        if leaf.count < LEAF_RANGES_MAX:
            self._grow_leaf(leaf, min(leaf.room * 2, <uint32_t>LEAF_RANGES_MAX))
            return at
        # At an edge a fresh leaf keeps the full one full: sequences mostly come in order.
        if at.index == leaf.count:
            self._open_leaf(at.leaf + 1, LEAF_RANGES_START)
            return Cursor(at.leaf + 1, 0)
        if at.index == 0:
            self._open_leaf(at.leaf, LEAF_RANGES_START)
            return at
        self._split_leaf(at.leaf)
        if at.index > self.leaves[at.leaf].count:
            return Cursor(at.leaf + 1, at.index - self.leaves[at.leaf].count)
        return at

    cdef int _open_leaf(self, size_t place, uint32_t room) except -1:
        # The new leaf is empty: the caller fills it at once.
        cdef size_t leaf_room = self.leaf_room
        cdef Leaf* leaves
        cdef Range* ranges
        if self.leaf_count == leaf_room:
            leaf_room = leaf_room * 2 if leaf_room else 1
            leaves = <Leaf*>realloc(self.leaves, leaf_room * sizeof(Leaf))
            if leaves == NULL:
                raise MemoryError
            self.leaves = leaves
            self.leaf_room = leaf_room
        ranges = <Range*>malloc(room * sizeof(Range))
        if ranges == NULL:
            raise MemoryError
        memmove(
            &self.leaves[place + 1], &self.leaves[place],
            (self.leaf_count - place) * sizeof(Leaf),
        )
        self.leaves[place] = Leaf(0, 0, ranges, 0, room)
        self.leaf_count += 1
        return 0

    cdef int _grow_leaf(self, Leaf* leaf, uint32_t room) except -1:
        cdef Range* ranges = <Range*>realloc(leaf.ranges, room * sizeof(Range))
        if ranges == NULL:
            raise MemoryError
        leaf.ranges = ranges
        leaf.room = room
        return 0

    cdef int _split_leaf(self, size_t place) except -1:
        cdef Leaf* lower
        cdef Leaf* upper
        self._open_leaf(place + 1, LEAF_RANGES_MAX)
        lower = &self.leaves[place]
        upper = lower + 1
        upper.count = lower.count // 2
        lower.count -= upper.count
        memcpy(upper.ranges, &lower.ranges[lower.count], upper.count * sizeof(Range))
        upper.first = upper.ranges[0].first
        upper.members = _members_of(upper.ranges, upper.count)
        lower.members -= upper.members
        return 0

    cdef int append(self, uint64_t first, uint64_t last, size_t more) except -1:
        # Add a range that lies apart above all others; `more` come, it included.
        cdef Leaf* leaf
        if self.leaf_count == 0 or self.leaves[self.leaf_count - 1].count == LEAF_RANGES_MAX:
            self._open_leaf(self.leaf_count, min(more, <size_t>LEAF_RANGES_MAX))
        leaf = &self.leaves[self.leaf_count - 1]
        leaf.ranges[leaf.count] = Range(first, last)
        leaf.count += 1
        leaf.first = leaf.ranges[0].first
        leaf.members += last - first + 1
        self.members += last - first + 1
        self.range_count += 1
        return 0

    cdef int _open_hole(self, Cursor at, uint64_t first, uint64_t last) except -1:
        # Take first to last out of the middle of one range.
        cdef uint64_t end = self.range_at(at).last
        self._set_last(at, first - 1)
        try:
            self._insert(Cursor(at.leaf, at.index + 1), last + 1, end)
        except MemoryError:
            self._set_last(at, end)
            raise
        return 0

    # Shrinking. Nothing here can fail.

    cdef void _erase(self, Cursor start, Cursor stop) noexcept nogil:
        # Forget the ranges from `start` up to and without `stop`.
        if start.leaf == stop.leaf:
            if start.index == stop.index:
                return
            self._erase_within(start.leaf, start.index, stop.index)
        else:
            if stop.leaf < self.leaf_count:
                self._erase_within(stop.leaf, 0, stop.index)
            self._close_leaves(start.leaf + 1, stop.leaf)
            self._erase_within(start.leaf, start.index, self.leaves[start.leaf].count)
            self._settle(start.leaf + 1)
        self._settle(start.leaf)

    cdef void _erase_within(self, size_t place, uint32_t start, uint32_t stop) noexcept nogil:
        cdef Leaf* leaf = &self.leaves[place]
        cdef uint64_t members = _members_of(&leaf.ranges[start], stop - start)
        memmove(&leaf.ranges[start], &leaf.ranges[stop], (leaf.count - stop) * sizeof(Range))
        leaf.count -= stop - start
        leaf.members -= members
        if leaf.count:
            leaf.first = leaf.ranges[0].first
        self.members -= members
        self.range_count -= stop - start

    cdef void _close_leaves(self, size_t start, size_t stop) noexcept nogil:
        cdef size_t place
        for place in range(start, stop):
            self.members -= self.leaves[place].members
            self.range_count -= self.leaves[place].count
            free(self.leaves[place].ranges)
        if start < stop:
            memmove(
                &self.leaves[start], &self.leaves[stop],
                (self.leaf_count - stop) * sizeof(Leaf),
            )
            self.leaf_count -= stop - start

    cdef void _settle(self, size_t place) noexcept nogil:
        # After ranges were erased: an empty leaf goes, a sparse one joins a neighbour.
        if place >= self.leaf_count:
            return
        if self.leaves[place].count == 0:
            self._close_leaves(place, place + 1)
        elif self.leaves[place].count < LEAF_RANGES_FEW:
            if not self._join_leaves(place) and place > 0:
                self._join_leaves(place - 1)

    cdef bint _join_leaves(self, size_t place) noexcept nogil:
        # Move the next leaf's ranges into this one where both fit; tell whether it was done.
        cdef Leaf* lower = &self.leaves[place]
        cdef Leaf* upper = lower + 1
        cdef uint32_t count
        cdef Range* ranges
        if place + 1 >= self.leaf_count or lower.count + upper.count > LEAF_RANGES_JOINED:
            return False
        count = lower.count + upper.count
        if count > lower.room:
            ranges = <Range*>realloc(lower.ranges, LEAF_RANGES_MAX * sizeof(Range))
            if ranges == NULL:
                # Joining only saves memory: without it the set is still right.
                return False
            lower.ranges = ranges
            lower.room = LEAF_RANGES_MAX
        memcpy(&lower.ranges[lower.count], upper.ranges, upper.count * sizeof(Range))
        lower.count = count
        lower.first = lower.ranges[0].first
        lower.members += upper.members
        upper.count = 0
        upper.members = 0
        self._close_leaves(place + 1, place + 2)
        return True

    cdef void release(self) noexcept:
        # Forget everything and give the memory back.
        self._close_leaves(0, self.leaf_count)
        free(self.leaves)
        self.leaves = NULL
        self.leaf_room = 0

    cdef object total(self):
        # How many sequences there are.
        if self.members == 0 and self.range_count:
            return 1 << 64
        return self.members


cdef uint64_t _members_of(const Range* ranges, uint32_t count) noexcept nogil:
    cdef uint64_t members = 0
    cdef uint32_t i
    for i in range(count):
        members += ranges[i].last - ranges[i].first + 1
    return members


cdef bint _lies_apart(uint64_t last, uint64_t next_first) noexcept nogil:
    # Whether at least one sequence is missing between the two.
    return next_first > last and next_first - last > 1
