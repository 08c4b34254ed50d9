"""Batches of messages as columns: packed offsets and one data buffer each, as Arrow lays them out.

A `ColumnBuilder` is filled by compiled readers without a Python object per message; `take` hands
the columns over as a `ColumnBatch` and starts afresh. Offsets are 32-bit, so a builder refuses to
hold 2 GiB in one column: callers take a batch long before that.

Pure; one builder belongs to one thread.
"""

import msgspec

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.errors import UsageError

cdef size_t COLUMN_BYTES_MAX = 0x7FFFFFFF


class MessageRow(msgspec.Struct, frozen=True):
    """One message, for people and tests; `offset` is its place in the block file."""

    seq: int
    timestamp_ns: int
    subject: bytes
    headers: bytes
    payload: bytes
    offset: int = 0


class ColumnBatch(msgspec.Struct, frozen=True):
    """`count` messages of one block as little-endian packed columns.

    `sequences` and `offsets` (places in the block file) are uint64, `timestamps` int64 in Unix
    nanoseconds; each `*_offsets` holds count + 1 int32 into its data buffer. Columns that were
    not asked for are empty, their offsets all zero. Where messages of several blocks were put
    together, `blocks` has each block's number and how many of the messages are its.
    """

    block: int
    count: int
    sequences: bytes
    timestamps: bytes
    offsets: bytes
    subject_offsets: bytes
    subjects: bytes
    header_offsets: bytes
    headers: bytes
    payload_offsets: bytes
    payloads: bytes
    blocks: tuple[tuple[int, int], ...] = ()

    def __len__(self):
        return self.count

    def messages(self):
        """Yield each row as a MessageRow."""
        seqs = memoryview(self.sequences).cast("Q")
        times = memoryview(self.timestamps).cast("q")
        places = memoryview(self.offsets).cast("Q")
        subject_at = memoryview(self.subject_offsets).cast("i")
        headers_at = memoryview(self.header_offsets).cast("i")
        payload_at = memoryview(self.payload_offsets).cast("i")
        for row in range(self.count):
            yield MessageRow(
                seqs[row],
                times[row],
                self.subjects[subject_at[row]:subject_at[row + 1]],
                self.headers[headers_at[row]:headers_at[row + 1]],
                self.payloads[payload_at[row]:payload_at[row + 1]],
                places[row],
            )


cdef int _reserve(Bytes* column, size_t more) except -1 nogil:
    cdef size_t room = column.room
    cdef uint8_t* grown
    if column.used + more <= room:
        return 0
    if column.used + more > COLUMN_BYTES_MAX:
        with gil:
            raise UsageError("a column batch would pass 2 GiB: take smaller batches")
    room = room * 2 if room else 4096
    while room < column.used + more:
        room *= 2
    grown = <uint8_t*>realloc(column.data, room)
    if grown == NULL:
        with gil:
            raise MemoryError
    column.data = grown
    column.room = room
    return 0


cdef int _put(Bytes* column, const void* data, size_t size) except -1 nogil:
    _reserve(column, size)
    if size:
        memcpy(column.data + column.used, data, size)
    column.used += size
    return 0


cdef int _put_offset(Bytes* column, size_t value) except -1 nogil:
    cdef int32_t narrow = <int32_t>value
    return _put(column, &narrow, 4)


cdef int _put_numbers(Bytes* column, bytes numbers, Py_ssize_t count) except -1:
    if len(numbers) != count * 8:
        raise UsageError("a column is not as long as its batch")
    return _put(column, PyBytes_AS_STRING(numbers), len(numbers))


cdef int _put_texts(
    Bytes* offsets, Bytes* column, bytes more_offsets, bytes more, Py_ssize_t count
) except -1:
    # Offsets go on from where the column ends.
    cdef const int32_t* places = <const int32_t*>PyBytes_AS_STRING(more_offsets)
    cdef size_t start = column.used
    cdef Py_ssize_t row
    if len(more_offsets) != (count + 1) * 4 or places[count] != len(more):
        raise UsageError("a column is not as long as its batch")
    _put(column, PyBytes_AS_STRING(more), len(more))
    for row in range(1, count + 1):
        _put_offset(offsets, start + places[row])
    return 0


cdef object _take(Bytes* column):
    taken = PyBytes_FromStringAndSize(<char*>column.data, column.used)
    column.used = 0
    return taken


cdef class ColumnBuilder:
    """Columns being filled; see the module."""

    def __cinit__(self, *, bint headers=True, bint payloads=True):
        self.keep_headers = headers
        self.keep_payloads = payloads
        self._start()

    def __dealloc__(self):
        free(self.sequences.data)
        free(self.timestamps.data)
        free(self.offsets.data)
        free(self.subject_offsets.data)
        free(self.subjects.data)
        free(self.header_offsets.data)
        free(self.headers.data)
        free(self.payload_offsets.data)
        free(self.payloads.data)

    def _start(self):
        self.count = 0
        _put_offset(&self.subject_offsets, 0)
        _put_offset(&self.header_offsets, 0)
        _put_offset(&self.payload_offsets, 0)

    cdef int add(
        self, uint64_t seq, int64_t timestamp_ns, uint64_t offset,
        const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size,
        const uint8_t* payload, size_t payload_size,
    ) except -1 nogil:
        _put(&self.sequences, &seq, 8)
        _put(&self.timestamps, &timestamp_ns, 8)
        _put(&self.offsets, &offset, 8)
        _put(&self.subjects, subject, subject_size)
        if self.keep_headers:
            _put(&self.headers, headers, headers_size)
        if self.keep_payloads:
            _put(&self.payloads, payload, payload_size)
        _put_offset(&self.subject_offsets, self.subjects.used)
        _put_offset(&self.header_offsets, self.headers.used)
        _put_offset(&self.payload_offsets, self.payloads.used)
        self.count += 1
        return 0

    def append(self, uint64_t seq, int64_t timestamp_ns, uint64_t offset,
               bytes subject, bytes headers, bytes payload):
        """Add one message from Python objects."""
        cdef const uint8_t* s = subject
        cdef const uint8_t* h = headers
        cdef const uint8_t* p = payload
        self.add(seq, timestamp_ns, offset, s, len(subject), h, len(headers), p, len(payload))

    def extend(self, batch not None):
        """Add all messages of a ColumnBatch."""
        cdef Py_ssize_t count = batch.count
        _put_numbers(&self.sequences, batch.sequences, count)
        _put_numbers(&self.timestamps, batch.timestamps, count)
        _put_numbers(&self.offsets, batch.offsets, count)
        _put_texts(&self.subject_offsets, &self.subjects, batch.subject_offsets, batch.subjects,
                   count)
        _put_texts(&self.header_offsets, &self.headers, batch.header_offsets, batch.headers, count)
        _put_texts(&self.payload_offsets, &self.payloads, batch.payload_offsets, batch.payloads,
                   count)
        self.count += count

    cpdef size_t data_bytes(self) noexcept:
        """Return how many bytes of subjects, headers and payloads are held."""
        return self.subjects.used + self.headers.used + self.payloads.used

    def take(self, block):
        """Hand over what was added as a ColumnBatch of that block, and start afresh."""
        batch = ColumnBatch(
            block,
            self.count,
            _take(&self.sequences),
            _take(&self.timestamps),
            _take(&self.offsets),
            _take(&self.subject_offsets),
            _take(&self.subjects),
            _take(&self.header_offsets),
            _take(&self.headers),
            _take(&self.payload_offsets),
            _take(&self.payloads),
        )
        self._start()
        return batch
