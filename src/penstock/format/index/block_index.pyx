"""The index of one block: where its messages lie, by sequence, subject and time.

The active block's index is built in memory as records are appended, 32 bytes an entry; when the
block is sealed it is frozen and written as `NNNNNN.idx`, byte for byte the same arrays. A sealed
block's index is loaded from those bytes without copying them. It is derived data: `scan` builds it
anew from the block. The layout of the file is in README.md.

Invariant: entries are in order of sequence and of offset; deleted messages stay in the
index, and callers pass a bitmap (`dead`, one bit an entry) of those that are gone.

One thread at a time while building; a frozen or loaded index may be read from any thread.
"""

import struct

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from penstock.errors import CorruptStore, FormatError, UnsupportedVersion

from penstock.format.hashing cimport xxh64_raw
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport Subject, SubjectTable, compare_names
from penstock.format.wire cimport get_u64, put_u64
from penstock.subjects cimport SubjectFilter

from penstock.format.damage import decode_damage, encode_damage
from penstock.format.hashing import xxh64

MAGIC = b"PNSTKIDX"
VERSION = 2
FIXED_BYTES = 256
HEAD_BYTES = 232
SUBJECT_BYTES = sizeof(LocalSubject) + 4
EXPIRY_BYTES = sizeof(Expiry)
ENTRY_BYTES = sizeof(Entry)
PLACE_BYTES = sizeof(uint32_t)
_FIXED = struct.Struct("<8sHHIIIQQQqqQIIIIIIQ128s")

cdef extern from "stdlib.h" nogil:
    void qsort_r(
        void* base, size_t count, size_t size,
        int (*compare)(const void*, const void*, void*) noexcept nogil, void* context,
    )


cdef uint64_t DELTA_MAX = 0xFFFFFFFF
cdef uint32_t LAST_OF_SUBJECT = 0xFFFFFFFF
cdef size_t HEAD_CHECKSUM_AT = HEAD_BYTES
cdef size_t SUBJECTS_CHECKSUM_AT = HEAD_BYTES + 8


cdef struct Names:
    const LocalSubject* subjects
    const uint8_t* text


cdef int _compare_locals(const void* a, const void* b, void* context) noexcept nogil:
    cdef const Names* names = <const Names*>context
    cdef const LocalSubject* left = &names.subjects[(<const uint32_t*>a)[0]]
    cdef const LocalSubject* right = &names.subjects[(<const uint32_t*>b)[0]]
    return compare_names(
        names.text + left.text_at, left.text_size, names.text + right.text_at, right.text_size
    )


cdef void* _grown(void* old, uint32_t* room, size_t item_bytes) except NULL nogil:
    # By a quarter, so that an entry never costs more than 40 bytes.
    cdef uint32_t larger = room[0] + room[0] // 4 if room[0] else 64
    cdef void* grown = realloc(old, <size_t>larger * item_bytes)
    if grown == NULL:
        with gil:
            raise MemoryError
    room[0] = larger
    return grown


cdef inline uint8_t* _put(uint8_t* to, const void* data, size_t size) noexcept nogil:
    # Copies and gives the place behind the copy; there may be nothing, at NULL, to copy.
    if size:
        memcpy(to, data, size)
    return to + size


cdef uint8_t* _put_places(BlockIndex index, uint8_t* to) except NULL:
    # The entries' numbers, subject by subject: where a subject's begin follows from how many those
    # before it have. Gives the place behind them.
    cdef uint32_t* ends = <uint32_t*>malloc(<size_t>index.subject_count * 4 + 1)
    cdef uint32_t local, ordinal, end = 0
    if ends == NULL:
        raise MemoryError
    for local in range(index.subject_count):
        ends[local] = end
        end += index.subjects[local].count
    for ordinal in range(index.count):
        local = index.entries[ordinal].subject
        memcpy(to + <size_t>ends[local] * 4, &ordinal, 4)
        ends[local] += 1
    free(ends)
    return to + <size_t>index.count * 4


