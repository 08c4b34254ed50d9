"""Where acknowledgements and requests for messages come in.

A stream has one door, whose subscriptions are for all of its consumers; each of them has a door of
its own behind it. The subject of an acknowledgement tells which delivery it is about. One that says
nothing more than that a message is done with, and wants no answer, is noted here and costs no
Python call; every other one is handed to the consumer. At the end of a buffer the consumer is told
once.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<the same five numbers>[.<more>]
    $JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>

What always holds: a subject that is not of one of these forms changes nothing; one that names no
consumer, or acknowledges to one that expects nothing, is not taken, so that its sender learns of
it; on a stream that keeps messages only for as long as they are needed, one that was acknowledged
is gone before the next operation of the same client.

One thread: the event loop's.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from penstock.consumer.pending cimport Pending
from penstock.routing.hub cimport TAKEN, TAKEN_BY_PYTHON, Hub
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.outtake cimport Outtake

cdef enum:
    NUMBERS = 5
    # By what their identifiers begin with.
    SHORT_ACKS = 49
    LONG_ACKS = 50
    REQUESTS = 51

# What becomes of messages that are done with.
KEEP = 0
REMOVE = 1
REMOVE_UNNEEDED = 2


cdef bint _read_numbers(const uint8_t* text, size_t size, bint exactly, uint64_t* numbers) noexcept:
    # The first five numbers between dots; with `exactly` nothing may follow on them.
    cdef size_t at = 0, digits
    cdef int place
    for place in range(NUMBERS):
        numbers[place] = 0
        digits = 0
        while at < size and text[at] != 46:
            # Nineteen digits always fit.
            if text[at] < 48 or text[at] > 57 or digits == 19:
                return False
            numbers[place] = numbers[place] * 10 + (text[at] - 48)
            digits += 1
            at += 1
        if not digits:
            return False
        if at == size:
            return place == NUMBERS - 1
        at += 1
    return not exactly


cdef class AckDoor(Receiver):
    """One consumer's door; see the module."""

    cdef Hub hub
    cdef object consumer
    cdef Pending pending
    cdef bytes name
    # It expects acknowledgements.
    cdef public bint is_open
    # A plain acknowledgement may be noted here.
    cdef public bint is_plain
    # It needs what lies above its ack floor, whatever is pending; or only what its filter wants.
    cdef public bint needs_by_floor
    cdef public bint is_filtered
    # What becomes of messages: KEEP, REMOVE or REMOVE_UNNEEDED.
    cdef public int disposal
    cdef bint is_told
    # How many were noted here since the consumer was told.
    cdef readonly uint64_t noted

    def __init__(self, Hub hub not None, consumer, Pending pending not None, bytes name not None):
        """What is not plain goes to `consumer.on_ack(numbers, reply, body)`.

        After a buffer with plain ones `consumer.on_acks(count)` is called. Requests go to
        `consumer.request_next(reply, headers, body)`.
        """
        self.hub = hub
        self.consumer = consumer
        self.pending = pending
        self.name = name

    cdef int take_ack(self, const uint64_t* numbers, const Frame* frame, StreamDoor door) except -1:
        if self.is_plain and not frame.reply_size and _is_plain(frame):
            if self.pending.acknowledge(numbers[1]):
                self.noted += 1
                if not self.is_told:
                    self.is_told = True
                    self.hub.finishing.append(self)
                if self.disposal != KEEP:
                    return door.dispose(self, numbers[1])
                return TAKEN
            if self.disposal == KEEP:
                return TAKEN
        self.consumer.on_ack(
            (numbers[0], numbers[1], numbers[2]),
            frame.reply[:frame.reply_size] if frame.reply_size else None,
            frame.payload[frame.headers_size:frame.payload_size],
        )
        return TAKEN_BY_PYTHON

    cdef int take_request(self, const Frame* frame) except -1:
        if frame.reply_size:
            self.consumer.request_next(
                frame.reply[:frame.reply_size],
                frame.payload[:frame.headers_size],
                frame.payload[frame.headers_size:frame.payload_size],
            )
        return TAKEN_BY_PYTHON

    cdef bint needs(self, uint64_t stream_seq) except -1:
        # Whether a message must be kept for it; it is one that its filter wants.
        if self.needs_by_floor:
            return stream_seq > self.pending.floor_stream_seq
        return (
            stream_seq >= <uint64_t>self.consumer.cursor
            or self.pending.find(stream_seq) != NULL
            or stream_seq in self.pending.redelivered
        )

    cdef int finish(self) except -1:
        cdef uint64_t count = self.noted
        self.is_told = False
        self.noted = 0
        self.consumer.on_acks(count)
        return 0

    def on_auto_unsubscribed(self, Subscription subscription):
        """A door does not close by itself."""


