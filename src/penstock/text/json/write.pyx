"""JSON text as Go writes it, straight from documents into one piece of memory.

A `Plan` writes the values of one type. The plan of a class of documents has the keys as they stand
in the text, in their order, and the plan of each field; `shapes` puts them together. A value that
is JSON already is `Encoded` and is copied as it is.

`<`, `>`, `&`, U+2028 and U+2029 are escaped, and control characters. Bytes that are no UTF-8 become
U+FFFD, each by itself. Keys of maps stand in the order of their bytes. A field that is declared
so is left out if it is empty, zero or false.

Pure; any thread, each with a writer of its own.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from penstock.text.clock_text cimport TIME_BYTES_MAX, put_time

from penstock.text.times import ZERO_TIME_NS

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* raw, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject** text, Py_ssize_t size) except -1

cdef enum:
    ROOM_MIN = 512
    DIGITS_MAX = 20  # Of a number of 64 bits, or 19 and its sign.
    # The longest escape, `\u0000`, takes this many times what it stands for.
    ESCAPE_GROWTH = 6

cdef const char* HEXADECIMAL = b"0123456789abcdef"
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef bytes NO_TIME = b"0001-01-01T00:00:00Z"
cdef object NO_TIME_NS = ZERO_TIME_NS

# Which bytes stand for themselves within a string.
cdef uint8_t[256] IS_PLAIN


cdef void _fill_plain() noexcept:
    cdef int byte
    for byte in range(256):
        IS_PLAIN[byte] = 32 <= byte < 128
    for byte in b'"\\<>&':
        IS_PLAIN[byte] = 0


_fill_plain()


cdef size_t _character_size(const uint8_t* text, size_t left) noexcept nogil:
    # The bytes of the character that begins here, beyond ASCII; 0 where there is no valid one.
    cdef uint8_t first = text[0], low = 0x80, high = 0xBF
    cdef size_t size, place
    if first < 0xC2 or first > 0xF4:
        return 0
    size = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if first == 0xE0:
        low = 0xA0
    elif first == 0xED:
        high = 0x9F
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if left < size or text[1] < low or text[1] > high:
        return 0
    for place in range(2, size):
        if text[place] & 0xC0 != 0x80:
            return 0
    return size


cdef uint8_t* _put_escaped(uint8_t* out, uint8_t byte) noexcept nogil:
    cdef uint8_t letter = 0
    if byte == c'"' or byte == c"\\":
        letter = byte
    elif byte == 8:
        letter = c"b"
    elif byte == 9:
        letter = c"t"
    elif byte == 10:
        letter = c"n"
    elif byte == 12:
        letter = c"f"
    elif byte == 13:
        letter = c"r"
    out[0] = c"\\"
    if letter:
        out[1] = letter
        return out + 2
    memcpy(out + 1, b"u00", 3)
    out[4] = HEXADECIMAL[byte >> 4]
    out[5] = HEXADECIMAL[byte & 15]
    return out + 6


cdef class Writer:
    """Text that grows; see the module."""

    def __dealloc__(self):
        Py_XDECREF(self.text)

    cdef uint8_t* reserve(self, size_t more) except NULL:
        # Return where so many bytes may be written; the caller adds to `size` what it wrote.
        cdef size_t room = self.room if self.room else ROOM_MIN
        if self.size + more > self.room:
            while room < self.size + more:
                room *= 2
            self.room = 0
            if self.text == NULL:
                self.text = new_bytes(NULL, room)
            else:
                _PyBytes_Resize(&self.text, room)
            self.data = <uint8_t*>PyBytes_AS_STRING(<object>self.text)
            self.room = room
        return self.data + self.size

    cdef int put(self, const void* text, size_t size) except -1:
        memcpy(self.reserve(size), text, size)
        self.size += size
        return 0

    cdef int put_byte(self, uint8_t byte) except -1:
        self.reserve(1)[0] = byte
        self.size += 1
        return 0

    cdef int put_unsigned(self, uint64_t number) except -1:
        cdef uint8_t[DIGITS_MAX] digits
        cdef int place = DIGITS_MAX
        while True:
            place -= 1
            digits[place] = <uint8_t>(48 + number % 10)
            number //= 10
            if number == 0:
                return self.put(digits + place, DIGITS_MAX - place)

    cdef int put_instant(self, int64_t time_ns) except -1:
        # Between quotes, in UTC.
        cdef uint8_t* out = self.reserve(TIME_BYTES_MAX + 2)
        cdef uint8_t* end
        out[0] = c'"'
        end = put_time(out + 1, time_ns)
        end[0] = c'"'
        self.size += end + 1 - out
        return 0

    cdef int put_text(self, const uint8_t* text, size_t size) except -1:
        # Between quotes; what is no UTF-8 is replaced.
        cdef uint8_t* start = self.reserve(size * ESCAPE_GROWTH + 2)
        cdef uint8_t* out = start + 1
        cdef size_t place = 0, run, length
        start[0] = c'"'
        while place < size:
            run = place
            while run < size and IS_PLAIN[text[run]]:
                run += 1
            if run > place:
                memcpy(out, text + place, run - place)
                out += run - place
                place = run
                continue
            if text[place] < 128:
                out = _put_escaped(out, text[place])
                place += 1
                continue
            length = _character_size(text + place, size - place)
            if length == 0:
                memcpy(out, b"\xef\xbf\xbd", 3)
                out += 3
                place += 1
            elif length == 3 and text[place] == 0xE2 and text[place + 1] == 0x80 and (
                text[place + 2] & 0xFE == 0xA8
            ):
                memcpy(out, b"\\u202", 5)
                out[5] = c"8" + (text[place + 2] & 1)
                out += 6
                place += 3
            else:
                memcpy(out, text + place, length)
                out += length
                place += length
        out[0] = c'"'
        self.size += out + 1 - start
        return 0

    cdef int put_base64(self, const uint8_t* raw, size_t size) except -1:
        # Between quotes.
        cdef uint8_t* start = self.reserve((size + 2) // 3 * 4 + 2)
        cdef uint8_t* out = start + 1
        cdef size_t place = 0
        cdef uint64_t bits
        start[0] = c'"'
        while place + 2 < size:
            bits = (raw[place] << 16) | (raw[place + 1] << 8) | raw[place + 2]
            out[0] = BASE64[bits >> 18]
            out[1] = BASE64[(bits >> 12) & 63]
            out[2] = BASE64[(bits >> 6) & 63]
            out[3] = BASE64[bits & 63]
            out += 4
            place += 3
        if place < size:
            bits = raw[place] << 16
            if place + 1 < size:
                bits |= raw[place + 1] << 8
            out[0] = BASE64[bits >> 18]
            out[1] = BASE64[(bits >> 12) & 63]
            out[2] = BASE64[(bits >> 6) & 63] if place + 1 < size else c"="
            out[3] = c"="
            out += 4
        out[0] = c'"'
        self.size += out + 1 - start
        return 0

    cdef int put_str(self, object text) except -1:
        cdef Py_ssize_t size = 0
        cdef const char* raw
        cdef bytes replaced
        try:
            raw = PyUnicode_AsUTF8AndSize(text, &size)
        except UnicodeEncodeError:
            replaced = text.encode("utf-8", "replace")
            return self.put_text(<const uint8_t*>PyBytes_AS_STRING(replaced), len(replaced))
        return self.put_text(<const uint8_t*>raw, size)

    cdef int put_whole(self, object number) except -1:
        cdef int overflow = 0
        cdef long long value = PyLong_AsLongLongAndOverflow(number, &overflow)
        cdef bytes digits
        if overflow:
            digits = b"%d" % number
            return self.put(PyBytes_AS_STRING(digits), len(digits))
        if value < 0:
            self.put_byte(c"-")
            # The lowest number has no positive counterpart.
            return self.put_unsigned(<uint64_t>0 - <uint64_t>value)
        return self.put_unsigned(<uint64_t>value)

    cdef int put_when(self, object instant) except -1:
        # Nanoseconds in 64 bits and the zero time are written here, others by Python.
        cdef int overflow = 0
        cdef object time_ns = instant.time_ns
        cdef long long nanoseconds
        if not instant.offset_s:
            nanoseconds = PyLong_AsLongLongAndOverflow(time_ns, &overflow)
            if not overflow:
                return self.put_instant(nanoseconds)
            if time_ns == NO_TIME_NS:
                return self.put_text(<const uint8_t*>PyBytes_AS_STRING(NO_TIME), len(NO_TIME))
        return self.put_str(str(instant))

    cdef int put_encoded(self, Encoded value) except -1:
        return self.put(PyBytes_AS_STRING(value.text), PyBytes_GET_SIZE(value.text))

    def take(self):
        """Return the text, and begin a new one."""
        cdef bytes text
        if self.text == NULL:
            return b""
        # What was written is the text: a long one is not copied.
        _PyBytes_Resize(&self.text, self.size)
        text = <bytes>self.text
        Py_XDECREF(self.text)
        self.text = NULL
        self.size = self.room = 0
        return text


@cython.final
cdef class Encoded:
    """A value that is JSON already; empty if there is none."""

    def __init__(self, bytes text not None):
        self.text = text

    def __bool__(self):
        return len(self.text) > 0

    def __eq__(self, other):
        return type(other) is Encoded and (<Encoded>other).text == self.text

    def __hash__(self):
        return hash(self.text)

    def __repr__(self):
        return f"Encoded({self.text!r})"


# Plans


cdef class Plan:
    """Writes the values of one type."""

    cdef int write(self, Writer out, object value) except -1:
        raise NotImplementedError

    cdef int is_empty(self, object value) except -1:
        # Whether a field that may be left out is.
        return not value

    def encode(self, value):
        """Return a value as JSON text."""
        cdef Writer out = Writer.__new__(Writer)
        self.write(out, value)
        return out.take()


cdef inline int _write(Plan plan, Writer out, object value) except -1:
    if type(value) is Encoded:
        return out.put_encoded(<Encoded>value)
    return plan.write(out, value)


@cython.final
cdef class TextPlan(Plan):
    """Strings."""

    cdef int write(self, Writer out, object value) except -1:
        return out.put_str(value)


@cython.final
cdef class WholePlan(Plan):
    """Whole numbers."""

    cdef int write(self, Writer out, object value) except -1:
        return out.put_whole(value)


@cython.final
cdef class FlagPlan(Plan):
    """Flags."""

    cdef int write(self, Writer out, object value) except -1:
        return out.put(b"true", 4) if value else out.put(b"false", 5)


@cython.final
cdef class TimePlan(Plan):
    """Instants."""

    cdef int write(self, Writer out, object value) except -1:
        return out.put_when(value)

    cdef int is_empty(self, object value) except -1:
        return False


@cython.final
cdef class WordPlan(Plan):
    """Words of a list, of which the first is the empty one."""

    cdef object zero

    def __init__(self, zero):
        self.zero = zero

    cdef int write(self, Writer out, object value) except -1:
        return out.put_str(value)

    cdef int is_empty(self, object value) except -1:
        return value == self.zero


@cython.final
cdef class OptionalPlan(Plan):
    """Values that may be None, which is null."""

    cdef Plan inner

    def __init__(self, Plan inner not None):
        self.inner = inner

    cdef int write(self, Writer out, object value) except -1:
        return out.put(b"null", 4) if value is None else self.inner.write(out, value)

    cdef int is_empty(self, object value) except -1:
        return value is None or (isinstance(value, tuple) and not value)


@cython.final
cdef class ArrayPlan(Plan):
    """Values of one type in their order."""

    cdef Plan item

    def __init__(self, Plan item not None):
        self.item = item

    cdef int write(self, Writer out, object value) except -1:
        cdef bint is_first = True
        out.put_byte(c"[")
        for each in value:
            if not is_first:
                out.put_byte(c",")
            is_first = False
            _write(self.item, out, each)
        return out.put_byte(c"]")


@cython.final
cdef class MapPlan(Plan):
    """Values of one type by name."""

    cdef Plan item

    def __init__(self, Plan item not None):
        self.item = item

    cdef int write(self, Writer out, object value) except -1:
        cdef dict items = value
        cdef bint is_first = True
        out.put_byte(c"{")
        for key in sorted(items):
            if not is_first:
                out.put_byte(c",")
            is_first = False
            out.put_str(key)
            out.put_byte(c":")
            _write(self.item, out, items[key])
        return out.put_byte(c"}")


@cython.final
cdef class _Field:
    cdef str name
    cdef bytes key
    cdef bint omit_empty
    cdef Plan plan


@cython.final
cdef class StructPlan(Plan):
    """Documents of one class."""

    cdef list fields

    def __init__(self, fields):
        """`fields` are (name, whether it is left out if empty, plan), in their order."""
        cdef _Field field
        self.fields = []
        for name, omit_empty, plan in fields:
            field = _Field.__new__(_Field)
            field.name = name
            field.key = b'"%b":' % name.encode()
            field.omit_empty = omit_empty
            field.plan = plan
            self.fields.append(field)

    cdef int write(self, Writer out, object value) except -1:
        out.put_byte(c"{")
        self.write_fields(out, value, False)
        return out.put_byte(c"}")

    cdef int is_empty(self, object value) except -1:
        # A whole document is never left out.
        return False

    cdef int write_fields(self, Writer out, object value, bint has_before) except -1:
        # The fields without the braces around them; return whether any stands there by now.
        cdef _Field field
        for field in self.fields:
            inner = getattr(value, field.name)
            if field.omit_empty and (
                not (<Encoded>inner).text if type(inner) is Encoded else field.plan.is_empty(inner)
            ):
                continue
            if has_before:
                out.put_byte(c",")
            has_before = True
            out.put(PyBytes_AS_STRING(field.key), PyBytes_GET_SIZE(field.key))
            _write(field.plan, out, inner)
        return has_before


def encode_after(bytes start not None, tuple documents not None, dict plans not None):
    """Return one object: `start`, its opening brace and first fields, then those of documents.

    `plans` has the StructPlan of each class of documents. A document that is JSON already has at
    least one field.
    """
    cdef Writer out = Writer.__new__(Writer)
    cdef StructPlan plan
    cdef bytes text
    out.put(PyBytes_AS_STRING(start), PyBytes_GET_SIZE(start))
    for document in documents:
        if type(document) is Encoded:
            text = (<Encoded>document).text
            out.put_byte(c",")
            # Without the braces around it.
            out.put(PyBytes_AS_STRING(text) + 1, PyBytes_GET_SIZE(text) - 2)
            continue
        plan = plans[type(document)]
        plan.write_fields(out, document, True)
    out.put_byte(c"}")
    return out.take()
