# What the links of one server share; see hub.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.routing.subject_transform cimport SubjectTransform
from penstock.routing.sublist cimport Frame, Matches, Receiver, Sublist, Subscription


cdef enum:
    # Room before what is read, for an operation that began in the read before: a payload of the
    # usual greatest size. What is not used takes no memory.
    HEADROOM = 1114112
    # What is read at once: usually so much that it stays in the caches; more from a client whose
    # messages are about as large, for what is read of a message in part is copied.
    READ_BYTES = 131072
    READ_BYTES_MAX = 524288
    # How a receiver took a message: as it should, while it is far behind, by a call into Python.
    TAKEN = 1
    TAKEN_LATE = 2
    TAKEN_BY_PYTHON = 3


cdef class Hub:
    # What the links of one server share.
    cdef readonly uint64_t in_msgs
    cdef readonly uint64_t in_bytes
    cdef readonly uint64_t out_msgs
    cdef readonly uint64_t out_bytes
    # HEADROOM, then READ_BYTES_MAX.
    cdef uint8_t* buffer
    cdef list dirty
    # Receivers whose `finish` is called when the buffer at hand is done.
    cdef list finishing
    cdef uint64_t random_state
    # Returns monotonic nanoseconds; asked at most once between two flushes.
    cdef object monotonic_ns
    cdef int64_t read_ns
    cdef bint is_read
    # The publisher of the message that is being routed, borrowed; NULL for none.
    cdef void* source
    # The subject under which it is routed, where that is not the frame's own; NULL otherwise.
    cdef const uint8_t* target
    cdef size_t target_size
    # A message is being traced: who passes messages on has to ask how.
    cdef public bint is_tracing

    cdef uint64_t random(self) noexcept
    cdef int64_t now_ns(self) except -1
    cpdef flush(self)
    cpdef int publish_as(
        self, Sublist sublist, bytes target, bytes subject, bytes reply, bytes headers, bytes body
    ) except -1


cdef enum:
    # Names of subjects that are made for a message lie on the stack up to this size.
    NAME_BYTES = 256


cdef struct Name:
    # A subject that was made for a message: in `room`, or in bytes that the caller keeps.
    uint8_t[NAME_BYTES] room
    const uint8_t* text
    size_t size


cdef class Shadow(Receiver):
    # Stands in one account for a subscription of another.
    cdef readonly Subscription original
    # Makes the other account's name of a subject; None where it is the same.
    cdef SubjectTransform rename


cdef bytes keep_name(Name* name, const uint8_t* text, size_t size)
cdef int route(Hub hub, Sublist sublist, Receiver source, const Frame* frame) except -1
cdef int route_to(Hub hub, Matches found, Receiver source, const Frame* frame) except -1
cdef int route_as(
    Hub hub, Matches found, Receiver source, const Frame* frame, const uint8_t* target, size_t size
) except -1
cdef int pass_to(
    Hub hub, Sublist sublist, const uint8_t* target, size_t size, const Frame* frame
) except -1
