"""A set of sequences (uint64), kept as sorted disjoint ranges, and its encoding.

    +------------+---------------+-----------------+----------------------+
    | version u8 | count uvarint | start uvarint   | last - first uvarint |  first range
    |            |               +-----------------+----------------------+
    |            |               | gap uvarint     | last - first uvarint |  each further range
    +------------+---------------+-----------------+----------------------+

`gap` is the range's first minus the previous last minus 2, so that neighbours that should have been
merged cannot be written. Varints are of the shortest form: a set has exactly one encoding. How the
ranges lie in memory, and what a change costs, is told in range_leaves.pyx.

Pure. A set belongs to one thread at a time. Called by the readers and by the store.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT64_MAX, uint8_t, uint64_t

from penstock.errors import FormatError
from penstock.format.range_leaves cimport Cursor, Leaf, Range, RangeLeaves
from penstock.format.wire cimport put_uvarint, read_uvarint, uvarint_size

cdef enum:
    VERSION = 1
    REPR_RANGES_MAX = 8
    RANGE_BYTES_MIN = 2     # two one-byte varints


cdef class SequenceSet(RangeLeaves):
    """A set of sequences; see the module. Arguments outside uint64 raise OverflowError."""

    @property
    def first(self):
        """The lowest sequence, or None."""
        return self.leaves[0].first if self.leaf_count else None

    @property
    def last(self):
        """The highest sequence, or None."""
        cdef Leaf* leaf
        if not self.leaf_count:
            return None
        leaf = &self.leaves[self.leaf_count - 1]
        return leaf.ranges[leaf.count - 1].last

    def __len__(self):
        return self.total()

    def __contains__(self, uint64_t seq):
        return self.has(seq)

    def __iter__(self):
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def __eq__(self, other):
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return _same(self, <SequenceSet>other)

    def __repr__(self):
        shown = []
        for first, last in self.ranges():
            if len(shown) == REPR_RANGES_MAX:
                shown.append(f"and {self.range_count - REPR_RANGES_MAX} more")
                break
            shown.append(str(first) if first == last else f"{first}-{last}")
        return f"SequenceSet({', '.join(shown)})"

    def add(self, uint64_t seq):
        """Add one sequence; tell whether it was missing."""
        if self.has(seq):
            return False
        self.put_range(seq, seq)
        return True

    def add_range(self, uint64_t first, uint64_t last):
        """Add first to last, both included; return how many were missing."""
        before = self.total()
        self.put_range(first, last)
        return self.total() - before

    def remove(self, uint64_t seq):
        """Remove one sequence; tell whether it was there."""
        if not self.has(seq):
            return False
        self.drop_range(seq, seq)
        return True

    def remove_range(self, uint64_t first, uint64_t last):
        """Remove first to last, both included; return how many were there."""
        before = self.total()
        self.drop_range(first, last)
        return before - self.total()

    def update(self, SequenceSet other not None):
        """Add every sequence of the other set."""
        cdef Cursor at
        cdef Range* held
        if other is self:
            return
        at = Cursor(0, 0)
        while at.leaf < other.leaf_count:
            held = other.range_at(at)
            self.put_range(held.first, held.last)
            at = other.following(at)

    def add_between(self, SequenceSet other not None, uint64_t first, uint64_t last):
        """Add the sequences of another set that lie within first to last, both included."""
        cdef Cursor at = other.find(first)
        cdef Range* held
        if other is self:
            return
        while at.leaf < other.leaf_count:
            held = other.range_at(at)
            if held.first > last:
                break
            self.put_range(max(held.first, first), min(held.last, last))
            at = other.following(at)

    def clear(self):
        """Remove everything and give the memory back."""
        self.release()

    def copy(self):
        """Return a copy of the set."""
        cdef SequenceSet twin = SequenceSet()
        cdef Cursor at = Cursor(0, 0)
        cdef Range* held
        while at.leaf < self.leaf_count:
            held = self.range_at(at)
            twin.append(held.first, held.last, self.range_count - twin.range_count)
            at = self.following(at)
        return twin

    def ranges(self):
        """Iterate over (first, last) in order; a change ahead of the iteration is seen."""
        return self.ranges_between(0, UINT64_MAX)

    def parts(self, size_t ranges_max):
        """Return sets of at most `ranges_max` ranges each that together are this one."""
        cdef SequenceSet part = None
        cdef Cursor at = Cursor(0, 0)
        cdef Range* held
        cdef size_t left = self.range_count
        parts = []
        if left <= ranges_max:
            return [self.copy()] if left else []
        while left:
            if part is None or part.range_count == ranges_max:
                part = SequenceSet()
                parts.append(part)
            held = self.range_at(at)
            part.append(held.first, held.last, min(left, ranges_max - part.range_count))
            at = self.following(at)
            left -= 1
        return parts

    def ranges_between(self, uint64_t first, uint64_t last):
        """Iterate over the parts of ranges that lie within first to last, in order."""
        cdef Cursor at
        cdef Range held
        # Each step searches anew: the set may have been changed since the last one.
        while first <= last:
            at = self.find(first)
            if at.leaf == self.leaf_count:
                return
            held = self.range_at(at)[0]
            if held.first > last:
                return
            yield max(held.first, first), min(held.last, last)
            if held.last >= last:
                return
            first = held.last + 1

    def count_between(self, uint64_t first, uint64_t last):
        """Count the sequences from first to last, both included."""
        cdef Cursor at
        cdef Range* held
        cdef uint64_t count = 0
        if first > last:
            return 0
        if first == 0 and last == UINT64_MAX:
            return self.total()
        at = self.find(first)
        while at.leaf < self.leaf_count:
            held = self.range_at(at)
            if held.first > last:
                break
            if at.index == 0 and held.first >= first and at.leaf + 1 < self.leaf_count:
                # A leaf that lies wholly within is counted without being read.
                if self.leaves[at.leaf + 1].first <= last:
                    count += self.leaves[at.leaf].members
                    at.leaf += 1
                    continue
            count += min(held.last, last) - max(held.first, first) + 1
            at = self.following(at)
        return count

    def memory_bytes(self):
        """Return how many bytes the set occupies."""
        cdef size_t held = sizeof(Leaf) * self.leaf_room
        cdef size_t place
        for place in range(self.leaf_count):
            held += sizeof(Range) * self.leaves[place].room
        return held + object.__sizeof__(self)

    def encode(self):
        """Return the bytes of the set; equal sets have equal bytes."""
        cdef size_t size = 1 + uvarint_size(self.range_count)
        cdef uint64_t base = 0
        cdef Cursor at = Cursor(0, 0)
        cdef Range* held
        cdef uint8_t* p
        while at.leaf < self.leaf_count:
            held = self.range_at(at)
            size += uvarint_size(held.first - base) + uvarint_size(held.last - held.first)
            base = held.last + 2
            at = self.following(at)
        encoded = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t*>PyBytes_AS_STRING(encoded)
        p[0] = VERSION
        p += 1
        p += put_uvarint(p, self.range_count)
        base = 0
        at = Cursor(0, 0)
        while at.leaf < self.leaf_count:
            held = self.range_at(at)
            p += put_uvarint(p, held.first - base)
            p += put_uvarint(p, held.last - held.first)
            base = held.last + 2
            at = self.following(at)
        return encoded

    @staticmethod
    def decode(buffer):
        """Read an encoding back; raises FormatError for anything that `encode` does not write."""
        cdef Py_buffer view
        cdef SequenceSet result = SequenceSet()
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            _decode_into(result, <const uint8_t*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return result


cdef bint _same(SequenceSet one, SequenceSet other) noexcept:
    # The leaves may be cut differently, so the ranges are compared one by one.
    cdef Cursor here = Cursor(0, 0)
    cdef Cursor there = Cursor(0, 0)
    cdef Range* ours
    cdef Range* theirs
    if one.range_count != other.range_count or one.members != other.members:
        return False
    while here.leaf < one.leaf_count:
        ours = one.range_at(here)
        theirs = other.range_at(there)
        if ours.first != theirs.first or ours.last != theirs.last:
            return False
        here = one.following(here)
        there = other.following(there)
    return True


cdef int _decode_into(SequenceSet result, const uint8_t* data, Py_ssize_t size) except -1:
    cdef Py_ssize_t at = 1
    cdef uint64_t count, step, length
    cdef uint64_t base = 0
    if size < 1 or data[0] != VERSION:
        raise FormatError(f"not a sequence set of version {VERSION}")
    at += _take(data, size, at, &count)
    if count > <uint64_t>(size - at) // RANGE_BYTES_MIN:
        raise FormatError(f"{count} ranges cannot stand in {size - at} bytes", offset=at)
    while count > 0:
        at += _take(data, size, at, &step)
        if step > UINT64_MAX - base:
            raise FormatError("a range starts beyond the last sequence", offset=at)
        at += _take(data, size, at, &length)
        if length > UINT64_MAX - base - step:
            raise FormatError("a range ends beyond the last sequence", offset=at)
        result.append(base + step, base + step + length, count)
        base += step + length
        count -= 1
        if count > 0 and base > UINT64_MAX - 2:
            raise FormatError("a range follows the last sequence", offset=at)
        base += 2
    if at != size:
        raise FormatError("bytes after the last range", offset=at)
    return 0


cdef int _take(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, uint64_t* value) except -1:
    cdef int used = read_uvarint(data + at, data + size, value)
    if used == 0 or used != uvarint_size(value[0]):
        raise FormatError("not a whole varint of the shortest form", offset=at)
    return used
