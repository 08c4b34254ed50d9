"""The records of one block of Go's nats-server, from its plain (decrypted, unpacked) bytes.

    +------------+---------+-------------+---------+---------+-------------+---------+---------+
    | length u32 | seq u64 | time_ns i64 | ssz u16 | subject | [hsz u32]   | headers | hash u64|
    |            |         |             |         |         |             | payload |         |
    +------------+---------+-------------+---------+---------+-------------+---------+---------+
      bit 31:      bit 63: erased or                          only if bit 31 of length is set
      has headers  skipped; bit 62: tombstone of that sequence

Little-endian. `length` counts the whole record. `hash` is HighwayHash-64 of bytes 4 to 19, subject,
headers and payload. Lengths must add up, and subjects and headers look like what they are.

Invariant: no read passes the bytes given, whatever they are; a record is taken only if its
hash is right; kept sequences rise. Damage costs the records it touches and no others: the walk goes
on at the next place where a whole record stands, and the bytes between are reported.

Pure. Called by blocks.py and directory.py; a `GoBlock` belongs to one thread.
"""

from dataclasses import dataclass

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp

from penstock.errors import UsageError
from penstock.format.columns cimport ColumnBuilder
from penstock.format.golang.highway cimport (
    Highway,
    highway_absorb,
    highway_finish,
    highway_start,
)
from penstock.format.wire cimport get_u16, get_u32, get_u64, put_u32
from penstock.limits import GO_RECORD_BYTES_MAX, GO_RESYNC_READ_RATIO_MAX

cdef size_t RECORD_MAX = GO_RECORD_BYTES_MAX
cdef size_t READ_RATIO_MAX = GO_RESYNC_READ_RATIO_MAX
cdef uint64_t ERASED_BIT = <uint64_t>1 << 63
cdef uint64_t TOMBSTONE_BIT = <uint64_t>1 << 62

cdef enum:
    HEADERS_BIT = 0x80000000
    SUBJECT_AT = 22
    HASH_SIZE = 8
    RECORD_MIN = 30

cdef enum Verdict:
    WHOLE
    CUT_SHORT
    BAD_LENGTH
    BAD_HASH
    BAD_SUBJECT
    BAD_HEADERS
    BAD_SEQUENCE

_REASONS = {
    CUT_SHORT: "the block ends within a record",
    BAD_LENGTH: "record length is impossible",
    BAD_HASH: "record checksum differs",
    BAD_SUBJECT: "record subject is not a subject",
    BAD_HEADERS: "record headers are not headers",
    BAD_SEQUENCE: "record sequence does not rise",
}

cdef struct Row:
    size_t offset
    size_t size
    uint64_t seq
    uint64_t kind  # the two high bits of the sequence field
    int64_t timestamp_ns
    size_t subject_size
    size_t headers_at
    size_t headers_size


@dataclass(slots=True)
class DamagedBytes:
    """Bytes of a block that hold no whole record, and the sequences before and after (0: none)."""

    offset: int
    length: int
    reason: str
    seq_before: int
    seq_after: int


cdef bint _is_subject(const uint8_t* p, size_t size) noexcept nogil:
    # What can have been published: tokens between dots, none empty, no white space.
    cdef size_t i
    cdef bint token_starts = True
    for i in range(size):
        if p[i] == c".":
            if token_starts:
                return False
            token_starts = True
        elif p[i] == c" " or (9 <= p[i] and p[i] <= 13):
            return False
        else:
            token_starts = False
    return not token_starts


cdef bint _holds_blank_line(const uint8_t* p, size_t size) noexcept nogil:
    cdef const uint8_t* end = p + size
    while end - p >= 4:
        p = <const uint8_t*>memchr(p, c"\r", end - p - 3)
        if p == NULL:
            return False
        if memcmp(p, b"\r\n\r\n", 4) == 0:
            return True
        p += 1
    return False


cdef bint _are_headers(const uint8_t* p, size_t size, size_t size_with_payload) noexcept nogil:
    # A header block opens with its version and closes with a blank line. One that a client left
    # unclosed is taken too, if no other length would close it.
    if size == 0:
        return True
    if size < 8 or memcmp(p, b"NATS/1.0", 8) != 0:
        return False
    if size >= 12 and memcmp(p + size - 4, b"\r\n\r\n", 4) == 0:
        return True
    return not _holds_blank_line(p, size_with_payload)


