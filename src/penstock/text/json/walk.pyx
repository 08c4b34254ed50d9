"""The walk over a text that may be anything: where a JSON value ends, or what is wrong with it.

Invariant: nesting is bounded (`JSON_DEPTH_MAX`) and costs no stack; a text is walked once,
and nothing is made of it.

Pure; any thread.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

from penstock.text.json.faults import SyntaxFault, UnfinishedText, character_fault, text_fault
from penstock.limits import JSON_DEPTH_MAX

cdef enum:
    DEPTH_STEP = 64
    SIMPLE_ESCAPES_SIZE = 8

cdef const char* SIMPLE_ESCAPES = b'"\\/bfnrt'
cdef Py_ssize_t DEPTH_MAX = JSON_DEPTH_MAX


def value_at(bytes data not None, Py_ssize_t start):
    """Return where the next value starts and ends; both are the end if only white space is left.

    Raises SyntaxFault and UnfinishedText.
    """
    cdef _Walk walk = _Walk(data, start)
    if walk.at_end():
        return walk.position, walk.position
    start = walk.position
    walk.pass_value()
    return start, walk.position


def check_end(bytes data not None, Py_ssize_t start):
    """Raise SyntaxFault if anything but white space follows."""
    cdef _Walk walk = _Walk(data, start)
    if not walk.at_end():
        walk.fail("after top-level value")


@cython.final
cdef class _Walk:
    """Passes over text that may be anything."""

    cdef bytes owner
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t position
    cdef uint8_t* brackets  # Those that are open, outermost first.
    cdef Py_ssize_t depth, depth_room

    def __cinit__(self, bytes data, Py_ssize_t position):
        self.owner = data
        self.data = <const uint8_t*>PyBytes_AS_STRING(data)
        self.size = PyBytes_GET_SIZE(data)
        self.position = position

    def __dealloc__(self):
        free(self.brackets)

    cdef bint at_end(self) noexcept nogil:
        """Pass white space; tell whether nothing follows."""
        while self.position < self.size and _is_white(self.data[self.position]):
            self.position += 1
        return self.position >= self.size

    cdef int next(self) except -1:
        """Pass white space; give the byte that follows, which must be there."""
        if self.at_end():
            raise UnfinishedText
        return self.data[self.position]

    cdef int fail(self, str where) except -1:
        raise character_fault(self.owner, self.position, where)

    cdef int pass_value(self) except -1:
        """Pass the value that starts here."""
        cdef int first
        while True:
            first = self.next()
            if first == c"{" or first == c"[":
                self.open(first)
                if not _closes_it(self.next(), first):
                    if first == c"{":
                        self.pass_key()
                    continue
                self.close()
            else:
                self.pass_scalar(first)
            while self.depth and not self.goes_on():
                self.close()
            if not self.depth:
                return 0

    cdef int open(self, uint8_t bracket) except -1:
        cdef uint8_t* larger
        self.position += 1
        if self.depth == DEPTH_MAX:
            raise SyntaxFault("exceeded max depth", self.position)
        if self.depth == self.depth_room:
            larger = <uint8_t*>realloc(self.brackets, self.depth_room * 2 + DEPTH_STEP)
            if larger == NULL:
                raise MemoryError
            self.brackets = larger
            self.depth_room = self.depth_room * 2 + DEPTH_STEP
        self.brackets[self.depth] = bracket
        self.depth += 1
        return 0

    cdef void close(self) noexcept nogil:
        self.depth -= 1
        self.position += 1

    cdef int goes_on(self) except -1:
        """Pass what follows a value in an array or object; tell whether another one comes."""
        cdef uint8_t bracket = self.brackets[self.depth - 1]
        cdef int following = self.next()
        if _closes_it(following, bracket):
            return False
        if following != c",":
            is_object = bracket == c"{"
            self.fail("after object key:value pair" if is_object else "after array element")
        self.position += 1
        if bracket == c"{":
            self.pass_key()
        return True

    cdef int pass_key(self) except -1:
        if self.next() != c'"':
            self.fail("looking for beginning of object key string")
        self.pass_text()
        if self.next() != c":":
            self.fail("after object key")
        self.position += 1
        return 0

    cdef int pass_scalar(self, uint8_t first) except -1:
        if first == c'"':
            return self.pass_text()
        if first == c"t":
            return self.pass_literal("true")
        if first == c"f":
            return self.pass_literal("false")
        if first == c"n":
            return self.pass_literal("null")
        if first == c"-" or _is_digit(first):
            return self.pass_number()
        return self.fail("looking for beginning of value")

    cdef int pass_literal(self, str literal) except -1:
        for letter in literal:
            if self.byte_here() != ord(letter):
                self.fail(f"in literal {literal} (expecting '{letter}')")
            self.position += 1
        return 0

    cdef inline int byte_here(self) noexcept nogil:
        # Behind the end there is nothing.
        return self.data[self.position] if self.position < self.size else -1

    cdef int pass_number(self) except -1:
        if self.byte_here() == c"-":
            self.position += 1
        if self.byte_here() == c"0":
            self.position += 1
        else:
            self.pass_digits()
        if self.byte_here() == c".":
            self.position += 1
            self.pass_digits()
        if self.byte_here() == c"e" or self.byte_here() == c"E":
            self.position += 1
            if self.byte_here() == c"+" or self.byte_here() == c"-":
                self.position += 1
            self.pass_digits()
        return 0

    cdef int pass_digits(self) except -1:
        if not _is_digit(self.byte_here()):
            self.fail("in numeric literal")
        while _is_digit(self.byte_here()):
            self.position += 1
        return 0

    cdef int pass_text(self) except -1:
        cdef const uint8_t* data = self.data
        cdef Py_ssize_t place = self.position + 1
        while place < self.size and data[place] != c'"':
            if data[place] < 32:
                raise text_fault(self.owner, self.position)
            if data[place] == c"\\":
                place += self.escape_size(place)
            else:
                place += 1
        if place >= self.size:
            raise text_fault(self.owner, self.position)
        self.position = place + 1
        return 0

    cdef Py_ssize_t escape_size(self, Py_ssize_t place) except -1:
        cdef Py_ssize_t digit
        cdef uint8_t letter = self.data[place + 1] if place + 1 < self.size else 0
        if letter != 0 and memchr(SIMPLE_ESCAPES, letter, SIMPLE_ESCAPES_SIZE) != NULL:
            return 2
        if letter != c"u" or place + 6 > self.size:
            raise text_fault(self.owner, self.position)
        for digit in range(place + 2, place + 6):
            if not _is_hexadecimal(self.data[digit]):
                raise text_fault(self.owner, self.position)
        return 6


cdef inline bint _is_digit(int each) noexcept nogil:
    return c"0" <= each <= c"9"


cdef inline bint _closes_it(int each, uint8_t bracket) noexcept nogil:
    return each == (c"}" if bracket == c"{" else c"]")


cdef inline bint _is_white(uint8_t each) noexcept nogil:
    return each == c" " or each == c"\n" or each == c"\t" or each == c"\r"


cdef inline bint _is_hexadecimal(uint8_t digit) noexcept nogil:
    return _is_digit(digit) or c"a" <= digit | 32 <= c"f"
