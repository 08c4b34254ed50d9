# What a user may publish to; see publishing.pyx.

from libc.stdint cimport int64_t, uint8_t

from penstock.protocol.replies cimport Replies
from penstock.protocol.subject_cache cimport SubjectCache
from penstock.subjects cimport SubjectFilter


cdef class PublishPermissions:
    # None for every subject; a filter without patterns would select them all.
    cdef SubjectFilter allow
    cdef SubjectFilter deny
    cdef bint allows_none
    # 1 or 0 for subjects that were asked for.
    cdef SubjectCache answers

    cdef bint allows_raw(self, const uint8_t* subject, size_t size) noexcept
    cdef bint _decide(self, const uint8_t* subject, size_t size) noexcept


cdef class ResponsePermissions:
    cdef PublishPermissions publishing
    cdef int64_t messages_max
    cdef int64_t expires_ns
    cdef Replies replies

    cdef int note_raw(self, const uint8_t* reply, size_t size, int64_t now_ns) except -1
    cdef bint allows_raw(self, const uint8_t* subject, size_t size, int64_t now_ns) noexcept
