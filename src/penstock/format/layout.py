"""Names of the files of a stream's directory; nothing else builds them.

    000001.blk     a block: header and records
    000001.idx     its index, once it is sealed (derived)
    stream.state   checkpoint (derived)
    high.water     the highest sequence ever made durable
    LOCK           held by the process that writes, with its pid
    consumers/     one state file a consumer
    quarantine/    bytes that were cut off or could not be read, kept for people

Pure; any thread.
"""

from __future__ import annotations

import re

BLOCK_SUFFIX = ".blk"
INDEX_SUFFIX = ".idx"
STATE_NAME = "stream.state"
HIGH_WATER_NAME = "high.water"
LOCK_NAME = "LOCK"
QUARANTINE_NAME = "quarantine"
CONSUMERS_NAME = "consumers"
TEMPORARY_SUFFIX = ".tmp"
LEGACY_NAME = "messages.jsonl"

_BLOCK = re.compile(r"([0-9]{6,10})\.blk\Z")
_INDEX = re.compile(r"([0-9]{6,10})\.idx\Z")
_TEMPORARY = re.compile(
    r"(?:[0-9]{6,10}\.(?:blk|idx)|stream\.state|high\.water)\.[0-9a-f]{16}\.tmp\Z"
)


def block_name(number: int) -> str:
    """Give a block file's name."""
    return f"{number:06d}{BLOCK_SUFFIX}"


def index_name(number: int) -> str:
    """Give the name of a block's index file."""
    return f"{number:06d}{INDEX_SUFFIX}"


def block_number(name: str) -> int | None:
    """Give the number of a block file by its name, or None for another file."""
    found = _BLOCK.match(name)
    return int(found[1]) if found else None


def index_number(name: str) -> int | None:
    """Give the number of an index file by its name, or None for another file."""
    found = _INDEX.match(name)
    return int(found[1]) if found else None


def is_temporary(name: str) -> bool:
    """Tell whether a name is that of a file that an interrupted write of ours left."""
    return _TEMPORARY.match(name) is not None
