"""The values of counters of up to 18 digits, added in compiled code; `counters` has the others.

A counter's value stands in the last message of its subject. Here the values that were added last
are kept with the sequences of their messages: one that is still the last of its subject tells the
value, and nothing has to be read. Several subjects share a slot; who comes later has it.

Invariant: a value is told only for the very message that has it.

Thread: the event loop's; `rules` has one for a stream with counters.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from penstock.errors import StoreError
from penstock.protocol.headers import value_of

from penstock.protocol.headers cimport Value
from penstock.protocol.lines cimport put_number

cdef enum:
    # A power of two; 64 KB.
    SLOTS = 4096
    # So many digits, and the sum of two such numbers, have room in 64 bits.
    DIGITS_MAX = 18
    START_SIZE = 8

cdef const char* START = b'{"val":"'


cdef uint64_t hash_of(const uint8_t* text, size_t size) noexcept nogil:
    # FNV-1a: which slot a subject has.
    cdef uint64_t value = 0xCBF29CE484222325ULL
    cdef size_t place
    for place in range(size):
        value = (value ^ text[place]) * 0x100000001B3ULL
    return value ^ (value >> 32)


cdef bint is_number(const Value* text) noexcept nogil:
    # As `counters` reads it: digits, with a sign or without.
    cdef size_t place = 0
    if text.size and (text.start[0] == b"-" or text.start[0] == b"+"):
        place = 1
    if place == text.size:
        return False
    while place < text.size:
        if not 48 <= text.start[place] <= 57:
            return False
        place += 1
    return True


cdef bint read_number(const uint8_t* text, size_t size, int64_t* number) noexcept nogil:
    # Read a number that has room; False for any other text.
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef size_t place = 1 if size and (text[0] == b"-" or text[0] == b"+") else 0
    number[0] = 0
    if place == size or size - place > DIGITS_MAX:
        return False
    while place < size:
        if not 48 <= text[place] <= 57:
            return False
        number[0] = number[0] * 10 + (text[place] - 48)
        place += 1
    if is_negative:
        number[0] = -number[0]
    return True


cdef class Totals:
    """The values of one stream's counters; see the module."""

    def __cinit__(self):
        self.slots = <Total*>calloc(SLOTS, sizeof(Total))
        if self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)

    cdef bint find(self, object store, uint64_t seq, uint64_t place, int64_t* value) except -1:
        # The value in message `seq`, whose subject has the slot `place`; False if it is not plain.
        cdef Total* slot = &self.slots[place & (SLOTS - 1)]
        cdef bytes body
        cdef const uint8_t* text
        if slot.seq == seq:
            value[0] = slot.value
            return True
        try:
            message = store.load(seq)
        except StoreError:
            return False
        body = message.payload
        text = body
        return (
            START_SIZE + 2 < len(body) and memcmp(text, START, START_SIZE) == 0
            and body.endswith(b'"}')
            and not value_of(message.headers, b"Nats-Counter-Sources")
            and read_number(text + START_SIZE, len(body) - START_SIZE - 2, value)
        )

    cdef int keep(self, uint64_t seq, uint64_t place, int64_t value) except -1:
        cdef Total* slot = &self.slots[place & (SLOTS - 1)]
        slot.seq = seq
        slot.value = value
        return 0

    cdef void write(self, int64_t value) noexcept:
        # Make `body` what a message with a value has.
        cdef size_t size = START_SIZE
        memcpy(self.body, START, START_SIZE)
        if value < 0:
            self.body[size] = b"-"
            size += 1
        size += put_number(self.body + size, <uint64_t>(-value if value < 0 else value))
        self.body[size] = b'"'
        self.body[size + 1] = b"}"
        self.body_size = size + 2
