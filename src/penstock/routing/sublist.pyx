"""Subscriptions by subject: a trie of tokens, and a cache of what literal subjects match.

A publish asks `match` for its subject. The answer is remembered per subject in a table of fixed
size and is good until any subscription comes or goes (`generation`); a subject that is not
remembered costs a walk through the trie. The table never grows: a newcomer takes the place of
whoever has the same slot.

One thread: the event loop's.
"""

from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from penstock.errors import UsageError

cdef enum:
    # 8,192 subjects remembered: 256 KiB of slots for each account that is used.
    SLOTS = 8192


cdef class Receiver:
    """Who is given messages."""

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        raise NotImplementedError


cdef class Subscription:
    """One subscription."""

    def __init__(self, Receiver receiver not None, bytes subject not None, bytes sid not None,
                 bytes queue=None):
        self.receiver = receiver
        self.subject = subject
        self.queue = queue
        self.sid = sid


cdef class Matches:
    """What one subject matches."""

    def __cinit__(self):
        self.plain = []
        self.queues = []


cdef class Node:
    """One token's place in the trie."""

    def __cinit__(self):
        self.children = {}
        self.plain = {}
        self.queues = {}

    cdef bint is_empty(self):
        return not (
            self.children or self.plain or self.queues
            or self.star is not None or self.rest is not None
        )


cdef inline uint64_t hash_subject(const uint8_t* text, size_t size) noexcept nogil:
    # Good enough for a table that tolerates collisions, and a few cycles for a short subject.
    cdef uint64_t value = 0x9E3779B97F4A7C15ULL ^ size
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, text, 8)
        value = (value ^ word) * 0x2545F4914F6CDD1DULL
        value ^= value >> 29
        text += 8
        size -= 8
    if size:
        word = 0
        memcpy(&word, text, size)
        value = (value ^ word) * 0x2545F4914F6CDD1DULL
        value ^= value >> 29
    return value ^ (value >> 17)


