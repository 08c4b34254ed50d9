"""Which sequences expire, and when: a wheel of slots for per-message TTL.

    slot 0      slot 1      slot 2                 slot 4095
    [page]      -           [page][page][page] ... [page]        page: up to 512 (due, sequence)

An entry lies in the slot of its tick (time divided by `tick_ns`, modulo the number of slots) and
stays there however many turns of the wheel away it is. Within a slot entries ascend by (due,
sequence) over short pages, so that those due are always in front, one entry is found by halving,
and a slot that takes millions (everything that expires at midnight) costs little more per entry
than a small one.

Invariant: nothing expires before its time, whatever the clock does; the earliest time held
is known or found in at most one turn; a jump of the clock, however far, costs one turn more and
what is due. An entry takes 16 bytes and what its page has to spare; no Python object is kept.

Pure: time is an argument. A wheel belongs to one thread. Called by the store, which keeps what is
on disk and fills the wheel again when it opens.
"""

cimport cython
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove

from penstock.errors import UsageError

cdef enum:
    # 8 KiB: moving half a page aside for one entry takes about as long as one cache miss, and ten
    # million entries in one slot make a list of pages that is itself cheap to move.
    PAGE_ENTRIES_MAX = 512
    PAGE_ENTRIES_FIRST = 4


cdef inline uint64_t _unsigned(int64_t time_ns) noexcept:
    return <uint64_t>time_ns ^ (<uint64_t>1 << 63)


cdef inline bint _is_before(const Expiry* one, const Expiry* other) noexcept nogil:
    return one.due < other.due or (one.due == other.due and one.seq < other.seq)


cdef int _compare(const void* one, const void* other) noexcept nogil:
    return (
        <int>_is_before(<const Expiry*>other, <const Expiry*>one)
        - <int>_is_before(<const Expiry*>one, <const Expiry*>other)
    )


cdef uint32_t _find_page(const Slot* slot, const Expiry* entry) noexcept:
    # The last page that does not start after `entry`, else the first: where `entry` is or belongs.
    cdef uint32_t low = 0, high = slot.count - 1, middle
    if not _is_before(entry, slot.pages[high].expiries):
        # Most adds come in order of time and end here.
        return high
    while low + 1 < high:
        middle = low + (high - low) // 2
        if _is_before(entry, slot.pages[middle].expiries):
            high = middle
        else:
            low = middle
    return low


cdef uint32_t _find_place(const Page* page, const Expiry* entry) noexcept:
    # The first place whose expiry is not before `entry`; the page's count if there is none.
    cdef uint32_t low = 0, high = page.count, middle
    if _is_before(page.expiries + high - 1, entry):
        return high
    while low < high:
        middle = low + (high - low) // 2
        if _is_before(page.expiries + middle, entry):
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint _is_at(const Page* page, uint32_t place, const Expiry* entry) noexcept:
    return (
        place < page.count
        and page.expiries[place].due == entry.due
        and page.expiries[place].seq == entry.seq
    )