cdef bint _mark_prefixed(
    BlockIndex index, SubjectFilter wanted, bytes prefix, uint8_t* out
) noexcept:
    # Mark the local subjects that a filter wants; False for none. Of a frozen index only the names
    # that begin as the filter's one pattern are looked at: they lie together in the order.
    cdef const uint8_t* start = prefix
    cdef size_t size = len(prefix)
    cdef uint32_t low = 0, high = index.subject_count, middle
    cdef LocalSubject* local
    cdef bint some = False
    memset(out, 0, index.subject_count)
    while low < high:
        middle = low + (high - low) // 2
        local = &index.subjects[index.order[middle]]
        if compare_names(index.text + local.text_at, local.text_size, start, size) < 0:
            low = middle + 1
        else:
            high = middle
    for middle in range(low, index.subject_count):
        local = &index.subjects[index.order[middle]]
        if local.text_size < size or memcmp(index.text + local.text_at, start, size) != 0:
            break
        if wanted.matches_raw(index.text + local.text_at, local.text_size):
            out[index.order[middle]] = 1
            some = True
    return some


cdef bint _is_inside(BlockIndex index, uint32_t place) noexcept nogil:
    # Whether a subject's name lies in the text, and its place in the order among the subjects.
    return (
        <uint64_t>index.subjects[place].text_at + index.subjects[place].text_size
        <= index.text_bytes and index.order[place] < index.subject_count
    )


