"""The order of a table's subjects by name, brought up to date in steps.

New subjects are sorted in short runs, the runs are merged, and the result is joined with the order
so far. All of it can stop after any number of comparisons and go on later, so that a million new
subjects hold up nobody.

Invariant: `places` is always in order, and what was added since it was made is not in it.

One thread at a time.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

cdef extern from "stdlib.h" nogil:
    void qsort_r(
        void* base, size_t count, size_t size,
        int (*compare)(const void*, const void*, void*) noexcept nogil, void* context,
    )

cdef enum:
    # Subjects that are sorted at once: some 10,000 comparisons, about a millisecond.
    RUN = 1024
    RUN_COST = 10240


cdef int compare_names(
    const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size
) noexcept nogil:
    cdef int difference = memcmp(a, b, a_size if a_size < b_size else b_size)
    if difference:
        return difference
    return -1 if a_size < b_size else (1 if a_size > b_size else 0)


cdef inline int _compare(const Names* names, uint32_t one, uint32_t other) noexcept nogil:
    cdef const Subject* left = &names.items[one]
    cdef const Subject* right = &names.items[other]
    return compare_names(
        names.text + left.text_at, left.text_size, names.text + right.text_at, right.text_size
    )


cdef int _compare_items(const void* a, const void* b, void* context) noexcept nogil:
    return _compare(<const Names*>context, (<const uint32_t*>a)[0], (<const uint32_t*>b)[0])


cdef class SubjectOrder:
    """Subjects by name; see the module."""

    def __dealloc__(self):
        self.clear()

    cdef void clear(self) noexcept:
        # Forget every subject: their numbers may have another meaning from now on.
        free(self.places)
        self.places = NULL
        self.size = 0
        self._drop_fresh()

    cdef void _drop_fresh(self) noexcept:
        free(self.fresh)
        free(self.spare)
        free(self.joined)
        self.fresh = self.spare = self.joined = NULL
        self.fresh_count = 0

    cdef uint32_t lower_bound(
        self, const Names* names, const uint8_t* name, size_t size
    ) noexcept nogil:
        # The first place whose name is not below the given one.
        cdef uint32_t low = 0, high = self.size, middle
        cdef const Subject* subject
        while low < high:
            middle = low + (high - low) // 2
            subject = &names.items[self.places[middle]]
            if compare_names(names.text + subject.text_at, subject.text_size, name, size) < 0:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint step(self, const Names* names, uint32_t used, int64_t* budget) except -1:
        # Go on with at most `budget` comparisons, about, and take them off; return whether all
        # `used` subjects are in the order.
        while self.size < used and budget[0] > 0:
            if self.fresh_count == 0:
                self._begin(used)
            elif self.width == 0:
                self._sort_runs(names, budget)
            elif self.width < self.fresh_count:
                self._merge_runs(names, budget)
            else:
                self._join(names, budget)
        return self.size >= used

    cdef int _begin(self, uint32_t used) except -1:
        cdef uint32_t count = used - self.size, place
        self.fresh = <uint32_t*>malloc(<size_t>count * 4)
        self.spare = <uint32_t*>malloc(<size_t>count * 4)
        if self.fresh == NULL or self.spare == NULL:
            self._drop_fresh()
            raise MemoryError
        for place in range(count):
            self.fresh[place] = self.size + place
        self.fresh_count = count
        self.width = self.left = 0
        return 0

    cdef void _sort_runs(self, const Names* names, int64_t* budget) noexcept nogil:
        cdef uint32_t count
        while self.left < self.fresh_count:
            if budget[0] <= 0:
                return
            count = min(<uint32_t>RUN, self.fresh_count - self.left)
            qsort_r(self.fresh + self.left, count, 4, _compare_items, <void*>names)
            budget[0] -= RUN_COST if count == RUN else <int64_t>count * 10
            self.left += count
        self.width = RUN
        self.left = self.one = 0
        self.other = RUN

    cdef void _merge_runs(self, const Names* names, int64_t* budget) noexcept nogil:
        # Two runs side by side become one of twice the width, all the way through.
        cdef uint32_t count = self.fresh_count
        cdef uint32_t middle, end, out
        cdef uint32_t* merged
        while self.left < count:
            middle = min(self.left + self.width, count)
            end = min(middle + self.width, count)
            # Both runs together have written as much as they have lost.
            out = self.left + (self.one - self.left) + (self.other - middle)
            while self.one < middle and self.other < end:
                if budget[0] <= 0:
                    return
                budget[0] -= 1
                if _compare(names, self.fresh[self.one], self.fresh[self.other]) <= 0:
                    self.spare[out] = self.fresh[self.one]
                    self.one += 1
                else:
                    self.spare[out] = self.fresh[self.other]
                    self.other += 1
                out += 1
            memcpy(self.spare + out, self.fresh + self.one, <size_t>(middle - self.one) * 4)
            out += middle - self.one
            memcpy(self.spare + out, self.fresh + self.other, <size_t>(end - self.other) * 4)
            self.left = self.one = end
            self.other = min(end + self.width, count)
        merged = self.spare
        self.spare = self.fresh
        self.fresh = merged
        self.width = self.width * 2 if self.width < count // 2 + 1 else count
        self.left = self.one = 0
        self.other = min(self.width, count)

    cdef bint _join(self, const Names* names, int64_t* budget) except -1:
        # `one` counts what was taken of the order, `left` of the newcomers.
        cdef uint32_t low, high, middle, stride
        if self.joined == NULL:
            self.joined = <uint32_t*>malloc((<size_t>self.size + self.fresh_count) * 4)
            if self.joined == NULL:
                raise MemoryError
            self.one = self.left = 0
        while self.left < self.fresh_count:
            if budget[0] <= 0:
                return False
            # How many of the order stand before the next newcomer: in strides, then by halves.
            low = self.one
            stride = 1
            while low + stride <= self.size and (
                _compare(names, self.places[low + stride - 1], self.fresh[self.left]) < 0
            ):
                low += stride
                stride *= 2
                budget[0] -= 1
            high = min(low + stride - 1, self.size)
            while low < high:
                middle = low + (high - low) // 2
                budget[0] -= 1
                if _compare(names, self.places[middle], self.fresh[self.left]) < 0:
                    low = middle + 1
                else:
                    high = middle
            memcpy(
                self.joined + self.one + self.left, self.places + self.one,
                <size_t>(low - self.one) * 4,
            )
            self.one = low
            self.joined[self.one + self.left] = self.fresh[self.left]
            self.left += 1
            budget[0] -= 1
        memcpy(
            self.joined + self.one + self.left, self.places + self.one,
            <size_t>(self.size - self.one) * 4,
        )
        free(self.places)
        self.places = self.joined
        self.size += self.fresh_count
        self.joined = NULL
        self._drop_fresh()
        return True
