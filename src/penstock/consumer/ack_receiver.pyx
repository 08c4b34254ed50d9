"""Where acknowledgements and pull requests arrive.

All consumers of a stream share three subscriptions, one for each form of subject below;
`StreamAckReceiver` finds the consumer that a subject names. An acknowledgement that only says that
a message is done, and wants no confirmation, is noted here and costs no Python call. Every other
one is handed to the consumer. At the end of a buffer the consumer is called once for the noted
ones.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<the same five numbers>[.<more>]
    $JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>

Invariants:

- A subject that has none of these forms changes nothing.
- A subject that names no consumer, or an acknowledgement to a consumer that expects none, is not
  taken, so that its sender gets "no responders".
- On a stream that keeps messages only while they are needed, an acknowledged message is gone
  before the next operation of the same client, unless `needs` says that it is needed.

Thread: the event loop's.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from penstock.consumer.needs cimport StreamNeeds
from penstock.consumer.pending cimport Pending
from penstock.routing.hub cimport TAKEN, TAKEN_BY_PYTHON, Hub
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription
from penstock.store.log.fast_scan cimport Scanner

cdef enum:
    NUMBERS = 5
    # The first byte of the ids of the three subscriptions.
    SHORT_ACKS = 49
    LONG_ACKS = 50
    REQUESTS = 51

# What becomes of a message that is done with.
KEEP = 0
REMOVE = 1
REMOVE_UNNEEDED = 2


cdef bint _read_numbers(const uint8_t* text, size_t size, bint exactly, uint64_t* numbers) noexcept:
    # Read the first five numbers between dots; with `exactly` nothing may follow them.
    cdef size_t at = 0, digits
    cdef int nth
    for nth in range(NUMBERS):
        numbers[nth] = 0
        digits = 0
        while at < size and text[at] != 46:
            # Nineteen digits always fit.
            if text[at] < 48 or text[at] > 57 or digits == 19:
                return False
            numbers[nth] = numbers[nth] * 10 + (text[at] - 48)
            digits += 1
            at += 1
        if not digits:
            return False
        if at == size:
            return nth == NUMBERS - 1
        at += 1
    return not exactly


cdef class AckReceiver(Receiver):
    """Takes what is sent to one consumer; see the module."""

    cdef Hub hub
    cdef object consumer
    cdef Pending pending
    cdef bytes name
    # The consumer expects acknowledgements.
    cdef public bint is_open
    # Plain acknowledgements are noted here.
    cdef public bint is_plain
    # What becomes of messages: KEEP, REMOVE or REMOVE_UNNEEDED.
    cdef public int disposal
    cdef bint is_told
    # How many were noted here since the consumer was called.
    cdef readonly uint64_t noted

    def __init__(self, Hub hub not None, consumer, Pending pending not None, bytes name not None):
        """Receive for `consumer`, whose name is `name`.

        Acknowledgements that are not plain go to `consumer.on_ack(numbers, reply, body)`. After a
        buffer with plain ones `consumer.on_acks(count)` is called. Requests go to
        `consumer.request_next(reply, headers, body)`.
        """
        self.hub = hub
        self.consumer = consumer
        self.pending = pending
        self.name = name

    cdef int take_ack(
        self, const uint64_t* numbers, const Frame* frame, StreamAckReceiver receiver
    ) except -1:
        if self.is_plain and not frame.reply_size and _is_plain(frame):
            if self.pending.acknowledge(numbers[1]):
                self.noted += 1
                if not self.is_told:
                    self.is_told = True
                    self.hub.finishing.append(self)
                if self.disposal != KEEP:
                    return receiver.dispose(self, numbers[1])
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

    cdef int finish(self) except -1:
        cdef uint64_t count = self.noted
        self.is_told = False
        self.noted = 0
        self.consumer.on_acks(count)
        return 0

    def on_auto_unsubscribed(self, Subscription subscription):
        """Do nothing: these subscriptions have no limit."""


cdef class StreamAckReceiver(Receiver):
    """Takes what is sent to the consumers of one stream; see the module."""

    cdef Sublist sublist
    cdef Scanner scanner
    cdef Hub hub
    cdef StreamNeeds needs
    cdef tuple starts
    cdef list subscriptions
    # By the names of consumers.
    cdef dict receivers
    cdef AckReceiver latest
    # Messages were removed, and the store is to be told at the end of the buffer.
    cdef bint is_told

    def __init__(self, Hub hub not None, Sublist sublist not None, Scanner scanner not None,
                 tuple starts not None, StreamNeeds needs not None):
        """`starts` are what the subjects of the three forms begin with, in order."""
        self.hub = hub
        self.sublist = sublist
        self.scanner = scanner
        self.needs = needs
        self.starts = starts
        self.receivers = {}
        self.subscriptions = []

    def add(self, AckReceiver receiver not None):
        """Take what is sent to a consumer."""
        if not self.receivers:
            for sid, start, end in zip((b"1", b"2", b"3"), self.starts, (b">", b">", b"*")):
                subscription = Subscription(self, start + end, sid)
                self.subscriptions.append(subscription)
                self.sublist.insert(subscription)
        self.receivers[receiver.name] = receiver

    def remove(self, AckReceiver receiver not None):
        """Take nothing more for a consumer."""
        if self.receivers.pop(receiver.name, None) is None:
            return
        if self.latest is receiver:
            self.latest = None
        if not self.receivers:
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
        cdef AckReceiver receiver
        if form != REQUESTS:
            end = <const uint8_t*>memchr(name, 46, size)
            if end == NULL:
                return 0
            name_size = end - name
        receiver = self.latest
        if receiver is None or <size_t>len(receiver.name) != name_size or memcmp(
            <const char*>receiver.name, name, name_size
        ):
            receiver = self.receivers.get(name[:name_size])
            if receiver is None:
                return 0
            self.latest = receiver
        if form == REQUESTS:
            return receiver.take_request(frame)
        if not receiver.is_open:
            return 0
        if not _read_numbers(
            name + name_size + 1, size - name_size - 1, form == SHORT_ACKS, numbers
        ):
            return TAKEN
        return receiver.take_ack(numbers, frame, self)

    cdef int dispose(self, AckReceiver receiver, uint64_t stream_seq) except -1:
        # Remove a message that a consumer is done with, unless it is needed.
        cdef int taken = TAKEN
        if receiver.disposal == REMOVE_UNNEEDED:
            if self.needs.runs_python():
                taken = TAKEN_BY_PYTHON
            if self.needs.is_needed(stream_seq, None):
                return taken
        if not self.is_told:
            self.is_told = True
            self.hub.finishing.append(self)
        self.scanner.remove(stream_seq)
        return taken

    cdef int finish(self) except -1:
        self.is_told = False
        self.scanner.tell_removed()
        return 0

    def on_auto_unsubscribed(self, Subscription subscription):
        """Do nothing: these subscriptions have no limit."""


cdef bint _is_plain(const Frame* frame) noexcept:
    # An empty body, `+ACK` or `+OK`.
    cdef const uint8_t* body = frame.payload + frame.headers_size
    cdef size_t size = frame.payload_size - frame.headers_size
    return (
        size == 0 or (size == 4 and not memcmp(body, "+ACK", 4))
        or (size == 3 and not memcmp(body, "+OK", 3))
    )
