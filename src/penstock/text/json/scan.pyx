"""JSON text into values that still know where they stood.

What is in an array or object is looked for when it is asked for, so that nothing is made of what
nobody wants. The order of keys and every key that comes twice are kept, because what such a
document means is decided by who reads it.

Invariant: a `Node` stands on text that was walked before (`walking`), so it is known to be
JSON; of values that are neither texts nor numbers an array or object gives out `JSON_VALUES_MAX` at
the most.

Pure; any thread.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_4BYTE_KIND, PyUnicode_FromKindAndData
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr

from penstock.text.json.faults import Kind
from penstock.text.json.walk import value_at
from penstock.errors import InvalidDocument
from penstock.limits import JSON_VALUES_MAX

cdef enum:
    DIGITS_MAX = 18  # Of a number that surely fits into 64 bits.
    HIGH_SURROGATE = 0xD800
    LOW_SURROGATE = 0xDC00
    SURROGATES_END = 0xE000
    REPLACEMENT = 0xFFFD

cdef Py_ssize_t VALUES_MAX = JSON_VALUES_MAX


cdef object NULL_KIND = Kind("null")
cdef object BOOL_KIND = Kind("bool")
cdef object NUMBER_KIND = Kind("number")
cdef object STRING_KIND = Kind("string")
cdef object ARRAY_KIND = Kind("array")
cdef object OBJECT_KIND = Kind("object")


def scan(bytes data not None, Py_ssize_t start=0):
    """Read one value; give it and where it ends, None where only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """
    cdef Py_ssize_t end
    start, end = value_at(data, start)
    return _node(data, start, end) if start < end else None, end


# Values


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Node:
    """A value that stands in a text."""

    cdef readonly object kind
    cdef bytes data
    cdef Py_ssize_t start, end

    @property
    def raw(self):
        """Its text as it was sent."""
        return self.data[self.start:self.end]

    @property
    def text(self):
        """What a string says; bytes and surrogates that are no text become U+FFFD."""
        return _text(<const uint8_t*>PyBytes_AS_STRING(self.data), self.start, self.end)

    @property
    def keys(self):
        """The keys of an object, in their order."""
        cdef list found = []
        cdef _Members members = _Members(self)
        while members.next():
            found.append(_text(members.data, members.key_start, members.key_end))
        return found

    @property
    def items(self):
        """What is in an array or object, in its order; raises InvalidDocument beyond the bound."""
        cdef list found = []
        cdef _Members members = _Members(self)
        while members.next():
            if len(found) == VALUES_MAX:
                raise InvalidDocument("too many values")
            found.append(_node(self.data, members.start, members.end))
        return found

    def texts(self):
        """Return the strings of an array or object, or None if a value is no string."""
        cdef list found = []
        cdef _Members members = _Members(self)
        while members.next():
            if members.data[members.start] != c'"':
                return None
            found.append(_text(members.data, members.start, members.end))
        return found

    def wholes(self):
        """Return the whole numbers of an array or object, or None if a value may be no such."""
        cdef list found = []
        cdef _Members members = _Members(self)
        while members.next():
            if not _is_short_whole(members.data, members.start, members.end):
                return None
            found.append(_whole(members.data, members.start, members.end))
        return found


cdef Node _node(bytes data, Py_ssize_t start, Py_ssize_t end):
    cdef Node node = Node.__new__(Node)
    cdef uint8_t first = (<const uint8_t*>PyBytes_AS_STRING(data))[start]
    if first == c'"':
        node.kind = STRING_KIND
    elif first == c"{":
        node.kind = OBJECT_KIND
    elif first == c"[":
        node.kind = ARRAY_KIND
    elif first == c"t" or first == c"f":
        node.kind = BOOL_KIND
    elif first == c"n":
        node.kind = NULL_KIND
    else:
        node.kind = NUMBER_KIND
    node.data = data
    node.start = start
    node.end = end
    return node


@cython.final
cdef class _Members:
    """Goes through an array or object, whose text was walked before: it is known to be JSON."""

    cdef bytes owner
    cdef const uint8_t* data
    cdef Py_ssize_t place
    cdef bint is_object
    cdef Py_ssize_t key_start, key_end
    cdef Py_ssize_t start, end

    def __cinit__(self, Node node):
        self.owner = node.data
        self.data = <const uint8_t*>PyBytes_AS_STRING(node.data)
        self.place = node.start
        self.is_object = self.data[node.start] == c"{"

    cdef bint next(self) noexcept nogil:
        cdef const uint8_t* data = self.data
        cdef Py_ssize_t place = self.place
        if not _closes(data[place]):
            # Behind the opening bracket or a comma; an empty one closes at once.
            place = _behind_white(data, place + 1)
        if _closes(data[place]):
            return False
        if self.is_object:
            self.key_start = place
            self.key_end = _behind_text(data, place)
            place = _behind_white(data, _behind_white(data, self.key_end) + 1)
        self.start = place
        self.end = _behind_value(data, place)
        self.place = _behind_white(data, self.end)
        return True


cdef inline bint _closes(uint8_t each) noexcept nogil:
    return each == c"]" or each == c"}"


cdef inline bint _is_white(uint8_t each) noexcept nogil:
    return each == c" " or each == c"\n" or each == c"\t" or each == c"\r"


# Of text that is known to be JSON: something always follows within an array or object.


cdef inline Py_ssize_t _behind_white(const uint8_t* data, Py_ssize_t place) noexcept nogil:
    while _is_white(data[place]):
        place += 1
    return place


cdef inline Py_ssize_t _behind_text(const uint8_t* data, Py_ssize_t place) noexcept nogil:
    place += 1
    while data[place] != c'"':
        place += 2 if data[place] == c"\\" else 1
    return place + 1


cdef Py_ssize_t _behind_value(const uint8_t* data, Py_ssize_t place) noexcept nogil:
    cdef Py_ssize_t depth = 0
    cdef uint8_t each = data[place]
    if each == c'"':
        return _behind_text(data, place)
    if each != c"{" and each != c"[":
        while not (_is_white(each) or each == c"," or _closes(each)):
            place += 1
            each = data[place]
        return place
    while True:
        each = data[place]
        if each == c'"':
            place = _behind_text(data, place)
            continue
        if each == c"{" or each == c"[":
            depth += 1
        elif _closes(each):
            depth -= 1
        place += 1
        if depth == 0:
            return place


# Numbers


cdef bint _is_short_whole(
    const uint8_t* data, Py_ssize_t start, Py_ssize_t end
) noexcept nogil:
    if data[start] == c"-":
        start += 1
    if start == end or end - start > DIGITS_MAX:
        return False
    while start < end:
        if data[start] < c"0" or data[start] > c"9":
            return False
        start += 1
    return True


cdef long long _whole(const uint8_t* data, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef bint is_negative = data[start] == c"-"
    cdef long long value = 0
    for start in range(start + is_negative, end):
        value = value * 10 + (data[start] - 48)
    return -value if is_negative else value


# Texts


cdef str _text(const uint8_t* data, Py_ssize_t start, Py_ssize_t end):
    # From quote to quote, both included.
    cdef const char* text = <const char*>data + start + 1
    cdef Py_ssize_t size = end - start - 2
    cdef bytes plain
    if memchr(text, c"\\", size) == NULL:
        plain = text[:size]
    else:
        plain = _unescaped(<const uint8_t*>text, size)
    try:
        return plain.decode()
    except UnicodeDecodeError:
        # Every byte for itself, where Python's own "replace" would take some together.
        return _without_surrogates(plain.decode("utf-8", "surrogateescape"))


cdef str _without_surrogates(str text):
    cdef Py_UCS4* characters = <Py_UCS4*>malloc(len(text) * sizeof(Py_UCS4))
    cdef Py_ssize_t place = 0
    cdef Py_UCS4 each
    if characters == NULL:
        raise MemoryError
    for each in text:
        characters[place] = REPLACEMENT if HIGH_SURROGATE <= each < SURROGATES_END else each
        place += 1
    try:
        return PyUnicode_FromKindAndData(PyUnicode_4BYTE_KIND, characters, place)
    finally:
        free(characters)


cdef bytes _unescaped(const uint8_t* text, Py_ssize_t size):
    # An escape is never shorter than what it stands for.
    cdef bytes plain = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(plain)
    cdef Py_ssize_t place = 0, written = 0
    cdef uint32_t code, following
    while place < size:
        if text[place] != c"\\":
            out[written] = text[place]
            written += 1
            place += 1
            continue
        if text[place + 1] != c"u":
            out[written] = _escaped(text[place + 1])
            written += 1
            place += 2
            continue
        code = _unit(text + place + 2)
        place += 6
        if HIGH_SURROGATE <= code < LOW_SURROGATE and place + 6 <= size:
            following = 0
            if text[place] == c"\\" and text[place + 1] == c"u":
                following = _unit(text + place + 2)
            if LOW_SURROGATE <= following < SURROGATES_END:
                code = 0x10000 + ((code - HIGH_SURROGATE) << 10) + (following - LOW_SURROGATE)
                place += 6
        if HIGH_SURROGATE <= code < SURROGATES_END:
            code = REPLACEMENT
        written += _put_utf8(out + written, code)
    return plain[:written]


cdef inline uint8_t _escaped(uint8_t letter) noexcept nogil:
    if letter == c"b":
        return 8
    if letter == c"f":
        return 12
    if letter == c"n":
        return 10
    if letter == c"r":
        return 13
    return 9 if letter == c"t" else letter


cdef inline uint32_t _hexadecimal(uint8_t digit) noexcept nogil:
    return digit - 48 if digit <= c"9" else (digit | 32) - 87


cdef uint32_t _unit(const uint8_t* digits) noexcept nogil:
    cdef uint32_t code = 0
    cdef Py_ssize_t place
    for place in range(4):
        code = code * 16 + _hexadecimal(digits[place])
    return code


cdef Py_ssize_t _put_utf8(uint8_t* out, uint32_t code) noexcept nogil:
    if code < 0x80:
        out[0] = code
        return 1
    if code < 0x800:
        out[0] = 0xC0 | (code >> 6)
        out[1] = 0x80 | (code & 63)
        return 2
    if code < 0x10000:
        out[0] = 0xE0 | (code >> 12)
        out[1] = 0x80 | ((code >> 6) & 63)
        out[2] = 0x80 | (code & 63)
        return 3
    out[0] = 0xF0 | (code >> 18)
    out[1] = 0x80 | ((code >> 12) & 63)
    out[2] = 0x80 | ((code >> 6) & 63)
    out[3] = 0x80 | (code & 63)
    return 4
