"""One block: its header, its summary in a checkpoint, and its file as a directory shows it."""

from typing import TypeAlias

from typing_extensions import disjoint_base

# `bytes` is also a member below, so the type goes by another name there.
_Bytes: TypeAlias = bytes

MAGIC: bytes
VERSION: int
HEADER_BYTES: int
WRAPPED_KEY_BYTES: int

@disjoint_base
class BlockHeader:
    """What a block file says of itself; never changed."""

    def __init__(
        self,
        number: int,
        salt: int,
        base_seq: int,
        created_ns: int,
        generation: int = 0,
        previous_checksum: int = 0,
        cipher: int = 0,
        wrapped_key: bytes = ...,
    ) -> None: ...
    @property
    def number(self) -> int:
        """The block's number."""
        ...

    @property
    def salt(self) -> int:
        """The stream's salt: the same in all its blocks."""
        ...

    @property
    def base_seq(self) -> int:
        """No record of the block is below it."""
        ...

    @property
    def created_ns(self) -> int:
        """When the file was made."""
        ...

    @property
    def generation(self) -> int:
        """0 as first written, one more at each rewrite."""
        ...

    @property
    def previous_checksum(self) -> int:
        """The checksum of the last record of the block before, 0 for none."""
        ...

    @property
    def cipher(self) -> int:
        """The cipher of the block's data key, 0 for none."""
        ...

    @property
    def wrapped_key(self) -> bytes:
        """The block's data key under the stream's key; zeros where it is not encrypted."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the block's record checksums: other in every block and generation."""
        ...

    def next_generation(self, *, created_ns: int, cipher: int, wrapped_key: bytes) -> BlockHeader:
        """Return the header of a rewrite of this block."""
        ...

def record_seed(salt: int, number: int, generation: int) -> int:
    """Derive the checksum seed of a block's records."""
    ...

def encode_block_header(header: BlockHeader) -> bytes:
    """Return the 128 bytes."""
    ...

def decode_block_header(data: bytes, path: str) -> BlockHeader:
    """Read a header; raises CorruptStore, or UnsupportedVersion where the file is newer."""
    ...

def correct_block_header(data: bytes, path: str) -> BlockHeader | None:
    """Read a header of which one byte is damaged, or give None where it is more than one.

    Every other value of every byte is tried against the checksum: chance passes it once in 2**49.
    """
    ...

@disjoint_base
class BlockSummary:
    """One block in a checkpoint; `dead` is the bitmap of removed entries. Never changed."""

    def __init__(
        self,
        number: int,
        generation: int,
        base_seq: int,
        last_seq: int,
        count: int,
        live: int,
        bytes: int,
        live_bytes: int,
        live_disk_bytes: int,
        first_time_ns: int,
        last_time_ns: int,
        expiring: int,
        dead: _Bytes,
    ) -> None: ...
    @property
    def number(self) -> int:
        """The block's number."""
        ...

    @property
    def generation(self) -> int:
        """0 as first written, one more at each rewrite."""
        ...

    @property
    def base_seq(self) -> int:
        """No sequence of the block is below it."""
        ...

    @property
    def last_seq(self) -> int:
        """The highest sequence that the block accounts for."""
        ...

    @property
    def count(self) -> int:
        """Entries of its index, removed ones included."""
        ...

    @property
    def live(self) -> int:
        """Messages that are not removed."""
        ...

    @property
    def bytes(self) -> int:
        """The file's length."""
        ...

    @property
    def live_bytes(self) -> int:
        """What the live messages count for in the stream's bytes."""
        ...

    @property
    def live_disk_bytes(self) -> int:
        """The bytes of their records."""
        ...

    @property
    def first_time_ns(self) -> int:
        """The earliest time of an entry."""
        ...

    @property
    def last_time_ns(self) -> int:
        """The latest time of an entry."""
        ...

    @property
    def expiring(self) -> int:
        """Messages with a time to live, removed ones included."""
        ...

    @property
    def dead(self) -> _Bytes:
        """The bitmap of removed entries, b"" where there are none."""
        ...

def encode_summary(summary: BlockSummary) -> bytes:
    """Return a summary's bytes, its bitmap included."""
    ...

def decode_summaries(
    data: bytes, at: int, end: int, count: int, path: str
) -> tuple[list[BlockSummary], int]:
    """Read `count` summaries from data[at:end]; give them and where they end.

    Raises CorruptStore where they do not fit.
    """
    ...

@disjoint_base
class ScannedBlock:
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
        """Return True if there is a header, and it is that of this block of the stream."""
        ...

    def differs_from(self, summary: BlockSummary, *, is_indexed: bool, is_last: bool) -> str:
        """Return how the block differs from its entry in a checkpoint, "" if it does not.

        Only the last block may have grown since, and may lack its index.
        """
        ...

def scan_starts(
    folder: str, names: dict[int, str], starts: list[tuple[int, bytes]]
) -> dict[int, ScannedBlock]:
    """Return a folder's blocks by number, from their names and the starts of the files.

    What is wrong with a header is noted in `reason`. Raises UnsupportedVersion.
    """
    ...
