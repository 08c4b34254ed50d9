"""A walk over the records of one block that steps over damage, and what is built from it.

The walk yields each record that is whole and in its place: its checksum holds for this block and
this offset, and its sequence goes on from the one before. Where something else lies, every further
offset is tried until a record checks out; what lay between is reported as damage. So damage costs
only the records that it touches, and neither a record inside a payload nor a page that lies in the
wrong place is ever taken for a message.

What is left at the end without a whole record after it is the tail: torn if it was never
acknowledged, still being written if there is a writer. The walk does not judge; `whole_bytes` says
where the last whole record ended.

Pure; one walk belongs to one thread and runs without the interpreter lock.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from penstock.errors import FormatError

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.columns cimport ColumnBuilder
from penstock.format.record cimport (
    FLAG_COMMIT_START, FLAG_DELETED, FLAG_ENVELOPED, FLAG_SKIP, FLAG_TOMBSTONE, PARSED_WHOLE,
    RECORD_BYTES_MIN, Record, checksum_holds, message_bytes, parse,
)
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.wire cimport read_uvarint
from penstock.subjects cimport SubjectFilter

from penstock import limits
from penstock.format.block import HEADER_BYTES
from penstock.format.damage import Damage

# Sequences that a block spans: an entry tells its own in 32 bits, and one below may be told too.
cdef uint64_t SPAN_MAX = 0x100000000
cdef uint64_t RESYNC_HASH_MAX = limits.RESYNC_HASH_BYTES_MAX
cdef uint64_t HEADERS_MAX = limits.HEADERS_BYTES_MAX
cdef uint64_t PAYLOAD_MAX = limits.PAYLOAD_BYTES_MAX


cdef size_t _without_room(const uint8_t* start, size_t end) noexcept nogil:
    # Where the zeros begin that the data ends with: a writer leaves itself room, and to try every
    # offset of it would cost more than the records.
    cdef uint64_t word = 0
    while end >= 8:
        memcpy(&word, start + end - 8, 8)
        if word:
            break
        end -= 8
    while end and start[end - 1] == 0:
        end -= 1
    return end


cdef class BlockWalker:
    """One walk; see the module."""

    def __init__(self, const uint8_t[::1] data not None, *, uint32_t block, uint64_t seed,
                 uint64_t base_seq, size_t offset=HEADER_BYTES):
        self.data = data
        self.start = &data[0] if data.shape[0] else NULL
        self.end = data.shape[0]
        self.block = block
        self.seed = seed
        self.base_seq = base_seq
        # One below the first that may come; a tombstone may carry it, as the last of the stream.
        self.last_seq = base_seq - 1
        self.offset = offset
        self.whole_bytes = offset
        self.commit_start = 0
        self.damage = []
        self.hash_budget = RESYNC_HASH_MAX

    cdef bint _is_record(self, size_t offset, Record* record) noexcept nogil:
        cdef const uint8_t* start = self.start + offset
        if parse(start, self.end - offset, record) != PARSED_WHOLE:
            return False
        # The sequence is looked at before the checksum: it costs nothing, and chance passes it
        # once in four billion.
        if record.seq < self.last_seq or record.seq + 1 - self.base_seq > SPAN_MAX:
            return False
        if record.seq == self.last_seq and not record.flags & FLAG_TOMBSTONE:
            return False
        return checksum_holds(start, record, self.seed + offset)

    cdef size_t _next_record(self, size_t offset, Record* record) noexcept nogil:
        # The first offset from `offset` on where a record checks out, or the end of the data.
        cdef const uint8_t* start = self.start
        cdef size_t end = self.end
        if self.used_end == 0:
            self.used_end = _without_room(start, end)
        # No record begins where only zeros follow: its sequence is none.
        while offset < self.used_end and offset + RECORD_BYTES_MIN <= end:
            if parse(start + offset, end - offset, record) == PARSED_WHOLE and (
                record.seq >= self.last_seq and record.seq + 1 - self.base_seq <= SPAN_MAX
            ):
                # Payloads made to look like records could make this hash the block over and over.
                if self.hash_budget < record.length:
                    return end
                self.hash_budget -= record.length
                if self._is_record(offset, record):
                    return offset
            offset += 1
        return end

    cdef bint advance(self, Record* record) except -1 nogil:
        # True with the next whole record, False at the end of what is whole.
        cdef size_t found = self.offset
        cdef size_t end = self.end
        cdef uint64_t count
        if found >= end:
            return False
        if not self._is_record(found, record):
            found = self._next_record(found + 1, record)
            if found == end:
                self.offset = end
                return False
            with gil:
                self.damage.append(Damage(
                    self.block, self.offset, found - self.offset, "no whole record here",
                    self.last_seq + 1,
                    record.seq if record.flags & FLAG_TOMBSTONE else record.seq - 1,
                ))
        self.offset = found + record.length
        self.whole_bytes = self.offset
        self.last_seq = record.seq
        if record.flags & FLAG_COMMIT_START:
            self.commit_start = found
        if record.flags & FLAG_SKIP and record.payload_size:
            if read_uvarint(record.payload, record.payload + record.payload_size, &count) and count:
                self.last_seq = record.seq + count - 1
        return True

    def index_into(self, BlockIndex index not None):
        """Walk to the end and add every message to an index that is being built.

        An erased message keeps its entry, without a subject: entries are numbered, and a
        checkpoint that remembers numbers must find the same ones again.
        """
        cdef Record record
        cdef uint32_t offset
        with nogil:
            while self.advance(&record):
                if not record.flags & (FLAG_SKIP | FLAG_TOMBSTONE):
                    offset = <uint32_t>(self.offset - record.length)
                    index.add(
                        record.seq, record.timestamp_ns, offset, record.length, record.subject,
                        0 if record.flags & FLAG_DELETED else record.subject_size,
                        self._message_bytes(&record), record.flags & ~FLAG_COMMIT_START,
                        record.expires_ns,
                    )
                elif record.flags & FLAG_TOMBSTONE:
                    with gil:
                        self._add_tombstones(index, &record)
                index.note(self.last_seq, self.offset, record.checksum)
        index.damage.extend(self.damage)

    def agrees_with(self, BlockIndex index not None):
        """Walk to the end; tell whether every byte is whole and just what a loaded index says.

        Faster than building an index to compare: nothing is allocated. Where it says no, a walk
        that builds one tells what is wrong; an erased record is such a case.
        """
        cdef Record record
        cdef BlockIndex removed = BlockIndex.__new__(BlockIndex)
        cdef uint32_t ordinal = 0, expiry = 0
        cdef uint64_t checksum = 0
        cdef bint agrees = True
        with nogil:
            while agrees and self.advance(&record):
                checksum = record.checksum
                if record.flags & FLAG_TOMBSTONE:
                    with gil:
                        self._add_tombstones(removed, &record)
                elif not record.flags & FLAG_SKIP:
                    agrees = ordinal < index.count and self._is_entry(
                        index, ordinal, &record
                    )
                    if agrees and record.expires_ns:
                        agrees = (
                            expiry < index.expiry_count
                            and index.expiries[expiry].ordinal == ordinal
                            and index.expiries[expiry].expires_ns == record.expires_ns
                        )
                        expiry += 1
                    ordinal += 1
        return (
            agrees and not self.damage and self.whole_bytes == self.end
            and ordinal == index.count and expiry == index.expiry_count
            and self.last_seq == index.last_seq and self.end == index.block_bytes
            and checksum == index.last_checksum and removed.tombstones == index.tombstones
        )

    cdef bint _is_entry(
        self, BlockIndex index, uint32_t ordinal, const Record* record
    ) noexcept nogil:
        cdef Entry* entry = &index.entries[ordinal]
        cdef size_t size = 0
        cdef const uint8_t* name = index.subject_name(entry.subject, &size)
        return (
            entry.offset + record.length == self.offset
            and index.base_seq + entry.seq_delta == record.seq
            and entry.length == record.length
            and entry.timestamp_ns == record.timestamp_ns
            and entry.flags == record.flags & ~FLAG_COMMIT_START
            and entry.size == self._message_bytes(record)
            and size == record.subject_size
            and memcmp(name, record.subject, size) == 0
        )

    cdef uint32_t _message_bytes(self, const Record* record) noexcept nogil:
        # An envelope tells the plain lengths after its four bytes of magic and one of algorithms;
        # where it tells what cannot be, the record counts for what it is.
        cdef uint64_t headers = record.headers_size
        cdef uint64_t payload = record.payload_size
        cdef const uint8_t* p = record.payload
        cdef const uint8_t* end = p + record.payload_size
        cdef int used
        if record.flags & FLAG_ENVELOPED and payload > 5 and p[3] == 50:
            used = read_uvarint(p + 5, end, &headers)
            if (
                used == 0 or read_uvarint(p + 5 + used, end, &payload) == 0
                or headers > HEADERS_MAX or payload > PAYLOAD_MAX
            ):
                headers = record.headers_size
                payload = record.payload_size
        return message_bytes(record.subject_size, headers, payload)

    cdef _add_tombstones(self, BlockIndex index, const Record* record):
        try:
            removed = SequenceSet.decode(record.payload[:record.payload_size])
        except FormatError as error:
            # Whole bytes that make no sense: only a writer with a fault leaves them.
            self.damage.append(Damage(
                self.block, self.offset - record.length, record.length,
                f"unreadable tombstone: {error.reason}", record.seq + 1, record.seq,
            ))
            return
        for first, last in removed.ranges():
            index.tombstones.put_range(first, last)

    def fill(self, ColumnBuilder builder not None, *, SubjectFilter subjects=None,
             uint64_t first_seq=0, uint64_t last_seq=0xFFFFFFFFFFFFFFFF,
             int64_t first_ns=-0x8000000000000000, int64_t last_ns=0x7FFFFFFFFFFFFFFF,
             SequenceSet removed=None, Py_ssize_t rows_max=65536, size_t bytes_max=16777216,
             unseal=None):
        """Add messages to the columns until they are full or the walk ends (then False).

        `removed` holds sequences that are gone; `unseal(record fields) -> (headers, payload)`
        opens enveloped records.
        """
        cdef Record record
        cdef bint all_subjects = subjects is None or subjects.everything
        cdef bint more = True
        with nogil:
            while builder.count < rows_max and (
                builder.subjects.used + builder.headers.used + builder.payloads.used < bytes_max
            ):
                if not self.advance(&record):
                    more = False
                    break
                if record.flags & (FLAG_DELETED | FLAG_SKIP | FLAG_TOMBSTONE):
                    continue
                if record.seq > last_seq:
                    more = False
                    break
                if (
                    record.seq < first_seq
                    or record.timestamp_ns < first_ns or record.timestamp_ns > last_ns
                    or (removed is not None and removed.has(record.seq))
                    or not (
                        all_subjects
                        or subjects.matches_raw(record.subject, record.subject_size)
                    )
                ):
                    continue
                if record.flags & FLAG_ENVELOPED:
                    with gil:
                        self._add_unsealed(builder, &record, unseal)
                    continue
                builder.add(
                    record.seq, record.timestamp_ns, self.offset - record.length,
                    record.subject, record.subject_size, record.headers, record.headers_size,
                    record.payload, record.payload_size,
                )
        return more

    cdef _add_unsealed(self, ColumnBuilder builder, const Record* record, unseal):
        subject = record.subject[:record.subject_size]
        at = self.offset - record.length
        try:
            headers, payload = unseal(
                record.seq, record.timestamp_ns, subject,
                record.headers[:record.headers_size], record.payload[:record.payload_size],
            )
        except FormatError as error:
            self.damage.append(Damage(
                self.block, at, record.length, error.reason, record.seq, record.seq
            ))
            return
        builder.append(record.seq, record.timestamp_ns, at, subject, headers, payload)
