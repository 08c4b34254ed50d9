"""Messages counted by subject, hour and size, without a Python object for any of them.

A cell counts the messages of one group of subjects, one hour and one class of sizes. A group is a
whole subject, or its first tokens: `a.b.>` has the longer subjects that begin with these. Classes
of sizes are exact up to 64 bytes and then as wide as one part in 32, so that percentiles made of
them are right to about two per cent; a class is shown as the size in its middle.

Invariant: the caller bounds the cells, by taking them when `cell_count` gets large.
Pure; one tally belongs to one thread.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

import msgspec

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.record cimport FLAG_DELETED
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport SubjectTable
from penstock.subjects cimport SubjectFilter

cdef extern from *:
    """
    static inline int highest_bit(unsigned long long value) { return 63 - __builtin_clzll(value); }
    """
    int highest_bit(unsigned long long value) noexcept nogil

cdef int64_t HOUR_NS = 3_600_000_000_000
cdef uint64_t EXACT_SIZES = 64
cdef int CLASS_BITS = 5
cdef uint32_t UNWANTED = 0xFFFFFFFF


cdef struct Cell:
    uint32_t group
    uint32_t size_class
    int64_t hour
    uint64_t messages
    uint64_t size
    uint64_t first_seq
    uint64_t last_seq
    int64_t first_ns
    int64_t last_ns


class Cells(msgspec.Struct, frozen=True):
    """Cells as packed columns, 64 bits each, with the groups' names: offsets (int32) and bytes."""

    count: int
    group_offsets: bytes
    groups: bytes
    hours: bytes
    size_classes: bytes
    messages: bytes
    sizes: bytes
    first_seqs: bytes
    last_seqs: bytes
    first_times: bytes
    last_times: bytes


