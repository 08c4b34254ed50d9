"""Appending messages from memory into the active block, without a Python object each.

`begin` stamps the messages that follow, up to `end`; `put` and `put_with` append one of them. They
return 0 if only the store's own `store` can decide or refuse: it raises with a reason.
`begin_placed` and `put_placed` are the same for messages that have their sequences and times
already, as `store_raw` keeps them.

Invariant: a message that `put` took is stored as `store` would have stored it, limits included; it
is durable when the store reports it.

Thread: the one that owns the stream. The store's lock is held for each message, so that other
threads can read in between.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.log.capacity cimport NOT_REFUSED

from penstock.limits import (
    HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, SEQUENCE_MAX, SUBJECT_BYTES_MAX,
)

cdef size_t SUBJECT_MAX = SUBJECT_BYTES_MAX
cdef size_t HEADERS_MAX = HEADERS_BYTES_MAX
cdef size_t PAYLOAD_MAX = PAYLOAD_BYTES_MAX
cdef uint64_t SEQ_MAX = SEQUENCE_MAX


cdef class Appender:
    """The quick way in; see the module."""

    def __init__(self, log not None, durability not None):
        self.health = log.health
        self.times = log.times
        self.durability = durability
        self.lock = log.lock
        self.ledger = log.ledger
        self.writer = log.writer
        self.body_bytes_max = self.writer.capacity.body_bytes_max

    def begin(self):
        """Stamp the messages that come until `end`; raises where the store takes no writes."""
        with self.lock:
            self.health.check_takes_messages()
            self.stamp_ns = self.times.stamp(
                self.ledger.last_seq + 1, self.ledger.last_time_ns
            )

    def begin_placed(self, uint64_t seq):
        """Expect messages with their places, up to `end`; raises where there are no writes."""
        with self.lock:
            self.health.check_takes_messages()
            self.times.note(max(seq, self.ledger.last_seq + 1))

    def end(self):
        """Have what was put made durable."""
        self.durability.changed()

    cdef uint64_t put(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size,
    ) except? 0xFFFFFFFFFFFFFFFF:
        return self._put(
            subject, subject_size, headers, headers_size, payload, payload_size, 0, 0,
            self.ledger.last_seq + 1, max(self.stamp_ns, self.ledger.last_time_ns),
        )

    cdef uint64_t put_with(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, int64_t expires_ns,
        uint32_t keep,
    ) except? 0xFFFFFFFFFFFFFFFF:
        # As `put`, with a time to live of its own (0: none), and where `keep` is not 0 only so many
        # messages of its subject stay, this one included.
        return self._put(
            subject, subject_size, headers, headers_size, payload, payload_size, expires_ns, keep,
            self.ledger.last_seq + 1, max(self.stamp_ns, self.ledger.last_time_ns),
        )

    cdef uint64_t put_placed(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, uint64_t seq,
        int64_t time_ns,
    ) except? 0xFFFFFFFFFFFFFFFF:
        if seq <= self.ledger.last_seq:
            return 0
        return self._put(
            subject, subject_size, headers, headers_size, payload, payload_size, 0, 0, seq, time_ns
        )

    cdef uint64_t _put(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, int64_t expires_ns,
        uint32_t keep, uint64_t seq, int64_t time_ns,
    ) except? 0xFFFFFFFFFFFFFFFF:
        if subject_size > SUBJECT_MAX or headers_size > HEADERS_MAX or payload_size > PAYLOAD_MAX:
            return 0
        self.lock.acquire()
        try:
            if self.writer.capacity.refusal(
                subject, subject_size, headers_size, payload_size, keep
            ) != NOT_REFUSED:
                return 0
            self.writer.append(
                subject, subject_size, headers, headers_size, payload, payload_size, expires_ns,
                seq, time_ns,
            )
            self.writer.capacity.make_room(keep)
        finally:
            self.lock.release()
        return seq

    cdef uint64_t skip(self) except? 0xFFFFFFFFFFFFFFFF:
        # Use up a sequence without a message, and return it; 0 if the store must refuse that.
        cdef uint64_t seq = self.ledger.last_seq + 1
        if seq > SEQ_MAX:
            return 0
        self.lock.acquire()
        try:
            self.writer.append_skip(seq, 1, self.stamp_ns)
        finally:
            self.lock.release()
        return seq

    cdef uint64_t last_seq_of(
        self, const uint8_t* subject, size_t size
    ) except? 0xFFFFFFFFFFFFFFFF:
        # The newest message of a subject, or 0.
        cdef int64_t item
        self.lock.acquire()
        try:
            item = self.ledger.table.find(subject, size)
            if item < 0:
                return 0
            return self.ledger.last_of(<uint32_t>item, self.ledger.last_seq)
        finally:
            self.lock.release()
