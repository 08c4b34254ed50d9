"""Every subject of a stream with its count, its newest sequence and where to look for it.

A packed hash table: 48 bytes a subject, its name in one arena, 4 to 8 bytes of slots; no Python
object per subject. Filters are answered from an order by name that is brought up to date when it is
asked for: a literal prefix costs a binary search, subjects that are newer than the order are looked
at one by one, and their share is bounded.

Invariant: `count` is exact; `last_seq` is exact or 0; `first_block` is never too late and
`last_block` never too early, so looking between them finds everything.

One thread at a time.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from penstock.errors import FormatError

from penstock.format.hashing cimport xxh64_raw
from penstock.format.wire cimport put_uvarint, read_uvarint
from penstock.subjects cimport SubjectFilter

# The order is renewed when the unordered newcomers are more than this and more than a quarter.
cdef uint32_t NEWCOMERS_MAX = 4096
cdef uint64_t U32_MAX = 0xFFFFFFFF


cdef class SubjectTable:
    """Subjects by name; see the module."""

    def __cinit__(self):
        self.slots = <uint32_t*>calloc(64, 4)
        if self.slots == NULL:
            raise MemoryError
        self.mask = 63
        self.order = SubjectOrder()

    def __dealloc__(self):
        free(self.items)
        free(self.slots)
        free(self.text)

    cdef int64_t find(self, const uint8_t* text, size_t size) noexcept nogil:
        cdef uint32_t name_hash = <uint32_t>xxh64_raw(text, size, 0)
        cdef uint32_t slot = name_hash & self.mask
        cdef uint32_t item
        while self.slots[slot]:
            item = self.slots[slot] - 1
            if (
                self.items[item].hash == name_hash and self.items[item].text_size == size
                and memcmp(self.text + self.items[item].text_at, text, size) == 0
            ):
                return item
            slot = (slot + 1) & self.mask
        return -1

    cdef int64_t intern(self, const uint8_t* text, size_t size) except -1 nogil:
        cdef uint32_t name_hash = <uint32_t>xxh64_raw(text, size, 0)
        cdef uint32_t slot = name_hash & self.mask
        cdef uint32_t item
        cdef Subject* subject
        while self.slots[slot]:
            item = self.slots[slot] - 1
            if (
                self.items[item].hash == name_hash and self.items[item].text_size == size
                and memcmp(self.text + self.items[item].text_at, text, size) == 0
            ):
                return item
            slot = (slot + 1) & self.mask
        self._grow_items()
        self._grow_text(size)
        if self.used * 3 >= self.mask * 2:
            self._grow_slots()
            slot = name_hash & self.mask
            while self.slots[slot]:
                slot = (slot + 1) & self.mask
        item = self.used
        subject = &self.items[item]
        memset(subject, 0, sizeof(Subject))
        subject.text_at = self.text_used
        subject.text_size = <uint32_t>size
        subject.hash = name_hash
        if size:
            memcpy(self.text + self.text_used, text, size)
        self.text_used += size
        self.used += 1
        self.slots[slot] = item + 1
        return item

    cdef void count_up(
        self, uint32_t item, uint32_t block, uint64_t seq, uint32_t more
    ) noexcept nogil:
        cdef Subject* subject = &self.items[item]
        if subject.count == 0:
            subject.first_block = block
            subject.first_seq = seq
            self.live += 1
        subject.count += more
        subject.last_seq = seq

    cdef void count_down(self, uint32_t item, uint32_t fewer) noexcept nogil:
        # The caller looks after `last_seq`.
        cdef Subject* subject = &self.items[item]
        subject.count -= fewer
        if subject.count == 0:
            subject.last_seq = 0
            self.live -= 1

    cdef int _grow_items(self) except -1 nogil:
        cdef uint32_t room
        cdef Subject* grown
        if self.used < self.room:
            return 0
        room = self.room + self.room // 4 if self.room else 64
        grown = <Subject*>realloc(self.items, <size_t>room * sizeof(Subject))
        if grown == NULL:
            with gil:
                raise MemoryError
        self.items = grown
        self.room = room
        return 0

    cdef int _grow_text(self, size_t more) except -1 nogil:
        cdef uint64_t room = self.text_room
        cdef uint8_t* grown
        if self.text_used + more <= room:
            return 0
        room = room + room // 4 + more if room else 1024 + more
        grown = <uint8_t*>realloc(self.text, room)
        if grown == NULL:
            with gil:
                raise MemoryError
        self.text = grown
        self.text_room = room
        return 0

    cdef int _grow_slots(self) except -1 nogil:
        cdef uint32_t mask = self.mask * 2 + 1
        cdef uint32_t* slots = <uint32_t*>calloc(<size_t>mask + 1, 4)
        cdef uint32_t item, slot
        if slots == NULL:
            with gil:
                raise MemoryError
        for item in range(self.used):
            slot = self.items[item].hash & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = item + 1
        free(self.slots)
        self.slots = slots
        self.mask = mask
        return 0

    cdef Names names(self) noexcept nogil:
        cdef Names names
        names.items = self.items
        names.text = self.text
        return names

    cdef int _sort(self) except -1:
        cdef uint32_t newcomers = self.used - self.order.size
        cdef int64_t budget = INT64_MAX
        cdef Names names = self.names()
        if newcomers > NEWCOMERS_MAX and newcomers * 4 > self.order.size:
            self.order.step(&names, self.used, &budget)
        return 0

    cdef bint has_prefix(self, uint32_t item, const uint8_t* prefix, size_t size) noexcept nogil:
        cdef Subject* subject = &self.items[item]
        return (
            subject.text_size >= size and memcmp(self.text + subject.text_at, prefix, size) == 0
        )

    cpdef bytes matching(self, object subject_filter):
        """Return the items with live messages that a filter matches, as packed uint32."""
        cdef SubjectFilter wanted = subject_filter
        cdef bytes prefix
        if wanted.literals is not None:
            return self._matching_literals(wanted.literals)
        self._sort()
        # Two patterns may match one subject, so only a single pattern is searched by its prefix.
        prefix = wanted.prefixes[0] if len(wanted.prefixes) == 1 and not wanted.everything else b""
        return self._matching_range(wanted, prefix)

    def _matching_literals(self, literals):
        cdef const uint8_t* name
        cdef int64_t item
        found = bytearray()
        cdef bytes literal
        for literal in sorted(set(literals)):
            name = literal
            item = self.find(name, len(literal))
            if item >= 0 and self.items[item].count:
                found += (<uint32_t>item).to_bytes(4, "little")
        return bytes(found)

    def _matching_range(self, SubjectFilter wanted, bytes prefix):
        cdef const uint8_t* start = prefix
        cdef size_t size = len(prefix)
        cdef uint32_t place, item, kept = 0
        cdef uint32_t ordered = self.order.size
        cdef uint32_t* places = self.order.places
        cdef uint32_t low = 0, high = ordered
        cdef Names names = self.names()
        cdef Subject* subject
        if size:
            low = self.order.lower_bound(&names, start, size)
            high = low
            while high < ordered and self.has_prefix(places[high], start, size):
                high += 1
        cdef uint32_t newcomers = self.used - ordered
        result = PyBytes_FromStringAndSize(NULL, (<size_t>(high - low) + newcomers) * 4)
        cdef uint32_t* out = <uint32_t*>PyBytes_AS_STRING(result)
        with nogil:
            for place in range(low, high + newcomers):
                item = places[place] if place < high else ordered + (place - high)
                subject = &self.items[item]
                if subject.count and (
                    wanted.everything
                    or wanted.matches_raw(self.text + subject.text_at, subject.text_size)
                ):
                    out[kept] = item
                    kept += 1
        return result[:<size_t>kept * 4]

    def count(self, bytes subject not None):
        """Return the number of live messages of one subject."""
        cdef const uint8_t* name = subject
        cdef int64_t item = self.find(name, len(subject))
        return 0 if item < 0 else self.items[item].count

    def name(self, uint32_t item):
        """Return an item's subject."""
        cdef Subject* subject
        if item >= self.used:
            raise IndexError(item)
        subject = &self.items[item]
        return self.text[subject.text_at:subject.text_at + subject.text_size]

    def totals(self, subject_filter):
        """Return {subject: live messages} for a filter."""
        cdef bytes found = self.matching(subject_filter)
        cdef const uint32_t* items = <const uint32_t*>PyBytes_AS_STRING(found)
        cdef Py_ssize_t place
        return {
            self.name(items[place]): self.items[items[place]].count
            for place in range(len(found) // 4)
        }

    def total(self, subject_filter):
        """Return the number of live messages that a filter matches."""
        cdef bytes found = self.matching(subject_filter)
        cdef const uint32_t* items = <const uint32_t*>PyBytes_AS_STRING(found)
        cdef uint64_t total = 0
        cdef Py_ssize_t place
        for place in range(len(found) // 4):
            total += self.items[items[place]].count
        return total

    def memory_bytes(self):
        """Return how many bytes of memory the table holds."""
        return (
            self.room * sizeof(Subject) + (self.mask + 1) * 4 + self.text_room
            + self.order.size * 4
        )

    def clear(self):
        """Forget every subject."""
        self.used = self.live = 0
        self.text_used = 0
        self.order.clear()
        memset(self.slots, 0, (<size_t>self.mask + 1) * 4)

    def drop_ghosts(self):
        """Free the memory of subjects without messages, when they are the larger part.

        Items are numbered anew: no caller may keep one across this call.
        """
        if self.used < 1024 or self.live * 2 > self.used:
            return
        data = self.encode()
        self.clear()
        free(self.items)
        free(self.text)
        self.items = NULL
        self.text = NULL
        self.room = 0
        self.text_room = 0
        self.decode_into(data)

    def encode(self):
        """Encode the subjects that have messages: a checkpoint's section."""
        cdef uint32_t item
        cdef uint8_t* p
        cdef Subject* subject
        # Five varints of at most ten bytes each beside the name.
        out = PyBytes_FromStringAndSize(NULL, 10 + self.text_used + <size_t>self.live * 50)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(out)
        p = start
        p += put_uvarint(p, self.live)
        for item in range(self.used):
            subject = &self.items[item]
            if subject.count == 0:
                continue
            p += put_uvarint(p, subject.text_size)
            memcpy(p, self.text + subject.text_at, subject.text_size)
            p += subject.text_size
            p += put_uvarint(p, subject.count)
            p += put_uvarint(p, subject.first_block)
            p += put_uvarint(p, subject.last_block)
            p += put_uvarint(p, subject.last_seq)
        return out[:p - start]

    def decode_into(self, const uint8_t[::1] data not None):
        """Add what `encode` gave; returns the bytes used. Raises FormatError."""
        cdef const uint8_t* start = &data[0] if data.shape[0] else NULL
        cdef const uint8_t* end = start + data.shape[0]
        cdef const uint8_t* p = start
        cdef uint64_t subjects = 0, size = 0
        cdef uint64_t[4] values
        cdef uint64_t _
        cdef int used, field
        cdef int64_t item
        cdef Subject* subject
        used = read_uvarint(p, end, &subjects)
        if used == 0:
            raise FormatError("subject table cut off")
        p += used
        # Each takes five bytes at least, so a count beyond that is a lie.
        if subjects > <uint64_t>(end - p) // 5:
            raise FormatError("subject table announces more subjects than it has bytes")
        for _ in range(subjects):
            used = read_uvarint(p, end, &size)
            if used == 0 or size > <uint64_t>(end - p - used):
                raise FormatError("subject cut off", offset=p - start)
            p += used
            item = self.intern(p, size)
            p += size
            for field in range(4):
                used = read_uvarint(p, end, &values[field])
                if used == 0:
                    raise FormatError("subject cut off", offset=p - start)
                p += used
            subject = &self.items[item]
            if subject.count or values[0] == 0:
                raise FormatError("subject twice or without messages", offset=p - start)
            if values[0] > U32_MAX or values[1] > U32_MAX or values[2] > U32_MAX:
                raise FormatError("subject with a number that cannot be", offset=p - start)
            subject.count = <uint32_t>values[0]
            subject.first_block = <uint32_t>values[1]
            subject.last_block = <uint32_t>values[2]
            subject.last_seq = values[3]
            self.live += 1
        return p - start
