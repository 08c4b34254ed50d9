"""One page of a table's subjects with their counts, as JSON, made in steps.

    {"orders.eu":3,"orders.us":1}

A step looks at a bounded number of subjects. Between steps the table may change: a listing goes on
behind the last name that it has seen, so a subject is shown once, with its count when it was looked
at. What came since the listing began may be missing.

One thread at a time, the table's.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.subjects.order cimport Names, Subject
from penstock.format.subject_table cimport SubjectTable
from penstock.subjects cimport SubjectFilter
from penstock.text.json.write cimport Encoded, Writer

cdef enum:
    # What it costs to write a subject, in subjects that are looked at.
    WRITTEN_COST = 3


cdef class SubjectListing:
    """A page of subjects; see the module."""

    cdef SubjectFilter wanted
    cdef bytes prefix
    cdef uint64_t offset, end
    # Subjects that match, of those that were looked at.
    cdef readonly uint64_t total
    cdef Writer out
    # The last name that was looked at; None before the first.
    cdef bytes behind
    # How many subjects the order had when the listing began to read it; 0 before.
    cdef uint32_t ordered

    def __init__(self, SubjectFilter wanted not None, uint64_t offset, uint64_t limit):
        """Show at most `limit` of the subjects that a filter matches, from the `offset`-th on."""
        self.wanted = wanted
        # Two patterns may match one subject, so only a single pattern is searched by its prefix.
        self.prefix = b""
        if len(wanted.prefixes) == 1 and not wanted.everything:
            self.prefix = wanted.prefixes[0]
        self.offset = offset
        self.end = offset + limit
        self.out = Writer()

    @property
    def json(self):
        """The subjects so far, as an Encoded object; an empty one if there are none."""
        if self.out.size == 0:
            return Encoded(b"")
        self.out.put_byte(c"}")
        return Encoded(self.out.take())

    def step(self, SubjectTable table not None, int64_t budget):
        """Look at about `budget` subjects of the table; return True if the page is complete."""
        cdef Names names
        if self.wanted.literals is not None:
            return self._look_up(table)
        if self.ordered == 0 or table.order.size < self.ordered:
            names = table.names()
            if not table.order.step(&names, table.used, &budget):
                return False
            self.ordered = table.order.size
        return self._walk(table, budget)

    cdef bint _look_up(self, SubjectTable table) except -1:
        cdef int64_t item
        cdef const uint8_t* name
        for literal in sorted(set(self.wanted.literals)):
            name = literal
            item = table.find(name, len(literal))
            if item >= 0 and table.items[item].count:
                self._count(table, <uint32_t>item)
        return True

    cdef bint _walk(self, SubjectTable table, int64_t budget) except -1:
        cdef Names names = table.names()
        cdef const uint8_t* start = self.prefix if self.behind is None else self.behind
        cdef size_t size = len(self.prefix)
        cdef uint32_t place, item
        cdef Subject* subject
        if budget <= 0:
            return False
        place = table.order.lower_bound(
            &names, start, size if self.behind is None else len(self.behind)
        )
        if self.behind is not None and place < table.order.size and (
            table.name(table.order.places[place]) == self.behind
        ):
            place += 1
        start = self.prefix
        while budget > 0:
            if place >= table.order.size or (
                self.wanted.everything and self.total >= self.end
            ):
                break
            item = table.order.places[place]
            if size and not table.has_prefix(item, start, size):
                break
            subject = &table.items[item]
            budget -= 1
            place += 1
            if subject.count and (
                self.wanted.everything
                or self.wanted.matches_raw(table.text + subject.text_at, subject.text_size)
            ):
                budget -= WRITTEN_COST * self._count(table, item)
        else:
            self.behind = table.name(item)
            return False
        if self.wanted.everything:
            # Not all were looked at, and all of them match.
            self.total = max(self.total, table.live)
        return True

    cdef bint _count(self, SubjectTable table, uint32_t item) except -1:
        # Count a subject; return whether it is on the page.
        cdef Subject* subject = &table.items[item]
        self.total += 1
        if self.total <= self.offset or self.total > self.end:
            return False
        self.out.put_byte(c"," if self.out.size else c"{")
        self.out.put_text(table.text + subject.text_at, subject.text_size)
        self.out.put_byte(c":")
        self.out.put_unsigned(subject.count)
        return True
