"""Write the golden stores of the current format version, with a manifest of what they hold.

    python -m tests.golden.make_golden tests/golden/v1

Run once for each new format version, into a folder that is not there yet: what was released is
never written again. Clock and randomness are fixed, so that two runs give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import CONSUMERS_NAME, LOCK_NAME, consumer_state_name
from penstock.format.state.consumer import (
    ConsumerState,
    DeadLetter,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
)
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.subjects import SubjectFilter
from penstock.testing.clock import START_NS, FakeClock

SECRET = b"the golden test key, which is no secret"
STREAM = "GOLDEN"
MANIFEST = "manifest.json"
DAY_NS = 86_400 * 1_000_000_000

CONSUMER = ConsumerState(
    delivered=SequencePair(12, 40),
    ack_floor=SequencePair(5, 20),
    pending={
        22: PendingDelivery(6, START_NS),
        25: PendingDelivery(11, START_NS + 2_000_000_000),
        40: PendingDelivery(12, START_NS + 1_000_000_000),
    },
    redelivered={9: 3, 25: 1},
)

CONSUMER_2 = ConsumerState(
    CONSUMER.delivered,
    CONSUMER.ack_floor,
    CONSUMER.pending,
    CONSUMER.redelivered,
    held={21, 23, 24, 39},
    letters={
        25: DeadLetter(2, START_NS + 3_000_000_000, is_terminated=True, text=b"no such order")
    },
)
"""The same in version 2; its bytes are `consumer_state_2.state`."""


class Maker:
    """One golden store being made."""

    def __init__(self, folder: Path, **config: object) -> None:
        self.clock = FakeClock()
        self.random = random.Random(folder.name)
        self.folder = folder
        self.store = FileStore.open(
            str(folder),
            StoreConfig(name=STREAM, block_bytes=4096, **config),  # type: ignore[arg-type]  # named by the caller
            clock=self.clock,
            random_bytes=self.random.randbytes,
            key=StoreKey(SECRET) if config.get("cipher") else None,
            threaded=False,
        )

    def fill(self, count: int, *, expires_ns: int = 0) -> None:
        """Store messages of mixed sizes; some have headers, one is empty in all but its subject."""
        for place in range(count):
            size = (0, 20, 150, 300)[place % 4]
            payload = b"golden " * (size // 7) if place % 3 else self.random.randbytes(size)
            headers = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % place if place % 2 else b""
            subject = b"orders.%s.%d" % ((b"eu", b"us")[place % 2], place % 5)
            self.store.store(subject, headers, payload, expires_ns=expires_ns)
            self.clock.advance_ns(1_000_000)
        self.store.flush()

    def finish(self) -> None:
        """Write the manifest, then stop."""
        self.store.flush()
        manifest = {"stream": STREAM, **describe(self.store)}
        self.store.stop()
        (self.folder / LOCK_NAME).unlink()
        text = json.dumps(manifest, indent=1) + "\n"
        (self.folder.parent / f"{self.folder.name}.{MANIFEST}").write_text(text)


def describe(store: FileStore) -> dict[str, object]:
    """Return what a manifest says of a store: its state, and every message."""
    state = store.state()
    gone = store.deleted()
    messages = []
    for seq in range(state.first_seq, state.last_seq + 1):
        if seq in gone:
            continue
        message = store.load(seq)
        messages.append(
            {
                "seq": seq,
                "subject": message.subject.decode(),
                "headers": base64.b64encode(message.headers).decode(),
                "payload_sha256": hashlib.sha256(message.payload).hexdigest(),
                "timestamp_ns": message.timestamp_ns,
                "expires_ns": message.expires_ns,
            }
        )
    return {
        "state": {
            "messages": state.messages,
            "bytes": state.bytes,
            "first_seq": state.first_seq,
            "last_seq": state.last_seq,
            "subjects": state.subjects,
        },
        "messages": messages,
    }


def make_plain(folder: Path) -> None:
    """Several blocks of plain messages, and a consumer."""
    maker = Maker(folder)
    maker.fill(60)
    maker.finish()
    consumers = folder / CONSUMERS_NAME
    consumers.mkdir()
    (consumers / consumer_state_name("mailer")).write_bytes(encode_consumer_state(CONSUMER))


def make_removals(folder: Path) -> None:
    """Tombstones, an erased record, skips, a gap, times to live; nothing is rewritten yet."""
    maker = Maker(folder)
    store = maker.store
    maker.fill(30)
    store.skip()
    store.skip(500)
    maker.fill(20, expires_ns=START_NS + 36_500 * DAY_NS)
    for seq in (2, 3, 5, 12, 25):
        store.remove(seq)
    store.flush()
    store.erase(7)
    store.store_raw(b"far", b"", b"after a gap", seq=5_000, timestamp_ns=START_NS + DAY_NS)
    maker.fill(15)
    maker.finish()


def make_rewritten(folder: Path) -> None:
    """Blocks that were rewritten after a purge, with tombstones that moved."""
    maker = Maker(folder)
    maker.fill(60)
    maker.store.purge(SubjectFilter([b"orders.us.*"]), keep=4)
    maker.store.reclaim()
    maker.fill(20)
    maker.finish()


def make_compressed(folder: Path) -> None:
    """Compressed envelopes."""
    maker = Maker(folder, compression=Compression.SNAPPY)
    maker.fill(60)
    maker.store.remove(7)
    maker.finish()


def make_chacha20(folder: Path) -> None:
    """ChaCha20-Poly1305 over compressed bytes, with a rewritten block."""
    maker = Maker(folder, compression=Compression.SNAPPY, cipher=Cipher.CHACHA20_POLY1305)
    maker.fill(60)
    for seq in range(1, 15):
        maker.store.remove(seq)
    maker.store.flush()
    maker.store.reclaim()
    maker.finish()


def make_aes256(folder: Path) -> None:
    """AES-256-GCM over plain bytes."""
    maker = Maker(folder, cipher=Cipher.AES_256_GCM)
    maker.fill(40)
    maker.store.erase(11)
    maker.finish()


CASES: dict[str, Callable[[Path], None]] = {
    "plain": make_plain,
    "removals": make_removals,
    "rewritten": make_rewritten,
    "compressed": make_compressed,
    "chacha20": make_chacha20,
    "aes256": make_aes256,
}


def make_all(target: Path) -> None:
    """Write every golden store below `target`, which must not exist."""
    target.mkdir(parents=True)
    for name, make in CASES.items():
        make(target / name)


if __name__ == "__main__":
    make_all(Path(sys.argv[1]))
