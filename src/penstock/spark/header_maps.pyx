"""Blocks of headers, parsed into the buffers of an Arrow map<string, list<string>>.

A message without headers is null. A name that a message has several times is one key, where it
came first, with all its values in their order: Spark allows no key twice. The first line (version
and status) is no header; a line without a colon is ignored.

Pure; any thread. Bytes only: the caller checks that names and values are text.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

import msgspec

from penstock.errors import UsageError

cdef enum:
    # Above this many lines names are compared by hashing, not each with each.
    COMPARED_MAX = 32


class HeaderMaps(msgspec.Struct, frozen=True):
    """The buffers of a map column; each `*_offsets` holds one int32 more than there are items."""

    count: int
    null_count: int
    validity: bytes
    map_offsets: bytes
    key_offsets: bytes
    keys: bytes
    list_offsets: bytes
    value_offsets: bytes
    values: bytes


cdef struct Buffer:
    uint8_t* data
    size_t used
    size_t room


cdef struct Header:
    const uint8_t* name
    size_t name_size
    const uint8_t* value
    size_t value_size
    bint is_done


cdef int _put(Buffer* buffer, const void* data, size_t size) except -1:
    cdef size_t room = buffer.room if buffer.room else 4096
    cdef uint8_t* grown
    if buffer.used + size > buffer.room:
        if buffer.used + size > 0x7FFFFFFF:
            raise UsageError("more than 2 GiB of headers in one batch: ask for smaller batches")
        while room < buffer.used + size:
            room *= 2
        grown = <uint8_t*>realloc(buffer.data, room)
        if grown == NULL:
            raise MemoryError
        buffer.data = grown
        buffer.room = room
    memcpy(buffer.data + buffer.used, data, size)
    buffer.used += size
    return 0


cdef inline int _put_int(Buffer* buffer, size_t value) except -1:
    cdef int32_t number = <int32_t>value
    return _put(buffer, &number, sizeof(number))


cdef bytes _given(Buffer* buffer):
    return PyBytes_FromStringAndSize(<char*>buffer.data, buffer.used)


cdef class HeaderMapBuilder:
    """A builder of header maps; `build` is its only method."""

    cdef Buffer validity, map_offsets, key_offsets, keys, list_offsets, value_offsets, values
    cdef Buffer lines
    cdef size_t key_count, value_count

    def __dealloc__(self):
        free(self.validity.data)
        free(self.map_offsets.data)
        free(self.key_offsets.data)
        free(self.keys.data)
        free(self.list_offsets.data)
        free(self.value_offsets.data)
        free(self.values.data)
        free(self.lines.data)

    def build(self, bytes offsets not None, bytes headers not None, Py_ssize_t count):
        """Return the maps of `count` blocks; `offsets` are count + 1 int32 into `headers`."""
        cdef const int32_t* places = <const int32_t*><const char*>offsets
        cdef const uint8_t* data = <const uint8_t*><const char*>headers
        cdef Py_ssize_t row, nulls = 0
        cdef uint8_t bits = 0
        if <size_t>len(offsets) < (count + 1) * sizeof(int32_t) or places[count] > len(headers):
            raise UsageError("the offsets do not fit the headers")
        _put_int(&self.map_offsets, 0)
        _put_int(&self.key_offsets, 0)
        _put_int(&self.list_offsets, 0)
        _put_int(&self.value_offsets, 0)
        for row in range(count):
            if places[row + 1] > places[row]:
                bits |= 1 << (row & 7)
                self._add(data + places[row], data + places[row + 1])
            else:
                nulls += 1
            _put_int(&self.map_offsets, self.key_count)
            if row & 7 == 7 or row == count - 1:
                _put(&self.validity, &bits, 1)
                bits = 0
        return HeaderMaps(
            count, nulls, _given(&self.validity), _given(&self.map_offsets),
            _given(&self.key_offsets), _given(&self.keys), _given(&self.list_offsets),
            _given(&self.value_offsets), _given(&self.values),
        )

    cdef int _add(self, const uint8_t* start, const uint8_t* end) except -1:
        cdef size_t count = self._split(start, end)
        if count > COMPARED_MAX:
            return self._group_many(count)
        return self._group_few(count)

    cdef size_t _split(self, const uint8_t* place, const uint8_t* end) except? 0:
        # Parse the lines behind the first into `lines`; return how many.
        cdef const uint8_t* line_end
        cdef const uint8_t* colon
        cdef Header header
        cdef bint is_first = True
        header.is_done = False
        self.lines.used = 0
        while place < end:
            line_end = <const uint8_t*>memchr(place, 10, end - place)
            if line_end == NULL:
                line_end = end
            if not is_first:
                header.name = place
                colon = <const uint8_t*>memchr(place, 58, line_end - place)
                if colon != NULL and colon > place:
                    header.name_size = colon - place
                    _trim(&header, colon + 1, line_end)
                    _put(&self.lines, &header, sizeof(Header))
            is_first = False
            place = line_end + 1
        return self.lines.used // sizeof(Header)

    cdef int _group_few(self, size_t count) except -1:
        cdef Header* headers = <Header*>self.lines.data
        cdef size_t one, other
        for one in range(count):
            if headers[one].is_done:
                continue
            self._put_key(headers[one].name, headers[one].name_size)
            for other in range(one, count):
                if headers[other].name_size == headers[one].name_size and not memcmp(
                    headers[other].name, headers[one].name, headers[one].name_size
                ):
                    headers[other].is_done = True
                    self._put_value(headers[other].value, headers[other].value_size)
            _put_int(&self.list_offsets, self.value_count)
        return 0

    cdef int _group_many(self, size_t count) except -1:
        cdef Header* headers = <Header*>self.lines.data
        cdef dict grouped = {}
        cdef size_t one
        cdef bytes name, value
        for one in range(count):
            name = headers[one].name[:headers[one].name_size]
            grouped.setdefault(name, []).append(headers[one].value[:headers[one].value_size])
        for name, values in grouped.items():
            self._put_key(name, len(name))
            for value in values:
                self._put_value(value, len(value))
            _put_int(&self.list_offsets, self.value_count)
        return 0

    cdef int _put_key(self, const uint8_t* name, size_t size) except -1:
        _put(&self.keys, name, size)
        _put_int(&self.key_offsets, self.keys.used)
        self.key_count += 1
        return 0

    cdef int _put_value(self, const uint8_t* value, size_t size) except -1:
        _put(&self.values, value, size)
        _put_int(&self.value_offsets, self.values.used)
        self.value_count += 1
        return 0


cdef void _trim(Header* header, const uint8_t* start, const uint8_t* end) noexcept:
    while end > start and (end[-1] == 13 or end[-1] == 32 or end[-1] == 9):
        end -= 1
    while start < end and (start[0] == 32 or start[0] == 9):
        start += 1
    header.value = start
    header.value_size = end - start
