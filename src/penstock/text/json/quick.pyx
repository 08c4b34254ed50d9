"""Documents as nearly every client writes them, read in one pass.

Reads a single document whose keys are known, in their own case and each once, with strings without
escapes, whole numbers that surely fit, no null. For anything else `read` returns None, and `codec`
reads the body by all the rules, which also say what is wrong with it.

Invariant: what is read here is what the careful way would read.

Pure; any thread. `shapes` puts the readers of a class together.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from penstock.limits import JSON_VALUES_MAX

cdef enum:
    # Of a number that surely fits into 64 bits.
    DIGITS_MAX = 18

cdef Py_ssize_t VALUES_MAX = JSON_VALUES_MAX

# What a reader returns where the careful way must look.
cdef object UNSURE = object()


cdef struct Cursor:
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t place


cdef inline uint8_t _next(Cursor* at) noexcept nogil:
    # Pass white space; return the byte that follows, 0 at the end.
    cdef uint8_t byte
    while at.place < at.size:
        byte = at.data[at.place]
        if byte != c" " and byte != c"\n" and byte != c"\t" and byte != c"\r":
            return byte
        at.place += 1
    return 0


cdef inline bint _take(Cursor* at, uint8_t byte) noexcept nogil:
    if _next(at) != byte:
        return False
    at.place += 1
    return True


cdef Py_ssize_t _text_size(Cursor* at) noexcept nogil:
    # Pass a string; return how long it is between its quotes, -1 where it is no plain one.
    cdef Py_ssize_t start = at.place + 1
    cdef uint8_t byte
    if _next(at) != c'"':
        return -1
    start = at.place + 1
    at.place = start
    while at.place < at.size:
        byte = at.data[at.place]
        if byte == c'"':
            at.place += 1
            return at.place - 1 - start
        if byte == c"\\" or byte < 32:
            return -1
        at.place += 1
    return -1


cdef object _text(Cursor* at):
    cdef Py_ssize_t size = _text_size(at)
    if size < 0:
        return UNSURE
    try:
        return (<const char*>at.data + at.place - 1 - size)[:size].decode()
    except UnicodeDecodeError:
        return UNSURE


cdef class Quick:
    """Reads the values of one type."""

    cdef object read_at(self, Cursor* at):
        return UNSURE


@cython.final
cdef class QuickText(Quick):
    """Strings."""

    cdef object read_at(self, Cursor* at):
        return _text(at)


@cython.final
cdef class QuickFlag(Quick):
    """Flags."""

    cdef object read_at(self, Cursor* at):
        cdef uint8_t first = _next(at)
        cdef const char* word = b"true" if first == c"t" else b"false"
        cdef Py_ssize_t size = 4 if first == c"t" else 5, place
        if at.place + size >= at.size:
            return UNSURE
        for place in range(size):
            if at.data[at.place + place] != <uint8_t>word[place]:
                return UNSURE
        at.place += size
        return first == c"t"


@cython.final
cdef class QuickWhole(Quick):
    """Whole numbers within bounds."""

    cdef object low, high

    def __init__(self, low, high):
        self.low = low
        self.high = high

    cdef object read_at(self, Cursor* at):
        cdef bint is_negative = _next(at) == c"-"
        cdef long long value = 0
        cdef Py_ssize_t start
        at.place += is_negative
        start = at.place
        while at.place < at.size and c"0" <= at.data[at.place] <= c"9":
            value = value * 10 + (at.data[at.place] - 48)
            at.place += 1
            if at.place - start > DIGITS_MAX:
                return UNSURE
        if at.place == start or (at.data[start] == c"0" and at.place > start + 1):
            return UNSURE
        number = -value if is_negative else value
        # A fraction or an exponent would stand where the next key does.
        return number if self.low <= number <= self.high else UNSURE


@cython.final
cdef class QuickWord(Quick):
    """Words of a list."""

    cdef dict words

    def __init__(self, dict words not None):
        self.words = words

    cdef object read_at(self, Cursor* at):
        cdef Py_ssize_t size = _text_size(at)
        if size < 0:
            return UNSURE
        return self.words.get((<const char*>at.data + at.place - 1 - size)[:size], UNSURE)


@cython.final
cdef class QuickArray(Quick):
    """Values of one type in their order."""

    cdef Quick item

    def __init__(self, Quick item not None):
        self.item = item

    cdef object read_at(self, Cursor* at):
        cdef list found = []
        if not _take(at, c"["):
            return UNSURE
        if _take(at, c"]"):
            return ()
        while len(found) < VALUES_MAX:
            value = self.item.read_at(at)
            if value is UNSURE:
                return UNSURE
            found.append(value)
            if _take(at, c"]"):
                return tuple(found)
            if not _take(at, c","):
                return UNSURE
        return UNSURE


@cython.final
cdef class QuickMap(Quick):
    """Values of one type by name."""

    cdef Quick item

    def __init__(self, Quick item not None):
        self.item = item

    cdef object read_at(self, Cursor* at):
        cdef dict found = {}
        if not _take(at, c"{"):
            return UNSURE
        if _take(at, c"}"):
            return found
        while len(found) < VALUES_MAX:
            key = _text(at)
            if key is UNSURE or key in found or not _take(at, c":"):
                return UNSURE
            value = self.item.read_at(at)
            if value is UNSURE:
                return UNSURE
            found[key] = value
            if _take(at, c"}"):
                return found
            if not _take(at, c","):
                return UNSURE
        return UNSURE


@cython.final
cdef class QuickStruct(Quick):
    """Documents of one class."""

    cdef object made
    cdef dict fields

    def __init__(self, made, dict fields not None):
        """`fields` are readers by key; None for one whose values are never read here."""
        self.made = made
        self.fields = {key: (key.decode(), reader) for key, reader in fields.items()}

    cdef object read_at(self, Cursor* at):
        cdef dict found = {}
        cdef Quick reader
        cdef Py_ssize_t size
        if not _take(at, c"{"):
            return UNSURE
        if _take(at, c"}"):
            return self.made()
        while True:
            size = _text_size(at)
            if size < 0:
                return UNSURE
            field = self.fields.get((<const char*>at.data + at.place - 1 - size)[:size])
            if field is None or not _take(at, c":"):
                return UNSURE
            name, reader = field
            if reader is None or name in found:
                return UNSURE
            value = reader.read_at(at)
            if value is UNSURE:
                return UNSURE
            found[name] = value
            if _take(at, c"}"):
                return self.made(**found)
            if not _take(at, c","):
                return UNSURE

    def read(self, bytes body not None):
        """Return the document in a body, or None if the careful way must look."""
        cdef Cursor at
        at.data = <const uint8_t*>PyBytes_AS_STRING(body)
        at.size = PyBytes_GET_SIZE(body)
        at.place = 0
        document = self.read_at(&at)
        if document is UNSURE or _next(&at):
            return None
        # A zero byte is no white space either.
        return document if at.place == at.size else None
