"""The system calls that compiled code makes on a store's files, as a table that tests replace."""

from collections.abc import Sequence
from typing import Final, Protocol

from typing_extensions import disjoint_base

@disjoint_base
class SystemCalls:
    """A table of system calls; this one is the operating system's."""

    def __init__(self) -> None: ...

SYSTEM_CALLS: Final[SystemCalls]
SYSTEM_ROOT: Final[int]
"""Where paths begin, as a descriptor."""

class _OpenFolder(Protocol):
    path: str

    @property
    def calls(self) -> SystemCalls: ...
    def call_fd(self) -> int: ...

def read_file_starts(
    folder: _OpenFolder, names: Sequence[str], size: int
) -> list[tuple[int, bytes]]:
    """Return the length and up to `size` first bytes of each of an open folder's files."""
    ...
