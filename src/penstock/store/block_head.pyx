"""A block file as a stream's directory shows it: its length, its header, what is wrong with it.

There is one for every block when a store is opened, so whatever is asked of each of them is asked
here, in compiled code; what to do about one that is not as it should be is decided elsewhere.

What always holds: a block with a header can be read. Nothing here opens a file.

Called by recovery, before anybody else has the store.
"""

from libc.stdint cimport uint32_t, uint64_t

from penstock.errors import CorruptStore

cimport cython

from penstock.format.block cimport BlockHeader, decode_block_header
from penstock.format.block_summary cimport BlockSummary


# What it holds leads nowhere: there is no circle for a collector to find, in one for every block.
@cython.no_gc
cdef class BlockHead:
    """A block file as the directory shows it, or one that is known to be missing."""

    def __init__(self, uint32_t number, str path not None, uint64_t size=0,
                 bytes image not None=b"", str reason not None=""):
        self.number = number
        self.path = path
        self.size = size
        self.image = image
        self.reason = reason
        self.first_seq = 1

    def belongs_to(self, uint64_t salt):
        """Tell whether there is a header, and it is that of this block of the stream."""
        cdef BlockHeader header = self.header
        return header is not None and header.salt == salt and header.number == self.number

    def differs_from(self, BlockSummary summary not None, *, bint is_indexed, bint is_last):
        """Say how the block differs from what a checkpoint tells of it, "" where it does not.

        Only the last block may have grown since, and may lack its index.
        """
        if self.header is None:
            return f": {self.reason}"
        if self.header.generation != summary.generation:
            return " was rewritten since"
        if self.size < summary.bytes or (self.size > summary.bytes and not is_last):
            return " has another length"
        if not is_indexed and not is_last:
            return " has no index"
        return ""


def read_heads(str folder not None, dict names not None, list starts not None):
    """Give the heads of a folder's blocks by number, from their names and the starts of the files.

    What is the matter with a header is noted. Raises UnsupportedVersion.
    """
    cdef dict heads = {}
    cdef BlockHead head
    for (number, name), (size, image) in zip(names.items(), starts, strict=True):
        head = BlockHead(number, f"{folder}/{name}", size, image)
        try:
            head.header = decode_block_header(head.image, head.path)
        except CorruptStore as error:
            head.reason = error.reason
        heads[number] = head
    return heads