@cython.final
cdef class ExpiryWheel:
    """A set of (sequence, expiry time) pairs that gives up those that are due; see the module.

    Times are Unix nanoseconds within 64 bits. `memory_bytes` is what the wheel has allocated;
    `visited` counts the slots and entries that `expire` and `next_due_ns` have looked at so far.
    Raises UsageError unless one turn is at least a nanosecond and at most 2**63.
    """

    def __cinit__(self, int64_t tick_ns=1_000_000_000, int64_t slots=4096):
        if tick_ns < 1 or slots < 1 or tick_ns > INT64_MAX // slots:
            raise UsageError(f"an expiry wheel cannot have {slots} slots of {tick_ns} ns")
        self.tick_ns = tick_ns
        self.slot_count = slots

    def __dealloc__(self):
        self._free_slots()

    def __len__(self):
        return self.count

    cpdef void add(self, uint64_t seq, int64_t expires_ns) except *:
        """Remember that `seq` expires; a pair that is held already is held once.

        A sequence with two different times is given up twice: remove the old pair first.
        """
        cdef Expiry entry = Expiry(_unsigned(expires_ns), seq)
        if self.slots == NULL:
            self.slots = <Slot*>calloc(self.slot_count, sizeof(Slot))
            if self.slots == NULL:
                raise MemoryError
            self.memory_bytes += self.slot_count * sizeof(Slot)
        self._insert(&self.slots[entry.due // self.tick_ns % self.slot_count], &entry)

    cpdef bint remove(self, uint64_t seq, int64_t expires_ns) except -1:
        """Forget the pair; return whether it was held."""
        cdef Expiry entry = Expiry(_unsigned(expires_ns), seq)
        cdef Slot* slot
        cdef uint32_t number, place
        if self.count == 0:
            return False
        slot = &self.slots[entry.due // self.tick_ns % self.slot_count]
        if slot.count == 0:
            return False
        number = _find_page(slot, &entry)
        place = _find_place(&slot.pages[number], &entry)
        if not _is_at(&slot.pages[number], place, &entry):
            return False
        if slot.pages[number].count == 1:
            self._drop_pages(slot, number, 1)
        else:
            self._cut_page(&slot.pages[number], place, 1)
        self.count -= 1
        return True

    def expire(self, int64_t now_ns, Py_ssize_t limit):
        """Remove and return at most `limit` sequences whose time is not after `now_ns`.

        They ascend by (expiry time, sequence). Fewer than `limit` means that nothing else is due.
        After a jump over more than one turn, what one call leaves may be older than what it gave.
        """
        cdef uint64_t now = _unsigned(now_ns)
        cdef size_t taken_max, taken_count, place
        cdef Expiry* taken
        if limit < 1:
            raise UsageError(f"cannot expire at most {limit} entries")
        if self.count == 0 or self.floor > now:
            return []
        taken_max = min(<uint64_t>limit, self.count)
        taken = <Expiry*>malloc(taken_max * sizeof(Expiry))
        if taken == NULL:
            raise MemoryError
        taken_count = self._collect(now, taken, taken_max)
        try:
            return [taken[place].seq for place in range(taken_count)]
        finally:
            free(taken)

    def next_due_ns(self):
        """Return the earliest expiry time held, or None; costs at most a look at each slot."""
        if self.count == 0:
            return None
        self._raise_floor()
        return <int64_t>(self.floor ^ (<uint64_t>1 << 63))

    def clear(self):
        """Forget everything and free the memory."""
        self._free_slots()

    cdef void _free_slots(self) noexcept:
        cdef uint64_t number
        if self.slots == NULL:
            return
        for number in range(self.slot_count):
            self._drop_pages(&self.slots[number], 0, self.slots[number].count)
        free(self.slots)
        self.slots = NULL
        self.count = 0
        self.memory_bytes -= self.slot_count * sizeof(Slot)

    cdef int _insert(self, Slot* slot, const Expiry* entry) except -1:
        cdef uint32_t number = 0, place = 0
        cdef Page* page
        if slot.count == 0:
            self._open_page(slot, 0, PAGE_ENTRIES_FIRST)
        else:
            number = _find_page(slot, entry)
            place = _find_place(&slot.pages[number], entry)
            if _is_at(&slot.pages[number], place, entry):
                return 0
            if place == PAGE_ENTRIES_MAX and number == slot.count - 1:
                # Entries that come in order leave full pages behind them.
                number += 1
                place = 0
                self._open_page(slot, number, PAGE_ENTRIES_FIRST)
            elif slot.pages[number].count == PAGE_ENTRIES_MAX:
                self._split_page(slot, number)
                if place > PAGE_ENTRIES_MAX // 2:
                    number += 1
                    place -= PAGE_ENTRIES_MAX // 2
        page = &slot.pages[number]
        if page.count == page.room:
            if not self._resize_page(page, min(page.room + page.room // 2 + 2, PAGE_ENTRIES_MAX)):
                raise MemoryError
        memmove(
            page.expiries + place + 1, page.expiries + place,
            (page.count - place) * sizeof(Expiry),
        )
        page.expiries[place] = entry[0]
        page.count += 1
        if self.count == 0 or entry.due < self.floor:
            self.floor = entry.due
        self.count += 1
        return 0

    cdef int _open_page(self, Slot* slot, uint32_t number, uint32_t room) except -1:
        # Puts an empty page before page `number`; the caller fills it without a chance to fail.
        cdef uint32_t slot_room = slot.room
        cdef Page page = Page(NULL, 0, 0)
        cdef Page* pages
        if slot.count == slot_room:
            slot_room += slot_room // 2 + 1
            pages = <Page*>realloc(slot.pages, slot_room * sizeof(Page))
            if pages == NULL:
                raise MemoryError
            self.memory_bytes += (slot_room - slot.room) * sizeof(Page)
            slot.pages = pages
            slot.room = slot_room
        if not self._resize_page(&page, room):
            raise MemoryError
        memmove(
            slot.pages + number + 1, slot.pages + number, (slot.count - number) * sizeof(Page)
        )
        slot.pages[number] = page
        slot.count += 1
        return 0

    cdef int _split_page(self, Slot* slot, uint32_t number) except -1:
        # The upper half of a full page goes to a new page after it.
        cdef uint32_t half = PAGE_ENTRIES_MAX // 2
        cdef uint32_t rest = PAGE_ENTRIES_MAX - half
        self._open_page(slot, number + 1, rest)
        memcpy(
            slot.pages[number + 1].expiries, slot.pages[number].expiries + half,
            rest * sizeof(Expiry),
        )
        slot.pages[number + 1].count = rest
        slot.pages[number].count = half
        return 0

    cdef bint _resize_page(self, Page* page, uint32_t room) noexcept:
        # False when there is no memory; the page is then as it was.
        cdef Expiry* expiries = <Expiry*>realloc(page.expiries, room * sizeof(Expiry))
        if expiries == NULL:
            return False
        self.memory_bytes += room * sizeof(Expiry)
        self.memory_bytes -= page.room * sizeof(Expiry)
        page.expiries = expiries
        page.room = room
        return True

    cdef void _cut_page(self, Page* page, uint32_t place, uint32_t count) noexcept:
        # Takes `count` expiries out, fewer than there are, and gives back room if little is left.
        page.count -= count
        memmove(
            page.expiries + place, page.expiries + place + count,
            (page.count - place) * sizeof(Expiry),
        )
        if page.room > 4 * page.count and page.room > PAGE_ENTRIES_FIRST:
            self._resize_page(page, max(2 * page.count, PAGE_ENTRIES_FIRST))

    cdef void _drop_pages(self, Slot* slot, uint32_t number, uint32_t count) noexcept:
        cdef uint32_t each
        if count == 0:
            return
        for each in range(number, number + count):
            self.memory_bytes -= slot.pages[each].room * sizeof(Expiry)
            free(slot.pages[each].expiries)
        slot.count -= count
        memmove(
            slot.pages + number, slot.pages + number + count, (slot.count - number) * sizeof(Page)
        )
        if slot.count == 0:
            self.memory_bytes -= slot.room * sizeof(Page)
            free(slot.pages)
            slot.pages = NULL
            slot.room = 0

    cdef size_t _collect(self, uint64_t now, Expiry* taken, size_t limit) noexcept:
        # Moves what is due into `taken`. Within one turn the slots are in order of time; past that
        # each slot has entries of several turns, so it is looked at once and the catch is sorted.
        cdef uint64_t tick, ticks, number, _
        cdef size_t count = 0
        self._raise_floor()
        if self.floor > now:
            return 0
        tick = self.floor // self.tick_ns
        ticks = now // self.tick_ns - tick
        number = tick % self.slot_count
        for _ in range(min(ticks, self.slot_count - 1) + 1):
            self.visited += 1
            count += self._take_due(&self.slots[number], now, taken + count, limit - count)
            if count == limit:
                break
            number = number + 1 if number + 1 < self.slot_count else 0
        self.count -= count
        if ticks >= self.slot_count:
            qsort(taken, count, sizeof(Expiry), _compare)
        elif count == limit:
            self.floor = taken[count - 1].due
        if count < limit:
            self.floor = now
        return count

    cdef size_t _take_due(self, Slot* slot, uint64_t now, Expiry* taken, size_t limit) noexcept:
        cdef uint32_t emptied = 0, due
        cdef size_t count = 0
        cdef Page* page
        while emptied < slot.count and count < limit:
            page = &slot.pages[emptied]
            if page.expiries[0].due > now:
                break
            due = 1
            while due < page.count and count + due < limit and page.expiries[due].due <= now:
                due += 1
            self.visited += due
            memcpy(taken + count, page.expiries, due * sizeof(Expiry))
            count += due
            if due < page.count:
                self._cut_page(page, 0, due)
                break
            emptied += 1
        self._drop_pages(slot, 0, emptied)
        return count

    cdef void _raise_floor(self) noexcept:
        # Sets the floor to the earliest time held; there must be one. Going round from the floor's
        # own slot, the first entry that is less than a turn away is the earliest of all.
        cdef uint64_t turn_start = self.floor - self.floor % self.tick_ns
        cdef uint64_t number = self.floor // self.tick_ns % self.slot_count
        cdef uint64_t earliest = UINT64_MAX, due, distance
        for distance in range(1, self.slot_count + 1):
            self.visited += 1
            if self.slots[number].count:
                due = self.slots[number].pages[0].expiries[0].due
                earliest = min(earliest, due)
                if due - turn_start < distance * self.tick_ns:
                    break
            number = number + 1 if number + 1 < self.slot_count else 0
        self.floor = earliest
