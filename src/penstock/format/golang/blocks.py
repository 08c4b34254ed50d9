"""The block files of one stream: from `<n>.blk` to records.

    on disk = keystream XOR (packed or plain records)
    packed  = "cmp" | algorithm u8 (1: S2) | uvarint plain size | S2 stream | last 8 plain bytes

A block with a `<n>.key` beside it is encrypted; one without is not, even in an encrypted stream:
the server encrypts what it finds plain when it next starts. Only sealed blocks are packed.

Whatever a file holds, the answer is a `GoBlock` or FormatError; nothing larger than the bound in
`limits` is loaded. Reads only.
"""

from __future__ import annotations

import re

from penstock.errors import FormatError, WrongKey
from penstock.format.files import ReadableFolder
from penstock.format.golang.cursor import ByteCursor
from penstock.format.golang.highway import named_key
from penstock.format.golang.index_db import HASH_BYTES
from penstock.format.golang.keys import ServerKey
from penstock.format.golang.records import GoBlock
from penstock.format.golang.s2 import decode_s2_stream, salvage_s2_stream
from penstock.limits import GO_BLOCK_BYTES_MAX

_BLOCK_NAME = re.compile(r"([0-9]{1,10})\.blk")
_PACKED_WITH_S2 = b"cmp\x01"


def read_whole(folder: ReadableFolder, name: str, bytes_max: int | None = None) -> bytes:
    """Read a file; FormatError if it is longer than `bytes_max`."""
    file = folder.open(name)
    try:
        size = file.size()
        if bytes_max is not None and size > bytes_max:
            raise FormatError(f"{size} bytes: more than the server ever writes", offset=bytes_max)
        return file.read_at(0, size)
    finally:
        file.close()


def unpack_block(data: bytes) -> bytes:
    """Give the plain bytes of a decrypted block; what cannot be unpacked becomes zeros."""
    if not data.startswith(_PACKED_WITH_S2) or len(data) < len(_PACKED_WITH_S2) + 1 + HASH_BYTES:
        return data
    cursor = ByteCursor(data)
    cursor.take(len(_PACKED_WITH_S2))
    plain_size = cursor.uvarint()
    stream, tail = data[cursor.at : -HASH_BYTES], data[-HASH_BYTES:]
    try:
        return decode_s2_stream(stream, GO_BLOCK_BYTES_MAX) + tail
    except FormatError:
        wanted = min(plain_size, GO_BLOCK_BYTES_MAX) - HASH_BYTES
        return salvage_s2_stream(stream, max(wanted, 0))[0] + tail


class BlockFolder:
    """The folder of a stream's blocks."""

    def __init__(
        self, folder: ReadableFolder, stream: str, server_key: ServerKey | None, *, key_proven: bool
    ) -> None:
        """`key_proven` says that the server key has opened another file of this stream."""
        self._folder = folder
        self._stream = stream
        self._server_key = server_key
        self._key_proven = key_proven
        self._names = set(folder.list_names())
        matches = (_BLOCK_NAME.fullmatch(name) for name in self._names)
        self.numbers = sorted(int(match[1]) for match in matches if match)

    @property
    def path(self) -> str:
        """Give the folder's path."""
        return self._folder.path

    def load_index(self) -> bytes | None:
        """Read `index.db`, or None if there is none."""
        return read_whole(self._folder, "index.db") if "index.db" in self._names else None

    def block_bytes(self, number: int) -> int:
        """Tell how long a block's file is."""
        file = self._folder.open(f"{number}.blk")
        try:
            return file.size()
        finally:
            file.close()

    def load_records(self, number: int) -> GoBlock:
        """Read a block; raises FormatError if nothing of it can be read, or WrongKey."""
        plain = unpack_block(self._load_decrypted(number))
        return GoBlock(plain, named_key(f"{self._stream}-{number}"))

    def load_last_hash(self, number: int) -> bytes:
        """Give the last 8 plain bytes of a block, zeros if it has none."""
        return self._load_decrypted(number)[-HASH_BYTES:].rjust(HASH_BYTES, b"\0")

    def _load_decrypted(self, number: int) -> bytes:
        data = read_whole(self._folder, f"{number}.blk", GO_BLOCK_BYTES_MAX)
        key_name = f"{number}.key"
        if key_name not in self._names:
            return data
        if self._server_key is None:
            raise WrongKey(self.path, f"block {number} is encrypted and no key was given")
        key_file = read_whole(self._folder, key_name)
        key = self._server_key.open_key_file(f"{self._stream}:{number}", key_file)
        if key is not None:
            return key.decrypt_block(data)
        if self._key_proven:
            raise FormatError(f"{key_name} does not open with the server's key")
        raise WrongKey(self.path, f"the key does not open {key_name}")
