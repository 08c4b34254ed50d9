"""Messages by the thousand: into blocks as they are, out of them as snapshot records, and back.

What imports, migrations, snapshots and restores share: messages that keep their sequence, time and
expiry. A snapshot record is a block record with the plain headers and payload and the checksum seed
0; the *chain* that is carried along is the XXH64 of each record's bytes, seeded with the chain of
all before it, so that a record that is lost, doubled or out of order is noticed at the end.

Invariant: a record that is given out passed its checksum; a record that is taken in did
too, and its sizes are within `penstock.limits`.

`append_raw` and `export_records` are called under the store's lock; `parse_records` is pure.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.errors import CorruptStore, FormatError, SequenceOutOfOrder
from penstock.format.record import check_sizes, encode

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.hashing cimport xxh64_raw
from penstock.format.record cimport (
    FLAG_EXPIRES, FLAGS_KNOWN, PARSED_BAD, PARSED_SHORT, Parsed, Record, checksum_holds, parse,
)
from penstock.store.log.block cimport Block, StoredMessage, open_record
from penstock.store.log.ledger cimport Ledger

cdef uint64_t DELTA_MAX = 0xFFFFFFFF
# What a record's lengths, trailer and expiry can add to its bytes.
cdef size_t RECORD_OVERHEAD = 64


def append_raw(Ledger ledger not None, Block block not None, list messages not None,
               Py_ssize_t start, *, uint64_t block_bytes_max):
    """Append messages[start:] to the active block until it is full; give where it stopped.

    Each message is (seq, timestamp_ns, subject, headers, payload, expires_ns); sequences rise.
    Raises SequenceOutOfOrder, or FormatError for a message that no record could hold.
    """
    cdef Py_ssize_t place = start
    cdef uint64_t seq
    cdef int64_t timestamp_ns, expires_ns
    cdef bytes subject, headers, payload
    while place < len(messages):
        seq, timestamp_ns, subject, headers, payload, expires_ns = messages[place]
        if seq <= ledger.last_seq:
            raise SequenceOutOfOrder(seq, ledger.last_seq)
        check_sizes(len(subject), len(headers), len(payload))
        if seq - block.base_seq > DELTA_MAX or (
            block.count and block.bytes + len(subject) + len(headers) + len(payload)
            + RECORD_OVERHEAD > block_bytes_max
        ):
            break
        ledger.put(
            block, FLAG_EXPIRES if expires_ns else 0, subject, len(subject),
            headers, len(headers), payload, len(payload), expires_ns, seq, timestamp_ns,
            ledger.message_size(subject, headers, payload),
        )
        place += 1
    return place


def export_records(Ledger ledger not None, Block block not None, uint32_t ordinal, *,
                   uint32_t stop, bytes dead not None, uint64_t chain, size_t bytes_max):
    """Return the records of a block's entries, from `ordinal` up to `stop`, as a snapshot has them.

    Entries whose bit is set in `dead` are left out, and so is what was erased since. Stops after
    the record that passes `bytes_max`. Returns (records, messages, next ordinal, chain); raises
    CorruptStore for a damaged record.
    """
    cdef BlockIndex index = ledger.index_of(block)
    cdef const uint8_t* bits = dead
    cdef size_t bitmap_bytes = len(dead)
    cdef size_t used = 0
    cdef Py_ssize_t messages = 0
    cdef bytes record
    cdef list records = []
    stop = min(stop, index.count)
    while ordinal < stop and used < bytes_max:
        if not (ordinal // 8 < bitmap_bytes and (bits[ordinal >> 3] >> (ordinal & 7)) & 1):
            try:
                record = _exported(ledger, block, &index.entries[ordinal])
            except CorruptStore:
                # What was erased meanwhile is no damage, and is not to be had any more.
                if not block.is_dead(ordinal):
                    raise
            else:
                chain = xxh64_raw(<const uint8_t*>PyBytes_AS_STRING(record), len(record), chain)
                records.append(record)
                used += len(record)
                messages += 1
        ordinal += 1
    return b"".join(records), messages, ordinal, chain


cdef bytes _exported(Ledger ledger, Block block, const Entry* entry):
    cdef uint64_t seq = block.base_seq + entry.seq_delta
    cdef bytes raw = ledger.raw_record(block, entry)
    cdef StoredMessage message = open_record(
        raw, seq, block.seed, entry.offset, block.path, block.unseal
    )
    try:
        return encode(
            message.subject, message.headers, message.payload,
            seq=seq, timestamp_ns=message.timestamp_ns, expires_ns=message.expires_ns,
        )
    except FormatError as error:
        raise CorruptStore(block.path, entry.offset, error.reason, seq=seq) from error


def parse_records(const uint8_t[::1] data not None, Py_ssize_t offset, uint64_t chain):
    """Read the whole records from `offset` on: gives (messages, next offset, chain).

    It stops before a record that is not all there, and before a byte that is no record's flags.
    Messages are as `append_raw` takes them. Raises FormatError for a record that does not check
    out, or that no snapshot holds.
    """
    cdef Record record
    cdef Parsed outcome
    cdef const uint8_t* start
    cdef list messages = []
    while offset < data.shape[0]:
        start = &data[offset]
        outcome = parse(start, data.shape[0] - offset, &record)
        if outcome == PARSED_SHORT or start[0] & ~FLAGS_KNOWN:
            break
        if outcome == PARSED_BAD:
            raise FormatError("no record can start like this", offset=offset)
        if not checksum_holds(start, &record, 0):
            raise FormatError("record checksum differs", offset=offset)
        if record.flags & ~FLAG_EXPIRES:
            raise FormatError(f"a record with flags {record.flags:#x}", offset=offset)
        chain = xxh64_raw(start, record.length, chain)
        messages.append((
            record.seq, record.timestamp_ns, record.subject[:record.subject_size],
            record.headers[:record.headers_size], record.payload[:record.payload_size],
            record.expires_ns,
        ))
        offset += record.length
    return messages, offset, chain
