"""The header of a block file, and the seed of its records' checksums."""

from typing_extensions import disjoint_base

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
        """Give the header of a rewrite of this block."""
        ...

def record_seed(salt: int, number: int, generation: int) -> int:
    """Derive the checksum seed of a block's records."""
    ...

def encode_block_header(header: BlockHeader) -> bytes:
    """Give the 128 bytes."""
    ...

def decode_block_header(data: bytes, path: str) -> BlockHeader:
    """Read a header; raises CorruptStore, or UnsupportedVersion where the file is newer."""
    ...

def correct_block_header(data: bytes, path: str) -> BlockHeader | None:
    """Read a header of which one byte is damaged, or give None where it is more than one.

    Every other value of every byte is tried against the checksum: chance passes it once in 2**49.
    """
    ...
