"""Headers between messages and Arrow: blocks as they are sent, and map<string, list<string>>.

Blocks parsed into the buffers of a map column (`HeaderMapBuilder`): a message without headers is
null. A name that a message has several times is one key, where it came first, with all its values
in their order: Spark allows no key twice. The first line (version and status) is no header; a line
without a colon is ignored. Bytes only: the caller checks that names and values are text.

Blocks built from the buffers of columns (`header_blocks`): a block has, in this order, a message
id, header lines, and the headers of a map. A row without any of them has an empty block. No Python
object is made for a row, unless it is refused.

Pure; any thread.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from array import array

import msgspec

from penstock.errors import FormatError, UsageError

from penstock.protocol.lines cimport put_number

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


cdef enum:
    BLOCK_BYTES_MAX = 0x7FFFFFFF


cdef class MapColumn:
    """The buffers of an Arrow map<string, list<string>> column that begins at its first row."""

    cdef const uint8_t[::1] validity
    cdef const int32_t[::1] offsets
    cdef const int32_t[::1] key_offsets
    cdef const uint8_t[::1] keys
    cdef const uint8_t[::1] list_validity
    cdef const int32_t[::1] list_offsets
    cdef const int32_t[::1] value_offsets
    cdef const uint8_t[::1] values
    cdef readonly int64_t count

    def __init__(
        self, validity not None, offsets not None, key_offsets not None, keys not None,
        list_validity not None, list_offsets not None, value_offsets not None, values not None,
    ):
        """Take the buffers; a validity without bytes is of a column without nulls."""
        self.validity = validity
        self.offsets = offsets
        self.key_offsets = key_offsets
        self.keys = keys
        self.list_validity = list_validity
        self.list_offsets = list_offsets
        self.value_offsets = value_offsets
        self.values = values
        self.count = self.offsets.shape[0] - 1
        _check_bits(self.validity, self.count)
        _check(self.offsets, self.key_offsets.shape[0] - 1)
        _check(self.key_offsets, self.keys.shape[0])
        _check_bits(self.list_validity, self.list_offsets.shape[0] - 1)
        _check(self.list_offsets, self.value_offsets.shape[0] - 1)
        _check(self.value_offsets, self.values.shape[0])
        if self.list_offsets.shape[0] != self.key_offsets.shape[0]:
            raise FormatError("a map column has more keys than values, or fewer")


cdef int _check(const int32_t[::1] offsets, int64_t items) except -1:
    cdef int64_t at, count = offsets.shape[0]
    if count < 1 or offsets[0] < 0 or offsets[count - 1] > items:
        raise FormatError("the offsets of a column do not fit its data")
    for at in range(count - 1):
        if offsets[at] > offsets[at + 1]:
            raise FormatError("the offsets of a column go backwards")
    return 0


cdef int _check_bits(const uint8_t[::1] bits, int64_t items) except -1:
    if bits.shape[0] and bits.shape[0] * 8 < items:
        raise FormatError("the validity of a column is too short")
    return 0


cdef inline bint _is_there(const uint8_t[::1] bits, int64_t at) noexcept:
    return bits.shape[0] == 0 or (bits[at >> 3] >> (at & 7)) & 1


cdef class _Blocks:
    # The blocks so far, one behind another.
    cdef uint8_t* data
    cdef size_t used
    cdef size_t room

    def __dealloc__(self):
        free(self.data)

    cdef int put(self, const void* data, size_t size) except -1:
        cdef size_t room = self.room if self.room else 65536
        cdef uint8_t* grown
        if self.used + size > self.room:
            if self.used + size > BLOCK_BYTES_MAX:
                raise UsageError("more than 2 GiB of headers in one batch: write smaller batches")
            while room < self.used + size:
                room *= 2
            grown = <uint8_t*>realloc(self.data, room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
            self.room = room
        if size:
            memcpy(self.data + self.used, data, size)
        self.used += size
        return 0

    cdef int put_line(
        self, const uint8_t* name, size_t name_size, const uint8_t* value, size_t value_size,
    ) except -1:
        if (
            name_size == 0 or memchr(name, 58, name_size) or _ends_line(name, name_size)
            or _ends_line(value, value_size)
        ):
            raise UsageError(f"no header: {name[:name_size]!r}: {value[:value_size]!r}")
        self.put(name, name_size)
        self.put(b": ", 2)
        self.put(value, value_size)
        return self.put(b"\r\n", 2)

    cdef int put_map(self, MapColumn maps, int64_t row) except -1:
        cdef int64_t key, value
        cdef int32_t start, value_start
        if not _is_there(maps.validity, row):
            return 0
        for key in range(maps.offsets[row], maps.offsets[row + 1]):
            if not _is_there(maps.list_validity, key):
                continue
            start = maps.key_offsets[key]
            for value in range(maps.list_offsets[key], maps.list_offsets[key + 1]):
                value_start = maps.value_offsets[value]
                self.put_line(
                    &maps.keys[0] + start if maps.keys.shape[0] else NULL,
                    maps.key_offsets[key + 1] - start,
                    &maps.values[0] + value_start if maps.values.shape[0] else NULL,
                    maps.value_offsets[value + 1] - value_start,
                )
        return 0


cdef inline bint _ends_line(const uint8_t* text, size_t size) noexcept:
    return size and (memchr(text, 13, size) != NULL or memchr(text, 10, size) != NULL)


def header_blocks(
    int64_t rows, MapColumn maps=None, ids=None, bytes id_start=None, uint64_t first_row=0,
    lines=None,
):
    """Return the offsets and bytes of header blocks; raise UsageError or FormatError.

    A message id is the row's of the column `ids`, or `id_start` and the row's number from
    `first_row` on. `lines` is a column of header lines with their ends. A column is its offsets
    and its bytes.
    """
    cdef const int32_t[::1] id_offsets, line_offsets
    cdef const uint8_t[::1] id_data, line_data
    cdef bint has_ids = ids is not None, has_lines = lines is not None
    cdef bint has_numbers = id_start is not None
    cdef _Blocks blocks = _Blocks()
    cdef int64_t row
    cdef size_t start
    cdef uint8_t[32] digits
    cdef bytes numbered = b"Nats-Msg-Id: %b" % (id_start or b"")
    if _ends_line(numbered, len(numbered)):
        raise UsageError(f"no message id: {id_start!r}")
    offsets = array("i", [0]) * (rows + 1)
    cdef int32_t[::1] places = offsets
    id_offsets, id_data = ids if has_ids else (places, b"")
    line_offsets, line_data = lines if has_lines else (places, b"")
    _check(id_offsets, id_data.shape[0])
    _check(line_offsets, line_data.shape[0])
    if id_offsets.shape[0] != rows + 1 or line_offsets.shape[0] != rows + 1 or (
        maps is not None and maps.count != rows
    ):
        raise FormatError("columns of different numbers of rows")
    for row in range(rows):
        start = blocks.used
        blocks.put(b"NATS/1.0\r\n", 10)
        if has_ids:
            blocks.put_line(
                b"Nats-Msg-Id", 11,
                &id_data[0] + id_offsets[row] if id_data.shape[0] else NULL,
                id_offsets[row + 1] - id_offsets[row],
            )
        elif has_numbers:
            blocks.put(<const char*>numbered, len(numbered))
            blocks.put(digits, put_number(digits, first_row + row))
            blocks.put(b"\r\n", 2)
        if has_lines and line_offsets[row + 1] > line_offsets[row]:
            blocks.put(&line_data[line_offsets[row]], line_offsets[row + 1] - line_offsets[row])
        if maps is not None:
            blocks.put_map(maps, row)
        if blocks.used == start + 10:
            blocks.used = start
        else:
            blocks.put(b"\r\n", 2)
        places[row + 1] = <int32_t>blocks.used
    return offsets, PyBytes_FromStringAndSize(<char*>blocks.data, blocks.used)
