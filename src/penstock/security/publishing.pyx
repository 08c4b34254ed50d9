"""What a user may publish to, asked once for each message, without a Python object.

`PublishPermissions` has the lists of a user, and remembers the answers of subjects that were asked
for. `ResponsePermissions` has the reply subjects that one connection may answer to besides.

Invariant: the same question has always the same answer; what is remembered, which is bounded,
decides only how fast it comes.

Called by `security.permissions` and by `net.link`, on the event loop's thread.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from penstock.limits import PUBLISH_ANSWERS_MAX, RESPONSES_TRACKED_MAX

from penstock.protocol.replies cimport Replies, Reply
from penstock.protocol.subject_cache cimport UNKNOWN, SubjectCache
from penstock.subjects cimport SubjectFilter

cdef int32_t replies_max = RESPONSES_TRACKED_MAX


cdef bint _has_empty_token(const uint8_t* subject, size_t size) noexcept nogil:
    cdef size_t place
    cdef uint8_t before = c"."
    for place in range(size):
        if subject[place] == c"." and before == c".":
            return True
        before = subject[place]
    return before == c"."


cdef class PublishPermissions:
    """The subjects that a user may publish to.

    `allow` is None for all of them, and () for none. A deny wins over an allow. Raises UsageError
    for a pattern that is not valid.
    """

    def __cinit__(self, allow=None, deny=()):
        if allow:
            self.allow = SubjectFilter(allow)
        self.allows_none = allow is not None and not allow
        if deny:
            self.deny = SubjectFilter(deny)
        self.answers = SubjectCache(PUBLISH_ANSWERS_MAX)

    cdef bint allows_raw(self, const uint8_t* subject, size_t size) noexcept:
        cdef int32_t answer = self.answers.find(subject, size)
        if answer == UNKNOWN:
            answer = self._decide(subject, size)
            self.answers.remember(subject, size, answer)
        return answer

    cdef bint _decide(self, const uint8_t* subject, size_t size) noexcept:
        if _has_empty_token(subject, size):
            # It matches no entry.
            return self.allow is None and not self.allows_none
        if self.allows_none:
            return False
        if self.allow is not None and not self.allow.matches_raw(subject, size):
            return False
        return self.deny is None or not self.deny.matches_raw(subject, size)

    def allows(self, bytes subject not None):
        """Return True if a subject may be published to."""
        return self.allows_raw(subject, len(subject))

    @property
    def remembered(self):
        """Return how many answers are remembered."""
        return len(self.answers)


cdef class ResponsePermissions:
    """Reply subjects that one connection may answer to, though it may not publish to them.

    `messages_max` messages to each, within `expires_ns` of its coming; a negative number is no
    bound.

    Invariant: nothing is remembered that can no longer be used, except for what expired
    since the last note, and never more than RESPONSES_TRACKED_MAX subjects: the oldest goes first.
    """

    def __init__(self, PublishPermissions publishing not None, int64_t messages_max,
                 int64_t expires_ns):
        self.publishing = publishing
        self.messages_max = messages_max
        self.expires_ns = expires_ns
        self.replies = Replies()

    def __len__(self):
        return self.replies.count

    def note(self, bytes reply not None, int64_t now_ns):
        """Remember that a message with this reply subject was delivered; time never goes back.

        A subject that may still be answered is not noted anew, but counts one message: so does
        the reference server.
        """
        self.note_raw(reply, len(reply), now_ns)

    def allows(self, bytes subject not None, int64_t now_ns):
        """Return True if `subject` may be answered now, and count the message."""
        return self.allows_raw(subject, len(subject), now_ns)

    cdef int note_raw(self, const uint8_t* reply, size_t size, int64_t now_ns) except -1:
        cdef Replies replies = self.replies
        if self.publishing.allows_raw(reply, size) or self.allows_raw(reply, size, now_ns):
            return 0
        while replies.count and self.expires_ns > 0 and (
            now_ns - replies.entries[replies.oldest].time_ns > self.expires_ns
        ):
            replies.remove(replies.oldest)
        if replies.count >= replies_max:
            replies.remove(replies.oldest)
        replies.add(reply, size, NULL, 0, now_ns)
        return 0

    cdef bint allows_raw(self, const uint8_t* subject, size_t size, int64_t now_ns) noexcept:
        cdef int32_t place = self.replies.find(subject, size)
        cdef Reply* reply
        if place < 0:
            return False
        reply = &self.replies.entries[place]
        if self.expires_ns > 0 and now_ns - reply.time_ns > self.expires_ns:
            self.replies.remove(place)
            return False
        reply.count += 1
        if reply.count == self.messages_max:
            self.replies.remove(place)
        return True
