# The compiled half of a connection; see link.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.protocol.lines cimport Line
from penstock.routing.applied_mappings cimport AppliedMappings
from penstock.routing.hub cimport Hub
from penstock.routing.outbox cimport Outbox
from penstock.routing.sublist cimport Frame, Matches, Receiver, Sublist, Subscription
from penstock.security.publishing cimport PublishPermissions, ResponsePermissions


cdef class Link(Receiver):
    cdef readonly Hub hub
    cdef public Sublist sublist
    cdef readonly Outbox out
    # The socket, or -1 where bytes come and go through a transport.
    cdef public int fd
    cdef public bint closed
    cdef public bint authorized
    # Nothing more is parsed until `release`: the client is being authenticated, or rests.
    cdef public bint held
    cdef public bint connected
    cdef public bint verbose
    cdef public bint pedantic
    cdef public bint headers
    cdef public bint no_responders
    # What it may publish to; None for everything. And the reply subjects that it may answer to
    # besides, because they were delivered to it; None without that right.
    cdef public PublishPermissions publishing
    cdef public ResponsePermissions responses
    # What its publishes are mapped by; None for nothing.
    cdef public AppliedMappings mappings
    # A message with the header `traceparent` goes through `publish_traced`, too.
    cdef public bint traces_parents
    cdef public int64_t max_payload
    cdef public size_t max_control_line
    cdef public size_t max_pending
    cdef readonly uint64_t in_msgs
    cdef readonly uint64_t in_bytes
    cdef readonly uint64_t out_msgs
    cdef readonly uint64_t out_bytes
    # When a buffer with a publish in it came last, Unix ns, to a few milliseconds; 0 for never.
    cdef readonly int64_t last_publish_ns
    cdef bint is_dirty
    cdef public bint blocked
    cdef public bint slow
    # A receiver of the messages that this link published last is far behind.
    cdef bint stall_wanted
    # What the last publish's subject matched, borrowed from the sublist while its epoch lasts.
    cdef void* latest
    cdef uint64_t latest_epoch
    cdef bint latest_nobody
    cdef uint8_t latest_size
    cdef uint8_t[48] latest_subject
    # An unfinished operation, and how many bytes it takes at least.
    cdef uint8_t* tail
    cdef size_t tail_used
    cdef size_t tail_room
    cdef size_t tail_wanted
    # The tail is being walked: it must stay where it is.
    cdef bint parsing
    # The line of the publish at the front has been looked at.
    cdef bint line_judged
    # What it has cost in this turn.
    cdef uint32_t spent

    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1
    cdef int send_gathered(self) except -1
    cdef int charge(self, int taken) except -1
    cdef int consume(self, const uint8_t* data, size_t size) except -1
    cdef int _consume_read(self, uint8_t* data, size_t size) except -1
    cdef Py_ssize_t _parse(self, const uint8_t* data, size_t size) except -2
    cdef Py_ssize_t _publish(
        self, const uint8_t* start, size_t available, size_t line_bytes, const Line* line,
        bint with_headers
    ) except -2
    cdef Py_ssize_t _publish_plain(self, const uint8_t* start, size_t available) except -2
    cdef int _take(self, const Frame* frame) except -1
    cdef int _take_traced(self, const Frame* frame) except -1
    cdef int _route(self, const Frame* frame) except -1
    cdef int _route_mapped(self, const Frame* frame) except -1
    cdef bint _is_refused(self, const Frame* frame) except -1
    cdef Matches _look_up(self, const Frame* frame)
    cdef int _pass_on(self, const Frame* frame) except -1
    cdef int _control(self, const Line* line) except -1
    cdef int _take_subscribe(self, const Line* line) except -1
    cdef int _take_unsubscribe(self, const Line* line) except -1
    cdef void _free_tail(self) noexcept
    cdef int _stall_if_wanted(self) except -1
    cdef int _consume_tail(self) except -1
    cdef int _keep_tail(self, const uint8_t* data, size_t size) except -1
    cdef void _mark_dirty(self)
    cdef bint _frame_fits(self, size_t size) noexcept
    cpdef write(self, bytes data)
    cpdef tell_no_responders(self, bytes subject, bytes reply)


cdef size_t backlog(Matches found) noexcept
