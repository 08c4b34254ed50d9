"""Names of the files of a stream's directory; nothing else builds them.

    000001.blk     a block: header and records
    000001.idx     its index, once it is sealed (derived)
    stream.state   checkpoint (derived)
    high.water     the highest sequence ever made durable
    LOCK           held by the process that writes, with its pid
    consumers/     a folder for each consumer: its configuration and its state
    quarantine/    bytes that were cut off or could not be read, kept for people
    import.json    configuration of the stream and its consumers, where another server wrote them
    messages.jsonl the old layout, migrated when the store is opened
    migrating/     the blocks that become of it, until they are all there

Pure; any thread.
"""

import re

from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)

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

cdef uint64_t NUMBER_MAX = 0xFFFFFFFF
cdef const char* BLOCK_END = b".blk"
cdef const char* INDEX_END = b".idx"
cdef const char* TEMPORARY_END = b".tmp"
cdef enum:
    END_SIZE = 4
    DIGITS_MIN = 6
    DIGITS_MAX = 10

_TEMPORARY = re.compile(
    r"(?:[0-9]{6,10}\.(?:blk|idx)|stream\.state|high\.water)\.[0-9a-f]{16}\.tmp\Z"
)


def block_name(number):
    """Return a block file's name."""
    return f"{number:06d}{BLOCK_SUFFIX}"


def index_name(number):
    """Return the name of a block's index file."""
    return f"{number:06d}{INDEX_SUFFIX}"


def consumer_state_name(consumer):
    """Return the name of a consumer's state file, below the consumers' folder."""
    return f"{consumer}.state"


cdef bint ends_with(str name, const char* end) noexcept:
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(name)
    return (
        size >= END_SIZE and PyUnicode_IS_COMPACT_ASCII(name)
        and memcmp(<const char*>PyUnicode_DATA(name) + size - END_SIZE, end, END_SIZE) == 0
    )


cdef uint64_t number_of(str name, const char* end) noexcept:
    # 0 for another name. Only the one spelling of a number that a header can hold: six digits,
    # more where it must.
    cdef Py_ssize_t digits = PyUnicode_GET_LENGTH(name) - END_SIZE, place
    cdef const uint8_t* text
    cdef uint64_t number = 0
    if digits < DIGITS_MIN or digits > DIGITS_MAX or not ends_with(name, end):
        return 0
    text = <const uint8_t*>PyUnicode_DATA(name)
    if digits > DIGITS_MIN and text[0] == c"0":
        return 0
    for place in range(digits):
        if not c"0" <= text[place] <= c"9":
            return 0
        number = number * 10 + (text[place] - c"0")
    return number if number <= NUMBER_MAX else 0


def block_number(str name not None):
    """Return the number of a block file by its name, or None for another file."""
    return number_of(name, BLOCK_END) or None


def index_number(str name not None):
    """Return the number of an index file by its name, or None for another file."""
    return number_of(name, INDEX_END) or None


def is_temporary(str name not None):
    """Return True if a name is that of a file that an interrupted write of the store left."""
    return ends_with(name, TEMPORARY_END) and _TEMPORARY.match(name) is not None


def sort_names(list names not None):
    """Sort a folder's files by their names.

    Return the blocks' names by number, in order, the numbers of the indexes, and temporaries.
    """
    cdef str name
    cdef uint64_t number, before = 0
    cdef bint in_order = True
    cdef dict blocks = {}
    cdef set indexes = set()
    cdef list temporaries = []
    for name in names:
        number = number_of(name, BLOCK_END)
        if number:
            in_order = in_order and number > before
            before = number
            blocks[number] = name
            continue
        number = number_of(name, INDEX_END)
        if number:
            indexes.add(number)
        elif is_temporary(name):
            temporaries.append(name)
    return blocks if in_order else dict(sorted(blocks.items())), indexes, temporaries


def is_stream_directory(names):
    """Return True if a folder with these names holds a stream, of this layout or the old one."""
    known = {STATE_NAME, HIGH_WATER_NAME, LEGACY_NAME}
    return any(name in known or block_number(name) is not None for name in names)
