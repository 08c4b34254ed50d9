# The publish rules of one stream, compiled; see rules.pyx.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.protocol.headers cimport StreamHeaders, Value
from penstock.routing.subject_transform cimport SubjectTransform
from penstock.store.log.fast_append cimport Appender
from penstock.stream.publish.message_ids cimport MessageIds
from penstock.stream.publish.totals cimport Totals

cdef enum:
    # What judging a message returns beside the code of the error for which it is refused.
    ACCEPTED = 0
    # The stream has a message with its id: `Rules.known_seq`.
    DUPLICATE = -2
    # Only Python can decide.
    UNDECIDED = -3

cdef enum:
    # What a message rolls up.
    NOTHING
    ITS_SUBJECT
    EVERYTHING


cdef struct Message:
    # A message on its way into the stream, in the memory of whoever publishes it.
    const uint8_t* subject
    size_t subject_size
    const uint8_t* headers
    size_t headers_size
    const uint8_t* body
    size_t body_size
    StreamHeaders told
    # The time at which it is judged.
    int64_t now_ns
    # It comes from another stream, or the stream itself made it: several rules do not apply.
    bint is_sourced
    int rollup


cdef uint64_t wrapped(const Value* digits) noexcept nogil


cdef class Rules:
    cdef Appender appender
    cdef MessageIds message_ids
    cdef object store
    cdef object read_ids
    cdef object payload_bytes_max
    # The configuration, and what the rules need of it.
    cdef object config
    cdef bytes name
    cdef bint is_file
    cdef bint is_sealed
    cdef bint is_mirror
    cdef bint takes_ttl
    cdef bint takes_counters
    cdef bint rolls_up
    # Messages are kept only while a consumer wants them.
    cdef bint asks_interest
    # Of each subject one message is kept.
    cdef bint keeps_one
    cdef int64_t message_bytes_max
    cdef int64_t payload_max
    cdef int64_t marker_s
    cdef SubjectTransform transform
    cdef SubjectTransform republish
    cdef bint is_copy_empty
    cdef Totals totals
    # What was found out about the message judged last: its id, the sequence of the stored one with
    # the same, its counter's new value and slot; and what a refusal tells, a sequence or words.
    cdef bytes message_id
    cdef uint64_t known_seq
    cdef int64_t total
    cdef uint64_t total_place
    cdef uint64_t found_seq
    cdef str found_text

    cdef int begin(self) except -1
    cdef int rename(self, Message* message) except -1
    cdef int admit(self, const Message* message) noexcept
    cdef int judge_one(self, Message* message, object whole) except -1
    cdef int64_t record_bytes(self, const Message* message) noexcept
    cdef uint64_t last_seq(self, const uint8_t* subject, size_t size) except? 0xFFFFFFFFFFFFFFFF
    cdef int64_t lifetime_s(self, int64_t ttl_s) noexcept
    cdef int64_t expiry_ns(self, int64_t ttl_s, int64_t now_ns) noexcept
    cdef bint find_copy(self, const Message* message) except -1
    cdef int _fill(self, Message* message, object whole) except -1
    cdef int _judge_headers(self, Message* message, object whole) except -1
    cdef int _check_record(self, const Message* message) noexcept
    cdef int _check_size(self, const Message* message) noexcept
    cdef int _check_headers_size(self, const Message* message) noexcept
    cdef int _check_sealed(self) noexcept
    cdef int _check_increment(self, const Message* message) noexcept
    cdef int _check_stream(self, const Message* message) noexcept
    cdef int _check_ttl_allowed(self, const Message* message) except -1
    cdef int _check_ttl(self, const Message* message) except -1
    cdef int _check_subject_seq(self, const Message* message) except -1
    cdef int _check_subject_alone(self, const Message* message) noexcept
    cdef int _check_last_seq(self, const Message* message, uint64_t last_seq) noexcept
    cdef int _check_schedule(self, Message* message, object whole) except -1
    cdef int _check_not_marked(self, const Message* message) noexcept
    cdef int _check_id(self, const Message* message) except -1
    cdef int _check_last_id(self, const Message* message, uint64_t last_seq) except -1
    cdef int _check_rollup(self, Message* message) except -1
    cdef int _check_present(self, const Message* message) noexcept
    cdef int _count(self, Message* message, object whole) except -1
    cdef int _check_counted(self, const Message* message) noexcept
