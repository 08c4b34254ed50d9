"""Reading single messages: the files of one sealed block, and a message as it lies in a record."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from penstock.store.vfs import File

@disjoint_base
class BlockFiles:
    """The open files of one block; `open_index` gives its index file when it is first needed."""

    def __init__(
        self, path: str, block_file: File, open_index: Callable[[], File | None]
    ) -> None: ...
    @property
    def path(self) -> str:
        """The block file's path."""
        ...

    def read_bytes(self, offset: int, size: int) -> bytes:
        """Read `size` bytes of the block; raises CorruptStore where it ends before."""
        ...

    def close(self) -> None:
        """Close both files."""
        ...

@disjoint_base
class StoredMessage:
    """One message of the store."""

    @property
    def seq(self) -> int:
        """Its sequence."""
        ...

    @property
    def timestamp_ns(self) -> int:
        """When it was stored."""
        ...

    @property
    def expires_ns(self) -> int:
        """When its own time to live ends; 0 for never."""
        ...

    @property
    def subject(self) -> bytes:
        """The subject it was stored under."""
        ...

    @property
    def headers(self) -> bytes:
        """The header block as it came, or b""."""
        ...

    @property
    def payload(self) -> bytes:
        """The payload."""
        ...