# Not cleared by the garbage collector: what is freed at the end depends on `owner`.
@cython.no_gc_clear
cdef class BlockIndex:
    """One block's index; see the module."""

    def __cinit__(self):
        self.tombstones = SequenceSet()
        self.damage = []

    def __init__(self, uint32_t number, uint32_t generation, uint64_t base_seq, bytes header,
                 SubjectTable table not None):
        self.number = number
        self.generation = generation
        self.base_seq = base_seq
        self.header = header
        self.table = table
        self.block_bytes = len(header)
        self.last_seq = base_seq - 1

    def __dealloc__(self):
        if self.owner is None:
            free(self.entries)
            free(self.subjects)
            free(self.expiries)
            free(self.text)
            free(self.order)
        free(self.items)
        free(self.following)

    # Building

    cdef int add(
        self, uint64_t seq, int64_t timestamp_ns, uint32_t offset, uint32_t length,
        const uint8_t* subject, size_t subject_size, uint32_t size, uint8_t flags,
        int64_t expires_ns,
    ) except -1 nogil:
        # The caller has checked that seq is above last_seq and within 2**32 of base_seq.
        cdef uint32_t item = <uint32_t>self.table.intern(subject, subject_size)
        cdef Subject* named = &self.table.items[item]
        cdef LocalSubject* local
        cdef Entry* entry
        if not self._knows(item):
            self._add_local(item)
            named = &self.table.items[item]
        if self.count == self.room:
            self.entries = <Entry*>_grown(self.entries, &self.room, sizeof(Entry))
        local = &self.subjects[named.local]
        if self.following != NULL:
            self._follow(local)
        self.previous_seq = named.last_seq
        local.count += 1
        local.last = self.count
        if local.count == 1:
            local.first = self.count
        entry = &self.entries[self.count]
        entry.seq_delta = <uint32_t>(seq - self.base_seq)
        entry.offset = offset
        entry.length = length
        entry.subject = named.local
        entry.timestamp_ns = timestamp_ns
        entry.size = size
        entry.flags = flags
        memset(entry.zero, 0, 3)
        if expires_ns:
            self._add_expiry(expires_ns)
        if self.count == 0 or timestamp_ns < self.first_time_ns:
            self.first_time_ns = timestamp_ns
        if self.count == 0 or timestamp_ns > self.last_time_ns:
            self.last_time_ns = timestamp_ns
        self.count += 1
        self.message_bytes += size
        self.table.count_up(item, self.number, seq, 1)
        return 0

    cdef bint _knows(self, uint32_t item) noexcept nogil:
        # Whether the item has a number here. The table's hint may be of a block that is gone and
        # whose number was given again, so it is held against our own dictionary.
        cdef const Subject* named = &self.table.items[item]
        return (
            named.last_block == self.number and named.local < self.subject_count
            and self.items[named.local] == item
        )

    cdef int _add_local(self, uint32_t item) except -1 nogil:
        cdef uint32_t room = self.subject_room
        cdef uint32_t local = self.subject_count
        if local == room:
            self.subjects = <LocalSubject*>_grown(self.subjects, &room, sizeof(LocalSubject))
            self.items = <uint32_t*>_grown(self.items, &self.subject_room, 4)
        memset(&self.subjects[local], 0, sizeof(LocalSubject))
        self.items[local] = item
        self.subject_count = local + 1
        self.table.items[item].last_block = self.number
        self.table.items[item].local = local
        return 0

    cdef int _follow(self, const LocalSubject* local) except -1 nogil:
        # Let the entry that is about to be added follow on the last one of its subject.
        if self.count == self.following_room:
            self.following = <uint32_t*>_grown(self.following, &self.following_room, 4)
        if local.count:
            self.following[local.last] = self.count
        self.following[self.count] = LAST_OF_SUBJECT
        return 0

    cdef int _add_expiry(self, int64_t expires_ns) except -1 nogil:
        if self.expiry_count == self.expiry_room:
            self.expiries = <Expiry*>_grown(self.expiries, &self.expiry_room, sizeof(Expiry))
        self.expiries[self.expiry_count].ordinal = self.count
        self.expiries[self.expiry_count].zero = 0
        self.expiries[self.expiry_count].expires_ns = expires_ns
        self.expiry_count += 1
        return 0

    cdef void note(self, uint64_t last_seq, uint64_t block_bytes, uint64_t checksum) noexcept nogil:
        # What every record tells, whatever its kind.
        if last_seq > self.last_seq:
            self.last_seq = last_seq
        self.block_bytes = block_bytes
        self.last_checksum = checksum

    def adopt(self, SubjectTable table not None):
        """Go on building with another table of names, as after a scan with one of its own."""
        cdef uint32_t local
        cdef Subject* named
        cdef SubjectTable old = self.table
        cdef uint32_t item
        for local in range(self.subject_count):
            named = &old.items[self.items[local]]
            item = <uint32_t>table.intern(old.text + named.text_at, named.text_size)
            self.items[local] = item
            table.items[item].last_block = self.number
            table.items[item].local = local
        self.table = table

    def cover(self, uint64_t block_bytes):
        """Count the file's bytes up to here as the block's, whatever follows the last record."""
        self.block_bytes = block_bytes

    def freeze(self):
        """Copy the names out of the shared table and order them; nothing is added any more."""
        cdef uint32_t local, at = 0
        cdef Subject* named
        cdef Names names
        cdef size_t total = 0
        if self.table is None:
            return
        for local in range(self.subject_count):
            total += self.table.items[self.items[local]].text_size
        self.text = <uint8_t*>malloc(total + 1)
        self.order = <uint32_t*>malloc(<size_t>self.subject_count * 4 + 1)
        if self.text == NULL or self.order == NULL:
            raise MemoryError
        for local in range(self.subject_count):
            named = &self.table.items[self.items[local]]
            self.subjects[local].text_at = at
            self.subjects[local].text_size = named.text_size
            memcpy(self.text + at, self.table.text + named.text_at, named.text_size)
            at += named.text_size
            self.order[local] = local
        self.text_bytes = at
        self.table = None
        names.subjects = self.subjects
        names.text = self.text
        with nogil:
            qsort_r(self.order, self.subject_count, 4, _compare_locals, &names)

    # Asking

    cdef uint32_t lower_bound(self, uint64_t seq) noexcept nogil:
        # The ordinal of the first entry whose sequence is not below `seq`.
        cdef uint32_t low = 0
        cdef uint32_t high = self.count
        cdef uint32_t middle, delta
        if self.count == 0 or seq <= self.base_seq:
            return 0
        if seq - self.base_seq > DELTA_MAX:
            return self.count
        delta = <uint32_t>(seq - self.base_seq)
        if self.entries[self.count - 1].seq_delta < delta:
            return self.count
        # Without gaps before it, an entry stands where its sequence says: try that place first.
        middle = self.entries[0].seq_delta
        if delta >= middle and delta - middle < high and (
            self.entries[delta - middle].seq_delta == delta
        ):
            return delta - middle
        while low < high:
            middle = low + (high - low) // 2
            if self.entries[middle].seq_delta < delta:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int64_t find_seq(self, uint64_t seq) noexcept nogil:
        cdef uint32_t ordinal = self.lower_bound(seq)
        if ordinal < self.count and self.base_seq + self.entries[ordinal].seq_delta == seq:
            return ordinal
        return -1

    cdef const uint8_t* subject_name(self, uint32_t local, size_t* size) noexcept nogil:
        cdef Subject* named
        if self.items != NULL and self.text == NULL:
            named = &self.table.items[self.items[local]]
            size[0] = named.text_size
            return self.table.text + named.text_at
        size[0] = self.subjects[local].text_size
        return self.text + self.subjects[local].text_at

    cdef int64_t find_subject(self, const uint8_t* name, size_t size) noexcept nogil:
        cdef int64_t item
        cdef uint32_t low = 0, high = self.subject_count, middle
        cdef LocalSubject* local
        if self.text == NULL:
            item = self.table.find(name, size)
            if item < 0 or not self._knows(<uint32_t>item):
                return -1
            return self.table.items[item].local
        while low < high:
            middle = low + (high - low) // 2
            local = &self.subjects[self.order[middle]]
            if compare_names(self.text + local.text_at, local.text_size, name, size) < 0:
                low = middle + 1
            else:
                high = middle
        if low == self.subject_count:
            return -1
        local = &self.subjects[self.order[low]]
        if compare_names(self.text + local.text_at, local.text_size, name, size) != 0:
            return -1
        return self.order[low]

    cdef int64_t next_of_subject(self, uint32_t ordinal) except -2:
        # The entry that follows on one in its subject, dead or not; -1 for none.
        if self.following == NULL:
            self._chain()
        if self.following[ordinal] == LAST_OF_SUBJECT:
            return -1
        return self.following[ordinal]

    cdef int _chain(self) except -1:
        # Find out what follows on what, for all entries at once; `add` keeps it up.
        cdef uint32_t ordinal, local, room = max(self.count, self.room) + 1
        cdef uint32_t* following = <uint32_t*>malloc(<size_t>room * 4)
        cdef uint32_t* later = <uint32_t*>malloc(<size_t>self.subject_count * 4 + 1)
        if following == NULL or later == NULL:
            free(following)
            free(later)
            raise MemoryError
        memset(later, 0xFF, <size_t>self.subject_count * 4)
        for ordinal in range(self.count, 0, -1):
            local = self.entries[ordinal - 1].subject
            following[ordinal - 1] = later[local]
            later[local] = ordinal - 1
        free(later)
        self.following = following
        self.following_room = room
        return 0

    cdef bytes wanted_subjects(self, object subject_filter):
        # One byte a local subject, 1 where the filter matches; b"" where none does.
        cdef SubjectFilter wanted = subject_filter
        cdef uint32_t local
        cdef size_t size = 0
        cdef const uint8_t* name
        cdef int64_t found
        cdef bint some = False
        cdef bytes literal
        result = PyBytes_FromStringAndSize(NULL, self.subject_count)
        cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(result)
        if wanted.literals is not None:
            memset(out, 0, self.subject_count)
            for literal in wanted.literals:
                name = literal
                found = self.find_subject(name, len(literal))
                if found >= 0:
                    out[found] = 1
                    some = True
            return result if some else b""
        if self.order != NULL and len(wanted.prefixes) == 1 and wanted.prefixes[0]:
            return result if _mark_prefixed(self, wanted, wanted.prefixes[0], out) else b""
        with nogil:
            for local in range(self.subject_count):
                name = self.subject_name(local, &size)
                out[local] = wanted.everything or wanted.matches_raw(name, size)
                some = some or out[local]
        return result if some else b""

    cdef int64_t next_entry(
        self, int64_t ordinal, const uint8_t* wanted, const uint8_t* dead
    ) noexcept nogil:
        # The first live, wanted entry from `ordinal` on; -1 for none. NULL: all wanted, none dead.
        while ordinal < self.count:
            if (dead == NULL or not (dead[ordinal >> 3] >> (ordinal & 7)) & 1) and (
                wanted == NULL or wanted[self.entries[ordinal].subject]
            ):
                return ordinal
            ordinal += 1
        return -1

    cdef int64_t previous_entry(
        self, int64_t ordinal, const uint8_t* wanted, const uint8_t* dead
    ) noexcept nogil:
        # The same backwards, from `ordinal` on down.
        while ordinal >= 0:
            if (dead == NULL or not (dead[ordinal >> 3] >> (ordinal & 7)) & 1) and (
                wanted == NULL or wanted[self.entries[ordinal].subject]
            ):
                return ordinal
            ordinal -= 1
        return -1

    cdef uint64_t count_entries(
        self, uint32_t first, const uint8_t* wanted, const uint8_t* dead
    ) noexcept nogil:
        cdef uint64_t total = 0
        cdef uint32_t ordinal, local
        if first == 0 and dead == NULL and wanted != NULL:
            for local in range(self.subject_count):
                if wanted[local]:
                    total += self.subjects[local].count
            return total
        for ordinal in range(first, self.count):
            if dead != NULL and (dead[ordinal >> 3] >> (ordinal & 7)) & 1:
                continue
            if wanted == NULL or wanted[self.entries[ordinal].subject]:
                total += 1
        return total

    cdef int64_t expiry_of(self, uint32_t ordinal) noexcept nogil:
        # When an entry expires, or 0; expiries are in order of their entries.
        cdef uint32_t low = 0, high = self.expiry_count, middle
        while low < high:
            middle = low + (high - low) // 2
            if self.expiries[middle].ordinal < ordinal:
                low = middle + 1
            else:
                high = middle
        if low < self.expiry_count and self.expiries[low].ordinal == ordinal:
            return self.expiries[low].expires_ns
        return 0

    # For people and tests

    def entry(self, uint32_t ordinal):
        """Return (seq, offset, length, timestamp_ns, size, flags, subject) of one entry."""
        cdef Entry* entry
        cdef size_t size = 0
        cdef const uint8_t* name
        if ordinal >= self.count:
            raise IndexError(ordinal)
        entry = &self.entries[ordinal]
        name = self.subject_name(entry.subject, &size)
        return (
            self.base_seq + entry.seq_delta, entry.offset, entry.length, entry.timestamp_ns,
            entry.size, entry.flags, name[:size],
        )

    def ordinal_of(self, uint64_t seq):
        """Return the ordinal of a sequence, or None."""
        cdef int64_t ordinal = self.find_seq(seq)
        return None if ordinal < 0 else ordinal

    def first_ordinal_from(self, uint64_t seq):
        """Return the ordinal of the first entry that is not below `seq` (the count for none)."""
        return self.lower_bound(seq)

    def count_matching(self, subject_filter):
        """Return the number of entries that a filter wants, deleted ones included."""
        cdef bytes wanted = self.wanted_subjects(subject_filter)
        if not wanted:
            return 0
        return self.count_entries(0, <const uint8_t*>PyBytes_AS_STRING(wanted), NULL)

    def subject_totals(self):
        """Return {subject: (entries, first seq, last seq)} of the block, deleted ones included."""
        cdef uint32_t local
        cdef size_t size = 0
        cdef const uint8_t* name
        totals = {}
        for local in range(self.subject_count):
            name = self.subject_name(local, &size)
            totals[name[:size]] = (
                self.subjects[local].count,
                self.base_seq + self.entries[self.subjects[local].first].seq_delta,
                self.base_seq + self.entries[self.subjects[local].last].seq_delta,
            )
        return totals

    def expiring(self):
        """Return [(ordinal, seq, expires_ns)] of the messages with a time to live."""
        cdef uint32_t place
        return [
            (
                self.expiries[place].ordinal,
                self.base_seq + self.entries[self.expiries[place].ordinal].seq_delta,
                self.expiries[place].expires_ns,
            )
            for place in range(self.expiry_count)
        ]

    def memory_bytes(self):
        """Return how many bytes of memory the index holds."""
        if self.owner is not None:
            return len(self.owner) + self.following_room * 4
        return (
            self.room * sizeof(Entry) + self.following_room * 4
            + self.subject_room * (sizeof(LocalSubject) + 4)
            + self.expiry_room * sizeof(Expiry) + self.text_bytes
            + (self.subject_count * 4 if self.order != NULL else 0)
        )

    # Bytes on disk

    def encode(self):
        """Return the bytes of the index file; the index must be frozen."""
        assert self.table is None and self.owner is None, "an index is encoded once, when frozen"
        tombstones = self.tombstones.encode()
        damage = encode_damage(self.damage)
        fixed = _FIXED.pack(
            MAGIC, VERSION, 0, self.number, self.generation, self.count, self.block_bytes,
            self.base_seq, self.last_seq, self.first_time_ns, self.last_time_ns,
            self.message_bytes, self.subject_count, self.text_bytes, self.expiry_count,
            len(tombstones), len(damage), 0, self.last_checksum, self.header,
        ).ljust(FIXED_BYTES, b"\0")
        # Put together in place: it is megabytes, and writers wait for the interpreter lock.
        cdef size_t size = (
            FIXED_BYTES + self.count * (sizeof(Entry) + sizeof(uint32_t))
            + self.expiry_count * sizeof(Expiry) + self.subject_count * (sizeof(LocalSubject) + 4)
            + self.text_bytes + len(tombstones) + len(damage)
        )
        image = PyBytes_FromStringAndSize(NULL, size + 8)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(image)
        cdef uint8_t* p = start
        cdef uint8_t* subjects
        p = _put(p, PyBytes_AS_STRING(fixed), FIXED_BYTES)
        p = _put(p, self.entries, self.count * sizeof(Entry))
        p = _put(p, self.expiries, self.expiry_count * sizeof(Expiry))
        p = _put_places(self, p)
        subjects = p
        p = _put(p, self.subjects, self.subject_count * sizeof(LocalSubject))
        p = _put(p, self.order, <size_t>self.subject_count * 4)
        p = _put(p, self.text, self.text_bytes)
        put_u64(start + HEAD_CHECKSUM_AT, xxh64(fixed[:HEAD_BYTES] + tombstones + damage))
        put_u64(start + SUBJECTS_CHECKSUM_AT, xxh64_raw(subjects, p - subjects, 0))
        p = _put(p, PyBytes_AS_STRING(tombstones), len(tombstones))
        p = _put(p, PyBytes_AS_STRING(damage), len(damage))
        put_u64(p, xxh64_raw(start, size, 0))
        return image

    @staticmethod
    def load(bytes data not None, path):
        """Look into the bytes of an index file, after verifying all of them.

        Raises CorruptStore, or UnsupportedVersion where the file is newer.
        """
        cdef const uint8_t* start = data
        cdef size_t size = len(data)
        if size < <size_t>FIXED_BYTES + 8 or data[:8] != MAGIC:
            raise CorruptStore(path, 0, "not a block index")
        if get_u64(start + size - 8) != xxh64_raw(start, size - 8, 0):
            raise CorruptStore(path, 0, "block index checksum differs")
        if not 1 <= int.from_bytes(data[8:10], "little") <= VERSION:
            raise UnsupportedVersion(path, int.from_bytes(data[8:10], "little"), VERSION)
        return BlockIndex._look_into(data, path)

    @staticmethod
    def _look_into(bytes data, path):
        cdef BlockIndex index = BlockIndex.__new__(BlockIndex)
        cdef const uint8_t* start = data
        cdef size_t at = FIXED_BYTES, places_bytes
        cdef uint32_t tombstone_bytes, damage_bytes, version
        index.owner = data
        (
            _, version, _, index.number, index.generation, index.count, index.block_bytes,
            index.base_seq, index.last_seq, index.first_time_ns, index.last_time_ns,
            index.message_bytes, index.subject_count, index.text_bytes, index.expiry_count,
            tombstone_bytes, damage_bytes, _, index.last_checksum, index.header,
        ) = _FIXED.unpack_from(data)
        # Version 1 has none.
        places_bytes = <size_t>index.count * 4 if version > 1 else 0
        if (
            at + <size_t>index.count * sizeof(Entry) + <size_t>index.expiry_count * sizeof(Expiry)
            + places_bytes + <size_t>index.subject_count * (sizeof(LocalSubject) + 4)
            + index.text_bytes + tombstone_bytes + damage_bytes + 8 != <size_t>len(data)
        ):
            raise CorruptStore(path, 0, "block index sections do not fill the file")
        index.entries = <Entry*>(start + at)
        at += <size_t>index.count * sizeof(Entry)
        index.expiries = <Expiry*>(start + at)
        at += <size_t>index.expiry_count * sizeof(Expiry) + places_bytes
        index.subjects = <LocalSubject*>(start + at)
        at += <size_t>index.subject_count * sizeof(LocalSubject)
        index.order = <uint32_t*>(start + at)
        at += <size_t>index.subject_count * 4
        index.text = <uint8_t*>(start + at)
        at += index.text_bytes
        try:
            index.tombstones = SequenceSet.decode(data[at:at + tombstone_bytes])
            index.damage = decode_damage(data[at + tombstone_bytes:len(data) - 8])
        except FormatError as error:
            raise CorruptStore(path, at, error.reason) from error
        if not index._is_sound():
            raise CorruptStore(path, 0, "block index points outside itself")
        return index

    @staticmethod
    def unverified(
        tuple numbers not None, bytes header not None, bytes entries not None,
        bytes sections not None,
    ):
        """Return an index of which only the subject sections were verified, to find entries in.

        What it says of an entry must be held against the record, and how many there are against
        the subjects. `numbers` are the fields of an `IndexHead` up to the header. Raises
        FormatError where the sections point outside themselves.
        """
        cdef BlockIndex index = _of_sections(sections, numbers[9])
        cdef const uint8_t* start = entries
        (
            index.number, index.generation, index.count, index.block_bytes, index.base_seq,
            index.last_seq, index.first_time_ns, index.last_time_ns, index.message_bytes, _,
        ) = numbers
        if <size_t>len(entries) != <size_t>index.count * sizeof(Entry):
            raise FormatError("the entries of an index are cut short")
        index.header = header
        index.owner = (entries, sections)
        index.entries = <Entry*>start
        return index

    cdef bint _is_sound(self) noexcept nogil:
        # The checksum says that these are the bytes that were written; this says that a writer
        # with a fault cannot make a reader look outside the buffer.
        cdef uint32_t place
        for place in range(self.count):
            if self.entries[place].subject >= self.subject_count:
                return False
        for place in range(self.expiry_count):
            if self.expiries[place].ordinal >= self.count:
                return False
        for place in range(self.subject_count):
            if (
                not _is_inside(self, place) or self.subjects[place].first >= self.count
                or self.subjects[place].last >= self.count
            ):
                return False
        return True


