"""Subscriptions by subject: a trie of tokens, and a cache of what literal subjects match.

A publish looks its subject up with `match`. The answer is cached per subject in a table of fixed
size until any subscription comes or goes, which clears the table; a subject that is not cached
costs a walk through the trie. Where no subscription looks at what follows a subject's first tokens,
the answer is cached for all subjects that begin with them.

Invariant: the table never grows; a new answer replaces the one in its slot, and the subscriptions
that all answers hold together are bounded too. A million subscriptions fit: a node of the trie has
a dictionary only where it has several children or subscriptions.

One thread: the event loop's.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from penstock.errors import UsageError

from penstock.protocol.subject_cache cimport hash_subject, same_text

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef enum:
    # 8,192 subjects cached: 128 KiB of slots for each account that is used.
    SLOTS = 8192
    # Subscriptions in all cached answers together, 8 MiB of references: thousands of subscriptions
    # to everything would otherwise stand in the answer of every subject.
    REMEMBERED_MAX = 1048576
    # Answers are not cached for more first tokens than these.
    STARTS_MAX = 15

cdef uint64_t sublists_made = 0


cdef class Receiver:
    """Whatever a subscription delivers to: a connection, or a part of the server."""

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        raise NotImplementedError

    cdef int send_gathered(self) except -1:
        return 0

    cdef int charge(self, int taken) except -1:
        return 0

    cdef int finish(self) except -1:
        return 0


cdef class Subscription:
    """One subscription."""

    def __init__(self, Receiver receiver not None, bytes subject not None, bytes sid not None,
                 bytes queue=None):
        self.receiver = receiver
        self.subject = subject
        self.queue = queue
        self.sid = sid


cdef class Matches:
    """The subscriptions that one literal subject matches."""

    def __cinit__(self, bytes subject not None):
        self.subject = subject
        self.plain = []
        self.queues = []

    cdef size_t size(self) noexcept:
        # Return the subscriptions in it, and one more: an empty answer takes room, too.
        cdef size_t total = 1 + len(self.plain)
        for members in self.queues:
            total += len(<list>members)
        return total


# Nodes lie within one another as deep as a subject is long: they are freed without a deep stack.
@cython.trashcan(True)
cdef class Node:
    """One token in the trie."""

    def __cinit__(self, bytes token not None):
        self.token = token

    cdef Node child(self, bytes token):
        # Return the child of any token, or None.
        if token == b"*":
            return self.star
        if token == b">":
            return self.rest
        return self.literal(token)

    cdef Node literal(self, bytes token):
        if type(self.literals) is dict:
            return (<dict>self.literals).get(token)
        if self.literals is not None and (<Node>self.literals).token == token:
            return <Node>self.literals
        return None

    cdef Node grow(self, bytes token):
        cdef Node child = self.child(token)
        if child is not None:
            return child
        child = Node(token)
        if token == b"*":
            self.star = child
        elif token == b">":
            self.rest = child
        elif self.literals is None:
            self.literals = child
        else:
            if type(self.literals) is not dict:
                self.literals = {(<Node>self.literals).token: self.literals}
            (<dict>self.literals)[token] = child
        return child

    cdef int cut(self, Node child) except -1:
        if child is self.star:
            self.star = None
        elif child is self.rest:
            self.rest = None
        elif child is self.literals:
            self.literals = None
        else:
            del (<dict>self.literals)[child.token]
            if not <dict>self.literals:
                self.literals = None
        return 0

    cdef int add(self, Subscription subscription) except -1:
        if subscription.queue is None:
            self.plain = _with(self.plain, subscription)
        else:
            if self.queues is None:
                self.queues = {}
            queue = subscription.queue
            self.queues[queue] = _with(self.queues.get(queue), subscription)
        return 0

    cdef bint discard(self, Subscription subscription) except -1:
        # Return False if it was not there.
        cdef bytes queue = subscription.queue
        if queue is None:
            if not _has(self.plain, subscription):
                return False
            self.plain = _without(self.plain, subscription)
            return True
        if self.queues is None or not _has(self.queues.get(queue), subscription):
            return False
        members = _without(self.queues[queue], subscription)
        if members is not None:
            self.queues[queue] = members
        else:
            del self.queues[queue]
            if not self.queues:
                self.queues = None
        return True

    cdef bint is_empty(self) noexcept:
        return (
            self.literals is None and self.plain is None and self.queues is None
            and self.star is None and self.rest is None
        )


# Most nodes have one subscription. So a set of them is None if empty, the subscription itself if it
# is the only one, and otherwise a dictionary: it keeps their order, and finds each at once.

cdef object _with(object some, Subscription subscription):
    if some is None:
        return subscription
    if type(some) is not dict:
        some = {some: None}
    (<dict>some)[subscription] = None
    return some


cdef bint _has(object some, Subscription subscription) except -1:
    return subscription in <dict>some if type(some) is dict else some is subscription


cdef object _without(object some, Subscription subscription):
    if type(some) is not dict:
        return None
    del (<dict>some)[subscription]
    return some if <dict>some else None


cdef int _extend(list found, object some) except -1:
    if type(some) is dict:
        found.extend(<dict>some)
    elif some is not None:
        found.append(some)
    return 0


cdef class Sublist:
    """The subscriptions of one account; see the module."""

    def __cinit__(self):
        global sublists_made
        self.root = Node(b"")
        self.slots = NULL
        self.kept = []
        sublists_made += 1
        self.epoch = sublists_made << 40

    def __dealloc__(self):
        free(self.slots)

    def insert(self, Subscription subscription not None):
        """Add a subscription; raise UsageError if its subject cannot be subscribed to."""
        cdef Node node = self.root
        cdef list tokens = subscription.subject.split(b".")
        if b"" in tokens or b">" in tokens[:-1]:
            raise UsageError(f"not a subject: {subscription.subject!r}")
        for token in tokens:
            node = node.grow(token)
        node.add(subscription)
        self.count += 1
        self.changes += 1
        self._forget()
        if self.observer is not None:
            self.observer(subscription)

    def remove(self, Subscription subscription not None):
        """Remove a subscription; return False if it was not there."""
        cdef list path = []
        cdef Node node = self.root
        for token in subscription.subject.split(b"."):
            path.append(node)
            node = node.child(token)
            if node is None:
                return False
        if not node.discard(subscription):
            return False
        subscription.closed = True
        self.count -= 1
        self.changes += 1
        self._prune(path, node)
        self._forget()
        if self.observer is not None:
            self.observer(subscription)
        return True

    cdef int _prune(self, list path, Node node) except -1:
        cdef Node parent
        for parent in reversed(path):
            if not node.is_empty():
                return 0
            parent.cut(node)
            node = parent
        return 0

    cdef int _forget(self) except -1:
        # Clear the cache; this costs as much as was cached since the last time.
        cdef Matches found
        if self.kept:
            for found in self.kept:
                self.slots[found.slot].matches = NULL
                found.is_kept = False
            self.kept = []
            self.remembered = 0
            self.starts_known = 0
            self.epoch += 1
        return 0

    cdef Matches match(self, const uint8_t* subject, size_t size):
        cdef uint64_t value, start_value = 0
        cdef size_t start = size
        cdef Slot* slot
        cdef Matches found
        if size and subject[size - 1] == 46:
            # It matches nothing, and is the key under which others share an answer.
            return self._find(subject[:size])
        value = hash_subject(subject, size)
        if self.slots != NULL:
            # As `_recall`, in place: nearly every publish ends here.
            slot = &self.slots[value & (SLOTS - 1)]
            if slot.hash == value and slot.matches != NULL:
                found = <Matches>slot.matches
                if <size_t>len(found.subject) == size and (
                    same_text(<const uint8_t*><const char*>found.subject, subject, size)
                ):
                    return found
        if self.starts_known:
            found = self._recall_start(subject, size)
            if found is not None:
                return found
        # Every request has a reply subject of its own: only the last token differs.
        while start and subject[start - 1] != 46:
            start -= 1
        if start:
            start_value = hash_subject(subject, start)
            found = self._recall(start_value, subject, start)
            if found is not None:
                return found
        found = self._find(subject[:size])
        if found.deciding:
            start = _start_of(subject, size, found.deciding)
            found.subject = subject[:start]
            found.is_any_rest = True
            value = hash_subject(subject, start)
            self.starts_known |= <uint64_t>1 << found.deciding
        elif found.is_any_last and start:
            found.subject = subject[:start]
            value = start_value
        self._remember(value, found)
        return found

    cdef Matches _recall(self, uint64_t value, const uint8_t* key, size_t size):
        # Return the answer that is cached under a key, or None.
        cdef Slot* slot
        cdef Matches found
        if self.slots == NULL:
            return None
        slot = &self.slots[value & (SLOTS - 1)]
        if slot.hash != value or slot.matches == NULL:
            return None
        found = <Matches>slot.matches
        if <size_t>len(found.subject) != size or not (
            same_text(<const uint8_t*><const char*>found.subject, key, size)
        ):
            return None
        return found

    cdef Matches _recall_start(self, const uint8_t* subject, size_t size):
        # Return the answer that is cached for all subjects that begin as this one, or None.
        cdef uint64_t left = self.starts_known >> 1
        cdef size_t at = 0
        cdef Matches found
        while left and at < size:
            if subject[at] == 46:
                if left & 1:
                    found = self._recall(hash_subject(subject, at + 1), subject, at + 1)
                    # A subject with an empty token matches nothing.
                    if found is not None and found.is_any_rest and (
                        memmem(subject + at, size - at, b"..", 2) == NULL
                    ):
                        return found
                left >>= 1
            at += 1
        return None

    cdef int _remember(self, uint64_t value, Matches found) except -1:
        cdef Slot* slot
        cdef Matches old
        if self.slots == NULL:
            self.slots = <Slot*>calloc(SLOTS, sizeof(Slot))
            if self.slots == NULL:
                raise MemoryError
        found.slot = <uint32_t>(value & (SLOTS - 1))
        slot = &self.slots[found.slot]
        if slot.matches != NULL:
            old = <Matches>slot.matches
            found.place = old.place
            self.kept[found.place] = found
            self.remembered -= old.size()
            old.is_kept = False
            self.epoch += 1
        else:
            found.place = <uint32_t>len(self.kept)
            self.kept.append(found)
        slot.hash = value
        slot.matches = <void*>found
        found.is_kept = True
        self.remembered += found.size()
        if self.remembered > REMEMBERED_MAX:
            self._forget()
        return 0

    cdef Matches _find(self, bytes subject):
        cdef Matches found = Matches(subject)
        cdef dict groups = {}
        cdef list tokens = subject.split(b".")
        # A subject with an empty token matches nothing, not even a subscription to everything.
        if b"" not in tokens:
            _collect(self.root, tokens, found, groups)
        found.queues = list(groups.values())
        found.is_nobody = not found.plain and not found.queues
        return found

    def matches(self, bytes subject not None):
        """Return the subscriptions that a literal subject matches."""
        cdef const uint8_t* text = subject
        return self.match(text, len(subject))

    def subscriptions(self):
        """Yield every subscription."""
        cdef list nodes = [self.root], held = []
        cdef Node node
        while nodes:
            node = nodes.pop()
            _extend(held, node.plain)
            if node.queues is not None:
                for members in node.queues.values():
                    _extend(held, members)
            yield from held
            held.clear()
            if type(node.literals) is dict:
                nodes.extend((<dict>node.literals).values())
            elif node.literals is not None:
                nodes.append(node.literals)
            if node.star is not None:
                nodes.append(node.star)
            if node.rest is not None:
                nodes.append(node.rest)

    def statistics(self):
        """Return inserts, removes, cached subjects, and of these the largest and total fan-out."""
        cdef Py_ssize_t fanout, largest = 0, total = 0
        cdef Matches found
        for found in self.kept:
            fanout = len(found.plain) + len(found.queues)
            total += fanout
            largest = max(largest, fanout)
        inserts, removes = (self.changes + self.count) // 2, (self.changes - self.count) // 2
        return inserts, removes, len(self.kept), largest, total

    @property
    def cached(self):
        """Return how many subjects are cached now."""
        return len(self.kept)


cdef int _take(Node node, list plain, dict groups) except -1:
    _extend(plain, node.plain)
    if node.queues is not None:
        for queue, members in node.queues.items():
            _extend(groups.setdefault(queue, []), members)
    return 0


cdef size_t _start_of(const uint8_t* subject, size_t size, uint32_t tokens) noexcept nogil:
    # Return the bytes of a subject's first tokens, with the dot behind them.
    cdef size_t at = 0
    while at < size and tokens:
        tokens -= subject[at] == 46
        at += 1
    return at


cdef int _collect(Node node, list tokens, Matches found, dict groups) except -1:
    # Collect the subscriptions that match, and how much of the subject that depends on. The order
    # is the reference server's: it decides which subscription is told that nobody answers. Branches
    # that are still to be walked wait in a list: recursion could exhaust the stack.
    cdef Py_ssize_t place = 0, last = len(tokens) - 1, deciding = 0
    cdef list ways = []
    cdef Node child
    found.is_any_last = True
    while True:
        if node.rest is not None:
            _take(node.rest, found.plain, groups)
        if node.literals is not None or node.star is not None:
            deciding = max(deciding, place + 1)
        child = node.literal(tokens[place])
        if place == last:
            if node.literals is not None:
                found.is_any_last = False
            if child is not None:
                _take(child, found.plain, groups)
            if node.star is not None:
                _take(node.star, found.plain, groups)
        elif node.star is not None:
            if child is not None:
                ways.append((child, place + 1))
            node = node.star
            place += 1
            continue
        elif child is not None:
            node = child
            place += 1
            continue
        if not ways:
            if deciding <= min(last, STARTS_MAX):
                found.deciding = <uint32_t>deciding
            return 0
        node, place = ways.pop()
