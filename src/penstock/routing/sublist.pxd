# Subscriptions by subject; see sublist.pyx.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.subjects cimport SubjectFilter


cdef struct Frame:
    # A message on its way, in the publisher's memory.
    const uint8_t* subject
    size_t subject_size
    const uint8_t* reply
    size_t reply_size
    # Headers and body lie together.
    const uint8_t* payload
    size_t payload_size
    size_t headers_size
    # The sizes as the publisher wrote them; NULL where nobody did.
    const uint8_t* size_text
    size_t size_text_size
    const uint8_t* headers_text
    size_t headers_text_size


cdef class Receiver:
    # Who is given messages: a connection, or a part of the server.
    cdef int deliver(self, Subscription subscription, const Frame* frame) except -1


cdef class Subscription:
    cdef readonly Receiver receiver
    cdef readonly bytes subject
    cdef readonly bytes queue
    cdef readonly bytes sid
    # Messages after which it ends by itself; 0 for never.
    cdef public int64_t max_messages
    cdef public int64_t delivered
    cdef public bint closed
    # Subjects that are not delivered although they match.
    cdef public SubjectFilter deny


cdef class Matches:
    # The subscriptions of one literal subject: plain ones, and a list for each queue group.
    cdef readonly list plain
    cdef readonly list queues


cdef class Node:
    cdef dict children
    cdef Node star
    cdef Node rest
    cdef dict plain
    cdef dict queues

    cdef bint is_empty(self)


cdef struct Slot:
    uint64_t hash
    uint64_t generation
    # Owned references.
    void* subject
    void* matches


cdef class Sublist:
    cdef Node root
    cdef readonly uint32_t count
    # Moves with every change, so that remembered matches are known to be old.
    cdef uint64_t generation
    cdef Slot* slots

    cdef Matches match(self, const uint8_t* subject, size_t size)
    cdef Matches _find(self, bytes subject)