cdef class GoBlock:
    """The records of a block: what lives, what was removed, and what is damaged.

    `tombstones`, `erased` and `skipped` list sequences in file order; `damage` lists DamagedBytes.
    `first_ordered_seq` and `last_ordered_seq` are those of messages, erased and skipped records;
    `highest_seq` is the highest that any record names, tombstones included, with its time if known.
    """

    cdef const uint8_t[::1] view
    cdef const uint8_t* data
    cdef size_t size
    cdef Highway keyed
    cdef size_t read_bytes  # by all checks so far; a search after damage ends at a bound
    cdef Row* rows
    cdef size_t row_room
    cdef list unbounded
    cdef readonly size_t row_count
    cdef readonly uint64_t first_ordered_seq
    cdef readonly uint64_t last_ordered_seq
    cdef readonly uint64_t highest_seq
    cdef readonly int64_t highest_timestamp_ns
    cdef readonly list tombstones
    cdef readonly list erased
    cdef readonly list skipped
    cdef readonly list damage

    def __cinit__(self, const uint8_t[::1] plain, bytes key):
        if len(key) != 32:
            raise UsageError(f"a block's hash key has 32 bytes, not {len(key)}")
        self.view = plain
        self.size = plain.shape[0]
        self.data = &plain[0] if self.size else NULL
        highway_start(&self.keyed, key)
        self.tombstones, self.erased, self.skipped = [], [], []
        self.damage, self.unbounded = [], []
        self._walk()

    def __dealloc__(self):
        free(self.rows)

    @property
    def first_seq(self):
        """Return the lowest sequence of a message in the block, or 0."""
        return self.rows[0].seq if self.row_count else 0

    @property
    def last_seq(self):
        """Return the highest sequence of a message in the block, or 0."""
        return self.rows[self.row_count - 1].seq if self.row_count else 0

    cdef int _walk(self) except -1:
        cdef size_t at = 0
        cdef size_t resumed
        cdef Row row
        cdef Verdict verdict
        while at < self.size:
            verdict = self._check(at, &row)
            if verdict == WHOLE:
                resumed = at + row.size
                verdict = self._keep(&row)
            else:
                resumed = self._find_whole(at)
            if verdict != WHOLE:
                self._add_damage(at, resumed - at, verdict)
            at = resumed
        return 0

    cdef int _add_damage(self, size_t at, size_t size, Verdict verdict) except -1:
        damaged = DamagedBytes(at, size, _REASONS[verdict], self.last_ordered_seq, 0)
        self.damage.append(damaged)
        self.unbounded.append(damaged)
        return 0

    cdef Verdict _check(self, size_t at, Row* row) noexcept nogil:
        # Cheap looks first: the hash is last, and the only part that costs.
        cdef Verdict verdict = self._measure(at, row)
        cdef const uint8_t* p = self.data + at
        cdef size_t tail
        if verdict != WHOLE:
            return verdict
        tail = row.size - HASH_SIZE
        self.read_bytes += row.size
        if row.kind == 0:
            if row.seq == 0:
                return BAD_SEQUENCE
            if not _is_subject(p + SUBJECT_AT, row.subject_size):
                return BAD_SUBJECT
            if not _are_headers(p + row.headers_at, row.headers_size, tail - row.headers_at):
                return BAD_HEADERS
        return WHOLE if self._hash(p, row) == get_u64(p + tail) else BAD_HASH

    cdef Verdict _measure(self, size_t at, Row* row) noexcept nogil:
        # Fills `row` from the fixed fields if every length fits within the next.
        cdef const uint8_t* p = self.data + at
        cdef size_t left = self.size - at
        cdef size_t used
        cdef bint has_headers
        cdef uint64_t bits = ERASED_BIT | TOMBSTONE_BIT
        if left < RECORD_MIN:
            return CUT_SHORT
        has_headers = (get_u32(p) & HEADERS_BIT) != 0
        row.offset = at
        row.size = get_u32(p) & ~<uint32_t>HEADERS_BIT
        if row.size < RECORD_MIN or row.size > RECORD_MAX:
            return BAD_LENGTH
        if row.size > left:
            return CUT_SHORT
        row.seq = get_u64(p + 4) & ~bits
        row.kind = get_u64(p + 4) & bits
        row.timestamp_ns = <int64_t>get_u64(p + 12)
        row.subject_size = get_u16(p + 20)
        row.headers_at = SUBJECT_AT + row.subject_size + (4 if has_headers else 0)
        row.headers_size = 0
        used = row.headers_at + HASH_SIZE
        if used > row.size:
            return BAD_LENGTH
        if has_headers:
            row.headers_size = get_u32(p + row.headers_at - 4)
            if row.headers_size > row.size - used:
                return BAD_LENGTH
        if row.kind and (has_headers or row.subject_size or row.kind == bits):
            return BAD_LENGTH
        if row.kind == TOMBSTONE_BIT and row.size != RECORD_MIN:
            return BAD_LENGTH
        return WHOLE

    cdef uint64_t _hash(self, const uint8_t* p, const Row* row) noexcept nogil:
        cdef Highway state = self.keyed
        highway_absorb(&state, p + 4, 16)
        highway_absorb(&state, p + SUBJECT_AT, row.subject_size)
        highway_absorb(&state, p + row.headers_at, row.size - HASH_SIZE - row.headers_at)
        return highway_finish(&state)

    cdef Verdict _keep(self, const Row* row) except *:
        if row.seq > self.highest_seq or (
            row.seq == self.highest_seq and self.highest_timestamp_ns == 0
        ):
            self.highest_seq = row.seq
            self.highest_timestamp_ns = row.timestamp_ns
        if row.kind == TOMBSTONE_BIT:
            self.tombstones.append(row.seq)
            return WHOLE
        if row.seq <= self.last_ordered_seq:
            # An erased record of an old server may have lost its sequence; it says nothing.
            return WHOLE if row.kind else BAD_SEQUENCE
        if self.first_ordered_seq == 0:
            self.first_ordered_seq = row.seq
        self.last_ordered_seq = row.seq
        while self.unbounded:
            self.unbounded.pop().seq_after = row.seq
        if row.kind == 0:
            self._push(row)
        elif row.size == RECORD_MIN:
            self.skipped.append(row.seq)
        else:
            self.erased.append(row.seq)
        return WHOLE

    cdef int _push(self, const Row* row) except -1:
        cdef Row* grown
        if self.row_count == self.row_room:
            self.row_room = self.row_room * 2 if self.row_room else 256
            grown = <Row*>realloc(self.rows, self.row_room * sizeof(Row))
            if grown == NULL:
                raise MemoryError
            self.rows = grown
        self.rows[self.row_count] = row[0]
        self.row_count += 1
        return 0

    cdef size_t _find_whole(self, size_t damaged_at) noexcept nogil:
        # Where the walk goes on after the damage at `damaged_at`: a whole record, or the end.
        #
        # If the damaged record's own length leads to a whole record, its length is good and what
        # looks like a record within is payload, which any client may have written; unless a chain
        # of records ends exactly there, which payload cannot, as a hash follows it.
        cdef size_t budget = self.size * READ_RATIO_MAX
        cdef size_t claimed_end = 0
        cdef size_t at = damaged_at + 1
        cdef Row row
        if self._measure(damaged_at, &row) == WHOLE:
            claimed_end = damaged_at + row.size
            if claimed_end < self.size and self._check(claimed_end, &row) != WHOLE:
                claimed_end = 0
        while at < claimed_end and self.read_bytes < budget:
            if self._leads_to(at, claimed_end):
                return at
            at += 1
        if claimed_end:
            return claimed_end
        while at < self.size and self.read_bytes < budget:
            if self._check(at, &row) == WHOLE:
                return at
            at += 1
        return self.size

    cdef bint _leads_to(self, size_t at, size_t end) noexcept nogil:
        cdef Row row
        while at < end:
            if self._check(at, &row) != WHOLE:
                return False
            at += row.size
        return at == end

    def fill(
        self, ColumnBuilder builder, uint64_t first_seq, uint64_t last_seq,
        const uint64_t[::1] deleted, subjects=None,
    ):
        """Add the messages of a range of sequences; give their sizes on disk, as u32.

        `deleted` holds rising ranges to leave out, each as its first and last sequence; `subjects`,
        if given, has a method `matches` that says which subjects to keep.
        """
        cdef size_t i
        cdef size_t removed = 0
        cdef size_t removed_end = deleted.shape[0] & ~<size_t>1
        cdef size_t added = 0
        cdef bytes sizes = PyBytes_FromStringAndSize(NULL, 4 * self.row_count)
        cdef uint8_t* sizes_out = <uint8_t*>PyBytes_AS_STRING(sizes)
        cdef Row* row
        cdef dict known = {}
        for i in range(self.row_count):
            row = &self.rows[i]
            while removed < removed_end and deleted[removed + 1] < row.seq:
                removed += 2
            if row.seq < first_seq or row.seq > last_seq:
                continue
            if removed < removed_end and deleted[removed] <= row.seq:
                continue
            if subjects is not None and not self._wanted(row, subjects, known):
                continue
            self._add(builder, row)
            put_u32(sizes_out + 4 * added, <uint32_t>row.size)
            added += 1
        return sizes[:4 * added]

    cdef bint _wanted(self, const Row* row, object subjects, dict known) except -1:
        # Few subjects repeat often: each is asked for once per call.
        cdef const uint8_t* p = self.data + row.offset + SUBJECT_AT
        subject = PyBytes_FromStringAndSize(<const char*>p, row.subject_size)
        answer = known.get(subject)
        if answer is None:
            answer = known[subject] = bool(subjects.matches(subject))
        return answer

    cdef int _add(self, ColumnBuilder builder, const Row* row) except -1:
        cdef const uint8_t* p = self.data + row.offset
        cdef size_t payload_at = row.headers_at + row.headers_size
        return builder.add(
            row.seq, row.timestamp_ns, row.offset,
            p + SUBJECT_AT, row.subject_size,
            p + row.headers_at, row.headers_size,
            p + payload_at, row.size - HASH_SIZE - payload_at,
        )
