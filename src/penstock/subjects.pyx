"""Subjects and the patterns that select them.

A subject is bytes, split into tokens at the dots. In a pattern the token `*` stands for exactly one
token and a last token `>` for one or more; within a longer token (`*x`, `>x`) they are ordinary
bytes. A subject that is matched is always taken literally, wildcards and all, because that is how
messages published to `a.*` are routed; an empty token in it counts as a token like any other.

Invariant: matching never allocates, never fails and never reads past either buffer, also
for patterns that are not valid (there a `>` before the end is an ordinary token). A `SubjectFilter`
holds valid patterns only and never changes.

Pure; safe from any thread. Below everything but `errors`.
"""

cimport cython
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from penstock.errors import UsageError


cdef inline size_t _token_size(const uint8_t* token, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* cursor = token
    while cursor < end and cursor[0] != c".":
        cursor += 1
    return cursor - token


cdef inline bint _is_one(const uint8_t* token, size_t size) noexcept nogil:
    return size == 1 and token[0] == c"*"


cdef inline bint _is_all(const uint8_t* token, size_t size, const uint8_t* end) noexcept nogil:
    return size == 1 and token[0] == c">" and token + size == end


cdef bint is_valid_raw(const uint8_t* subject, size_t size) noexcept nogil:
    cdef const uint8_t* token = subject
    cdef const uint8_t* end = subject + size
    cdef size_t found, place
    while True:
        found = _token_size(token, end)
        if found == 0:
            return False
        for place in range(found):
            if token[place] <= c" " or token[place] == 0x7F:
                return False
        if token + found == end:
            return True
        if found == 1 and token[0] == c">":
            return False
        token += found + 1


cdef bint is_literal_raw(const uint8_t* subject, size_t size) noexcept nogil:
    cdef const uint8_t* token = subject
    cdef const uint8_t* end = subject + size
    cdef size_t found
    while True:
        found = _token_size(token, end)
        if found == 1 and (token[0] == c"*" or token[0] == c">"):
            return False
        if token + found == end:
            return True
        token += found + 1


cdef bint match_raw(
    const uint8_t* pattern, size_t pattern_size, const uint8_t* subject, size_t subject_size,
) noexcept nogil:
    """Whether `subject` is one that `pattern` selects; see the module for malformed ones."""
    cdef const uint8_t* pattern_end = pattern + pattern_size
    cdef const uint8_t* subject_end = subject + subject_size
    cdef size_t wanted, found
    while True:
        # Both cursors stand at the start of a token here.
        wanted = _token_size(pattern, pattern_end)
        if _is_all(pattern, wanted, pattern_end):
            return True
        found = _token_size(subject, subject_end)
        if not _is_one(pattern, wanted):
            if wanted != found or memcmp(pattern, subject, wanted) != 0:
                return False
        pattern += wanted
        subject += found
        if pattern == pattern_end or subject == subject_end:
            return pattern == pattern_end and subject == subject_end
        pattern += 1
        subject += 1


cdef inline bint _begins_one(const uint8_t* token, const uint8_t* end) noexcept nogil:
    return token < end and token[0] == c"*" and (token + 1 == end or token[1] == c".")


cdef inline bint _begins_all(const uint8_t* token, const uint8_t* end) noexcept nogil:
    return token + 1 == end and token[0] == c">"


cdef bint _overlap(
    const uint8_t* one, const uint8_t* one_end, const uint8_t* other, const uint8_t* other_end,
) noexcept nogil:
    # A token is walked no further than it is alike: patterns come from any client, at any length,
    # and are compared with every stream.
    while True:
        if _begins_all(one, one_end) or _begins_all(other, other_end):
            return True
        if _begins_one(one, one_end) or _begins_one(other, other_end):
            one += _token_size(one, one_end)
            other += _token_size(other, other_end)
        else:
            while one < one_end and other < other_end and one[0] == other[0] and one[0] != c".":
                one += 1
                other += 1
            if (one < one_end and one[0] != c".") or (other < other_end and other[0] != c"."):
                return False
        if one == one_end or other == other_end:
            return one == one_end and other == other_end
        one += 1
        other += 1


cdef bint _subset(
    const uint8_t* inner, const uint8_t* inner_end, const uint8_t* outer, const uint8_t* outer_end,
) noexcept nogil:
    cdef size_t inner_size, outer_size
    while True:
        inner_size = _token_size(inner, inner_end)
        outer_size = _token_size(outer, outer_end)
        if _is_all(outer, outer_size, outer_end):
            return True
        if _is_all(inner, inner_size, inner_end):
            return False
        if not _is_one(outer, outer_size):
            # Where `inner` has `*` this refuses too, for `outer` wants one token of many.
            if inner_size != outer_size or memcmp(inner, outer, inner_size) != 0:
                return False
        inner += inner_size
        outer += outer_size
        if inner == inner_end or outer == outer_end:
            return inner == inner_end and outer == outer_end
        inner += 1
        outer += 1


def is_valid_subject(bytes subject not None):
    """Return True if `subject` may be used as a pattern or, if it is literal, be published to.

    No token may be empty, `>` may only be the last one, and there are no spaces or control bytes.
    """
    return is_valid_raw(<const uint8_t*>subject, len(subject))


def is_literal(bytes subject not None):
    """Return True if no token of `subject` is `*` or `>`; its validity is not checked."""
    return is_literal_raw(<const uint8_t*>subject, len(subject))


def matches(bytes pattern not None, bytes subject not None):
    """Return True if `pattern` selects `subject`."""
    return match_raw(
        <const uint8_t*>pattern, len(pattern), <const uint8_t*>subject, len(subject),
    )


def patterns_overlap(bytes one not None, bytes other not None):
    """Return True if some subject is selected by both patterns."""
    cdef const uint8_t* one_text = <const uint8_t*>one
    cdef const uint8_t* other_text = <const uint8_t*>other
    return _overlap(one_text, one_text + len(one), other_text, other_text + len(other))


def is_subset(bytes inner not None, bytes outer not None):
    """Return True if `outer` selects every subject that `inner` selects."""
    cdef const uint8_t* inner_text = <const uint8_t*>inner
    cdef const uint8_t* outer_text = <const uint8_t*>outer
    return _subset(inner_text, inner_text + len(inner), outer_text, outer_text + len(outer))


cdef size_t _split(bytes pattern, Run* runs) noexcept:
    # Writes the runs of a valid pattern, at most one more than it has tokens; returns how many.
    cdef const uint8_t* start = <const uint8_t*>pattern
    cdef const uint8_t* end = start + len(pattern)
    cdef const uint8_t* token = start
    cdef size_t size, count = 0
    while True:
        size = _token_size(token, end)
        if _is_one(token, size) or _is_all(token, size, end):
            runs[count].text = start
            runs[count].size = token - start
            runs[count].after = ONE_TOKEN if token[0] == c"*" else ALL_TOKENS
            count += 1
            start = token + size
        if token + size == end:
            break
        token += size + 1
    if count == 0 or runs[count - 1].after == ONE_TOKEN:
        runs[count].text = start
        runs[count].size = end - start
        runs[count].after = END
        count += 1
    return count


cdef inline bint _run_fits(
    const Run* run, const uint8_t* cursor, const uint8_t* end,
) noexcept nogil:
    cdef size_t left = end - cursor
    if run.after == END:
        return left == run.size and memcmp(cursor, run.text, run.size) == 0
    return left >= run.size and memcmp(cursor, run.text, run.size) == 0


@cython.final
cdef class SubjectFilter:
    """Selects the subjects that any of `patterns` selects; without patterns, every subject.

    `patterns` are as given, and two filters are equal when these are. `everything` is true without
    patterns or with `>` among them. `literals` are the patterns when no other subject can match,
    else None. `prefixes` has, pattern by pattern, the bytes before the first wildcard (`b""` alone
    without patterns): what matches starts with one of them. Raises UsageError for a pattern that
    is not valid.
    """

    def __cinit__(self, patterns=()):
        cdef size_t first, room = 0
        cdef bytes pattern
        self.patterns = tuple(patterns)
        for pattern in self.patterns:
            if pattern is None or not is_valid_subject(pattern):
                raise UsageError(f"not a valid subject pattern: {pattern!r}")
            room += pattern.count(b".") + 2
        self.everything = not self.patterns or b">" in self.patterns
        if self.patterns and all([is_literal(pattern) for pattern in self.patterns]):
            self.literals = self.patterns
        self.runs = <Run*>calloc(room + 1, sizeof(Run))
        if self.runs == NULL:
            raise MemoryError
        prefixes = []
        for pattern in self.patterns:
            first = self.run_count
            self.run_count += _split(pattern, self.runs + first)
            prefixes.append(pattern[:self.runs[first].size])
        self.prefixes = tuple(prefixes) if prefixes else (b"",)

    def __dealloc__(self):
        free(self.runs)

    def matches(self, bytes subject not None):
        """Return True if any pattern selects `subject`."""
        return self.matches_raw(<const uint8_t*>subject, len(subject))

    cdef bint matches_raw(self, const uint8_t* subject, size_t size) noexcept nogil:
        cdef const uint8_t* end = subject + size
        cdef const uint8_t* cursor = subject
        cdef Run* run = self.runs
        cdef Run* runs_end = self.runs + self.run_count
        if self.everything:
            return True
        while run < runs_end:
            if _run_fits(run, cursor, end):
                if run.after != ONE_TOKEN:
                    return True
                cursor += run.size
                cursor += _token_size(cursor, end)
            else:
                # On to the next pattern: past the run that ends this one.
                while run.after == ONE_TOKEN:
                    run += 1
                cursor = subject
            run += 1
        return False

    def __eq__(self, other):
        if not isinstance(other, SubjectFilter):
            return NotImplemented
        return self.patterns == (<SubjectFilter>other).patterns

    def __hash__(self):
        return hash(self.patterns)

    def __repr__(self):
        return f"SubjectFilter({self.patterns!r})"
