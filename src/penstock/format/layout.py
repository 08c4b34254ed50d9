"""Names of the files of a stream's directory; nothing else builds them.

    000001.blk     a block: header and records
    000001.idx     its index, once it is sealed (derived)
    stream.state   checkpoint (derived)
    high.water     the highest sequence ever made durable
    LOCK           held by the process that writes, with its pid
    consumers/     one state file a consumer
    quarantine/    bytes that were cut off or could not be read, kept for people
    import.json    configuration of the stream and its consumers, where another server wrote them
    messages.jsonl the old layout, migrated when the store is opened
    migrating/     the blocks that become of it, until they are all there

Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

BLOCK_SUFFIX = ".blk"
INDEX_SUFFIX = ".idx"
STATE_NAME = "stream.state"
HIGH_WATER_NAME = "high.water"
LOCK_NAME = "LOCK"
QUARANTINE_NAME = "quarantine"
CONSUMERS_NAME = "consumers"
TEMPORARY_SUFFIX = ".tmp"
LEGACY_NAME = "messages.jsonl"
MIGRATING_NAME = "migrating"
IMPORT_NAME = "import.json"

_NUMBER_MAX = 2**32 - 1

_TEMPORARY = re.compile(
    r"(?:[0-9]{6,10}\.(?:blk|idx)|stream\.state|high\.water)\.[0-9a-f]{16}\.tmp\Z"
)


def block_name(number: int) -> str:
    """Give a block file's name."""
    return f"{number:06d}{BLOCK_SUFFIX}"


def index_name(number: int) -> str:
    """Give the name of a block's index file."""
    return f"{number:06d}{INDEX_SUFFIX}"


def consumer_state_name(consumer: str) -> str:
    """Give the name of a consumer's state file, below the consumers' folder."""
    return f"{consumer}.state"


def block_number(name: str) -> int | None:
    """Give the number of a block file by its name, or None for another file."""
    return _number(name, BLOCK_SUFFIX)


def index_number(name: str) -> int | None:
    """Give the number of an index file by its name, or None for another file."""
    return _number(name, INDEX_SUFFIX)


def _number(name: str, suffix: str) -> int | None:
    # Only the one spelling of a number that a header can hold: six digits, more where it must.
    digits = name[:-4]
    if name[-4:] != suffix or not (digits.isascii() and digits.isdecimal()):
        return None
    if len(digits) != 6 and (len(digits) < 6 or digits[0] == "0"):
        return None
    number = int(digits)
    return number if 0 < number <= _NUMBER_MAX else None


def is_temporary(name: str) -> bool:
    """Tell whether a name is that of a file that an interrupted write of ours left."""
    return _TEMPORARY.match(name) is not None


def is_stream_directory(names: Iterable[str]) -> bool:
    """Tell whether a folder with these names in it holds a stream, of today's layout or the old."""
    known = {STATE_NAME, HIGH_WATER_NAME, LEGACY_NAME}
    return any(name in known or block_number(name) is not None for name in names)
