"""What the store holds: blocks, live messages, subjects and totals, but not the messages' bytes."""

from collections.abc import Callable
from typing import TypeAlias

from typing_extensions import disjoint_base

from penstock.format.index.block_index import BlockIndex
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.store.log.block import Block, BlockFiles, StoredMessage
from penstock.store.upkeep.expiry import Expiries
from penstock.subjects import SubjectFilter

# `bytes` is also a member below, so the type goes by another name there.
_Bytes: TypeAlias = bytes
_NewMessage: TypeAlias = tuple[bytes, bytes, bytes]

@disjoint_base
class Ledger:
    """The account of one stream; see the module."""

    def __init__(
        self,
        index_loader: Callable[[Block], BlockIndex],
        files_opener: Callable[[Block], BlockFiles],
        entry_counter: Callable[[Block, SubjectFilter], int | None],
        *,
        expiries: Expiries | None = None,
        message_overhead: int = 30,
        headers_overhead: int = 4,
    ) -> None:
        """Go by what loads indexes, opens files, and counts entries without loading either.

        `expiries` forget each removed message that had a time to live. The overheads are what a
        message counts for beside its bytes, and what it counts more if it has headers.
        """
        ...

    @property
    def last_seq(self) -> int:
        """The highest sequence that was given."""
        ...

    @property
    def last_time_ns(self) -> int:
        """The time of the last message."""
        ...

    @property
    def removed(self) -> SequenceSet:
        """Sequences that are gone and that no tombstone on disk tells of yet."""
        ...

    @property
    def blocks(self) -> list[Block]:
        """The blocks in order."""
        ...

    @property
    def table(self) -> SubjectTable:
        """The stream's subjects."""
        ...

    @property
    def messages(self) -> int:
        """Live messages."""
        ...

    @property
    def bytes(self) -> int:
        """What they count for."""
        ...

    @property
    def first_seq(self) -> int:
        """The first live message; one past the last where there is none."""
        ...

    @property
    def first_time_ns(self) -> int:
        """Its time; 0 where there is none."""
        ...

    @property
    def appended_item(self) -> int:
        """The subject's item of the message appended last."""
        ...

    @property
    def previous_seq(self) -> int:
        """That subject's message before it; 0 where there was none or it must be looked for."""
        ...

    def note_index_room(self, index_room: bool) -> None:
        """Note whether the cache of indexes has room for more."""
        ...

    def want_reclaim(self) -> None:
        """Have the next commit ask for disk space to be given back."""
        ...

    def restore(
        self,
        *,
        messages: int,
        bytes: int,
        first_seq: int,
        first_time_ns: int,
        last_seq: int,
        last_time_ns: int,
        table: SubjectTable,
    ) -> None:
        """Take over a checkpoint's totals and subjects."""
        ...

    def add_block(self, block: Block) -> None:
        """Append a block to the list."""
        ...

    def drop_block(self, block: Block) -> None:
        """Take a block without live messages off the list."""
        ...

    def replace_index(self, block: Block, old: BlockIndex, index: BlockIndex, seed: int) -> None:
        """Go over to a rewritten block, whose index lacks entries that were dead in the old one.

        What was removed while it was being rewritten stays removed.
        """
        ...

    def clear(self) -> None:
        """Cross out everything at once; the blocks are left without a live message."""
        ...

    def end_at(self, last_seq: int, last_time_ns: int) -> int:
        """Make `last_seq` the last sequence, and say its time; nothing above it is live."""
        ...

    def fold(self, block: Block, index: BlockIndex, first: int) -> None:
        """Count the entries of a block from ordinal `first` on, as recovery finds them."""
        ...

    def settle(self) -> None:
        """Find the first live message again, after blocks were folded in."""
        ...

    def message_size(self, subject: _Bytes, headers: _Bytes, payload: _Bytes) -> int:
        """Return how many bytes of the stream a message counts for."""
        ...

    def load(self, seq: int) -> StoredMessage:
        """Return message `seq`; raise RecordNotFound or CorruptStore."""
        ...

    def load_at_hand(self, seq: int) -> StoredMessage | None:
        """Return message `seq` if its index is in memory and its file is open, else None."""
        ...

    def place_of(self, seq: int) -> tuple[Block, int, int]:
        """Return (block, offset, length) of a live message; raise RecordNotFound."""
        ...

    def remove(self, seq: int) -> int:
        """Cross out one message; returns its size, or 0 where there is none."""
        ...

    def remove_range(
        self, first: int, last: int, subject_filter: SubjectFilter | None = None, limit: int = -1
    ) -> tuple[int, int]:
        """Cross out the live messages of a range that the filter (None: all) wants, oldest first.

        At most `limit` of them where it is not negative. Returns (messages, bytes).
        """
        ...

    def trim_subject(self, item: int, keep: int) -> int:
        """Cross out the oldest messages of a subject until `keep` are left; returns how many."""
        ...

def measure_batch(messages: list[_NewMessage]) -> int:
    """Check every message's form and size; return the largest body of headers and payload."""
    ...