cdef class Sublist:
    """The subscriptions of one account; see the module."""

    def __cinit__(self):
        self.root = Node()
        self.generation = 1
        self.slots = NULL

    def __dealloc__(self):
        cdef Py_ssize_t place
        if self.slots != NULL:
            for place in range(SLOTS):
                Py_XDECREF(<PyObject*>self.slots[place].subject)
                Py_XDECREF(<PyObject*>self.slots[place].matches)
            free(self.slots)

    def insert(self, Subscription subscription not None):
        """Add a subscription; raises UsageError for a subject that cannot be subscribed to."""
        cdef Node node = self.root, child
        cdef list tokens = subscription.subject.split(b".")
        if b"" in tokens or b">" in tokens[:-1]:
            raise UsageError(f"not a subject: {subscription.subject!r}")
        for token in tokens:
            if token == b"*":
                if node.star is None:
                    node.star = Node()
                child = node.star
            elif token == b">":
                if node.rest is None:
                    node.rest = Node()
                child = node.rest
            else:
                child = node.children.get(token)
                if child is None:
                    child = Node()
                    node.children[token] = child
            node = child
        if subscription.queue is None:
            node.plain[subscription] = None
        else:
            node.queues.setdefault(subscription.queue, {})[subscription] = None
        self.count += 1
        self.generation += 1

    def remove(self, Subscription subscription not None):
        """Take a subscription out; False where it was not there."""
        cdef list path = []
        cdef Node node = self.root, child
        for token in subscription.subject.split(b"."):
            if token == b"*":
                child = node.star
            elif token == b">":
                child = node.rest
            else:
                child = node.children.get(token)
            if child is None:
                return False
            path.append((node, token))
            node = child
        if subscription.queue is None:
            if subscription not in node.plain:
                return False
            del node.plain[subscription]
        else:
            members = node.queues.get(subscription.queue)
            if members is None or subscription not in members:
                return False
            del members[subscription]
            if not members:
                del node.queues[subscription.queue]
        subscription.closed = True
        self.count -= 1
        self.generation += 1
        self._prune(path, node)
        return True

    def _prune(self, list path, Node node):
        cdef Node parent
        for parent, token in reversed(path):
            if not node.is_empty():
                return
            if token == b"*":
                parent.star = None
            elif token == b">":
                parent.rest = None
            else:
                del parent.children[token]
            node = parent

    cdef Matches match(self, const uint8_t* subject, size_t size):
        cdef uint64_t value = hash_subject(subject, size)
        cdef Slot* slot
        cdef bytes name
        cdef Matches found
        if self.slots == NULL:
            self.slots = <Slot*>calloc(SLOTS, sizeof(Slot))
            if self.slots == NULL:
                raise MemoryError
        slot = &self.slots[value & (SLOTS - 1)]
        if slot.hash == value and slot.generation == self.generation:
            name = <bytes>slot.subject
            if <size_t>len(name) == size and memcmp(<const char*>name, subject, size) == 0:
                return <Matches>slot.matches
        name = subject[:size]
        found = self._find(name)
        Py_XDECREF(<PyObject*>slot.subject)
        Py_XDECREF(<PyObject*>slot.matches)
        Py_INCREF(name)
        Py_INCREF(found)
        slot.subject = <void*>name
        slot.matches = <void*>found
        slot.hash = value
        slot.generation = self.generation
        return found

    cdef Matches _find(self, bytes subject):
        cdef Matches found = Matches()
        cdef dict groups = {}
        cdef list tokens = subject.split(b".")
        # A subject with an empty token reaches nobody, not even a subscription to everything.
        if b"" not in tokens:
            _collect(self.root, tokens, 0, found.plain, groups)
        found.queues = [list(members) for members in groups.values()]
        return found

    def matches(self, bytes subject not None):
        """Give the Matches of a literal subject."""
        cdef const uint8_t* text = subject
        return self.match(text, len(subject))

    def subscriptions(self):
        """Yield every subscription."""
        cdef list nodes = [self.root]
        cdef Node node
        while nodes:
            node = nodes.pop()
            yield from node.plain
            for members in node.queues.values():
                yield from members
            nodes.extend(node.children.values())
            if node.star is not None:
                nodes.append(node.star)
            if node.rest is not None:
                nodes.append(node.rest)

    def statistics(self):
        """Give inserts, removes, subjects remembered, and their fan-outs: largest and total."""
        cdef Py_ssize_t place, fanout, cached = 0, largest = 0, total = 0
        cdef Matches found
        cdef uint64_t changes = self.generation - 1
        if self.slots != NULL:
            for place in range(SLOTS):
                if self.slots[place].generation == self.generation:
                    found = <Matches>self.slots[place].matches
                    fanout = len(found.plain) + len(found.queues)
                    cached += 1
                    total += fanout
                    largest = max(largest, fanout)
        return (changes + self.count) // 2, (changes - self.count) // 2, cached, largest, total

    @property
    def cached(self):
        """How many subjects are remembered right now."""
        cdef Py_ssize_t place, total = 0
        if self.slots != NULL:
            for place in range(SLOTS):
                total += self.slots[place].generation == self.generation
        return total


cdef _take(Node node, list plain, dict groups):
    cdef dict members
    if node.plain:
        plain.extend(node.plain)
    for queue, members in node.queues.items():
        groups.setdefault(queue, []).extend(members)


cdef _collect(Node node, list tokens, Py_ssize_t place, list plain, dict groups):
    # The order is the reference's: it decides whose subscription hears that nobody answers.
    cdef Py_ssize_t last = len(tokens) - 1
    cdef Node child
    while True:
        if node.rest is not None:
            _take(node.rest, plain, groups)
        child = node.children.get(tokens[place])
        if place == last:
            if child is not None:
                _take(child, plain, groups)
            if node.star is not None:
                _take(node.star, plain, groups)
            return
        if node.star is not None:
            _collect(node.star, tokens, place + 1, plain, groups)
        if child is None:
            return
        node = child
        place += 1
