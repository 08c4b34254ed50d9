"""The first bytes of many files, in one go: what an open asks of every block of a stream."""

from collections.abc import Sequence

def read_file_starts(folder: str, names: Sequence[str], size: int) -> list[tuple[int, bytes]]:
    """Give the length and up to `size` first bytes of each of a folder's files."""
    ...
