# One source and one destination; see subject_transform.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef struct Token:
    const uint8_t* text
    size_t size


cdef struct Step:
    # One token of a destination: what it does, with which text, number and tokens of the source.
    int function
    Token text
    int64_t number
    uint32_t place_start
    uint32_t place_count


cdef class SubjectTransform:
    cdef readonly str source
    cdef readonly str destination
    # The bytes that `wanted` and `steps` point into.
    cdef list texts
    cdef Token* wanted
    cdef uint32_t wanted_count
    cdef bint takes_rest
    cdef Step* steps
    cdef uint32_t step_count
    cdef uint32_t* places
    # The tokens of the subject at hand, and what becomes of it.
    cdef Token* tokens
    cdef uint32_t token_count
    cdef uint32_t token_room
    cdef uint8_t* renamed
    cdef size_t renamed_size
    cdef size_t renamed_room

    # Return True if the source matches a literal subject; `renamed` has the new one then.
    cdef bint rename(self, const uint8_t* subject, size_t size, object random_below) except -1
    # Return True if the source matches any subject; `_render` may follow.
    cdef bint selects_raw(self, const uint8_t* subject, size_t size) except -1
    cdef int _take_steps(self, list pieces) except -1
    cdef int _split(self, const uint8_t* subject, size_t size) except -1
    cdef bint _is_plain(self) noexcept
    cdef bint _selects(self) noexcept
    cdef int _render(self, object random_below) except -1
    cdef int _render_step(self, const Step* step, object random_below) except -1
    cdef int _render_partition(self, const Step* step) except -1
    cdef int _render_split(self, const Token* token, const Token* separator) except -1
    cdef int _render_cut(self, const Step* step, const Token* token) except -1
    cdef int _put(self, const uint8_t* text, size_t size) except -1
    cdef int _put_dot(self) except -1
    cdef int _put_number(self, int64_t number) except -1
