"""Appending messages and gaps to a log, in memory: the compiled half of `Log`.

A message goes into the active block, sealed in an envelope where the stream's configuration wants
that, and is entered in the ledger and among the expiries. A full block is left to the log, which
starts the next. The limits are kept by `capacity`, which the caller asks before and after.

Invariant: a record is encoded the same way whoever appends it. Nothing is written to a file here.

Thread: under the store's lock.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.packing cimport Packer
from penstock.format.record cimport FLAG_ENVELOPED
from penstock.store.log.block cimport Block
from penstock.store.log.capacity cimport Capacity
from penstock.store.log.ledger cimport Ledger
from penstock.store.upkeep.expiry cimport Expiries

from penstock.format.envelope import Cipher, Compression, RecordIdentity, seal
from penstock.format.record import check_message
from penstock.limits import BLOCK_BYTES_MAX

# What a record takes beside its three texts, at the most.
cdef size_t RECORD_OVERHEAD = 64
cdef uint64_t SEQ_DELTA_MAX = 2 ** 32 - 1
# A block of tombstones and gaps alone goes on: to seal it early would only move them on.
cdef uint64_t EMPTY_BLOCK_BYTES_MAX = BLOCK_BYTES_MAX // 2


cdef class LogWriter:
    """The way into one log; see the module."""

    def __init__(self, log not None, Ledger ledger not None, Expiries expiries not None,
                 config not None):
        """`log.room_for(bytes, seq)` returns a block with room, and `log.active` the newest."""
        self.log = log
        self.ledger = ledger
        self.expiries = expiries
        self.capacity = Capacity(ledger, config)
        self.configure(config)

    def configure(self, config not None):
        """Go by another configuration from now on; nothing is removed yet."""
        self.config = config
        self.stream = config.name.encode()
        self.capacity.configure(config)
        self.block_bytes_max = config.block_bytes
        self.encrypts = config.cipher is not Cipher.NONE
        self.packer = None
        if config.compression is not Compression.NONE and not self.encrypts:
            self.packer = Packer()
        self.block = None

    cdef Block _block_for(self, size_t room, uint64_t seq):
        # The active block, or the next one if a record of so many bytes does not fit.
        cdef Block block = self.block
        # A commit in another thread may have sealed the block to make room for its tombstones.
        if (
            block is None or block is not self.log.active
            or block.bytes + room > (self.block_bytes_max if block.count else EMPTY_BLOCK_BYTES_MAX)
            or seq - block.base_seq > SEQ_DELTA_MAX
        ):
            block = self.block = self.log.room_for(room, seq)
        return block

    cdef int append(
        self, const uint8_t* subject, size_t subject_size, const uint8_t* headers,
        size_t headers_size, const uint8_t* payload, size_t payload_size, int64_t expires_ns,
        uint64_t seq, int64_t time_ns,
    ) except -1:
        # Sizes are within the limits of messages, and `seq` is above the last.
        cdef Block block = self._block_for(
            subject_size + headers_size + payload_size + RECORD_OVERHEAD, seq
        )
        cdef uint32_t size = self.ledger.counted_size(subject_size, headers_size, payload_size)
        cdef uint8_t flags = 0
        cdef bytes envelope
        cdef const uint8_t* packed = NULL
        cdef size_t packed_size = 0
        if self.packer is not None:
            packed = self.packer.pack(headers, headers_size, payload, payload_size, &packed_size)
        elif self.encrypts:
            envelope = self._envelope(
                subject[:subject_size], headers[:headers_size], payload[:payload_size], seq, time_ns
            )
            packed = envelope
            packed_size = len(envelope)
        if packed != NULL:
            headers_size = 0
            payload = packed
            payload_size = packed_size
            flags = FLAG_ENVELOPED
        self.ledger.put(
            block, flags, subject, subject_size, headers, headers_size, payload, payload_size,
            expires_ns, seq, time_ns, size,
        )
        if expires_ns:
            self.expiries.remember(seq, expires_ns)
        return 0

    def _envelope(self, bytes subject, bytes headers, bytes payload, seq, time_ns):
        place = RecordIdentity(self.stream, seq, time_ns, subject)
        return seal(
            headers, payload, place, compression=self.config.compression, key=self.log.data_key
        )

    def append_message(self, bytes subject not None, bytes headers not None,
                       bytes payload not None, *, uint64_t seq, int64_t timestamp_ns,
                       int64_t expires_ns=0):
        """Append one message; raise FormatError if it is too large for a record."""
        check_message(len(subject), len(headers), len(payload))
        self.append(
            subject, len(subject), headers, len(headers), payload, len(payload), expires_ns, seq,
            timestamp_ns,
        )

    def append_many(self, list messages not None, int64_t timestamp_ns, expires_ns, keep):
        """Append messages with the next sequences, within the limits; sizes are checked.

        Each is (subject, headers, payload). `expires_ns` and `keep` have an item for each message,
        or none.
        """
        cdef Py_ssize_t place
        cdef bytes subject, headers, payload
        for place in range(len(messages)):
            subject, headers, payload = messages[place]
            self.append(
                subject, len(subject), headers, len(headers), payload, len(payload),
                expires_ns[place] if expires_ns else 0, self.ledger.last_seq + 1, timestamp_ns,
            )
            if keep:
                self.capacity.make_room(keep[place])
            else:
                self.capacity.trim_to_limit()
        self.capacity.enforce_totals(self.capacity.removable(len(messages)))

    cpdef int append_skip(self, uint64_t seq, uint64_t count, int64_t time_ns) except -1:
        """Reserve `count` sequences from `seq` on."""
        cdef uint64_t last = seq + count - 1
        cdef Block block = self._block_for(RECORD_OVERHEAD, last)
        if block.base_seq > seq:
            # The block begins behind the gap, which tells of it; only its end is written.
            seq = last
            count = 1
        block.active.append_skip(seq, count, max(time_ns, self.ledger.last_time_ns))
        block.follow(block.active.index)
        self.ledger.end_at(last, self.ledger.last_time_ns)
        return 0
