"""What one block holds: by its index where that fits, else by a walk over its records.

A walk also decides about the block's end. In a block that is not written to any more, bytes behind
the last whole record are damage. In the last block they are torn, unless they were durable; zeros
up to the end of its file are room that its writer made for what follows.

Invariant: recovery and readers judge a block by these functions alone, so that both serve the same
messages of it. Nothing is written.

Called by `directory`, by readers and by recovery. Pure but for `read_index_head`; any thread.
"""

from __future__ import annotations

import msgspec

from penstock.errors import CorruptStore
from penstock.format.block import BlockHeader, encode_block_header
from penstock.format.block_walker import BlockWalker
from penstock.format.damage import Damage
from penstock.format.files import ReadableFolder
from penstock.format.index.block_index import BlockIndex
from penstock.format.index.head import IndexHead, read_head
from penstock.format.layout import index_name
from penstock.format.subject_table import SubjectTable

TAIL_REASON = "no whole record up to the end"


class Walked(msgspec.Struct, frozen=True):
    """A block that was read from its first record to its last."""

    header: BlockHeader
    data: bytes
    index: BlockIndex
    walker: BlockWalker


class BlockContents(msgspec.Struct):
    """What a block holds, by its index or by a walk."""

    header: BlockHeader
    head: BlockIndex | IndexHead
    is_walked: bool = False
    torn: bytes = b""
    """Of a last block: bytes at its end that no client was told to be stored."""

    written: bytes = b""
    """Of a last block: whole records that may not be on stable storage yet."""

    @property
    def index(self) -> BlockIndex:
        """The whole index; only its head may have been read."""
        assert isinstance(self.head, BlockIndex), "the whole index was read"
        return self.head


def index_fits(index: BlockIndex | IndexHead, header: BlockHeader, size: int) -> bool:
    """Return True if an index describes a block file with this header and this length.

    Another block may have had the number before, a rewrite may have overtaken its index, and the
    file may have lost its end.
    """
    return index.block_bytes == size and index.header == encode_block_header(header)


def read_index_head(folder: ReadableFolder, number: int) -> BlockIndex | IndexHead | None:
    """Return the head of an index file, or None if it is missing or damaged.

    An index of version 1 is read whole: its head has no checksum.
    """
    name = index_name(number)
    try:
        file = folder.open(name)
    except FileNotFoundError:
        return None
    try:
        return read_head(file) or BlockIndex.load(file.read_at(0, file.size()), name)
    except CorruptStore:
        return None
    finally:
        file.close()


def walk_block(header: BlockHeader, data: bytes) -> Walked:
    """Build the index of a block from its bytes."""
    image = encode_block_header(header)
    index = BlockIndex(header.number, header.generation, header.base_seq, image, SubjectTable())
    walker = BlockWalker(data, block=header.number, seed=header.seed, base_seq=header.base_seq)
    walker.index_into(index)
    return Walked(header, data, index, walker)


def walk_sealed(header: BlockHeader, data: bytes) -> BlockContents:
    """Return what a block holds that is not written to any more; its tail is damage."""
    walked = walk_block(header, data)
    _count_tail(walked, walked.walker.last_seq)
    return BlockContents(header, walked.index, is_walked=True)


def walk_last(walked: Walked, *, durable: int, last_seq: int) -> BlockContents:
    """Return what the last block holds, and decide what of its end is torn and what is damage.

    `durable` bytes of it are known to be on stable storage, and `last_seq` was the last sequence.

    A commit is synced before the next one is written. So, beyond what is known to be durable,
    bytes that are missing can only be the last commit's, which was never acknowledged: the block
    ends where that commit first fails, and what arrived of it behind that offset is torn as well.
    """
    header, data, walker = walked.header, walked.data, walked.walker
    cut = min(
        (
            damage.offset
            for damage in walker.damage
            if damage.offset >= durable and damage.offset > walker.commit_start
        ),
        default=walker.whole_bytes,
    )
    if cut < walker.whole_bytes:
        walked = walk_block(header, data[:cut])
        walker = walked.walker
    contents = BlockContents(header, walked.index, is_walked=True)
    torn = without_room(data[walker.whole_bytes :])
    if walker.whole_bytes < durable:
        end = max(durable, walker.whole_bytes + len(torn))
        whole = Walked(header, data[:end], walked.index, walker)
        _count_tail(whole, max(last_seq, walker.last_seq))
    else:
        contents.torn = torn
        contents.written = data[min(durable, walker.whole_bytes) : walker.whole_bytes]
    return contents


def without_room(tail: bytes) -> bytes:
    """Return what follows the last whole record of a last block, less the room at its end."""
    return tail.rstrip(b"\0")


def _count_tail(walked: Walked, last_seq: int) -> None:
    """Note as damage what follows the last whole record of a block that may have had more."""
    index, walker, size = walked.index, walked.walker, len(walked.data)
    if size > walker.whole_bytes:
        at, first_seq = walker.whole_bytes, walker.last_seq + 1
        index.damage.append(Damage(index.number, at, size - at, TAIL_REASON, first_seq, last_seq))
        index.cover(size)
