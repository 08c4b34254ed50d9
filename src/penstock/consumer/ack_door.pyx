"""Where acknowledgements come in.

The subject of an acknowledgement tells which delivery it is about. One that says nothing more than
that a message is done with, and wants no answer, is noted here and costs no Python object; every
other one is handed to the consumer. At the end of a buffer the consumer is told once.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<the same five numbers>[.<more>]

What always holds: a subject that is not of one of these forms changes nothing.

One thread: the event loop's.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

from penstock.consumer.pending cimport Pending
from penstock.routing.hub cimport Hub
from penstock.routing.sublist cimport Frame, Receiver, Subscription

cdef enum:
    NUMBERS = 5


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
    """One consumer's door for acknowledgements; see the module."""

    cdef Hub hub
    cdef object consumer
    cdef Pending pending
    cdef bytes start
    cdef bytes long_start
    # A plain acknowledgement may be noted here.
    cdef public bint is_plain
    cdef bint is_told
    # How many were noted here since the consumer was told.
    cdef readonly uint64_t noted

    def __init__(self, Hub hub not None, consumer, Pending pending not None,
                 bytes start not None, bytes long_start not None):
        """What is not plain goes to `consumer.on_ack(numbers, reply, body)`.

        After a buffer with plain ones `consumer.on_acks(count)` is called. `start` and `long_start`
        are what subjects of the two forms begin with.
        """
        self.hub = hub
        self.consumer = consumer
        self.pending = pending
        self.start = start
        self.long_start = long_start

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1:
        cdef uint64_t[NUMBERS] numbers
        cdef size_t start = len(self.start), long_start = len(self.long_start)
        cdef bint known = False
        if frame.subject_size > start and not memcmp(
            frame.subject, <const char*>self.start, start
        ):
            known = _read_numbers(
                frame.subject + start, frame.subject_size - start, True, numbers
            )
        elif frame.subject_size > long_start and not memcmp(
            frame.subject, <const char*>self.long_start, long_start
        ):
            known = _read_numbers(
                frame.subject + long_start, frame.subject_size - long_start, False, numbers
            )
        if not known:
            return 1
        if self.is_plain and not frame.reply_size and _is_plain(frame):
            if self.pending.acknowledge(numbers[1]):
                self.noted += 1
                if not self.is_told:
                    self.is_told = True
                    self.hub.finishing.append(self)
            return 1
        self.consumer.on_ack(
            (numbers[0], numbers[1], numbers[2]),
            frame.reply[:frame.reply_size] if frame.reply_size else None,
            frame.payload[frame.headers_size:frame.payload_size],
        )
        return 3

    cdef int finish(self) except -1:
        cdef uint64_t count = self.noted
        self.is_told = False
        self.noted = 0
        self.consumer.on_acks(count)
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
