"""Stores that the command line is run on, and how a test looks into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.format.columns import MessageRow
from penstock.format.envelope import StoreKey
from penstock.format.reader import StreamReader
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.clock import FakeClock

START_NS = 1_784_548_800_000_000_000
"""2026-07-20T12:00:00Z: the time of the first message; each further one is a second later."""

SECOND_NS = 1_000_000_000
KEY = b"correct horse battery staple"


def fill(store: FileStore, clock: FakeClock, count: int, first: int = 1) -> None:
    """Store numbered messages on four subjects, a second apart, every fifth with a header."""
    for number in range(first, first + count):
        headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number if number % 5 == 0 else b""
        payload = b"message %d " % number + b"x" * (number % 50)
        store.store(
            b"orders.%s" % [b"eu", b"us", b"apac", b"eu.late"][number % 4], headers, payload
        )
        clock.advance_ns(SECOND_NS)
    store.flush()


def make_store(
    path: Path, count: int = 300, *, key: bytes | None = None, **config: Any
) -> dict[int, MessageRow]:
    """Make a store in blocks of 4 KiB with every seventh message removed; give what is left."""
    clock = FakeClock(now_ns=START_NS)
    settings = StoreConfig(name=path.name, block_bytes=4096, **config)
    store_key = None if key is None else StoreKey(key)
    with FileStore.open(str(path), settings, clock=clock, key=store_key, threaded=False) as store:
        fill(store, clock, count)
        for seq in range(7, count + 1, 7):
            store.remove(seq)
        store.flush()
    return read_back(path, key)


def read_back(path: Path, key: bytes | None = None) -> dict[int, MessageRow]:
    """Return every live message by its sequence."""
    store_key = None if key is None else StoreKey(key)
    reader = StreamReader(str(path), stream=path.name, key=store_key)
    return {message.seq: message for batch in reader.batches() for message in batch.messages()}


def flip(path: Path, offset: int) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def block_of(path: Path, seq: int) -> tuple[Path, int]:
    """Return the block file that holds a message, and the offset of the message in it."""
    for batch in StreamReader(str(path), stream=path.name).batches():
        for message in batch.messages():
            if message.seq == seq:
                return path / f"{batch.block:06d}.blk", message.offset
    raise LookupError(seq)
