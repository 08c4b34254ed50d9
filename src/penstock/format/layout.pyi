"""Names of the files of a stream's directory; nothing else builds them."""

from collections.abc import Iterable

BLOCK_SUFFIX: str
INDEX_SUFFIX: str
STATE_NAME: str
HIGH_WATER_NAME: str
LOCK_NAME: str
QUARANTINE_NAME: str
CONSUMERS_NAME: str
TEMPORARY_SUFFIX: str
LEGACY_NAME: str
MIGRATING_NAME: str
IMPORT_NAME: str

def block_name(number: int) -> str:
    """Return a block file's name."""
    ...

def index_name(number: int) -> str:
    """Return the name of a block's index file."""
    ...

def consumer_state_name(consumer: str) -> str:
    """Return the name of a consumer's state file, below the consumers' folder."""
    ...

def block_number(name: str) -> int | None:
    """Return the number of a block file by its name, or None for another file."""
    ...

def index_number(name: str) -> int | None:
    """Return the number of an index file by its name, or None for another file."""
    ...

def is_temporary(name: str) -> bool:
    """Return True if a name is that of a file that an interrupted write of the store left."""
    ...

def sort_names(names: list[str]) -> tuple[dict[int, str], set[int], list[str]]:
    """Sort a folder's files by their names.

    Return the blocks' names by number, in order, the numbers of the indexes, and temporaries.
    """
    ...

def is_stream_directory(names: Iterable[str]) -> bool:
    """Return True if a folder with these names holds a stream, of this layout or the old one."""
    ...