cdef class Tally:
    """Cells being counted; see the module."""

    cdef readonly uint32_t cell_count
    cdef uint32_t room
    cdef Cell* cells
    cdef uint32_t* slots
    cdef uint32_t mask
    cdef SubjectTable names
    cdef int depth
    cdef bint by_hour
    cdef SubjectFilter subjects
    cdef bytearray text

    def __cinit__(self, *, int depth=-1, bint by_hour=False, SubjectFilter subjects=None):
        self.depth = depth
        self.by_hour = by_hour
        self.subjects = subjects
        self.text = bytearray(256)
        self.names = SubjectTable()
        self.mask = 1023
        self.slots = <uint32_t*>calloc(self.mask + 1, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.cells)
        free(self.slots)

    def add_index(
        self, BlockIndex index not None, SequenceSet removed not None, *, uint64_t first_seq=0,
        uint64_t last_seq=0xFFFFFFFFFFFFFFFF, int64_t first_ns=-0x7FFFFFFFFFFFFFFF - 1,
        int64_t last_ns=0x7FFFFFFFFFFFFFFF,
    ):
        """Count the live messages of a block, by its index."""
        cdef uint32_t* groups = <uint32_t*>calloc(index.subject_count + 1, sizeof(uint32_t))
        cdef const Entry* entry
        cdef const uint8_t* name
        cdef size_t size = 0
        cdef uint32_t place
        cdef uint64_t seq
        if groups == NULL:
            raise MemoryError
        try:
            for place in range(index.subject_count):
                name = index.subject_name(place, &size)
                groups[place] = self._group(name, size)
            for place in range(index.count):
                entry = &index.entries[place]
                seq = index.base_seq + entry.seq_delta
                if (
                    groups[entry.subject] == UNWANTED or entry.flags & FLAG_DELETED
                    or seq < first_seq or seq > last_seq
                    or entry.timestamp_ns < first_ns or entry.timestamp_ns > last_ns
                    or removed.has(seq)
                ):
                    continue
                self._count(groups[entry.subject], seq, entry.timestamp_ns, entry.size)
        finally:
            free(groups)

    def add_rows(
        self, const int32_t[::1] subject_offsets not None, const uint8_t[::1] subjects not None,
        const int64_t[::1] sequences not None, const int64_t[::1] times not None,
        const int64_t[::1] sizes not None,
    ):
        """Count rows of columns; a subject's offsets are one more than the rows."""
        cdef Py_ssize_t row
        cdef Py_ssize_t count = sequences.shape[0]
        cdef uint32_t group
        cdef int32_t start, end
        if (
            subject_offsets.shape[0] != count + 1 or times.shape[0] != count
            or sizes.shape[0] != count
        ):
            raise ValueError("columns of different lengths")
        for row in range(count):
            start, end = subject_offsets[row], subject_offsets[row + 1]
            if start < 0 or end < start or end > subjects.shape[0]:
                raise ValueError("offsets beyond the subjects")
            group = self._group(&subjects[0] + start if end > start else NULL, end - start)
            if group != UNWANTED:
                self._count(group, sequences[row], times[row], sizes[row])

    cdef uint32_t _group(self, const uint8_t* name, size_t size) except? 0xFFFFFFFE:
        cdef size_t end = 0
        cdef int tokens = 0
        cdef uint8_t* text
        if self.subjects is not None and not self.subjects.matches_raw(name, size):
            return UNWANTED
        if self.depth < 0:
            return <uint32_t>self.names.intern(name, size)
        while end < size:
            if name[end] == b".":
                tokens += 1
                if tokens == self.depth:
                    break
            end += 1
        if self.depth > 0 and end == size:
            return <uint32_t>self.names.intern(name, size)
        if self.depth == 0:
            return <uint32_t>self.names.intern(b">", 1)
        if len(self.text) < <Py_ssize_t>end + 2:
            self.text = bytearray(end + 2)
        text = self.text
        memcpy(text, name, end)
        text[end] = b"."
        text[end + 1] = b">"
        return <uint32_t>self.names.intern(text, end + 2)

    cdef int _count(
        self, uint32_t group, uint64_t seq, int64_t time_ns, uint64_t size
    ) except -1 nogil:
        cdef int64_t hour = 0
        cdef uint32_t size_class = _size_class(size)
        cdef uint32_t slot
        cdef Cell* cell
        if self.by_hour:
            hour = time_ns / HOUR_NS
            if time_ns < 0 and hour * HOUR_NS != time_ns:
                hour -= 1
        slot = _mixed(group, hour, size_class) & self.mask
        while self.slots[slot]:
            cell = &self.cells[self.slots[slot] - 1]
            if cell.group == group and cell.hour == hour and cell.size_class == size_class:
                cell.messages += 1
                cell.size += size
                cell.first_seq = min(cell.first_seq, seq)
                cell.last_seq = max(cell.last_seq, seq)
                cell.first_ns = min(cell.first_ns, time_ns)
                cell.last_ns = max(cell.last_ns, time_ns)
                return 0
            slot = (slot + 1) & self.mask
        self._grow()
        cell = &self.cells[self.cell_count]
        cell[0] = Cell(group, size_class, hour, 1, size, seq, seq, time_ns, time_ns)
        self.cell_count += 1
        self._place(self.cell_count - 1)
        return 0

    cdef void _place(self, uint32_t number) noexcept nogil:
        cdef const Cell* cell = &self.cells[number]
        cdef uint32_t slot = _mixed(cell.group, cell.hour, cell.size_class) & self.mask
        while self.slots[slot]:
            slot = (slot + 1) & self.mask
        self.slots[slot] = number + 1

    cdef int _grow(self) except -1 nogil:
        cdef Cell* cells
        cdef uint32_t* slots
        cdef uint32_t number
        if self.cell_count == self.room:
            cells = <Cell*>realloc(self.cells, (self.room * 2 + 64) * sizeof(Cell))
            if cells == NULL:
                raise MemoryError
            self.cells = cells
            self.room = self.room * 2 + 64
        if (self.cell_count + 1) * 2 > self.mask:
            slots = <uint32_t*>calloc(2 * (<size_t>self.mask + 1), sizeof(uint32_t))
            if slots == NULL:
                raise MemoryError
            free(self.slots)
            self.slots = slots
            self.mask = self.mask * 2 + 1
            for number in range(self.cell_count):
                self._place(number)
        return 0

    def take(self):
        """Return the cells, and begin anew."""
        cdef uint32_t number
        cdef size_t size = 0
        cdef list offsets = [0]
        cdef list names = []
        for number in range(self.cell_count):
            name = self._name(self.cells[number].group)
            size += len(name)
            names.append(name)
            offsets.append(size)
        cells = Cells(
            self.cell_count, _int32s(offsets), b"".join(names),
            *(self._column(field) for field in range(8)),
        )
        self.cell_count = 0
        self.names = SubjectTable()
        free(self.slots)
        self.mask = 1023
        self.slots = <uint32_t*>calloc(self.mask + 1, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError
        return cells

    cdef bytes _name(self, uint32_t group):
        return PyBytes_FromStringAndSize(
            <char*>self.names.text + self.names.items[group].text_at,
            self.names.items[group].text_size,
        )

    cdef bytes _column(self, int field):
        cdef bytes column = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>self.cell_count * 8)
        cdef int64_t* out = <int64_t*><char*>column
        cdef const Cell* cell
        cdef uint32_t number
        for number in range(self.cell_count):
            cell = &self.cells[number]
            if field == 0:
                out[number] = cell.hour * HOUR_NS
            elif field == 1:
                out[number] = cell.size_class
            elif field == 2:
                out[number] = <int64_t>cell.messages
            elif field == 3:
                out[number] = <int64_t>cell.size
            elif field == 4:
                out[number] = <int64_t>cell.first_seq
            elif field == 5:
                out[number] = <int64_t>cell.last_seq
            elif field == 6:
                out[number] = cell.first_ns
            else:
                out[number] = cell.last_ns
        return column


cdef inline uint32_t _size_class(uint64_t size) noexcept nogil:
    cdef int shift
    if size < EXACT_SIZES:
        return <uint32_t>size
    shift = highest_bit(size) - CLASS_BITS
    return <uint32_t>(((size >> shift) << shift) + (1 << shift) / 2)


cdef inline uint32_t _mixed(uint32_t group, int64_t hour, uint32_t size_class) noexcept nogil:
    cdef uint64_t mixed = (<uint64_t>group << 32) ^ <uint64_t>hour ^ (<uint64_t>size_class << 13)
    mixed *= 0x9E3779B97F4A7C15ULL
    return <uint32_t>(mixed >> 29)


cdef bytes _int32s(list numbers):
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, len(numbers) * 4)
    cdef int32_t* out = <int32_t*><char*>packed
    cdef Py_ssize_t place
    for place in range(len(numbers)):
        out[place] = numbers[place]
    return packed
