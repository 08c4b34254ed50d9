"""A subject turned into another: one source, one destination, applied in compiled code.

What a destination may say is told in `transforms`, and read by `transform_functions`; here is what
it makes of a subject's tokens.

Invariant: a transform that was built can be applied to every subject that its source matches.

Pure: chance is an argument. One thread at a time: the result lies in the transform's own memory.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from penstock.protocol.lines cimport put_number

from penstock.routing.transform_functions import Function, read_destination

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef enum:
    LITERAL
    WILDCARD
    PARTITION
    SPLIT
    SPLIT_FROM_LEFT
    SPLIT_FROM_RIGHT
    SLICE_FROM_LEFT
    SLICE_FROM_RIGHT
    LEFT
    RIGHT
    RANDOM

cdef dict FUNCTIONS = {
    Function.LITERAL: LITERAL,
    Function.WILDCARD: WILDCARD,
    Function.PARTITION: PARTITION,
    Function.SPLIT: SPLIT,
    Function.SPLIT_FROM_LEFT: SPLIT_FROM_LEFT,
    Function.SPLIT_FROM_RIGHT: SPLIT_FROM_RIGHT,
    Function.SLICE_FROM_LEFT: SLICE_FROM_LEFT,
    Function.SLICE_FROM_RIGHT: SLICE_FROM_RIGHT,
    Function.LEFT: LEFT,
    Function.RIGHT: RIGHT,
    Function.RANDOM: RANDOM,
}

cdef uint32_t FNV_START = 2166136261
cdef uint32_t FNV_PRIME = 16777619


cdef uint32_t _hashed(uint32_t value, const uint8_t* data, size_t size) noexcept nogil:
    cdef size_t place
    for place in range(size):
        value = (value ^ data[place]) * FNV_PRIME
    return value


def fnv1a(bytes data not None):
    """Return the 32-bit FNV-1a hash."""
    return _hashed(FNV_START, data, len(data))


cdef inline bint _is_one(const Token* token, uint8_t byte) noexcept nogil:
    return token.size == 1 and token.text[0] == byte


cdef class SubjectTransform:
    """One source and one destination; see the module.

    Raises UsageError where the destination does not fit the source. A `reversible` transform may
    use nothing but wildcards, and must use them all.
    """

    def __init__(self, str source not None, str destination not None, *, bint reversible=False):
        cdef list wanted, pieces
        cdef bytes text
        cdef uint32_t place = 0
        self.source = source or ">"
        self.destination = destination
        wanted, pieces = read_destination(self.source, destination, reversible=reversible)
        self.takes_rest = wanted[len(wanted) - 1] == b">"
        self.texts = list(wanted)
        self.wanted = <Token*>calloc(len(wanted), sizeof(Token))
        if self.wanted == NULL:
            raise MemoryError
        self.wanted_count = len(wanted)
        for text in wanted:
            self.wanted[place].text = text
            self.wanted[place].size = len(text)
            place += 1
        self._take_steps(pieces)

    cdef int _take_steps(self, list pieces) except -1:
        cdef uint32_t place_count = 0
        cdef bytes text
        cdef Step* step
        self.steps = <Step*>calloc(len(pieces) + 1, sizeof(Step))
        self.places = <uint32_t*>calloc(
            sum([len(piece.places) for piece in pieces]) + 1, sizeof(uint32_t)
        )
        if self.steps == NULL or self.places == NULL:
            raise MemoryError
        for piece in pieces:
            text = piece.text
            self.texts.append(text)
            step = &self.steps[self.step_count]
            step.function = FUNCTIONS[piece.function]
            step.text.text = text
            step.text.size = len(text)
            step.number = piece.number
            step.place_start = place_count
            step.place_count = len(piece.places)
            for place in piece.places:
                self.places[place_count] = place
                place_count += 1
            self.step_count += 1
        return 0

    def __dealloc__(self):
        free(self.wanted)
        free(self.steps)
        free(self.places)
        free(self.tokens)
        free(self.renamed)

    def __repr__(self):
        return f"SubjectTransform({self.source!r}, {self.destination!r})"

    def selects(self, bytes subject not None):
        """Return True if the source matches a subject.

        A wildcard token in the subject is matched by the same or a wider wildcard only, and `*`
        does not match an empty token.
        """
        return self.selects_raw(subject, len(subject))

    def apply(self, bytes subject not None, random_below):
        """Return the new subject for one that the source matches."""
        self._split(subject, len(subject))
        self._render(random_below)
        return self.renamed[:self.renamed_size]

    def find(self, bytes subject not None, random_below):
        """Return the new subject; None if the source does not match a literal `subject`."""
        if not self.rename(subject, len(subject), random_below):
            return None
        return self.renamed[:self.renamed_size]

    cdef bint selects_raw(self, const uint8_t* subject, size_t size) except -1:
        self._split(subject, size)
        return self._selects()

    cdef bint rename(self, const uint8_t* subject, size_t size, object random_below) except -1:
        self._split(subject, size)
        if not self._is_plain() or not self._selects():
            return False
        self._render(random_below)
        return True

    cdef int _split(self, const uint8_t* subject, size_t size) except -1:
        cdef size_t place, start = 0
        cdef uint32_t room
        cdef Token* grown
        self.token_count = 0
        for place in range(size + 1):
            if place < size and subject[place] != c".":
                continue
            if self.token_count == self.token_room:
                room = self.token_room * 2 or 16
                grown = <Token*>realloc(self.tokens, room * sizeof(Token))
                if grown == NULL:
                    raise MemoryError
                self.tokens = grown
                self.token_room = room
            self.tokens[self.token_count].text = subject + start
            self.tokens[self.token_count].size = place - start
            self.token_count += 1
            start = place + 1
        return 0

    cdef bint _is_plain(self) noexcept:
        # No token of the subject at hand is empty or a wildcard.
        cdef uint32_t place
        for place in range(self.token_count):
            if not self.tokens[place].size or _is_one(&self.tokens[place], c"*") or (
                _is_one(&self.tokens[place], c">")
            ):
                return False
        return True

    cdef bint _selects(self) noexcept:
        cdef uint32_t place
        cdef Token* wanted
        cdef Token* found
        for place in range(self.wanted_count):
            if place >= self.token_count:
                return False
            wanted = &self.wanted[place]
            found = &self.tokens[place]
            if self.takes_rest and _is_one(wanted, c">"):
                return True
            if _is_one(wanted, c"*"):
                if not found.size or _is_one(found, c">"):
                    return False
            elif wanted.size != found.size or memcmp(wanted.text, found.text, found.size):
                return False
        return self.token_count == self.wanted_count

    cdef int _render(self, object random_below) except -1:
        cdef uint32_t place
        if self.token_count + self.takes_rest < self.wanted_count:
            raise IndexError("the source does not match the subject")
        self.renamed_size = 0
        for place in range(self.step_count):
            if place:
                self._put_dot()
            self._render_step(&self.steps[place], random_below)
        if self.takes_rest:
            for place in range(self.wanted_count - 1, self.token_count):
                if self.step_count or place >= self.wanted_count:
                    self._put_dot()
                self._put(self.tokens[place].text, self.tokens[place].size)
        return 0

    cdef int _render_step(self, const Step* step, object random_below) except -1:
        cdef Token* token
        if step.function == LITERAL:
            return self._put(step.text.text, step.text.size)
        if step.function == RANDOM:
            return self._put_number(random_below(abs(step.number)) if step.number else 0)
        if step.function == PARTITION:
            return self._render_partition(step)
        token = &self.tokens[self.places[step.place_start]]
        if step.function == SPLIT:
            return self._render_split(token, &step.text)
        if step.function == WILDCARD or not 0 < step.number < <int64_t>token.size:
            # It may be too short to be cut there.
            return self._put(token.text, token.size)
        return self._render_cut(step, token)

    cdef int _render_partition(self, const Step* step) except -1:
        cdef uint32_t value = FNV_START, place
        cdef Token* token
        if step.number == 0:
            return self._put_number(0)
        if step.place_count:
            for place in range(step.place_start, step.place_start + step.place_count):
                token = &self.tokens[self.places[place]]
                value = _hashed(value, token.text, token.size)
        else:
            # The tokens lie in one text, with the dots between them.
            token = &self.tokens[self.token_count - 1]
            value = _hashed(
                value, self.tokens[0].text, token.text + token.size - self.tokens[0].text
            )
        # The count is an unsigned number of 32 bits, whatever was written.
        return self._put_number(value % <uint32_t>step.number)

    cdef int _render_split(self, const Token* token, const Token* separator) except -1:
        cdef const uint8_t* end = token.text + token.size
        cdef const uint8_t* part = token.text
        cdef const uint8_t* found
        cdef const uint8_t* following
        cdef bytes characters
        if not separator.size:
            # Between all characters, of which one may have several bytes.
            characters = ".".join(
                token.text[:token.size].decode("utf-8", "surrogateescape")
            ).encode("utf-8", "surrogateescape")
            return self._put(characters, len(characters))
        while True:
            found = <const uint8_t*>memmem(part, end - part, separator.text, separator.size)
            if found == NULL:
                return self._put(part, end - part)
            self._put(part, found - part)
            following = found + separator.size
            if following < end and not (part == token.text and found == part) and (
                <size_t>(end - following) < separator.size
                or memcmp(following, separator.text, separator.size)
            ):
                # Neither what follows is empty, nor all that was before.
                self._put_dot()
            part = following

    cdef int _render_cut(self, const Step* step, const Token* token) except -1:
        cdef size_t size = <size_t>step.number, place = 0, piece
        if step.function == LEFT:
            return self._put(token.text, size)
        if step.function == RIGHT:
            return self._put(token.text + token.size - size, size)
        if step.function == SPLIT_FROM_LEFT:
            piece = size
        elif step.function == SPLIT_FROM_RIGHT:
            piece = token.size - size
        elif step.function == SLICE_FROM_LEFT:
            piece = size
        else:
            # The short piece comes first.
            piece = token.size % size or size
        while True:
            self._put(token.text + place, piece)
            place += piece
            if place == token.size:
                return 0
            self._put_dot()
            if step.function == SPLIT_FROM_LEFT or step.function == SPLIT_FROM_RIGHT:
                piece = token.size - place
            else:
                piece = min(size, token.size - place)

    cdef int _put(self, const uint8_t* text, size_t size) except -1:
        cdef size_t room
        cdef uint8_t* grown
        if self.renamed_size + size > self.renamed_room:
            room = max(self.renamed_room * 2, self.renamed_size + size, 64)
            grown = <uint8_t*>realloc(self.renamed, room)
            if grown == NULL:
                raise MemoryError
            self.renamed = grown
            self.renamed_room = room
        memcpy(self.renamed + self.renamed_size, text, size)
        self.renamed_size += size
        return 0

    cdef int _put_dot(self) except -1:
        return self._put(b".", 1)

    cdef int _put_number(self, int64_t number) except -1:
        cdef uint8_t[20] digits
        cdef int count = put_number(digits, <uint64_t>number)
        return self._put(digits, count)
