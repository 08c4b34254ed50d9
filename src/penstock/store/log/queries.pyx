"""What can be asked of a ledger: next and last messages, how many there are, and what is missing.

Every question is answered from the blocks' indexes, which the ledger loads where it must. Blocks
that cannot matter are passed over by their accounts alone.

Invariant: a question changes nothing but hints and caches, and looks into no block that
cannot hold an answer.

Under the store's lock, as the ledger itself.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport Subject
from penstock.format.wire cimport get_u64
from penstock.store.log.block cimport Block
from penstock.store.log.ledger cimport Ledger
from penstock.subjects cimport SubjectFilter


cdef const uint8_t* marks(bytes wanted) noexcept:
    # Which local subjects are wanted, NULL for all of them.
    if wanted is None:
        return NULL
    return <const uint8_t*>PyBytes_AS_STRING(wanted)


cdef SubjectFilter narrowing(SubjectFilter subject_filter):
    # The filter, or None where it wants everything.
    if subject_filter is not None and subject_filter.everything:
        return None
    return subject_filter


cdef bint find_blocks(
    Ledger ledger, SubjectFilter subject_filter, uint32_t* low, uint32_t* high
) except -1:
    # The first and last block that can hold a live message of the filter; False where none can.
    cdef bytes found
    cdef const uint32_t* items
    cdef Subject* subject
    cdef Py_ssize_t place
    if subject_filter is None:
        low[0], high[0] = 0, 0xFFFFFFFF
        return True
    found = ledger.table.matching(subject_filter)
    items = <const uint32_t*>PyBytes_AS_STRING(found)
    low[0], high[0] = 0xFFFFFFFF, 0
    for place in range(len(found) // 4):
        subject = &ledger.table.items[items[place]]
        low[0] = min(low[0], subject.first_block)
        high[0] = max(high[0], subject.last_block)
    return len(found) > 0


def find_next(Ledger ledger not None, SubjectFilter subject_filter, uint64_t seq):
    """Return the first live sequence from `seq` on that the filter (None: all) wants, or None."""
    cdef Py_ssize_t place = max(ledger.block_at(seq), 0)
    cdef uint32_t low = 0, high = 0
    cdef Block block
    cdef BlockIndex index
    cdef int64_t ordinal
    cdef bytes wanted = None
    subject_filter = narrowing(subject_filter)
    if ledger.messages == 0 or seq > ledger.last_seq:
        return None
    if not find_blocks(ledger, subject_filter, &low, &high):
        return None
    for place in range(place, len(ledger.blocks)):
        block = ledger.blocks[place]
        if block.live == 0 or block.last_seq < seq or block.number < low:
            continue
        if block.number > high:
            break
        index = ledger.index_of(block)
        if subject_filter is not None:
            wanted = ledger.wanted(index, subject_filter)
            if not wanted:
                continue
        ordinal = max(index.lower_bound(seq), block.first_live)
        ordinal = index.next_entry(ordinal, marks(wanted), block.dead_bits())
        if ordinal >= 0:
            return index.base_seq + index.entries[ordinal].seq_delta
    return None


def find_previous(Ledger ledger not None, SubjectFilter subject_filter, uint64_t seq):
    """Return the last live sequence up to `seq` that the filter (None: all) wants, or None."""
    cdef Py_ssize_t place = ledger.block_at(seq)
    cdef uint32_t low = 0, high = 0
    cdef Block block
    cdef BlockIndex index
    cdef int64_t ordinal
    cdef bytes wanted = None
    subject_filter = narrowing(subject_filter)
    if ledger.messages == 0 or not find_blocks(ledger, subject_filter, &low, &high):
        return None
    while place >= 0:
        block = ledger.blocks[place]
        place -= 1
        if block.live == 0 or block.number > high:
            continue
        if block.number < low:
            break
        index = ledger.index_of(block)
        if subject_filter is not None:
            wanted = ledger.wanted(index, subject_filter)
            if not wanted:
                continue
        ordinal = index.lower_bound(seq)
        if ordinal == index.count or index.base_seq + index.entries[ordinal].seq_delta > seq:
            ordinal -= 1
        ordinal = index.previous_entry(ordinal, marks(wanted), block.dead_bits())
        if ordinal >= 0:
            return index.base_seq + index.entries[ordinal].seq_delta
    return None


def find_from_time(Ledger ledger not None, time_ns):
    """Return the first live sequence whose time is not before `time_ns`, or None."""
    # Clients may name years that no record can have.
    cdef int64_t from_ns = max(INT64_MIN, min(time_ns, INT64_MAX))
    cdef Block block
    cdef BlockIndex index
    cdef int64_t ordinal
    for block in ledger.blocks:
        if block.live == 0 or block.last_time_ns < from_ns:
            continue
        index = ledger.index_of(block)
        ordinal = index.next_entry(block.first_live, NULL, block.dead_bits())
        while ordinal >= 0:
            if index.entries[ordinal].timestamp_ns >= from_ns:
                return index.base_seq + index.entries[ordinal].seq_delta
            ordinal = index.next_entry(ordinal + 1, NULL, block.dead_bits())
    return None


def find_last(Ledger ledger not None, bytes subject not None, up_to=None):
    """Return the newest live sequence of one subject, or None."""
    cdef int64_t item = ledger.table.find(subject, len(subject))
    if item < 0:
        return None
    return ledger.last_of(<uint32_t>item, ledger.last_seq if up_to is None else up_to) or None


def find_lasts(Ledger ledger not None, SubjectFilter subject_filter not None, up_to=None):
    """Return the newest live sequence of every subject that the filter wants, in order."""
    cdef bytes found = ledger.table.matching(subject_filter)
    cdef const uint32_t* items = <const uint32_t*>PyBytes_AS_STRING(found)
    cdef uint64_t bound = ledger.last_seq if up_to is None else up_to
    cdef uint64_t seq
    cdef Py_ssize_t place
    result = []
    for place in range(len(found) // 4):
        seq = ledger.last_of(items[place], bound)
        if seq:
            result.append(seq)
    result.sort()
    return result


def find_ends(Ledger ledger not None, SubjectFilter subject_filter not None):
    """Return {subject: (messages, first sequence, last sequence)} for a filter."""
    cdef bytes found = ledger.table.matching(subject_filter)
    cdef const uint32_t* items = <const uint32_t*>PyBytes_AS_STRING(found)
    cdef Py_ssize_t place
    cdef uint32_t item
    result = {}
    for place in range(len(found) // 4):
        item = items[place]
        result[ledger.table.name(item)] = (
            ledger.table.items[item].count,
            ledger.first_of(item),
            ledger.last_of(item, ledger.last_seq),
        )
    return result


def count_from(Ledger ledger not None, SubjectFilter subject_filter, uint64_t seq):
    """Return the number of live messages from `seq` on that the filter (None: all) wants."""
    cdef Py_ssize_t first = max(ledger.block_at(seq), 0)
    cdef Py_ssize_t place
    cdef uint64_t total
    subject_filter = narrowing(subject_filter)
    if seq > ledger.last_seq:
        return 0
    if seq > ledger.first_seq and first * 2 >= len(ledger.blocks):
        total = count_block(ledger, first, subject_filter, seq)
        for place in range(first + 1, len(ledger.blocks)):
            total += count_block(ledger, place, subject_filter, 0)
        return total
    total = ledger.messages if subject_filter is None else ledger.table.total(subject_filter)
    if seq > ledger.first_seq:
        # Fewer blocks lie before: count those and take them from the total.
        for place in range(first):
            total -= count_block(ledger, place, subject_filter, 0)
        total -= count_block(ledger, first, subject_filter, 0)
        total += count_block(ledger, first, subject_filter, seq)
    return total


cdef uint64_t count_block(
    Ledger ledger, Py_ssize_t place, SubjectFilter subject_filter, uint64_t seq
) except? 0xFFFFFFFFFFFFFFFF:
    cdef Block block = ledger.blocks[place]
    cdef BlockIndex index
    cdef bytes wanted = None
    cdef object count
    if block.live == 0 or block.last_seq < seq:
        return 0
    if subject_filter is None and seq <= block.base_seq:
        return block.live
    if block.index is None and block.dead_count == 0 and seq <= block.base_seq:
        count = ledger.entry_counter(block, subject_filter)
        if count is not None:
            return count
    index = ledger.index_of(block)
    if subject_filter is not None:
        wanted = ledger.wanted(index, subject_filter)
        if not wanted:
            return 0
    return index.count_entries(index.lower_bound(seq), marks(wanted), block.dead_bits())


cdef uint32_t next_dead(const uint8_t* dead, uint32_t ordinal, uint32_t count) noexcept:
    # The first dead entry from `ordinal` on, `count` where there is none.
    if dead == NULL:
        return count
    while ordinal < count:
        if ordinal & 63 == 0 and count - ordinal >= 64 and get_u64(dead + ordinal // 8) == 0:
            ordinal += 64
        elif (dead[ordinal >> 3] >> (ordinal & 7)) & 1:
            return ordinal
        else:
            ordinal += 1
    return count


cdef uint32_t run_end(BlockIndex index, const uint8_t* dead, uint32_t first) noexcept:
    # Where the live entries end that follow on a live one without a gap.
    cdef uint32_t low = first + 1, high = next_dead(dead, first + 1, index.count), middle
    while low < high:
        middle = low + (high - low) // 2
        if index.entries[middle].seq_delta - index.entries[first].seq_delta == middle - first:
            low = middle + 1
        else:
            high = middle
    return low


def find_gaps(Ledger ledger not None):
    """Return the sequences between first and last that have no live message.

    It costs what is missing: a block without a gap is not looked into.
    """
    cdef SequenceSet result = SequenceSet()
    cdef Block block
    cdef BlockIndex index
    cdef const uint8_t* dead
    cdef int64_t ordinal
    cdef uint32_t end
    cdef uint64_t seq, expected = ledger.first_seq
    for block in ledger.blocks:
        if block.live == 0:
            continue
        if block.live == block.last_seq - block.base_seq + 1:
            if block.base_seq > expected:
                result.put_range(expected, block.base_seq - 1)
            expected = block.last_seq + 1
            continue
        index = ledger.index_of(block)
        dead = block.dead_bits()
        ordinal = index.next_entry(block.first_live, NULL, dead)
        while ordinal >= 0:
            seq = index.base_seq + index.entries[ordinal].seq_delta
            if seq > expected:
                result.put_range(expected, seq - 1)
            end = run_end(index, dead, <uint32_t>ordinal)
            expected = index.base_seq + index.entries[end - 1].seq_delta + 1
            ordinal = index.next_entry(end, NULL, dead)
    if expected <= ledger.last_seq:
        result.put_range(expected, ledger.last_seq)
    return result