cdef class StreamDoor(Receiver):
    """The door of one stream's consumers; see the module."""

    cdef Sublist sublist
    cdef Outtake outtake
    cdef Hub hub
    # Streams that are fed from this one, as the stream has them.
    cdef list takers
    cdef tuple starts
    cdef list subscriptions
    # By the consumers' names.
    cdef dict doors
    cdef AckDoor latest
    # Messages were removed since the store was told.
    cdef bint is_told

    def __init__(self, Hub hub not None, Sublist sublist not None, Outtake outtake not None,
                 tuple starts not None, list takers not None):
        """`starts` are what the subjects of the three forms begin with, in order."""
        self.hub = hub
        self.sublist = sublist
        self.outtake = outtake
        self.takers = takers
        self.starts = starts
        self.doors = {}
        self.subscriptions = []

    def add(self, AckDoor door not None):
        """Let messages in to a consumer's door."""
        if not self.doors:
            for sid, start, end in zip((b"1", b"2", b"3"), self.starts, (b">", b">", b"*")):
                subscription = Subscription(self, start + end, sid)
                self.subscriptions.append(subscription)
                self.sublist.insert(subscription)
        self.doors[door.name] = door

    def remove(self, AckDoor door not None):
        """Let no more in to a consumer's door."""
        if self.doors.pop(door.name, None) is None:
            return
        if self.latest is door:
            self.latest = None
        if not self.doors:
            for subscription in self.subscriptions:
                self.sublist.remove(subscription)
            self.subscriptions.clear()

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef uint64_t[NUMBERS] numbers
        cdef uint8_t form = <uint8_t>subscription.sid[0]
        cdef size_t start = len(<bytes>self.starts[form - SHORT_ACKS])
        cdef const uint8_t* name = frame.subject + start
        cdef const uint8_t* end
        cdef size_t size = frame.subject_size - start, name_size = size
        cdef AckDoor door
        if form != REQUESTS:
            end = <const uint8_t*>memchr(name, 46, size)
            if end == NULL:
                return 0
            name_size = end - name
        door = self.latest
        if door is None or <size_t>len(door.name) != name_size or memcmp(
            <const char*>door.name, name, name_size
        ):
            door = self.doors.get(name[:name_size])
            if door is None:
                return 0
            self.latest = door
        if form == REQUESTS:
            return door.take_request(frame)
        if not door.is_open:
            return 0
        if not _read_numbers(
            name + name_size + 1, size - name_size - 1, form == SHORT_ACKS, numbers
        ):
            return TAKEN
        return door.take_ack(numbers, frame, self)

    cdef int dispose(self, AckDoor door, uint64_t stream_seq) except -1:
        # Remove a message that a consumer is done with, unless others need it.
        cdef AckDoor other
        if door.disposal == REMOVE_UNNEEDED:
            if self.takers:
                door.consumer.on_done([stream_seq])
                return TAKEN_BY_PYTHON
            for other in self.doors.values():
                if other.is_filtered:
                    door.consumer.on_done([stream_seq])
                    return TAKEN_BY_PYTHON
                if other.needs(stream_seq):
                    return TAKEN
        if not self.is_told:
            self.is_told = True
            self.hub.finishing.append(self)
        self.outtake.remove(stream_seq)
        return TAKEN

    cdef int finish(self) except -1:
        self.is_told = False
        self.outtake.tell_removed()
        return 0

    def on_auto_unsubscribed(self, Subscription subscription):
        """A door does not close by itself."""


cdef bint _is_plain(const Frame* frame) noexcept:
    # Nothing, `+ACK` or `+OK`.
    cdef const uint8_t* body = frame.payload + frame.headers_size
    cdef size_t size = frame.payload_size - frame.headers_size
    return (
        size == 0 or (size == 4 and not memcmp(body, "+ACK", 4))
        or (size == 3 and not memcmp(body, "+OK", 3))
    )
