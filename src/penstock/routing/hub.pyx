"""What the links of one server share, and a message's way from its subject to its receivers.

A message goes to every plain subscription and to one member of each queue group. `Hub.flush` sends
what receivers gathered meanwhile, with one system call each.

One thread: the event loop's.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.routing.subject_transform cimport SubjectTransform
from penstock.routing.sublist cimport Frame, Matches, Receiver, Sublist, Subscription

# How many messages are being passed on between accounts, one within the other.
cdef int passing_on = 0


cdef void _fill(
    Frame* frame, bytes subject, bytes reply, bytes payload, size_t headers_size
) noexcept:
    # The memory is the caller's, which keeps it while the frame is used.
    frame.subject = subject
    frame.subject_size = len(subject)
    frame.reply = NULL
    frame.reply_size = 0
    if reply is not None:
        frame.reply = reply
        frame.reply_size = len(reply)
    frame.payload = payload
    frame.payload_size = len(payload)
    frame.headers_size = headers_size
    frame.size_text = frame.headers_text = NULL
    frame.size_text_size = frame.headers_text_size = 0


cdef class Hub:
    """What the links of one server share."""

    def __cinit__(self):
        self.buffer = <uint8_t*>malloc(HEADROOM + READ_BYTES_MAX)
        if self.buffer == NULL:
            raise MemoryError
        self.dirty = []
        self.finishing = []

    def __init__(self, uint64_t seed, monotonic_ns=None):
        """`seed` starts the choice among queue members; without a clock it is always 0."""
        self.random_state = seed | 1
        self.monotonic_ns = monotonic_ns

    def __dealloc__(self):
        free(self.buffer)

    cdef uint64_t random(self) noexcept:
        # xorshift64*: fair enough to pick a member of a group.
        self.random_state ^= self.random_state >> 12
        self.random_state ^= self.random_state << 25
        self.random_state ^= self.random_state >> 27
        return self.random_state * 0x2545F4914F6CDD1DULL

    cdef int64_t now_ns(self) except -1:
        # Return the time at which the buffer at hand is walked: all of it happens at once.
        if not self.is_read and self.monotonic_ns is not None:
            self.read_ns = self.monotonic_ns()
            self.is_read = True
        return self.read_ns

    @property
    def publisher(self):
        """Return the publisher of the message that is routed now; None for the server itself."""
        return None if self.source == NULL else <object>self.source

    def publish(self, Sublist sublist not None, bytes subject not None, bytes reply,
                bytes headers not None, bytes body not None):
        """Route a message of the server's own; return how many took it. `flush` sends it."""
        return self.publish_as(sublist, subject, subject, reply, headers, body)

    cpdef int publish_as(
        self, Sublist sublist, bytes target, bytes subject, bytes reply, bytes headers, bytes body
    ) except -1:
        """As `publish`, to the subscriptions to `target`, which are shown `subject` instead."""
        cdef bytes payload = headers + body if headers else body
        cdef Frame frame
        _fill(&frame, subject, reply, payload, len(headers))
        return route_as(
            self, sublist.match(target, len(target)), None, &frame, target, len(target)
        )

    def pass_on(self, Sublist sublist not None, bytes target not None, bytes subject not None,
                bytes reply, bytes headers not None, bytes body not None):
        """As `publish_as`, for a message of another publisher that is being routed now.

        It stays that publisher's message. No shadow takes it: a request that came through an import
        is not imported further.
        """
        cdef bytes payload = headers + body if headers else body
        cdef Frame frame
        _fill(&frame, subject, reply, payload, len(headers))
        return pass_to(self, sublist, target, len(target), &frame)

    def give(self, Receiver source not None, Subscription subscription not None,
             bytes subject not None, bytes reply, bytes headers not None, bytes body not None):
        """Offer a message of `source` to one subscription; return True if it was taken."""
        cdef bytes payload = headers + body if headers else body
        cdef void* outer = self.source
        cdef Frame frame
        _fill(&frame, subject, reply, payload, len(headers))
        self.source = <void*>source
        try:
            return _offer(self, source, subscription, &frame) != 0
        finally:
            self.source = outer

    cpdef flush(self):
        """Send what every receiver gathered, one system call each."""
        cdef Receiver receiver
        cdef list dirty
        cdef Py_ssize_t done = 0
        self.is_read = False
        while self.finishing:
            (<Receiver>self.finishing.pop()).finish()
        dirty = self.dirty
        if not dirty:
            return
        self.dirty = []
        try:
            for receiver in dirty:
                done += 1
                receiver.send_gathered()
        finally:
            # The receivers behind one that failed are sent their bytes with the next flush.
            if done < len(dirty):
                self.dirty.extend(dirty[done:])


cdef class Service(Receiver):
    """A part of the server that answers on a subject: each message is one Python call."""

    cdef object callback
    cdef tuple declined

    def __init__(self, callback, tuple declined=()):
        """Call `callback(subject, reply, headers, body)` for each message; reply may be None.

        It returns False for a message that it did not take. Messages whose subject begins with one
        of `declined` are not taken, and the callback is not called.
        """
        self.callback = callback
        self.declined = declined

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef bytes start
        for start in self.declined:
            if frame.subject_size >= <size_t>len(start) and (
                memcmp(frame.subject, <const char*>start, len(start)) == 0
            ):
                return 0
        taken = self.callback(
            frame.subject[:frame.subject_size],
            frame.reply[:frame.reply_size] if frame.reply_size else None,
            frame.payload[:frame.headers_size],
            frame.payload[frame.headers_size:frame.payload_size],
        )
        return 0 if taken is False else TAKEN_BY_PYTHON

    def on_auto_unsubscribed(self, Subscription subscription):
        """Do nothing: services do not end by themselves."""


