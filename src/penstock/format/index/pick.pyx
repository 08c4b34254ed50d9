"""Records picked out of a sealed block by its index, without reading what lies between them.

For filters that want little of a block: the index tells where the wanted records are, neighbours
are read together, and each record is checked as a walk would check it. The index is derived data:
where a record is not what it says, `fill` raises, and the caller walks the block instead.

Read-only; one thread at a time. Small reads keep the interpreter lock, as the store's own do.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from posix.unistd cimport pread

from penstock.errors import FormatError

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.columns cimport ColumnBuilder
from penstock.format.record cimport (
    FLAG_DELETED, FLAG_ENVELOPED, PARSED_WHOLE, Record, checksum_holds, parse,
)
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport SubjectTable
from penstock.subjects cimport SubjectFilter

from penstock.format.index.block_index import FIXED_BYTES


cdef uint64_t ENTRIES_AT = FIXED_BYTES


def read_entries(int fd, bytes ordinals not None, uint32_t count):
    """Return single entries of an index file with `count` of them, by their numbers (u32 each).

    Raises FormatError where there is no such entry.
    """
    cdef Py_ssize_t place, wanted = len(ordinals) // 4
    cdef const uint32_t* numbers = <const uint32_t*>PyBytes_AS_STRING(ordinals)
    cdef bytes entries = PyBytes_FromStringAndSize(NULL, wanted * sizeof(Entry))
    cdef Entry* out = <Entry*>PyBytes_AS_STRING(entries)
    for place in range(wanted):
        if numbers[place] >= count or pread(
            fd, &out[place], sizeof(Entry), ENTRIES_AT + <uint64_t>numbers[place] * sizeof(Entry)
        ) != sizeof(Entry):
            raise FormatError("an index has no entry where its places say so")
    return entries


cdef class IndexPicks:
    """The wanted entries of one index; see the module."""

    cdef readonly BlockIndex index
    cdef SubjectFilter subjects
    cdef uint32_t* ordinals
    cdef readonly Py_ssize_t count

    def __init__(
        self, BlockIndex index not None, subjects, *, uint64_t first_seq, uint64_t last_seq,
        int64_t first_ns, int64_t last_ns, SequenceSet removed not None,
    ):
        """Pick what is live and wanted; `subjects` is a SubjectFilter."""
        cdef bytes wanted = self._begin(index, subjects)
        cdef const uint8_t* wanted_bytes = NULL
        if not wanted:
            return
        wanted_bytes = <const uint8_t*>PyBytes_AS_STRING(wanted)
        with nogil:
            self._pick(wanted_bytes, first_seq, last_seq, first_ns, last_ns, removed)

    @staticmethod
    def of_unverified(BlockIndex index not None, SubjectFilter subjects not None):
        """Pick all that is wanted by an index whose entries were not verified.

        Raises FormatError where they are not as many as its subjects say. `fill` then looks at the
        subject of each record, too: so many whole records of these subjects are all of them.
        """
        cdef IndexPicks picks = IndexPicks.__new__(IndexPicks)
        cdef bytes wanted = picks._begin(index, subjects)
        cdef const uint8_t* wanted_bytes
        cdef uint64_t expected
        cdef bint fits
        picks.subjects = subjects
        if not wanted:
            return picks
        wanted_bytes = <const uint8_t*>PyBytes_AS_STRING(wanted)
        with nogil:
            expected = index.count_entries(0, wanted_bytes, NULL)
            fits = picks._pick_all(wanted_bytes, expected)
        if not fits:
            raise FormatError("an index has other entries than its subjects say")
        return picks

    cdef bytes _begin(self, BlockIndex index, SubjectFilter subjects):
        # Find the wanted subjects, and make room for their entries.
        cdef bytes wanted = index.wanted_subjects(subjects)
        self.index = index
        if wanted:
            self.ordinals = <uint32_t*>malloc(
                index.count_entries(0, <const uint8_t*>PyBytes_AS_STRING(wanted), NULL) * 4 + 4
            )
            if self.ordinals == NULL:
                raise MemoryError
        return wanted

    cdef bint _pick_all(self, const uint8_t* wanted, uint64_t expected) noexcept nogil:
        # Each further on than the one before: so no record is there twice in place of another.
        cdef uint32_t ordinal, subject
        cdef uint64_t end = 0
        cdef const Entry* entry
        for ordinal in range(self.index.count):
            entry = &self.index.entries[ordinal]
            subject = entry.subject
            if subject < self.index.subject_count and wanted[subject]:
                if <uint64_t>self.count == expected or entry.offset < end:
                    return False
                end = <uint64_t>entry.offset + entry.length
                self.ordinals[self.count] = ordinal
                self.count += 1
        return <uint64_t>self.count == expected

    def __dealloc__(self):
        free(self.ordinals)

    cdef void _pick(
        self, const uint8_t* wanted, uint64_t first_seq, uint64_t last_seq, int64_t first_ns,
        int64_t last_ns, SequenceSet removed,
    ) noexcept nogil:
        cdef int64_t ordinal = self.index.lower_bound(first_seq)
        cdef const Entry* entry
        cdef uint64_t seq
        while True:
            ordinal = self.index.next_entry(ordinal, wanted, NULL)
            if ordinal < 0:
                return
            entry = &self.index.entries[ordinal]
            seq = self.index.base_seq + entry.seq_delta
            if seq > last_seq:
                return
            if (
                not entry.flags & FLAG_DELETED and first_ns <= entry.timestamp_ns <= last_ns
                and not removed.has(seq)
            ):
                self.ordinals[self.count] = <uint32_t>ordinal
                self.count += 1
            ordinal += 1

    def fill(
        self, ColumnBuilder builder not None, file, Py_ssize_t first, *, uint64_t gap_max,
        size_t bytes_max, Py_ssize_t rows_max, uint64_t seed, unseal,
    ):
        """Add picks from `first` on, read from the block's file; give the first that is left.

        Up to `rows_max` picks and about `bytes_max` bytes, but one at least. Those that lie within
        `gap_max` of each other are read together. Raises FormatError where a record is not what
        the index says; `unseal` opens envelopes, as for a walk.
        """
        cdef int fd = file.fileno()
        cdef Py_ssize_t end
        cdef uint64_t offset
        cdef size_t size
        cdef bytes data
        while first < self.count:
            end = self._stretch(first, gap_max, bytes_max, rows_max, &offset, &size)
            if builder.count and (
                builder.count + end - first > rows_max or builder.data_bytes() + size > bytes_max
            ):
                break
            data = self._at_hand(fd, offset, size)
            if data is None:
                data = file.read_at(offset, size)
            self._add(
                builder, <const uint8_t*>PyBytes_AS_STRING(data), len(data), offset, first, end,
                seed, unseal,
            )
            first = end
        return first

    cdef bytes _at_hand(self, int fd, uint64_t offset, size_t size):
        # What one system call gives, or None.
        cdef bytes data
        if fd < 0:
            return None
        data = PyBytes_FromStringAndSize(NULL, size)
        return data if pread(fd, PyBytes_AS_STRING(data), size, offset) == <ssize_t>size else None

    cdef Py_ssize_t _stretch(
        self, Py_ssize_t first, uint64_t gap_max, uint64_t bytes_max, Py_ssize_t rows_max,
        uint64_t* offset, size_t* size,
    ) noexcept:
        # Where those end that are read together with one, and the bytes that they take.
        cdef const Entry* entry = &self.index.entries[self.ordinals[first]]
        cdef uint64_t end = <uint64_t>entry.offset + entry.length
        cdef Py_ssize_t pick = first + 1
        offset[0] = entry.offset
        while pick < self.count and pick - first < rows_max:
            entry = &self.index.entries[self.ordinals[pick]]
            if (
                entry.offset < end or entry.offset > end + gap_max
                or entry.offset + entry.length - offset[0] > bytes_max
            ):
                break
            end = <uint64_t>entry.offset + entry.length
            pick += 1
        size[0] = end - offset[0]
        return pick

    cdef int _add(
        self, ColumnBuilder builder, const uint8_t* data, size_t size, uint64_t offset,
        Py_ssize_t first, Py_ssize_t end, uint64_t seed, unseal,
    ) except -1:
        # The picks `first` to `end`, whose bytes were read at `offset`.
        cdef Record record
        cdef const Entry* entry
        cdef Py_ssize_t pick
        cdef uint64_t at
        for pick in range(first, end):
            entry = &self.index.entries[self.ordinals[pick]]
            at = entry.offset - offset
            if (
                at + entry.length > size
                or parse(data + at, entry.length, &record) != PARSED_WHOLE
                or record.length != entry.length
                or record.seq != self.index.base_seq + entry.seq_delta
                or not checksum_holds(data + at, &record, seed + entry.offset)
            ):
                raise FormatError("no record where the index has one", offset=entry.offset)
            # Erased since the index was written.
            if record.flags & FLAG_DELETED:
                continue
            if self.subjects is not None and not self.subjects.matches_raw(
                record.subject, record.subject_size
            ):
                raise FormatError("another record than the index has", offset=entry.offset)
            if record.flags & FLAG_ENVELOPED:
                subject = record.subject[:record.subject_size]
                headers, payload = unseal(
                    record.seq, record.timestamp_ns, subject,
                    record.headers[:record.headers_size], record.payload[:record.payload_size],
                )
                builder.append(
                    record.seq, record.timestamp_ns, entry.offset, subject, headers, payload
                )
                continue
            builder.add(
                record.seq, record.timestamp_ns, entry.offset, record.subject,
                record.subject_size, record.headers, record.headers_size, record.payload,
                record.payload_size,
            )
        return 0


def add_live(BlockIndex index not None, SequenceSet removed not None, SubjectTable table not None):
    """Count the entries that were not removed, in all and under their subjects in `table`.

    Returns (messages, bytes, first sequence, first time); without a message all are 0.
    """
    cdef uint64_t messages = 0, size = 0, first_seq = 0, seq
    cdef int64_t first_time_ns = 0
    cdef uint32_t ordinal
    cdef uint32_t item
    cdef const Entry* entry
    cdef const uint8_t* name
    cdef size_t name_size = 0
    with nogil:
        for ordinal in range(index.count):
            entry = &index.entries[ordinal]
            seq = index.base_seq + entry.seq_delta
            if removed.has(seq):
                continue
            if messages == 0:
                first_seq = seq
                first_time_ns = entry.timestamp_ns
            messages += 1
            size += entry.size
            name = index.subject_name(entry.subject, &name_size)
            item = <uint32_t>table.intern(name, name_size)
            table.count_up(item, index.number, seq, 1)
    return messages, size, first_seq, first_time_ns
