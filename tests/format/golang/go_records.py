"""What Go's server writes, made in plain Python, for tests that need odd or damaged stores."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.format.golang.highway import highway_hash, named_key

STREAM = "S"
HASH_KEY = named_key(f"{STREAM}-1")
ERASED = 1 << 63
TOMBSTONE = 1 << 62


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def varint(value: int) -> bytes:
    """Encode a signed varint."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def uvarints(*values: int) -> bytes:
    """Encode several unsigned varints."""
    return b"".join(map(uvarint, values))


def encode_record(
    seq: int,
    subject: bytes = b"",
    payload: bytes = b"",
    *,
    headers: bytes | None = None,
    timestamp_ns: int = 1,
    block: int = 1,
) -> bytes:
    """Encode one record of stream S; `seq` carries the erased and tombstone bits."""
    length = 30 + len(subject) + len(payload)
    between = b""
    if headers is not None:
        length += 4 + len(headers)
        between = struct.pack("<I", len(headers))
    fixed = struct.pack("<Qq", seq, timestamp_ns)
    rest = (headers or b"") + payload
    digest = highway_hash(fixed + subject + rest, named_key(f"{STREAM}-{block}"))
    marked = length | (0x80000000 if headers is not None else 0)
    return (
        struct.pack("<I", marked)
        + fixed
        + struct.pack("<H", len(subject))
        + subject
        + between
        + rest
        + digest
    )


def encode_deleted(seqs: Sequence[int], version: int = 2) -> bytes:
    """Encode a set of deleted sequences."""
    width = {1: 4096, 2: 2048}[version]
    nodes: dict[int, int] = {}
    for seq in seqs:
        base = seq // width * width
        nodes[base] = nodes.get(base, 0) | 1 << (seq - base)
    parts = [struct.pack("<BBII", 22, version, len(nodes), len(set(seqs)))]
    for base, bits in nodes.items():
        parts.append(base.to_bytes(8, "little") + bits.to_bytes(width // 8, "little") + b"\1\0")
    return b"".join(parts)


def encode_index(
    *,
    state: tuple[int, int, int, int],
    blocks: Sequence[tuple[int, int, int, int]],
    last_block: int,
    last_hash: bytes,
) -> bytes:
    """Encode an index.db of version 4.

    `state` is messages, bytes, first and last sequence; a block is its number, bytes, first and
    last sequence.
    """
    messages, size, first_seq, last_seq = state
    body = bytes([11, 4]) + uvarints(messages, size, first_seq) + varint(1)
    body += uvarints(last_seq) + varint(1) + uvarints(0, len(blocks))
    for number, block_size, block_first_seq, block_last_seq in blocks:
        body += uvarints(number, block_size, block_first_seq) + varint(0)
        body += uvarints(block_last_seq) + varint(0) + uvarints(0, 0, 0)
    body += uvarint(last_block) + last_hash
    return body + highway_hash(body, named_key(STREAM))


def write_stream(
    folder: Path,
    blocks: Mapping[int, bytes],
    *,
    config: Any = None,
    index: bytes | None = None,
) -> Path:
    """Write a folder of stream S; `config` is any JSON value."""
    path = folder / "A" / "streams" / STREAM
    (path / "msgs").mkdir(parents=True)
    meta = json.dumps({"name": STREAM} if config is None else config).encode()
    (path / "meta.inf").write_bytes(meta)
    (path / "meta.sum").write_text(highway_hash(meta, named_key(STREAM)).hex())
    for number, data in blocks.items():
        (path / "msgs" / f"{number}.blk").write_bytes(data)
    if index is not None:
        (path / "msgs" / "index.db").write_bytes(index)
    return path
