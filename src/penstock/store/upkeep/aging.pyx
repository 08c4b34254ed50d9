"""Removing what has outlived its time, many messages in one go.

A message is too old by the stream's maximum age, or has a time to live of its own that has run out.
What was stored to last is never too old.

Invariant: messages age in the order of their sequences: the first that is not too old ends the
search, whatever the times of those behind it.

Thread: under the store's lock.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.range_leaves cimport Cursor
from penstock.format.sequence_set cimport SequenceSet
from penstock.store.log.block cimport Block
from penstock.store.log.ledger cimport Ledger
from penstock.store.upkeep.expiry cimport Expiries, Timekeeper


def remove_aged(Ledger ledger not None, Expiries expiries not None, Timekeeper times not None,
                int64_t age_ns, int64_t now_ns, uint64_t count_max):
    """Remove what is older than an age at a time of the age clock; return how many messages.

    At most `count_max` are removed.
    """
    cdef Block block
    cdef BlockIndex index
    cdef Entry* entry
    cdef int64_t ordinal
    cdef uint64_t seq, removed = 0
    cdef bint ended = False
    for block in ledger.blocks:
        if block.live == 0:
            continue
        index = ledger.index_of(block)
        ordinal = index.next_entry(block.first_live, NULL, block.dead_bits())
        while ordinal >= 0 and not ended and removed < count_max:
            entry = &index.entries[ordinal]
            seq = index.base_seq + entry.seq_delta
            if expiries.lasting.has(seq):
                ordinal = index.lower_bound(_end_of_range(expiries.lasting, seq) + 1) - 1
            elif times.born_ns(seq, entry.timestamp_ns) > now_ns - age_ns:
                ended = True
            else:
                ledger.kill(
                    block, <uint32_t>ordinal, entry, ledger.item_of(index, entry.subject)
                )
                removed += 1
            ordinal = index.next_entry(ordinal + 1, NULL, block.dead_bits())
        if ended or removed == count_max:
            break
    if removed:
        ledger.advance_first()
    return removed


cdef uint64_t _end_of_range(SequenceSet sequences, uint64_t seq) noexcept:
    # The last sequence of the range that one is in; one may be added to it.
    cdef Cursor at = sequences.find(seq)
    return min(sequences.range_at(at).last, UINT64_MAX - 1)


def remove_expired(Ledger ledger not None, Expiries expiries not None, int64_t now_ns,
                   uint64_t count_max):
    """Take what has a time to live that has run out, at most `count_max`; return how many.

    Those that are still there are removed.
    """
    cdef uint64_t seq
    cdef list expired = expiries.wheel.expire(now_ns, count_max)
    for seq in expired:
        ledger.remove(seq)
    return len(expired)
