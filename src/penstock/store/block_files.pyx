"""Reading single messages: the files of one sealed block, and a message as it lies in a record.

A `StoredMessage` keeps the record's bytes and cuts subject, headers and payload out of them when
they are asked for. Every record is verified when it is read: checksum, place and sequence.

Read-only. Small reads keep the interpreter lock: letting go of it costs more than the copy from the
page cache that they nearly always are.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.unistd cimport pread

import os

from penstock.errors import CorruptStore

from penstock.format.block_index cimport Entry
from penstock.format.record cimport (
    FLAG_DELETED, FLAG_ENVELOPED, FLAG_SKIP, FLAG_TOMBSTONE, PARSED_WHOLE, Record, checksum_holds,
    parse,
)

from penstock.format.block_index import FIXED_BYTES

cdef uint64_t ENTRIES_AT = FIXED_BYTES
cdef size_t SMALL_READ = 65536


cdef class BlockFiles:
    """The open files of one block.

    `open_index` gives the index file, or None where it is missing; it is asked when first needed,
    for whoever knows where a message lies needs no index.
    """

    def __init__(self, str path not None, block_file, open_index):
        self.path = path
        self.block_file = block_file
        self.open_index = open_index
        self.block_fd = block_file.fileno()
        self.index_fd = -1

    cdef bytes read_at_hand(self, uint64_t offset, size_t size):
        # `size` bytes of the block where one small read gives them all, else None.
        cdef bytes data
        if size > SMALL_READ:
            return None
        data = PyBytes_FromStringAndSize(NULL, size)
        if pread(self.block_fd, PyBytes_AS_STRING(data), size, offset) != <ssize_t>size:
            return None
        return data

    cdef bytes read(self, uint64_t offset, size_t size):
        # `size` bytes of the block; raises CorruptStore where the file ends before.
        cdef bytes data
        cdef ssize_t got
        if self.block_fd >= 0 and size <= SMALL_READ:
            data = PyBytes_FromStringAndSize(NULL, size)
            got = pread(self.block_fd, PyBytes_AS_STRING(data), size, offset)
            if <size_t>got == size:
                return data
            if got < 0 and errno != EINTR:
                raise OSError(errno, os.strerror(errno), self.path)
        data = self.block_file.read_at(offset, size)
        if <size_t>len(data) != size:
            raise CorruptStore(self.path, offset, "the block file ends before this record does")
        return data

    cdef int read_entry(self, uint32_t ordinal, Entry* entry) except -1:
        # One entry of the index file; 0 where it could not be had, 1 where it was.
        cdef bytes data
        cdef uint64_t offset = ENTRIES_AT + <uint64_t>ordinal * sizeof(Entry)
        if self.open_index is not None:
            self.index_file = self.open_index()
            self.index_fd = -1 if self.index_file is None else self.index_file.fileno()
            self.open_index = None
        if self.index_fd >= 0:
            if pread(self.index_fd, entry, sizeof(Entry), offset) == sizeof(Entry):
                return 1
        if self.index_file is None:
            return 0
        data = self.index_file.read_at(offset, sizeof(Entry))
        if len(data) != sizeof(Entry):
            return 0
        entry[0] = (<Entry*>PyBytes_AS_STRING(data))[0]
        return 1

    def read_bytes(self, uint64_t offset, size_t size):
        """Read `size` bytes of the block; raises CorruptStore where it ends before."""
        return self.read(offset, size)

    def close(self):
        """Close both files."""
        self.block_fd = self.index_fd = -1
        self.open_index = None
        self.block_file.close()
        if self.index_file is not None:
            self.index_file.close()


cdef class StoredMessage:
    """One message of the store."""

    @property
    def subject(self):
        """The subject it was stored under."""
        return self.raw[self.subject_at:self.subject_at + self.subject_size]

    @property
    def headers(self):
        """The header block as it came, or b""."""
        if self.flags & FLAG_ENVELOPED:
            return self._open()[0]
        return self.raw[self.headers_at:self.headers_at + self.headers_size]

    @property
    def payload(self):
        """The payload."""
        if self.flags & FLAG_ENVELOPED:
            return self._open()[1]
        return self.raw[self.payload_at:self.payload_at + self.payload_size]

    def _open(self):
        if self.opened is None:
            self.opened = self.unseal(
                self.seq, self.timestamp_ns, self.subject,
                self.raw[self.headers_at:self.headers_at + self.headers_size],
                self.raw[self.payload_at:self.payload_at + self.payload_size],
            )
        return self.opened

    def __repr__(self):
        return f"StoredMessage(seq={self.seq}, subject={self.subject!r})"


cdef StoredMessage open_at_hand(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, object unseal
):
    # The message where `raw` is exactly its record, whole; None otherwise.
    cdef Record record
    cdef const uint8_t* start = raw
    cdef StoredMessage message
    if (
        parse(start, len(raw), &record) != PARSED_WHOLE
        or <Py_ssize_t>record.length != len(raw)
        or record.seq != seq
        or record.flags & (FLAG_DELETED | FLAG_SKIP | FLAG_TOMBSTONE)
        or not checksum_holds(start, &record, seed + offset)
    ):
        return None
    message = StoredMessage.__new__(StoredMessage)
    message.seq = seq
    message.timestamp_ns = record.timestamp_ns
    message.expires_ns = record.expires_ns
    message.raw = raw
    message.flags = record.flags
    message.subject_at = <uint32_t>(record.subject - start)
    message.subject_size = record.subject_size
    message.headers_at = <uint32_t>(record.headers - start)
    message.headers_size = record.headers_size
    message.payload_at = <uint32_t>(record.payload - start)
    message.payload_size = record.payload_size
    message.unseal = unseal
    return message


cdef StoredMessage open_record(
    bytes raw, uint64_t seq, uint64_t seed, uint64_t offset, str path, object unseal
):
    # `raw` is exactly one record, which must be message `seq`; raises CorruptStore otherwise.
    cdef Record record
    cdef const uint8_t* start = raw
    cdef StoredMessage message = open_at_hand(raw, seq, seed, offset, unseal)
    if message is not None:
        return message
    if parse(start, len(raw), &record) != PARSED_WHOLE or <Py_ssize_t>record.length != len(raw):
        raise CorruptStore(path, offset, "no whole record here", seq=seq)
    if not checksum_holds(start, &record, seed + offset):
        raise CorruptStore(path, offset, "record checksum differs", seq=seq)
    raise CorruptStore(path, offset, f"another record is here ({record.seq})", seq=seq)
