"""Reply subjects that are remembered for a while, each with a value, the oldest first.

A service that may answer what it was asked has one of these, and so has an account that waits for
answers of another. Entries are found by their key and forgotten in the order of their time; who
owns the table decides how many there may be and for how long.

Invariants: a key is there once. The order is that of `add` and `touch`. Keys come from clients:
where very many fall into one bucket, which takes intent, the oldest of them is forgotten, so that
no operation costs more than a few comparisons.

One thread at a time. Used by `security` and `routing`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock.protocol.subject_cache cimport hash_subject, same_text

cdef enum:
    NONE = -1
    ROOM_START = 16
    # Entries of one bucket. There are as many buckets as entries, so by chance a handful share one.
    CHAIN_MAX = 64


cdef class Replies:
    """Reply subjects with their values; see the module."""

    def __cinit__(self):
        self.free_first = self.oldest = self.newest = NONE

    def __dealloc__(self):
        while self.oldest != NONE:
            self.remove(self.oldest)
        free(self.entries)
        free(self.buckets)

    cdef int32_t find(self, const uint8_t* key, size_t size) noexcept nogil:
        # Return the place of a key, or -1.
        cdef uint64_t value
        cdef int32_t place
        cdef Reply* entry
        if self.count == 0:
            return NONE
        value = hash_subject(key, size)
        place = self.buckets[value & <uint64_t>(self.room - 1)]
        while place != NONE:
            entry = &self.entries[place]
            if entry.hash == value and entry.key_size == size and same_text(entry.text, key, size):
                return place
            place = entry.chained
        return NONE

    cdef int32_t add(
        self, const uint8_t* key, size_t key_size, const uint8_t* value, size_t value_size,
        int64_t now_ns
    ) except -1:
        # Add a key that is not there, as the newest; return its place.
        cdef Reply* entry
        cdef int32_t place, other, last = NONE
        cdef int length = 0
        cdef uint8_t* text
        if self.free_first == NONE:
            self._grow()
        text = <uint8_t*>malloc(key_size + value_size + 1)
        if text == NULL:
            raise MemoryError
        memcpy(text, key, key_size)
        if value_size:
            memcpy(text + key_size, value, value_size)
        place = self.free_first
        entry = &self.entries[place]
        self.free_first = entry.chained
        entry.text = text
        entry.key_size = <uint32_t>key_size
        entry.value_size = <uint32_t>value_size
        entry.hash = hash_subject(key, key_size)
        entry.time_ns = now_ns
        entry.count = 0
        self.count += 1
        self._link(place)
        other = self.buckets[entry.hash & <uint64_t>(self.room - 1)]
        entry.chained = other
        self.buckets[entry.hash & <uint64_t>(self.room - 1)] = place
        while other != NONE:
            length += 1
            last = other
            other = self.entries[other].chained
        if length >= CHAIN_MAX:
            self.remove(last)
        return place

    cdef void touch(self, int32_t place, int64_t now_ns) noexcept nogil:
        # Make an entry the newest.
        self._unlink(place)
        self._link(place)
        self.entries[place].time_ns = now_ns

    cdef void remove(self, int32_t place) noexcept nogil:
        cdef Reply* entry = &self.entries[place]
        self._unchain(place)
        self._unlink(place)
        free(entry.text)
        entry.text = NULL
        entry.chained = self.free_first
        self.free_first = place
        self.count -= 1

    cdef int _grow(self) except -1:
        # Double the room, and put every entry into its new bucket, the newer before the older.
        cdef int32_t room = self.room * 2 if self.room else ROOM_START
        cdef int32_t place
        cdef Reply* entry
        cdef Reply* entries = <Reply*>realloc(self.entries, room * sizeof(Reply))
        if entries == NULL:
            raise MemoryError
        self.entries = entries
        cdef int32_t* buckets = <int32_t*>realloc(self.buckets, room * sizeof(int32_t))
        if buckets == NULL:
            raise MemoryError
        self.buckets = buckets
        for place in range(self.room, room):
            entries[place].text = NULL
            entries[place].chained = place + 1 if place + 1 < room else self.free_first
        self.free_first = self.room
        self.room = room
        for place in range(room):
            buckets[place] = NONE
        place = self.oldest
        while place != NONE:
            entry = &entries[place]
            entry.chained = buckets[entry.hash & <uint64_t>(room - 1)]
            buckets[entry.hash & <uint64_t>(room - 1)] = place
            place = entry.newer
        return 0

    cdef void _link(self, int32_t place) noexcept nogil:
        cdef Reply* entry = &self.entries[place]
        entry.newer = NONE
        entry.older = self.newest
        if self.newest != NONE:
            self.entries[self.newest].newer = place
        else:
            self.oldest = place
        self.newest = place

    cdef void _unlink(self, int32_t place) noexcept nogil:
        cdef Reply* entry = &self.entries[place]
        if entry.older != NONE:
            self.entries[entry.older].newer = entry.newer
        else:
            self.oldest = entry.newer
        if entry.newer != NONE:
            self.entries[entry.newer].older = entry.older
        else:
            self.newest = entry.older

    cdef void _unchain(self, int32_t place) noexcept nogil:
        cdef int32_t* at = &self.buckets[
            self.entries[place].hash & <uint64_t>(self.room - 1)
        ]
        while at[0] != place:
            at = &self.entries[at[0]].chained
        at[0] = self.entries[place].chained

    # From Python

    def put(self, bytes key not None, bytes value not None, int64_t now_ns):
        """Add a key, or make one that is there the newest; its value then stays."""
        cdef int32_t place = self.find(key, len(key))
        if place == NONE:
            self.add(key, len(key), value, len(value), now_ns)
        else:
            self.touch(place, now_ns)

    def get(self, bytes key not None):
        """Return (value, time) of a key, or None."""
        cdef int32_t place = self.find(key, len(key))
        cdef Reply* entry
        if place == NONE:
            return None
        entry = &self.entries[place]
        return entry.text[entry.key_size:entry.key_size + entry.value_size], entry.time_ns

    def drop(self, bytes key not None):
        """Forget a key; return False if it was not there."""
        cdef int32_t place = self.find(key, len(key))
        if place == NONE:
            return False
        self.remove(place)
        return True

    def keys(self):
        """Return every key, the oldest first."""
        cdef list found = []
        cdef int32_t place = self.oldest
        while place != NONE:
            found.append(self.entries[place].text[:self.entries[place].key_size])
            place = self.entries[place].newer
        return found
