"""What a stream has room for: which newcomer is refused, and which messages give way to it.

These are the limits of a store's configuration, for every way in: `refusal` before a message is
appended, `make_room` after it. With discard old the oldest messages go; with discard new the
newcomer is refused, except where a full subject gives up its oldest message. A full subject drops
its oldest message in any case, unless it is to refuse as well.

Invariant: after `make_room` the stream is within its limits, or refuses new messages and holds what
it held before. Only while limits that were lowered are applied in slices is it still beyond them,
and nearer to them with each new message. Removals go through the ledger like any other, so they are
written as tombstones with the next commit.

Thread: under the store's lock.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.store.log.block cimport Block
from penstock.store.log.ledger cimport Ledger

from penstock.errors import LimitReached
from penstock.limits import REMOVED_BEHIND_MAX
from penstock.store.interface import Discard
from penstock.store.log.ledger import measure_batch

cdef uint64_t ALL = 0xFFFFFFFFFFFFFFFF
cdef uint64_t BEHIND = REMOVED_BEHIND_MAX


cdef class Capacity:
    """The limits of one stream; see the module."""

    def __init__(self, Ledger ledger not None, config not None):
        self.ledger = ledger
        self.configure(config)

    def configure(self, config not None):
        """Go by another configuration from now on; nothing is removed yet."""
        self.messages_max = max(config.max_msgs, 0)
        self.bytes_max = max(config.max_bytes, 0)
        self.body_bytes_max = max(config.max_msg_bytes, 0)
        self.per_subject_max = max(config.max_msgs_per_subject, 0)
        self.discards_new = config.discard is Discard.NEW
        self.full_subject_refuses = config.discard_new_per_subject
        self.can_refuse = self.discards_new and bool(
            self.messages_max or self.bytes_max or self.full_subject_refuses
        )

    # Before a message is appended

    cdef Refusal refusal(
        self, const uint8_t* subject, size_t subject_size, size_t headers_size,
        size_t payload_size, uint32_t keep,
    ) except *:
        # Why a message may not come in. One that leaves only `keep` of its subject makes the room
        # that it needs there.
        cdef Ledger ledger = self.ledger
        cdef bint is_full = False
        cdef int64_t item
        cdef uint64_t size
        if 0 < self.body_bytes_max < headers_size + payload_size:
            return TOO_LARGE
        if not self.can_refuse:
            return NOT_REFUSED
        if self.per_subject_max:
            item = ledger.table.find(subject, subject_size)
            is_full = item >= 0 and ledger.table.items[item].count >= self.per_subject_max
            if is_full and self.full_subject_refuses and not keep:
                return SUBJECT_FULL
        # A full subject gives up its oldest message, so the total does not grow.
        if not is_full and 0 < self.messages_max <= ledger.messages:
            return MESSAGES_FULL
        if self.bytes_max:
            size = ledger.counted_size(subject_size, headers_size, payload_size)
            if ledger.bytes + size > self.bytes_max and not (
                is_full and ledger.oldest_size(<uint32_t>item) >= size
            ):
                return BYTES_FULL
        return NOT_REFUSED

    def refuse(self, bytes subject not None, bytes headers not None, bytes payload not None, *,
               uint32_t keep=0):
        """Raise LimitReached if a message may not come in.

        A message that leaves only `keep` of its subject makes the room that it needs there.
        """
        self._raise(self.refusal(subject, len(subject), len(headers), len(payload), keep))

    def refuse_batch(self, list batch not None):
        """Raise LimitReached if one of a batch may not come in, before anything of it is stored.

        A batch must fit as a whole: what it would push out itself makes no room for it.
        """
        cdef uint64_t growth, size = 0, largest = measure_batch(batch)
        cdef bytes subject, headers, payload
        if 0 < self.body_bytes_max < largest:
            self._raise(TOO_LARGE)
        if not self.discards_new:
            return
        growth = self._growth(batch) if self.per_subject_max else len(batch)
        if growth and 0 < self.messages_max < self.ledger.messages + growth:
            self._raise(MESSAGES_FULL)
        for subject, headers, payload in batch:
            size += self.ledger.counted_size(len(subject), len(headers), len(payload))
        if 0 < self.bytes_max < self.ledger.bytes + size:
            self._raise(BYTES_FULL)

    def _growth(self, list batch):
        # By how many messages a batch makes the stream longer: a full subject drops one.
        cdef uint64_t growth = 0, count
        cdef bytes subject
        counts = {}
        for subject, _, _ in batch:
            count = counts[subject] if subject in counts else self.ledger.table.count(subject)
            if count < self.per_subject_max:
                counts[subject] = count + 1
                growth += 1
            elif self.full_subject_refuses:
                self._raise(SUBJECT_FULL)
        return growth

    cdef int _raise(self, Refusal refusal) except -1:
        if refusal == TOO_LARGE:
            raise LimitReached("message size", self.body_bytes_max)
        if refusal == SUBJECT_FULL:
            raise LimitReached("maximum messages per subject", self.per_subject_max)
        if refusal == MESSAGES_FULL:
            raise LimitReached("maximum messages", self.messages_max)
        if refusal == BYTES_FULL:
            raise LimitReached("maximum bytes", self.bytes_max)
        return 0

    # After it

    cpdef int make_room(self, uint32_t keep) except -1:
        """Remove what the message that was appended last leaves no room for.

        Only `keep` of its subject stay then, 0 for as many as the configuration says.
        """
        self.trim_to_limit()
        self.enforce_totals(self.removable(1))
        self.trim_appended(keep)
        return 0

    cdef uint64_t removable(self, uint64_t appended) noexcept:
        # How many messages may give way to so many new ones.
        return appended * BEHIND if self.is_behind else ALL

    cdef int trim_to_limit(self) except -1:
        # Leave as many messages of the subject that was appended to last as its limit says.
        cdef uint64_t count
        if self.is_behind and self.per_subject_max:
            count = self.ledger.table.items[self.ledger.appended_item].count
            return self.trim_appended(
                max(self.per_subject_max, count - BEHIND if count > BEHIND else 0)
            )
        return self.trim_appended(self.per_subject_max)

    cdef int trim_appended(self, uint64_t keep) except -1:
        # Leave so many messages of the subject that was appended to last; 0 for all of them.
        if 0 < keep < self.ledger.table.items[self.ledger.appended_item].count:
            self.ledger.trim_subject(self.ledger.appended_item, <uint32_t>keep)
        return 0

    cpdef uint64_t enforce_totals(self, uint64_t count_max=ALL) except? 0xFFFFFFFFFFFFFFFF:
        """Remove the oldest messages until the totals are within their limits; return how many.

        At most `count_max` are removed. A store that refuses new messages keeps its old ones, also
        where the limits were lowered.
        """
        cdef Ledger ledger = self.ledger
        cdef uint64_t removed = 0
        if self.discards_new:
            return 0
        if 0 < self.messages_max < ledger.messages:
            removed += ledger.remove_oldest(
                min(ledger.messages - self.messages_max, count_max), 0
            )
        if 0 < self.bytes_max < ledger.bytes and removed < count_max:
            removed += ledger.remove_oldest(count_max - removed, ledger.bytes - self.bytes_max)
        return removed

    def trim_from(self, uint64_t seq, uint64_t count):
        """Remove what is too much of each subject, among some messages from a sequence on.

        Return the sequence to continue with, or 0 behind the last. `count` messages are looked at.
        """
        cdef Ledger ledger = self.ledger
        cdef Py_ssize_t place
        cdef Block block
        cdef BlockIndex index
        cdef Entry* entry
        cdef int64_t ordinal
        cdef uint32_t item
        cdef uint64_t looked = 0
        cdef bint first_gone = False
        for place in range(max(ledger.block_at(seq), 0), len(ledger.blocks)):
            block = ledger.blocks[place]
            if looked >= count:
                seq = block.base_seq
                break
            if block.live == 0:
                continue
            index = ledger.index_of(block)
            ordinal = index.next_entry(index.lower_bound(seq), NULL, block.dead_bits())
            while ordinal >= 0 and looked < count:
                entry = &index.entries[ordinal]
                item = ledger.item_of(index, entry.subject)
                # Oldest first, so the newest are left.
                if item < ledger.table.used and (
                    ledger.table.items[item].count > self.per_subject_max
                ):
                    seq = index.base_seq + entry.seq_delta
                    first_gone = first_gone or seq == ledger.first_seq
                    ledger.kill(block, <uint32_t>ordinal, entry, item)
                looked += 1
                ordinal = index.next_entry(ordinal + 1, NULL, block.dead_bits())
            if ordinal >= 0:
                seq = index.base_seq + index.entries[ordinal].seq_delta
                break
        else:
            seq = 0
        if first_gone:
            ledger.advance_first()
        return seq

    def is_any_above(self):
        """Return True if a subject has more messages than it may."""
        cdef uint32_t item
        if self.per_subject_max:
            for item in range(self.ledger.table.used):
                if self.ledger.table.items[item].count > self.per_subject_max:
                    return True
        return False
