"""The mappings of an account as they are applied to each message, in compiled code.

`transforms` builds them, and says what they mean. Which mapping a subject has is remembered, so
that an account may have many of them.

Pure: chance is an argument. One thread: the event loop's. Called by `net.link` for each publish,
and by `services` for what comes from another account.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.limits import MAPPED_SUBJECTS_MAX

from penstock.protocol.subject_cache cimport UNKNOWN, SubjectCache
from penstock.routing.subject_transform cimport SubjectTransform


cdef class Chance:
    """Random numbers that are fair and no secret: `chance(bound)` returns one below the bound."""

    def __init__(self, uint64_t seed):
        self.state = seed | 1

    cdef uint64_t below(self, uint64_t bound) noexcept:
        # xorshift64*; of its bits the upper ones are the better.
        self.state ^= self.state >> 12
        self.state ^= self.state << 25
        self.state ^= self.state >> 27
        return ((self.state * 0x2545F4914F6CDD1DULL) >> 32) % bound

    def __call__(self, uint64_t bound):
        if bound < 1:
            raise ValueError("no number is below 0")
        return self.below(bound)


cdef class Choices:
    """One source, and where it leads: [(the sum of the weights so far, transform)]."""

    def __init__(self, SubjectTransform source not None, list choices not None):
        cdef Py_ssize_t place
        self.source = source
        self.transforms = tuple([transform for _, transform in choices])
        self.ends = <uint8_t*>malloc(len(choices) + 1)
        if self.ends == NULL:
            raise MemoryError
        for place in range(len(choices)):
            self.ends[place] = choices[place][0]
        self.is_certain = len(choices) == 1 and self.ends[0] == 100

    def __dealloc__(self):
        free(self.ends)


cdef class AppliedMappings:
    """The mappings of one account: the first one whose source matches decides."""

    def __init__(self, list mappings not None, random_below):
        """`mappings` are `Choices`; `random_below(n)` returns a number from 0 to below n."""
        self.mappings = mappings
        self.random_below = random_below
        self.chance = random_below if isinstance(random_below, Chance) else None
        self.known = SubjectCache(MAPPED_SUBJECTS_MAX)

    def map(self, bytes subject not None):
        """Return the subject with which a message goes on; b"" where it is lost."""
        cdef const uint8_t* text
        cdef size_t size
        if not self.apply(subject, len(subject), &text, &size):
            return subject
        return text[:size]

    @property
    def remembered(self):
        """Return for how many subjects it is remembered which mapping they have."""
        return len(self.known)

    cdef bint apply(
        self, const uint8_t* subject, size_t size, const uint8_t** text, size_t* text_size
    ) except -1:
        cdef int32_t place = self._find(subject, size)
        cdef Choices found
        cdef SubjectTransform transform
        cdef Py_ssize_t choice, drawn = 0
        if place == len(self.mappings):
            return False
        found = <Choices>self.mappings[place]
        if not found.is_certain:
            drawn = self.random_below(100) if self.chance is None else self.chance.below(100)
        text[0] = subject
        text_size[0] = 0
        for choice in range(len(found.transforms)):
            if drawn < found.ends[choice]:
                transform = <SubjectTransform>found.transforms[choice]
                transform._split(subject, size)
                transform._render(self.random_below)
                text[0] = transform.renamed
                text_size[0] = transform.renamed_size
                break
        return True

    cdef int32_t _find(self, const uint8_t* subject, size_t size) except -1:
        cdef int32_t place = self.known.find(subject, size)
        cdef Choices each
        if place != UNKNOWN:
            return place
        for place in range(len(self.mappings)):
            each = <Choices>self.mappings[place]
            if each.source.selects_raw(subject, size):
                self.known.remember(subject, size, place)
                return place
        self.known.remember(subject, size, len(self.mappings))
        return len(self.mappings)
