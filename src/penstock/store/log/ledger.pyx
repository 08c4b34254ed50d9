"""What the store holds: blocks, live messages, subjects and totals, but not the messages' bytes.

The ledger is the store's memory. Appends enter it, removals cross it out, and single messages are
looked up in it; what else can be asked of it is in `questions`. Per message it keeps nothing beyond
one bit for a removed one; what it must know of a sealed block it asks of the block's index, which
comes and goes through the loader that the store gives.

Invariant: `messages`, `bytes` and every subject's count are exact at all times, so state is
O(1); a removal is also put into `removed`, from which the store writes tombstones: the log alone
tells the same story.

Under the store's lock. It does no input or output of its own, but the loader does.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from penstock import limits
from penstock.errors import CorruptStore, RecordNotFound
from penstock.format.block import HEADER_BYTES
from penstock.format.record import check_message

from penstock.format.index.block_index cimport BlockIndex, Entry
from penstock.format.record cimport FLAG_DELETED, FLAG_EXPIRES
from penstock.format.sequence_set cimport SequenceSet
from penstock.format.subject_table cimport Subject, SubjectTable
from penstock.store.log.active_block cimport ActiveBlock
from penstock.store.log.block cimport Block, open_at_hand, open_record
from penstock.store.upkeep.expiry cimport Expiries
from penstock.subjects cimport SubjectFilter

# Filters remembered per block: a few consumers over a few hundred blocks.
cdef Py_ssize_t WANTED_MAX = 512
cdef uint64_t DELTA_MAX = 0xFFFFFFFF
cdef uint64_t HEADER_SIZE = HEADER_BYTES
cdef Py_ssize_t SUBJECT_MAX = limits.SUBJECT_BYTES_MAX
cdef Py_ssize_t HEADERS_MAX = limits.HEADERS_BYTES_MAX
cdef Py_ssize_t PAYLOAD_MAX = limits.PAYLOAD_BYTES_MAX


cdef class Ledger:
    """The account of one stream; see the module."""

    def __init__(self, index_loader, files_opener, entry_counter, *, Expiries expiries=None,
                 uint32_t message_overhead=30, uint32_t headers_overhead=4):
        """`index_loader(block)` gives its BlockIndex, `files_opener(block)` its BlockFiles.

        `entry_counter(block, filter)` tells how many entries of a block a filter wants without
        loading its index, or None. `expiries` forget each removed message that had a time to live.
        The overheads are what a message counts for beside its bytes, and what it counts more if it
        has headers.
        """
        self.blocks = []
        self.table = SubjectTable()
        self.removed = SequenceSet()
        self.first_seq = 1
        self.index_loader = index_loader
        self.files_opener = files_opener
        self.entry_counter = entry_counter
        self.wanted_cache = {}
        self.expiries = expiries
        self.message_overhead = message_overhead
        self.headers_overhead = headers_overhead
        self.index_room = True

    # Building up

    def restore(self, *, uint64_t messages, uint64_t bytes, uint64_t first_seq,
                int64_t first_time_ns, uint64_t last_seq, int64_t last_time_ns,
                SubjectTable table not None):
        """Take over a checkpoint's totals and subjects."""
        self.messages = messages
        self.bytes = bytes
        self.first_seq = first_seq
        self.first_time_ns = first_time_ns
        self.last_seq = last_seq
        self.last_time_ns = last_time_ns
        self.table = table

    def add_block(self, Block block not None):
        """Append a block to the list."""
        self.blocks.append(block)

    def drop_block(self, Block block not None):
        """Take a block without live messages off the list."""
        assert block.live == 0, "only an empty block is dropped"
        self.blocks.remove(block)

    def replace_index(self, Block block not None, BlockIndex old not None,
                      BlockIndex index not None, uint64_t seed):
        """Go over to a rewritten block, whose index lacks entries that were dead in the old one.

        What was removed while it was being rewritten stays removed.
        """
        cdef uint32_t ordinal
        cdef uint64_t base_seq = index.base_seq
        cdef list removed = [
            ordinal for ordinal in range(index.count)
            if block.is_dead(<uint32_t>old.find_seq(base_seq + index.entries[ordinal].seq_delta))
        ]
        block.generation = index.generation
        block.seed = seed
        free(block.dead)
        block.dead = NULL
        block.dead_room = block.dead_count = block.first_live = 0
        block.reclaim_asked_at = 0
        block.count = index.count
        block.bytes = index.block_bytes
        block.live = block.count
        block.live_bytes = index.message_bytes
        block.live_disk_bytes = 0
        for ordinal in range(index.count):
            block.live_disk_bytes += index.entries[ordinal].length
        for ordinal in removed:
            block.kill(ordinal, &index.entries[ordinal])
        self.wanted_cache.clear()
        if block.base_seq <= self.first_seq <= block.last_seq:
            block.index = index
            self.advance_first()

    def clear(self):
        """Cross out everything at once; the blocks are left without a live message."""
        cdef Block block
        if self.messages:
            self.removed.put_range(self.first_seq, self.last_seq)
        for block in self.blocks:
            block._room_for_dead(block.count)
            if block.dead_room:
                memset(block.dead, 0xFF, (block.count + 7) // 8)
                if block.count & 7:
                    # No bit beyond the last entry: an index may yet be added to after a reopen.
                    block.dead[block.count >> 3] = <uint8_t>((1 << (block.count & 7)) - 1)
            block.dead_count = block.first_live = block.count
            block.live = 0
            block.live_bytes = block.live_disk_bytes = 0
        self.messages = self.bytes = 0
        self.table.clear()
        self.wanted_cache.clear()
        self.advance_first()

    cpdef int end_at(self, uint64_t last_seq, int64_t last_time_ns) except -1:
        """Make `last_seq` the last sequence, and say its time; nothing above it is live."""
        self.last_seq = last_seq
        self.last_time_ns = last_time_ns
        self.removed.drop_range(last_seq + 1, 0xFFFFFFFFFFFFFFFF)
        if self.messages == 0:
            self.advance_first()
        return 0

    def note_index_room(self, bint index_room):
        """Note whether the cache of indexes has room for more."""
        self.index_room = index_room

    def want_reclaim(self):
        """Have the next commit ask for disk space to be given back."""
        self.reclaimable = True

    cdef SequenceSet take_removed(self):
        # What is gone and told by no tombstone yet; the caller writes tombstones of it.
        cdef SequenceSet removed = self.removed
        self.removed = SequenceSet()
        return removed

    cdef bint take_reclaimable(self) noexcept:
        # Whether a sealed block has become sparse or empty since the last call.
        cdef bint reclaimable = self.reclaimable
        self.reclaimable = False
        return reclaimable

    def fold(self, Block block not None, BlockIndex index not None, uint32_t first):
        """Count the entries of a block from ordinal `first` on, as recovery finds them."""
        cdef uint32_t ordinal, local, item
        cdef Entry* entry
        cdef list items = [None] * index.subject_count
        block.follow(index)
        for ordinal in range(first, index.count):
            entry = &index.entries[ordinal]
            if index.base_seq + entry.seq_delta > self.last_seq:
                self.last_time_ns = entry.timestamp_ns
            if entry.flags & FLAG_DELETED:
                block.bury(ordinal)
                continue
            local = entry.subject
            if items[local] is None:
                items[local] = self._intern_local(index, local)
            item = items[local]
            self.table.count_up(item, block.number, index.base_seq + entry.seq_delta, 1)
            self.table.items[item].last_block = block.number
            block.live += 1
            block.live_bytes += entry.size
            block.live_disk_bytes += entry.length
            self.messages += 1
            self.bytes += entry.size
        self.last_seq = max(self.last_seq, block.last_seq)

    def _intern_local(self, BlockIndex index, uint32_t local):
        cdef size_t size = 0
        cdef const uint8_t* name = index.subject_name(local, &size)
        return self.table.intern(name, size)

    def settle(self):
        """Find the first live message again, after blocks were folded in."""
        self.first_seq = 0
        self.advance_first()

    # Appending

    cdef int put(
        self, Block block, uint8_t flags, const uint8_t* subject, size_t subject_size,
        const uint8_t* headers, size_t headers_size, const uint8_t* payload, size_t payload_size,
        int64_t expires_ns, uint64_t seq, int64_t timestamp_ns, uint32_t message_size,
    ) except -1:
        cdef ActiveBlock active = block.active
        cdef uint64_t before = active.bytes
        active.append(
            flags, subject, subject_size, headers, headers_size, payload, payload_size,
            expires_ns, seq, timestamp_ns, message_size,
        )
        block.count = active.index.count
        block.bytes = active.bytes
        block.last_seq = seq
        block.live += 1
        block.live_bytes += message_size
        block.live_disk_bytes += active.bytes - before
        block.first_time_ns = active.index.first_time_ns
        block.last_time_ns = active.index.last_time_ns
        self.appended_item = active.index.items[
            active.index.entries[active.index.count - 1].subject
        ]
        self.previous_seq = active.index.previous_seq
        if self.messages == 0:
            self.first_seq = seq
            self.first_time_ns = timestamp_ns
        self.messages += 1
        self.bytes += message_size
        self.last_seq = seq
        self.last_time_ns = timestamp_ns
        return 0

    cdef uint32_t counted_size(
        self, size_t subject_size, size_t headers_size, size_t payload_size
    ) noexcept:
        # How many bytes of the stream a message counts for.
        return <uint32_t>(
            self.message_overhead + subject_size + payload_size
            + (self.headers_overhead + headers_size if headers_size else 0)
        )

    cpdef uint32_t message_size(self, bytes subject, bytes headers, bytes payload):
        """Return how many bytes of the stream a message counts for."""
        return self.counted_size(len(subject), len(headers), len(payload))

    # Finding

    cdef Py_ssize_t block_at(self, uint64_t seq) noexcept:
        # The place of the last block that begins at or before `seq`, or -1.
        cdef Py_ssize_t low = 0, high = len(self.blocks), middle
        while low < high:
            middle = (low + high) // 2
            if (<Block>self.blocks[middle]).base_seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low - 1

    cdef BlockIndex index_of(self, Block block):
        if block.index is None:
            return self.index_loader(block)
        block.touched = True
        return block.index

    cdef int64_t find_entry(self, Block block, uint64_t seq, Entry* entry) except -2:
        # The ordinal of a sequence in a block, dead or not, and its entry; -1 where it has none.
        # Without the index in memory, single entries are read from its file.
        cdef int64_t ordinal
        cdef uint32_t low = 0, high = block.count, middle, delta
        if block.index is None and not self.index_room and seq - block.base_seq <= DELTA_MAX:
            if block.files is None:
                self.files_opener(block)
            delta = <uint32_t>(seq - block.base_seq)
            # Without gaps before it an entry stands where its sequence says.
            middle = delta if delta < high else (high - 1 if high else 0)
            while low < high:
                if not block.files.read_entry(middle, entry):
                    break
                if entry.seq_delta == delta:
                    block.touched = True
                    return middle
                if entry.seq_delta < delta:
                    low = middle + 1
                else:
                    high = middle
                middle = low + (high - low) // 2
            if low >= high:
                return -1
        ordinal = self.index_of(block).find_seq(seq)
        if ordinal >= 0:
            entry[0] = block.index.entries[ordinal]
        return ordinal

    cdef bytes raw_record(self, Block block, const Entry* entry):
        cdef bytes raw = None
        if block.active is not None:
            raw = block.active.read(entry.offset, entry.length)
        if raw is None:
            if block.files is None:
                self.files_opener(block)
            raw = block.files.read(entry.offset, entry.length)
        return raw

    def load(self, uint64_t seq):
        """Return message `seq`; raise RecordNotFound or CorruptStore."""
        cdef Py_ssize_t place = self.block_at(seq)
        cdef Block block
        cdef Entry entry
        cdef int64_t ordinal
        if place < 0 or seq > self.last_seq:
            raise RecordNotFound(seq)
        block = self.blocks[place]
        ordinal = self.find_entry(block, seq, &entry)
        if ordinal < 0 or block.is_dead(<uint32_t>ordinal):
            raise RecordNotFound(seq)
        return open_record(
            self.raw_record(block, &entry), seq, block.seed, entry.offset, block.path, block.unseal
        )

    def load_at_hand(self, uint64_t seq):
        """Return message `seq` if its index is in memory and its file is open, else None.

        This needs no lock: nothing in it gives the interpreter lock away, so nothing can change
        meanwhile. Damage and everything unusual is left to `load`.
        """
        cdef Py_ssize_t place = self.block_at(seq)
        cdef Block block
        cdef Entry* entry
        cdef int64_t ordinal
        cdef bytes raw = None
        if place < 0:
            return None
        block = self.blocks[place]
        if block.index is None:
            return None
        ordinal = block.index.find_seq(seq)
        if ordinal < 0 or block.is_dead(<uint32_t>ordinal):
            return None
        entry = &block.index.entries[ordinal]
        if block.active is not None:
            raw = block.active.read(entry.offset, entry.length)
        elif block.files is not None and block.files.block_fd >= 0:
            raw = block.files.read_at_hand(entry.offset, entry.length)
        if raw is None:
            return None
        block.touched = True
        return open_at_hand(raw, seq, block.seed, entry.offset, block.unseal)

    def place_of(self, uint64_t seq):
        """Return (block, offset, length) of a live message; raise RecordNotFound."""
        cdef Py_ssize_t place = self.block_at(seq)
        cdef Entry entry
        cdef int64_t ordinal = -1
        if place >= 0 and seq <= self.last_seq:
            ordinal = self.find_entry(self.blocks[place], seq, &entry)
        if ordinal < 0 or (<Block>self.blocks[place]).is_dead(<uint32_t>ordinal):
            raise RecordNotFound(seq)
        return self.blocks[place], entry.offset, entry.length

    cdef bytes wanted(self, BlockIndex index, object subject_filter):
        # Which local subjects a filter wants, remembered per block.
        key = (index.number, index.generation, index.subject_count, subject_filter)
        found = self.wanted_cache.get(key)
        if found is None:
            if len(self.wanted_cache) >= WANTED_MAX:
                self.wanted_cache.clear()
            found = index.wanted_subjects(subject_filter)
            self.wanted_cache[key] = found
        return found

    # By subject

    cdef uint64_t last_of(self, uint32_t item, uint64_t up_to) except? 0xFFFFFFFFFFFFFFFF:
        # The newest live sequence of a subject that is not above `up_to`, or 0.
        cdef Subject* subject = &self.table.items[item]
        cdef Py_ssize_t place
        cdef Block block
        cdef BlockIndex index
        cdef int64_t local, ordinal
        cdef uint64_t seq
        if subject.count == 0:
            return 0
        if subject.last_seq and subject.last_seq <= up_to:
            return subject.last_seq
        for place in range(len(self.blocks) - 1, -1, -1):
            block = self.blocks[place]
            subject = &self.table.items[item]
            if block.live == 0 or block.number > subject.last_block or block.base_seq > up_to:
                continue
            if block.number < subject.first_block:
                break
            index = self.index_of(block)
            local = index.find_subject(self.table.text + subject.text_at, subject.text_size)
            if local < 0:
                continue
            ordinal = index.subjects[local].last
            while ordinal >= index.subjects[local].first:
                if index.entries[ordinal].subject == local and not block.is_dead(<uint32_t>ordinal):
                    seq = index.base_seq + index.entries[ordinal].seq_delta
                    if seq <= up_to:
                        if subject.last_seq == 0 and up_to >= self.last_seq:
                            subject.last_seq = seq
                        return seq
                ordinal -= 1
        return 0

    cdef uint64_t first_of(self, uint32_t item) except? 0xFFFFFFFFFFFFFFFF:
        # The oldest live sequence of a subject, or 0; corrects the hints of where it lies.
        cdef Subject* subject = &self.table.items[item]
        cdef Py_ssize_t place = 0
        cdef Block block
        cdef BlockIndex index
        cdef int64_t local, ordinal = -1
        if subject.count == 0:
            return 0
        if subject.count == 1 and subject.last_seq:
            return subject.last_seq
        if subject.first_seq:
            place = max(self.block_at(subject.first_seq), 0)
        for place in range(place, len(self.blocks)):
            block = self.blocks[place]
            subject = &self.table.items[item]
            if block.live == 0 or block.number < subject.first_block:
                continue
            index = self.index_of(block)
            # From the message that was the oldest when this was last asked, if it is still there.
            ordinal = index.find_seq(subject.first_seq)
            if ordinal < 0 or not self._is_of(index, ordinal, item):
                local = index.find_subject(self.table.text + subject.text_at, subject.text_size)
                if local < 0:
                    continue
                ordinal = index.subjects[local].first
            while ordinal >= 0 and block.is_dead(<uint32_t>ordinal):
                ordinal = index.next_of_subject(<uint32_t>ordinal)
            if ordinal >= 0:
                subject.first_block = block.number
                subject.first_seq = index.base_seq + index.entries[ordinal].seq_delta
                return subject.first_seq
        return 0

    cdef bint _is_of(self, BlockIndex index, int64_t ordinal, uint32_t item) noexcept:
        # Whether an entry is of a subject.
        cdef Subject* subject = &self.table.items[item]
        cdef size_t size = 0
        cdef const uint8_t* name
        if index.table is self.table:
            return index.items[index.entries[ordinal].subject] == item
        name = index.subject_name(index.entries[ordinal].subject, &size)
        return size == subject.text_size and memcmp(
            name, self.table.text + subject.text_at, size
        ) == 0

    cdef uint32_t oldest_size(self, uint32_t item) except? 0xFFFFFFFF:
        # How many bytes the removal of a subject's oldest message would free.
        cdef uint64_t seq = self.first_of(item)
        cdef Entry entry
        if seq == 0 or self.find_entry(self.blocks[self.block_at(seq)], seq, &entry) < 0:
            return 0
        return entry.size

    # Removing

    cdef uint32_t item_of(self, BlockIndex index, uint32_t local) except? 0xFFFFFFFF:
        cdef size_t size = 0
        cdef const uint8_t* name
        if index.table is self.table:
            return index.items[local]
        name = index.subject_name(local, &size)
        return <uint32_t>self.table.find(name, size)

    cdef uint32_t item_of_entry(
        self, Block block, const Entry* entry, uint64_t seq
    ) except? 0xFFFFFFFF:
        # Without the index in memory the record itself tells the subject.
        cdef bytes subject
        if block.index is None:
            try:
                subject = open_record(
                    self.raw_record(block, entry), seq, block.seed, entry.offset, block.path, None
                ).subject
                return <uint32_t>self.table.find(subject, len(subject))
            except CorruptStore:
                pass
        return self.item_of(self.index_of(block), entry.subject)

    cdef int kill(self, Block block, uint32_t ordinal, const Entry* entry, uint32_t item) except -1:
        cdef uint64_t seq = block.base_seq + entry.seq_delta
        cdef Subject* subject
        block.kill(ordinal, entry)
        if block.active is None and block.is_worth_reclaiming(HEADER_SIZE):
            self.reclaimable = True
        self.messages -= 1
        self.bytes -= entry.size
        # A subject that the table does not know can only come from damage: the total still holds.
        if item < self.table.used:
            subject = &self.table.items[item]
            if subject.count:
                self.table.count_down(item, 1)
            if subject.last_seq == seq:
                subject.last_seq = 0
        self.removed.put_range(seq, seq)
        if entry.flags & FLAG_EXPIRES and self.expiries is not None:
            self.expiries.forget(seq, self.index_of(block).expiry_of(ordinal))
        return 0

    cdef int advance_first(self) except -1:
        # Make first_seq and first_time_ns those of the first live message again.
        cdef Block block
        cdef BlockIndex index
        cdef int64_t ordinal
        if self.messages:
            for block in self.blocks:
                if block.live == 0:
                    continue
                index = self.index_of(block)
                ordinal = index.next_entry(block.first_live, NULL, block.dead_bits())
                if ordinal < 0:
                    continue
                block.first_live = <uint32_t>ordinal
                self.first_seq = index.base_seq + index.entries[ordinal].seq_delta
                self.first_time_ns = index.entries[ordinal].timestamp_ns
                return 0
        self.first_seq = self.last_seq + 1
        self.first_time_ns = 0
        return 0

    cpdef uint32_t remove(self, uint64_t seq) except? 0xFFFFFFFF:
        """Cross out one message; returns its size, or 0 where there is none."""
        cdef Py_ssize_t place = self.block_at(seq)
        cdef Block block
        cdef Entry entry
        cdef int64_t ordinal
        if place < 0 or seq > self.last_seq:
            return 0
        block = self.blocks[place]
        ordinal = self.find_entry(block, seq, &entry)
        if ordinal < 0 or block.is_dead(<uint32_t>ordinal):
            return 0
        self.kill(block, <uint32_t>ordinal, &entry, self.item_of_entry(block, &entry, seq))
        if seq == self.first_seq:
            self.advance_first()
        return entry.size

    def remove_range(self, uint64_t first, uint64_t last, SubjectFilter subject_filter=None,
                     int64_t limit=-1):
        """Cross out the live messages of a range that the filter (None: all) wants, oldest first.

        At most `limit` of them where it is not negative. Returns (messages, bytes).
        """
        cdef Block block
        cdef BlockIndex index
        cdef int64_t ordinal
        cdef Entry* entry
        cdef bytes wanted = None
        cdef const uint8_t* wants = NULL
        cdef dict items
        cdef uint64_t messages = 0, size = 0
        cdef bint first_gone = False
        if subject_filter is not None and subject_filter.everything:
            subject_filter = None
        for block in self.blocks:
            if block.live == 0 or block.last_seq < first:
                continue
            if block.base_seq > last or messages == <uint64_t>limit:
                break
            index = self.index_of(block)
            if subject_filter is not None:
                wanted = self.wanted(index, subject_filter)
                if not wanted:
                    continue
                wants = <const uint8_t*>PyBytes_AS_STRING(wanted)
            items = {}
            ordinal = index.next_entry(index.lower_bound(first), wants, block.dead_bits())
            while ordinal >= 0 and messages != <uint64_t>limit:
                entry = &index.entries[ordinal]
                if index.base_seq + entry.seq_delta > last:
                    break
                if entry.subject not in items:
                    items[entry.subject] = self.item_of(index, entry.subject)
                self.kill(block, <uint32_t>ordinal, entry, items[entry.subject])
                first_gone = first_gone or index.base_seq + entry.seq_delta == self.first_seq
                messages += 1
                size += entry.size
                ordinal = index.next_entry(ordinal + 1, wants, block.dead_bits())
        if first_gone:
            self.advance_first()
        return messages, size

    cdef uint64_t remove_oldest(self, uint64_t count, uint64_t size) except? 0xFFFFFFFFFFFFFFFF:
        # Cross out the oldest messages: `count` of them, or fewer where these free `size` bytes; 0
        # for any. Returns how many.
        cdef Block block
        cdef BlockIndex index
        cdef int64_t ordinal
        cdef Entry* entry
        cdef uint64_t removed = 0, freed = 0
        for block in self.blocks:
            if block.live == 0:
                continue
            index = self.index_of(block)
            ordinal = index.next_entry(block.first_live, NULL, block.dead_bits())
            while ordinal >= 0 and removed < count and (size == 0 or freed < size):
                entry = &index.entries[ordinal]
                self.kill(
                    block, <uint32_t>ordinal, entry, self.item_of(index, entry.subject)
                )
                removed += 1
                freed += entry.size
                block.first_live = <uint32_t>ordinal + 1
                ordinal = index.next_entry(ordinal + 1, NULL, block.dead_bits())
            if ordinal >= 0:
                break
        if removed:
            self.advance_first()
        return removed

    cpdef uint32_t trim_subject(self, uint32_t item, uint32_t keep) except? 0xFFFFFFFF:
        """Cross out the oldest messages of a subject until `keep` are left; returns how many."""
        cdef uint32_t removed = 0
        cdef uint64_t seq
        while self.table.items[item].count > keep:
            seq = 0
            if (
                self.table.items[item].count == 2 and item == self.appended_item
                and self.table.items[item].last_seq == self.last_seq
            ):
                # The common case of one message a subject: the one before the last is known. Only
                # while the last one is still there: otherwise the one before is now the newest.
                seq = self.previous_seq
            if seq == 0 or not self._remove_known(item, seq):
                seq = self.first_of(item)
                if seq == 0 or not self._remove_known(item, seq):
                    break
            removed += 1
        return removed

    cdef bint _remove_known(self, uint32_t item, uint64_t seq) except -1:
        # As `remove`, for a message whose subject is known.
        cdef Py_ssize_t place = self.block_at(seq)
        cdef Entry entry
        cdef int64_t ordinal = -1
        if place >= 0:
            ordinal = self.find_entry(self.blocks[place], seq, &entry)
        if ordinal < 0 or (<Block>self.blocks[place]).is_dead(<uint32_t>ordinal):
            return False
        self.kill(self.blocks[place], <uint32_t>ordinal, &entry, item)
        if seq == self.first_seq:
            self.advance_first()
        return True


def measure_batch(list messages not None):
    """Check every message's form and size; return the largest body of headers and payload."""
    cdef bytes subject, headers, payload
    cdef Py_ssize_t largest = 0
    for message in messages:
        subject, headers, payload = message
        if len(subject) > SUBJECT_MAX or len(headers) > HEADERS_MAX or (
            len(payload) > PAYLOAD_MAX
        ):
            check_message(len(subject), len(headers), len(payload))
        largest = max(largest, len(headers) + len(payload))
    return largest
