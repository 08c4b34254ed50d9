"""A block file as a stream's directory shows it."""

from typing_extensions import disjoint_base

from penstock.format.block import BlockHeader
from penstock.format.block_summary import BlockSummary
from penstock.store.vfs import FileStart

@disjoint_base
class BlockHead:
    """A block file as the directory shows it, or one that is known to be missing."""

    header: BlockHeader | None
    reason: str
    """What is the matter with the header; it was mended if there is one all the same."""

    is_foreign: bool
    has_one_commit: bool
    """The header is that of records which may all be of one commit."""

    first_seq: int
    last_seq: int
    """What a block without a header held, where something tells."""

    def __init__(
        self, number: int, path: str, size: int = 0, image: bytes = b"", reason: str = ""
    ) -> None: ...
    @property
    def number(self) -> int:
        """The block's number, by the file's name."""
        ...

    @property
    def path(self) -> str:
        """The block file's path."""
        ...

    @property
    def size(self) -> int:
        """The file's length."""
        ...

    @property
    def image(self) -> bytes:
        """The header's bytes as they were found."""
        ...

    def belongs_to(self, salt: int) -> bool:
        """Tell whether there is a header, and it is that of this block of the stream."""
        ...

    def differs_from(self, summary: BlockSummary, *, is_indexed: bool, is_last: bool) -> str:
        """Say how the block differs from what a checkpoint tells of it, "" where it does not.

        Only the last block may have grown since, and may lack its index.
        """
        ...

def read_heads(folder: str, names: dict[int, str], starts: list[FileStart]) -> dict[int, BlockHead]:
    """Give the heads of a folder's blocks by number, from their names and the starts of the files.

    What is the matter with a header is noted. Raises UnsupportedVersion.
    """
    ...
