"""Appending plain messages from memory into the active block, without a Python object each.

`begin` stamps the messages that follow, up to `end`; `put` appends one of them. It returns 0 if
only the store's own `store` can decide: a message that may be refused, or an envelope to be made.
`begin_placed` and `put_placed` are the same for messages that have their sequences and times
already, as `store_raw` keeps them.

Invariant: a message that `put` took is stored as `store` would have stored it, limits included; it
is durable when the store reports it.

Thread: the one that owns the stream. The store's lock is held for each message, so that other
threads can read in between.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.store.log.block cimport Block

from penstock.format.envelope import Cipher, Compression
from penstock.limits import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, SUBJECT_BYTES_MAX
from penstock.store.upkeep import limits
from penstock.store.interface import Discard

cdef size_t SUBJECT_MAX = SUBJECT_BYTES_MAX
cdef size_t HEADERS_MAX = HEADERS_BYTES_MAX
cdef size_t PAYLOAD_MAX = PAYLOAD_BYTES_MAX
# What a record takes beside its three texts, at the most.
cdef size_t RECORD_OVERHEAD = 64
cdef uint64_t SEQ_DELTA_MAX = 2 ** 32 - 1


cdef class Appender:
    """The quick way in; see the module."""

    def __init__(self, log not None, durability not None):
        self.log = log
        self.health = log.health
        self.times = log.times
        self.durability = durability
        self.lock = log.lock
        self.ledger = log.ledger
        self.configure()

    def configure(self):
        """Take over the store's configuration, which has changed."""
        config = self.log.settings.config
        self.messages_max = max(config.max_msgs, 0)
        self.bytes_max = max(config.max_bytes, 0)
        self.body_bytes_max = max(config.max_msg_bytes, 0)
        self.keep_per_subject = max(config.max_msgs_per_subject, 0)
        self.block_bytes_max = config.block_bytes
        self.block = None
        self.is_plain = (
            config.discard is Discard.OLD
            and config.compression is Compression.NONE
            and config.cipher is Cipher.NONE
        )

    def begin(self):
        """Stamp the messages that come until `end`; raises where the store takes no writes."""
        with self.lock:
            self.health.check_writable()
            self.stamp_ns = self.times.stamp(
                self.ledger.last_seq + 1, self.ledger.last_time_ns
            )

    def begin_placed(self, uint64_t seq):
        """Expect messages with their places, up to `end`; raises where there are no writes."""
        with self.lock:
            self.health.check_writable()
            self.times.note(max(seq, self.ledger.last_seq + 1))

    def end(self):
        """Have what was put made durable."""
        self.block = None
        self.durability.changed()

    cdef uint64_t put(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size,
    ) except? 0xFFFFFFFFFFFFFFFF:
        return self.put_placed(
            subject, subject_size, headers, headers_size, payload, payload_size,
            self.ledger.last_seq + 1, max(self.stamp_ns, self.ledger.last_time_ns),
        )

    cdef uint64_t put_placed(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, uint64_t seq,
        int64_t time_ns,
    ) except? 0xFFFFFFFFFFFFFFFF:
        if (
            not self.is_plain or subject_size > SUBJECT_MAX or headers_size > HEADERS_MAX
            or payload_size > PAYLOAD_MAX or seq <= self.ledger.last_seq
            or 0 < self.body_bytes_max < <int64_t>(headers_size + payload_size)
        ):
            return 0
        self.lock.acquire()
        try:
            self._append(
                subject, subject_size, headers, headers_size, payload, payload_size, seq, time_ns
            )
            if self.keep_per_subject:
                self.ledger.trim_subject(self.ledger.appended_item, <uint32_t>self.keep_per_subject)
            if 0 < self.messages_max < <int64_t>self.ledger.messages or (
                0 < self.bytes_max < <int64_t>self.ledger.bytes
            ):
                limits.enforce_totals(self.log)
        finally:
            self.lock.release()
        return seq

    cdef int _append(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, uint64_t seq,
        int64_t time_ns,
    ) except -1:
        cdef size_t room = subject_size + headers_size + payload_size + RECORD_OVERHEAD
        cdef Block block = self.block
        cdef uint32_t size
        cdef int64_t item
        # A commit in another thread may have sealed the block to make room for its tombstones.
        if block is None or block is not self.log.active or (
            block.count and block.bytes + room > self.block_bytes_max
        ) or seq - block.base_seq > SEQ_DELTA_MAX:
            block = self.block = self.log.room_for(room, seq)
        size = <uint32_t>(
            self.ledger.message_overhead + subject_size + payload_size
            + (self.ledger.headers_overhead + headers_size if headers_size else 0)
        )
        if self.keep_per_subject:
            item = self.ledger.table.find(subject, subject_size)
            self.ledger.previous_seq = self.ledger.table.items[item].last_seq if item >= 0 else 0
        self.ledger.put(
            block, 0, subject, subject_size, headers, headers_size, payload, payload_size, 0, seq,
            time_ns, size,
        )
        return 0
