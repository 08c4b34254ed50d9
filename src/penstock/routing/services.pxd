# Requests and answers between accounts; see services.pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock.protocol.replies cimport Replies
from penstock.routing.hub cimport Hub, Name
from penstock.routing.subject_transform cimport SubjectTransform
from penstock.routing.sublist cimport Frame, Receiver, Sublist, Subscription


cdef enum:
    # `_R_.`, six random characters and a dot; and what an answer's subject has behind them.
    PREFIX_BYTES = 11
    TOKEN_BYTES = 12
    ANSWER_SUBJECT_BYTES = 23


cdef class ServiceAnswers(Receiver):
    cdef object owner
    cdef Hub hub
    # Where answers come, and where they go.
    cdef Sublist there
    cdef Sublist here
    # What answers that are themselves requests wait in.
    cdef ServiceAnswers backward
    cdef bint is_single
    cdef int64_t wait_ns
    cdef int32_t waiting_max
    cdef Replies waiting
    cdef uint8_t[PREFIX_BYTES] prefix
    cdef object random_bytes
    # Random characters, and how many of them are used.
    cdef bytes drawn
    cdef Py_ssize_t drawn_used
    cdef Subscription subscription
    # The hook `on_waiting` was called, and `sweep` has not ended since.
    cdef bint is_watched

    cdef int expect_raw(self, const uint8_t* reply, size_t size, uint8_t* subject) except -1
    cdef int32_t _find(self, const uint8_t* subject, size_t size) noexcept
    cdef int _forget(self, const uint8_t* subject) noexcept
    cdef int _start(self) except -1
    cdef int _stop(self) except -1
    cdef int _draw(self, uint8_t* out) except -1
    cdef int _pass(
        self, const uint8_t* token, const uint8_t* reply, size_t reply_size, const Frame* frame,
        const Frame* other
    ) except -1


cdef class ServiceDoor(Receiver):
    cdef object owner
    cdef Hub hub
    cdef Sublist there
    cdef ServiceAnswers answers
    # Makes the name there of a subject; None where it is the same.
    cdef SubjectTransform rename
    cdef object account
    # A request is on its way: it must not come back.
    cdef bint is_asking

    cdef bytes _line_about(self, Receiver source)
    cdef bytes _take_target(self, const Frame* frame, Name* name)
    cdef int _ask(self, const Frame* frame, Frame* other) except -1