cdef class Shadow(Receiver):
    """Stands in one account for a subscription of another, and delivers to that one."""

    def __init__(self, Subscription original not None, SubjectTransform rename):
        """`rename` makes the other account's name of a subject; None for the same."""
        self.original = original
        self.rename = rename

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef Frame other
        cdef Name name
        cdef bytes _kept
        if passing_on:
            return 0
        # A subject that is not imported keeps its name.
        if self.rename is None or not self.rename.selects_raw(frame.subject, frame.subject_size):
            return _give(self.original, frame)
        self.rename._render(None)
        _kept = keep_name(&name, self.rename.renamed, self.rename.renamed_size)
        other = frame[0]
        other.subject = name.text
        other.subject_size = name.size
        return _give(self.original, &other)

    def on_auto_unsubscribed(self, Subscription subscription):
        """Do nothing: a shadow ends with the subscription that it stands for."""


cdef bytes keep_name(Name* name, const uint8_t* text, size_t size):
    # Copy a name from where the next message may overwrite it. The caller keeps what is returned.
    cdef bytes kept = None
    if size <= NAME_BYTES:
        memcpy(name.room, text, size)
        name.text = name.room
    else:
        kept = text[:size]
        name.text = kept
    name.size = size
    return kept


cdef inline int _give(Subscription subscription, const Frame* frame) except -1:
    # Deliver to one subscription unless it is denied or at its end; return how it was taken.
    cdef Receiver receiver = subscription.receiver
    cdef int taken
    if subscription.closed:
        return 0
    if subscription.deny is not None and (
        subscription.deny.matches_raw(frame.subject, frame.subject_size)
    ):
        return 0
    subscription.delivered += 1
    if subscription.max_messages and subscription.delivered > subscription.max_messages:
        return 0
    taken = receiver.deliver(subscription, frame)
    if taken and subscription.max_messages and (
        subscription.delivered == subscription.max_messages
    ):
        (<object>receiver).on_auto_unsubscribed(subscription)
    return taken


cdef inline int _offer(
    Hub hub, Receiver source, Subscription subscription, const Frame* frame
) except -1:
    # As `_give`, unless the publisher wants no echo; charge the publisher; return 1 if taken.
    cdef int taken
    if subscription.receiver is source and source is not None and not source.echo:
        return 0
    taken = _give(subscription, frame)
    if not taken:
        return 0
    if taken != TAKEN and source is not None:
        source.charge(taken)
    return 1


cdef int _spread(Hub hub, Matches found, Receiver source, const Frame* frame) except -1:
    # Deliver to every plain subscription and one member of each queue group; return how many took.
    cdef list members
    cdef Py_ssize_t place, count, first
    cdef int taken = 0
    for place in range(len(found.plain)):
        taken += _offer(hub, source, <Subscription>found.plain[place], frame)
    for members in found.queues:
        count = len(members)
        first = <Py_ssize_t>(hub.random() % <uint64_t>count) if count > 1 else 0
        for place in range(count):
            # A member that cannot take it passes it on to the next.
            if _offer(hub, source, <Subscription>members[(first + place) % count], frame):
                taken += 1
                break
    return taken


cdef int route(Hub hub, Sublist sublist, Receiver source, const Frame* frame) except -1:
    # Deliver to the subscriptions to the frame's subject; return how many took it.
    cdef Matches found = sublist.match(frame.subject, frame.subject_size)
    return 0 if found.is_nobody else route_to(hub, found, source, frame)


cdef int route_to(Hub hub, Matches found, Receiver source, const Frame* frame) except -1:
    return route_as(hub, found, source, frame, NULL, 0)


cdef int route_as(
    Hub hub, Matches found, Receiver source, const Frame* frame, const uint8_t* target, size_t size
) except -1:
    # As `_spread`, with the publisher noted in the hub, and the subject by which the receivers were
    # found where it is not the frame's own. A service may publish within.
    cdef void* outer = hub.source
    cdef const uint8_t* outer_target = hub.target
    cdef size_t outer_size = hub.target_size
    hub.source = NULL if source is None else <void*>source
    hub.target = target
    hub.target_size = size
    try:
        return _spread(hub, found, source, frame)
    finally:
        hub.source = outer
        hub.target = outer_target
        hub.target_size = outer_size


cdef int pass_to(
    Hub hub, Sublist sublist, const uint8_t* target, size_t size, const Frame* frame
) except -1:
    # Pass on a message that is being routed now to the subscriptions to `target`. It stays its
    # publisher's message, and no shadow takes it.
    global passing_on
    cdef Receiver source = None if hub.source == NULL else <Receiver>hub.source
    passing_on += 1
    try:
        return route_as(hub, sublist.match(target, size), source, frame, target, size)
    finally:
        passing_on -= 1