def count_matching(bytes sections not None, uint32_t subject_count, subject_filter):
    """Return how many entries a filter wants, by the subject sections of an index file alone.

    Raises FormatError where they point outside themselves; their checksum is the caller's.
    """
    # The index has no entries here, so nothing else may be asked of it than this.
    return _of_sections(sections, subject_count).count_matching(subject_filter)


def wanted_places(bytes sections not None, uint32_t subject_count, subject_filter):
    """Return [(first, count)] of the places of the subjects that a filter wants, by their sections.

    Raises as `count_matching` does.
    """
    cdef BlockIndex index = _of_sections(sections, subject_count)
    cdef bytes wanted = index.wanted_subjects(subject_filter)
    cdef uint64_t first = 0
    cdef uint32_t local
    found = []
    if not wanted:
        return found
    for local in range(subject_count):
        if wanted[local]:
            found.append((first, index.subjects[local].count))
        first += index.subjects[local].count
    return found


cdef BlockIndex _of_sections(bytes sections, uint32_t subject_count):
    cdef BlockIndex index = BlockIndex.__new__(BlockIndex)
    cdef const uint8_t* start = sections
    cdef size_t fixed = <size_t>subject_count * SUBJECT_BYTES
    cdef uint32_t place
    if fixed > <size_t>len(sections):
        raise FormatError("the subjects of an index are cut short")
    index.owner = sections
    index.subject_count = subject_count
    index.subjects = <LocalSubject*>start
    index.order = <uint32_t*>(start + <size_t>subject_count * sizeof(LocalSubject))
    index.text = <uint8_t*>(start + fixed)
    index.text_bytes = len(sections) - fixed
    for place in range(subject_count):
        if not _is_inside(index, place):
            raise FormatError("the subjects of an index point outside it")
    return index
