# A wheel of expiry times; see expiry_wheel.pyx.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct Expiry:
    # `due` is the expiry time moved to unsigned, order kept, so that differences cannot overflow.
    uint64_t due
    uint64_t seq


cdef struct Page:
    # Between 1 and `room` expiries, ascending.
    Expiry* expiries
    uint32_t count
    uint32_t room


cdef struct Slot:
    # Pages that ascend from one to the next; none of them when the slot is empty.
    Page* pages
    uint32_t count
    uint32_t room


cdef class ExpiryWheel:
    cdef uint64_t tick_ns
    cdef uint64_t slot_count
    # Allocated with the first entry: most streams never have one.
    cdef Slot* slots
    cdef uint64_t count
    # Nothing held is due before it. May be too low, until `_raise_floor`.
    cdef uint64_t floor
    cdef readonly uint64_t memory_bytes
    cdef readonly uint64_t visited

    cpdef void add(self, uint64_t seq, int64_t expires_ns) except *
    cpdef bint remove(self, uint64_t seq, int64_t expires_ns) except -1

    cdef void _free_slots(self) noexcept
    cdef int _insert(self, Slot* slot, const Expiry* entry) except -1
    cdef int _open_page(self, Slot* slot, uint32_t number, uint32_t room) except -1
    cdef int _split_page(self, Slot* slot, uint32_t number) except -1
    cdef bint _resize_page(self, Page* page, uint32_t room) noexcept
    cdef void _cut_page(self, Page* page, uint32_t place, uint32_t count) noexcept
    cdef void _drop_pages(self, Slot* slot, uint32_t number, uint32_t count) noexcept
    cdef size_t _collect(self, uint64_t now, Expiry* taken, size_t limit) noexcept
    cdef size_t _take_due(self, Slot* slot, uint64_t now, Expiry* taken, size_t limit) noexcept
    cdef void _raise_floor(self) noexcept
