# The index of one block, being built or loaded; see block_index.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport SubjectTable


cdef struct Entry:
    # Sequence less the block's base sequence.
    uint32_t seq_delta
    uint32_t offset
    uint32_t length
    # Number in the block's dictionary.
    uint32_t subject
    int64_t timestamp_ns
    # What the message counts for in the stream's bytes.
    uint32_t size
    uint8_t flags
    uint8_t[3] zero


cdef struct LocalSubject:
    uint32_t text_at
    uint32_t text_size
    uint32_t count
    # Ordinals of its first and last entry.
    uint32_t first
    uint32_t last


cdef struct Expiry:
    uint32_t ordinal
    uint32_t zero
    int64_t expires_ns


cdef class BlockIndex:
    cdef readonly uint32_t number
    cdef readonly uint32_t generation
    cdef readonly uint64_t base_seq
    # The highest sequence that the block accounts for, skipped ones included;
    # one below the base for none.
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t block_bytes
    cdef readonly uint64_t last_checksum
    cdef readonly uint64_t message_bytes
    cdef readonly int64_t first_time_ns
    cdef readonly int64_t last_time_ns
    cdef readonly SequenceSet tombstones
    cdef readonly list damage
    cdef readonly bytes header

    cdef Entry* entries
    cdef readonly uint32_t count
    cdef uint32_t room
    cdef LocalSubject* subjects
    cdef readonly uint32_t subject_count
    cdef uint32_t subject_room
    cdef Expiry* expiries
    cdef readonly uint32_t expiry_count
    cdef uint32_t expiry_room
    # While building: the table that holds the names, and each local subject's item there.
    cdef SubjectTable table
    cdef uint32_t* items
    # Of the subject of the entry that was added last: its newest message before, 0 for none known.
    cdef uint64_t previous_seq
    # The next entry of each entry's subject; NULL until it is first asked for.
    cdef uint32_t* following
    cdef uint32_t following_room
    # Once frozen or loaded: the names, and the local subjects in order of name.
    cdef uint8_t* text
    cdef uint32_t text_bytes
    cdef uint32_t* order
    # Loaded: the bytes that the pointers above look into. Otherwise they are our own.
    cdef object owner

    cdef int add(
        self, uint64_t seq, int64_t timestamp_ns, uint32_t offset, uint32_t length,
        const uint8_t* subject, size_t subject_size, uint32_t size, uint8_t flags,
        int64_t expires_ns,
    ) except -1 nogil
    cdef void note(self, uint64_t last_seq, uint64_t block_bytes, uint64_t checksum) noexcept nogil
    cdef uint32_t lower_bound(self, uint64_t seq) noexcept nogil
    cdef int64_t find_seq(self, uint64_t seq) noexcept nogil
    cdef int64_t find_subject(self, const uint8_t* name, size_t size) noexcept nogil
    cdef const uint8_t* subject_name(self, uint32_t local, size_t* size) noexcept nogil
    cdef int64_t next_entry(
        self, int64_t ordinal, const uint8_t* wanted, const uint8_t* dead
    ) noexcept nogil
    cdef int64_t previous_entry(
        self, int64_t ordinal, const uint8_t* wanted, const uint8_t* dead
    ) noexcept nogil
    cdef uint64_t count_entries(
        self, uint32_t first, const uint8_t* wanted, const uint8_t* dead
    ) noexcept nogil
    cdef bytes wanted_subjects(self, object subject_filter)
    cdef bint _knows(self, uint32_t item) noexcept nogil
    cdef int64_t expiry_of(self, uint32_t ordinal) noexcept nogil
    cdef int64_t next_of_subject(self, uint32_t ordinal) except -2
    cdef int _chain(self) except -1
    cdef int _follow(self, const LocalSubject* local) except -1 nogil
    cdef int _add_local(self, uint32_t item) except -1 nogil
    cdef int _add_expiry(self, int64_t expires_ns) except -1 nogil
    cdef bint _is_sound(self) noexcept nogil
