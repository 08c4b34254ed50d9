"""Records picked out of a sealed block by its index, without reading what lies between them.

For filters that want little of a block: the index tells where the wanted records are, neighbours
are read together, and each record is checked as a walk would check it. The index is derived data:
where a record is not what it says, `fill` raises, and the caller walks the block instead.

Pure; one thread at a time. The caller reads the bytes.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.errors import FormatError

from penstock.format.block_index cimport BlockIndex, Entry
from penstock.format.columns cimport ColumnBuilder
from penstock.format.record cimport (
    FLAG_DELETED, FLAG_ENVELOPED, PARSED_WHOLE, Record, checksum_holds, parse,
)
from penstock.format.sequence_set cimport SequenceSet


cdef class IndexPicks:
    """The wanted entries of one index; see the module."""

    cdef BlockIndex index
    cdef uint32_t* ordinals
    cdef readonly Py_ssize_t count

    def __init__(
        self, BlockIndex index not None, subjects, *, uint64_t first_seq, uint64_t last_seq,
        int64_t first_ns, int64_t last_ns, SequenceSet removed not None,
    ):
        """Pick what is live and wanted; `subjects` is a SubjectFilter."""
        cdef bytes wanted = index.wanted_subjects(subjects)
        cdef const uint8_t* wanted_bytes = NULL
        self.index = index
        if not wanted:
            return
        self.ordinals = <uint32_t*>malloc(
            index.count_entries(0, <const uint8_t*>PyBytes_AS_STRING(wanted), NULL) * 4 + 4
        )
        if self.ordinals == NULL:
            raise MemoryError
        wanted_bytes = <const uint8_t*>PyBytes_AS_STRING(wanted)
        with nogil:
            self._pick(wanted_bytes, first_seq, last_seq, first_ns, last_ns, removed)

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

    def stretches(self, uint64_t gap_max, uint64_t bytes_max, Py_ssize_t rows_max):
        """Give (offset, bytes, first pick, end pick) of what is read together.

        Picks that lie within `gap_max` of each other go together, up to `bytes_max` and `rows_max`.
        """
        cdef list found = []
        cdef Py_ssize_t pick, first = 0
        cdef uint64_t start = 0, end = 0
        cdef const Entry* entry
        for pick in range(self.count):
            entry = &self.index.entries[self.ordinals[pick]]
            if pick and (
                entry.offset > end + gap_max or entry.offset + entry.length - start > bytes_max
                or pick - first >= rows_max
            ):
                found.append((start, end - start, first, pick))
                first = pick
            if pick == first:
                start = entry.offset
            end = <uint64_t>entry.offset + entry.length
        if self.count:
            found.append((start, end - start, first, self.count))
        return found

    def fill(
        self, ColumnBuilder builder not None, const uint8_t[::1] data not None, uint64_t offset,
        Py_ssize_t first, Py_ssize_t end, uint64_t seed, unseal,
    ):
        """Add the picks `first` to `end`, whose bytes lie in `data`, read at `offset`.

        Raises FormatError where a record is not what the index says; `unseal` opens envelopes, as
        for a walk.
        """
        cdef Record record
        cdef const Entry* entry
        cdef Py_ssize_t pick
        cdef uint64_t at
        if first < 0 or end > self.count:
            raise IndexError(end)
        for pick in range(first, end):
            entry = &self.index.entries[self.ordinals[pick]]
            at = entry.offset - offset
            if (
                entry.offset < offset or at + entry.length > <uint64_t>data.shape[0]
                or parse(&data[at], entry.length, &record) != PARSED_WHOLE
                or record.length != entry.length
                or record.seq != self.index.base_seq + entry.seq_delta
                or not checksum_holds(&data[at], &record, seed + entry.offset)
            ):
                raise FormatError("no record where the index has one", offset=entry.offset)
            # Erased since the index was written.
            if record.flags & FLAG_DELETED:
                continue
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
