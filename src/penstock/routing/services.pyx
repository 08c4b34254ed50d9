"""Requests and answers between accounts, from one sublist to another without a Python call.

`ServiceDoor` stands in the importing account (*here*) and passes requests on to the exporting one
(*there*), with a header that names the requester. `ServiceAnswers` stands there and passes answers
back: each request gets a reply subject of its own, `_R_.` and random characters, of which all those
of one import begin alike, so that one subscription takes them all.

Invariants: an answer that is not awaited goes nowhere, and nothing is awaited longer, or in larger
number, than its owner says. A request that comes back to its door while it is being passed on is
not taken.

The owner, an import of the server, is called where a message is traced, once for the header of each
requester, and when the first of many answers is waited for: `on_waiting(answers)`,
`introduction_of(publisher)`, `pass_traced_request(came_as, message)` and
`pass_traced_answer(answers, came_as, target, message)`.

One thread: the event loop's. Built by the server.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from penstock.protocol.headers import without

from penstock.protocol.replies cimport Replies, Reply
from penstock.routing.applied_mappings cimport AppliedMappings
from penstock.routing.hub cimport TAKEN, Hub, Name, keep_name, pass_to
from penstock.routing.subject_transform cimport SubjectTransform
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription

cdef extern from "string.h" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef enum:
    # Random bytes are drawn for so many answers at once.
    DRAWN_TOKENS = 256
    ACK_BYTES = 8
    INFO_BYTES = 17
    START_BYTES = 10

cdef const char* ACK_PREFIX = b"$JS.ACK."
cdef const char* START = b"NATS/1.0\r\n"
cdef bytes REQUEST_INFO = b"Nats-Request-Info"
cdef bytes DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef inline bint _wants_answer(const Frame* frame) noexcept:
    # What is answered with an acknowledgement goes to the stream itself.
    return frame.reply_size > 0 and not (
        frame.reply_size >= ACK_BYTES and memcmp(frame.reply, ACK_PREFIX, ACK_BYTES) == 0
    )


cdef class ServiceAnswers(Receiver):
    """The answers that one import waits for; see the module.

    An answer ends the waiting if `is_single`, and an empty one always. At most `waiting_max` are
    waited for, each for `wait_ns`: then the one that waits longest is given up.
    """

    def __init__(self, owner, Hub hub not None, Sublist there not None, Sublist here not None, *,
                 random_bytes, bint is_single, int64_t wait_ns, int32_t waiting_max,
                 ServiceAnswers backward=None):
        cdef bytes prefix
        self.owner = owner
        self.hub = hub
        self.there = there
        self.here = here
        self.random_bytes = random_bytes
        self.is_single = is_single
        self.wait_ns = wait_ns
        self.waiting_max = waiting_max
        self.waiting = Replies()
        self.drawn = b""
        prefix = b"_R_.%b." % bytes([DIGITS[byte % 62] for byte in random_bytes(6)])
        memcpy(self.prefix, <const uint8_t*>prefix, PREFIX_BYTES)
        # Answers to answers go the other way, and what answers them goes this way again.
        self.backward = backward or ServiceAnswers(
            owner, hub, here, there, random_bytes=random_bytes, is_single=is_single,
            wait_ns=wait_ns, waiting_max=waiting_max, backward=self,
        )

    def expect(self, bytes reply not None):
        """Wait for answers to `reply`; return the subject to which they are sent there."""
        cdef uint8_t[ANSWER_SUBJECT_BYTES] subject
        self.expect_raw(reply, len(reply), subject)
        return subject[:ANSWER_SUBJECT_BYTES]

    def new_subject(self):
        """Return a subject that is not in use, and that nobody waits for."""
        cdef uint8_t[TOKEN_BYTES] token
        self._draw(token)
        return self.prefix[:PREFIX_BYTES] + token[:TOKEN_BYTES]

    def awaits(self, bytes subject not None):
        """Return True if an answer to a subject is waited for."""
        return self._find(subject, len(subject)) >= 0

    def sweep(self):
        """End the waiting for what has waited long enough.

        Return the nanoseconds until this is to be done again; None if nothing is waited for.
        """
        cdef int64_t now_ns = self.hub.monotonic_ns(), left_ns
        while self.waiting.count:
            left_ns = self.waiting.entries[self.waiting.oldest].time_ns + self.wait_ns - now_ns
            if left_ns > 0:
                return left_ns
            self.waiting.remove(self.waiting.oldest)
        self.is_watched = False
        return None

    def close(self):
        """Wait for nothing more, neither here nor there."""
        cdef ServiceAnswers each
        for each in (self, self.backward):
            each._stop()
            while each.waiting.count:
                each.waiting.remove(each.waiting.oldest)

    cdef int expect_raw(self, const uint8_t* reply, size_t size, uint8_t* subject) except -1:
        # Write the answer's subject, ANSWER_SUBJECT_BYTES.
        if self.subscription is None:
            self._start()
        if self.waiting.count >= self.waiting_max:
            self.waiting.remove(self.waiting.oldest)
        memcpy(subject, self.prefix, PREFIX_BYTES)
        self._draw(subject + PREFIX_BYTES)
        while self.waiting.find(subject + PREFIX_BYTES, TOKEN_BYTES) >= 0:
            self._draw(subject + PREFIX_BYTES)
        self.waiting.add(subject + PREFIX_BYTES, TOKEN_BYTES, reply, size, self.hub.now_ns())
        if not self.is_watched:
            self.is_watched = True
            self.owner.on_waiting(self)
        return 0

    cdef int _start(self) except -1:
        self.subscription = Subscription(self, self.prefix[:PREFIX_BYTES] + b"*", b"1")
        self.there.insert(self.subscription)
        return 0

    cdef int _stop(self) except -1:
        if self.subscription is not None:
            self.there.remove(self.subscription)
            self.subscription = None
        return 0

    cdef int _draw(self, uint8_t* out) except -1:
        cdef int place
        cdef const uint8_t* drawn
        cdef const uint8_t* digits = DIGITS
        if self.drawn_used + TOKEN_BYTES > len(self.drawn):
            self.drawn = self.random_bytes(DRAWN_TOKENS * TOKEN_BYTES)
            self.drawn_used = 0
        drawn = self.drawn
        for place in range(TOKEN_BYTES):
            out[place] = digits[drawn[self.drawn_used + place] % 62]
        self.drawn_used += TOKEN_BYTES
        return 0

    cdef int32_t _find(self, const uint8_t* subject, size_t size) noexcept:
        if size != ANSWER_SUBJECT_BYTES or memcmp(subject, self.prefix, PREFIX_BYTES):
            return -1
        return self.waiting.find(subject + PREFIX_BYTES, TOKEN_BYTES)

    cdef int _forget(self, const uint8_t* subject) noexcept:
        cdef int32_t place = self._find(subject, ANSWER_SUBJECT_BYTES)
        if place >= 0:
            self.waiting.remove(place)
        return 0

    # An answer

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef const uint8_t* came_as = self.hub.target
        cdef size_t came_size = self.hub.target_size
        cdef uint8_t[TOKEN_BYTES] token
        cdef uint8_t[ANSWER_SUBJECT_BYTES] back
        cdef uint8_t* reply
        cdef size_t reply_size
        cdef int32_t place
        cdef Reply* answer
        cdef Frame other = frame[0]
        if came_as == NULL:
            came_as = frame.subject
            came_size = frame.subject_size
        place = self._find(came_as, came_size)
        if place < 0:
            return 0
        memcpy(token, came_as + PREFIX_BYTES, TOKEN_BYTES)
        answer = &self.waiting.entries[place]
        # It may be forgotten before it has been delivered to all.
        reply_size = answer.value_size
        reply = <uint8_t*>malloc(reply_size + 1)
        if reply == NULL:
            raise MemoryError
        memcpy(reply, answer.text + answer.key_size, reply_size)
        try:
            # A consumer's messages come here, too, and keep the subject they were stored under.
            if frame.subject_size == came_size and memcmp(frame.subject, came_as, came_size) == 0:
                other.subject = reply
                other.subject_size = reply_size
            if _wants_answer(frame):
                self.backward.expect_raw(frame.reply, frame.reply_size, back)
                other.reply = back
                other.reply_size = ANSWER_SUBJECT_BYTES
            return self._pass(token, reply, reply_size, frame, &other)
        finally:
            free(reply)

    cdef int _pass(
        self, const uint8_t* token, const uint8_t* reply, size_t reply_size, const Frame* frame,
        const Frame* other
    ) except -1:
        cdef int32_t place
        cdef object taken = None
        if self.hub.is_tracing:
            came_as = self.prefix[:PREFIX_BYTES] + token[:TOKEN_BYTES]
            target = reply[:reply_size]
            taken = self.owner.pass_traced_answer(self, came_as, target, _message(other))
        if taken is None:
            taken = pass_to(self.hub, self.here, reply, reply_size, other)
        place = self.waiting.find(token, TOKEN_BYTES)
        if place >= 0:
            if not taken or self.is_single or frame.payload_size == 0:
                self.waiting.remove(place)
            else:
                self.waiting.touch(place, self.hub.now_ns())
        return TAKEN if taken else 0


cdef class ServiceDoor(Receiver):
    """Takes the requests of one import; see the module.

    `rename` makes the name that a subject has there, None for the same; the mappings of `account`
    are applied to it.
    """

    def __init__(self, owner, Hub hub not None, Sublist there not None,
                 ServiceAnswers answers not None, SubjectTransform rename, account):
        self.owner = owner
        self.account = account
        self.hub = hub
        self.there = there
        self.answers = answers
        self.rename = rename

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef Receiver source = None if self.hub.source == NULL else <Receiver>self.hub.source
        cdef bytes _kept, line, headers = b""
        cdef Name target
        cdef const uint8_t* before = frame.payload
        cdef size_t before_size = frame.headers_size, line_size, body
        cdef Frame other = frame[0]
        cdef uint8_t* payload
        cdef uint8_t* p
        if self.is_asking:
            # It came back to where it started.
            return 0
        _kept = self._take_target(frame, &target)
        line = self._line_about(source)
        other.subject = target.text
        other.subject_size = target.size
        if before_size and (
            memmem(before, before_size, <const char*>REQUEST_INFO, INFO_BYTES) != NULL
        ):
            headers = without(before[:before_size], REQUEST_INFO)
            before = headers
            before_size = len(headers)
        body = frame.payload_size - frame.headers_size
        line_size = len(line)
        if not line_size and before == frame.payload:
            return self._ask(frame, &other)
        payload = <uint8_t*>malloc(START_BYTES + before_size + line_size + body + 2)
        if payload == NULL:
            raise MemoryError
        p = payload
        if line_size:
            # The line goes before the empty one that ends the headers.
            if before_size > 2:
                memcpy(p, before, before_size - 2)
                p += before_size - 2
            else:
                memcpy(p, START, START_BYTES)
                p += START_BYTES
            memcpy(p, <const char*>line, line_size)
            p += line_size
        elif before_size:
            memcpy(p, before, before_size)
            p += before_size
        other.headers_size = p - payload
        memcpy(p, frame.payload + frame.headers_size, body)
        other.payload = payload
        other.payload_size = other.headers_size + body
        other.size_text = other.headers_text = NULL
        other.size_text_size = other.headers_text_size = 0
        try:
            return self._ask(frame, &other)
        finally:
            free(payload)

    cdef int _ask(self, const Frame* frame, Frame* other) except -1:
        cdef uint8_t[ANSWER_SUBJECT_BYTES] reply
        cdef bint wants_answer = _wants_answer(frame)
        cdef bint was_listening = self.answers.subscription is not None
        cdef int taken
        cdef object traced = None
        if wants_answer:
            self.answers.expect_raw(frame.reply, frame.reply_size, reply)
            other.reply = reply
            other.reply_size = ANSWER_SUBJECT_BYTES
        self.is_asking = True
        try:
            if self.hub.is_tracing:
                came_as = frame.subject[:frame.subject_size]
                traced = self.owner.pass_traced_request(came_as, _message(other))
            if traced is None:
                taken = pass_to(
                    self.hub, self.there, other.subject, other.subject_size, other
                )
                is_awaited = taken > 0
            else:
                taken, is_awaited = traced
        finally:
            self.is_asking = False
        if wants_answer and not is_awaited:
            self.answers._forget(reply)
            if traced is not None and not was_listening:
                # A request that is only traced leaves nothing behind.
                self.answers._stop()
        return TAKEN if taken else 0

    cdef bytes _take_target(self, const Frame* frame, Name* name):
        # Write the name that the subject has there, mapped as that account maps it.
        cdef const uint8_t* text = frame.subject
        cdef size_t size = frame.subject_size
        cdef bytes kept
        cdef AppliedMappings applied
        if self.rename is not None:
            self.rename._split(text, size)
            self.rename._render(None)
            text = self.rename.renamed
            size = self.rename.renamed_size
        kept = keep_name(name, text, size)
        mappings = self.account.mappings
        if mappings is not None:
            applied = mappings.applied
            if applied.apply(name.text, name.size, &text, &size):
                return keep_name(name, text, size)
        return kept

    cdef bytes _line_about(self, Receiver source):
        # Return the line of the header and the empty one behind it; b"" where there is none.
        cdef object known = None
        if source is None:
            return b""
        if source.introductions is None:
            source.introductions = {}
        else:
            known = source.introductions.get(self)
        if known is None:
            value = self.owner.introduction_of(source)
            known = b"%b: %b\r\n\r\n" % (REQUEST_INFO, value) if value else b""
            source.introductions[self] = known
        return known


cdef tuple _message(const Frame* frame):
    return (
        frame.subject[:frame.subject_size],
        frame.reply[:frame.reply_size] if frame.reply_size else None,
        frame.payload[:frame.headers_size],
        frame.payload[frame.headers_size:frame.payload_size],
    )
