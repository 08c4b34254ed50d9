"""What was found out about subjects: a number for each, remembered in a table that never grows.

A new answer takes the place of the one that was in its slot. A subject is compared in full, so that
none gets the answer of another, whatever a client chooses; very long ones are not remembered.

One thread at a time. Used by `security` and `routing` for what is asked with each message.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy


cdef class SubjectCache:
    """Answers of at most `slot_count` subjects; see the module."""

    def __cinit__(self, uint64_t slot_count):
        if slot_count < 1:
            raise ValueError("a cache needs a slot")
        self.slot_count = slot_count

    def __dealloc__(self):
        free(self.slots)

    cdef int32_t find(self, const uint8_t* subject, size_t size) noexcept nogil:
        # Return the answer for a subject, or UNKNOWN.
        cdef uint64_t value
        cdef CachedSubject* slot
        if self.slots == NULL or size == 0:
            return UNKNOWN
        value = hash_subject(subject, size)
        slot = &self.slots[value % self.slot_count]
        if slot.hash == value and slot.size == size and same_text(slot.subject, subject, size):
            return slot.answer
        return UNKNOWN

    cdef void remember(self, const uint8_t* subject, size_t size, int32_t answer) noexcept nogil:
        cdef uint64_t value
        cdef CachedSubject* slot
        if size == 0 or size > CACHED_SUBJECT_BYTES:
            return
        if self.slots == NULL:
            # Without memory nothing is remembered.
            self.slots = <CachedSubject*>calloc(self.slot_count, sizeof(CachedSubject))
            if self.slots == NULL:
                return
        value = hash_subject(subject, size)
        slot = &self.slots[value % self.slot_count]
        slot.hash = value
        slot.size = <uint32_t>size
        slot.answer = answer
        memcpy(slot.subject, subject, size)

    def __len__(self):
        cdef uint64_t place
        cdef Py_ssize_t count = 0
        if self.slots != NULL:
            for place in range(self.slot_count):
                count += self.slots[place].size > 0
        return count
