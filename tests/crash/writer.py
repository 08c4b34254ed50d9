"""A process that writes to a store until it is killed, and tells what became durable.

    python -m tests.crash.writer STORE LEDGER SEED

Each durable sequence is noted in the file LEDGER, which is mapped memory outside of the store: what
stands there when the process dies was acknowledged. Message `seq` has the payload that
`payload_of(seq)` gives, so that a reader knows what it must be. Every tenth message
is removed again; those are noted in LEDGER too, once the removal is durable.
"""

from __future__ import annotations

import mmap
import struct
import sys
import threading
from pathlib import Path
from random import Random

from penstock.errors import StoreError
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

CONFIG = StoreConfig(name="killed", block_bytes=64 * 1024, max_msgs=20_000)
LEDGER_BYTES = 16
WRITERS = 3


def payload_of(seq: int) -> bytes:
    """Return the one payload that message `seq` can have."""
    return Random(seq).randbytes(16 + seq * 31 % 400)


class Ledger:
    """(durable sequence, sequence up to which removals are durable) in mapped memory."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(LEDGER_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), LEDGER_BYTES)

    def read(self) -> tuple[int, int]:
        durable, removed = struct.unpack("<QQ", self._memory[:])
        return durable, removed

    def note_durable(self, seq: int) -> None:
        self._memory[:8] = struct.pack("<Q", seq)

    def note_removed(self, seq: int) -> None:
        self._memory[8:] = struct.pack("<Q", seq)


def write(store: FileStore, ledger: Ledger, seed: int) -> None:
    """Write from several threads until the store fails."""
    order = threading.Lock()
    random = Random(seed)

    def store_messages() -> None:
        try:
            while True:
                with order:
                    seq = store.state().last_seq + 1
                    if random.random() < 0.05:
                        store.store_batch(
                            [(b"a.b", b"", payload_of(seq + each)) for each in range(200)]
                        )
                    else:
                        store.store(b"a.%d" % (seq % 50), b"", payload_of(seq))
                if random.random() < 0.02:
                    store.flush()
        except (OSError, StoreError):
            return

    def remove_messages() -> None:
        try:
            done = ledger.read()[1]
            while True:
                last = store.durable_seq // 10 * 10
                for seq in range(done + 10, last + 1, 10):
                    store.remove(seq)
                store.flush()
                done = max(last, done)
                ledger.note_removed(done)
        except (OSError, StoreError):
            return

    threads = [threading.Thread(target=store_messages) for _ in range(WRITERS)]
    threads.append(threading.Thread(target=remove_messages))
    for thread in threads:
        thread.start()
    print("writing", flush=True)  # noqa: T201  # the parent waits for it
    for thread in threads:
        thread.join()


def main() -> None:
    """Open, and write until killed."""
    path, ledger_path, seed = sys.argv[1:]
    ledger = Ledger(Path(ledger_path))
    store = FileStore.open(path, CONFIG, on_durable=ledger.note_durable)
    write(store, ledger, int(seed))


def check(path: str, ledger: Ledger) -> int:
    """Hold the store against what was acknowledged; give the last sequence."""
    durable, removed = ledger.read()
    with FileStore.open(path, CONFIG, threaded=False) as store:
        state = store.state()
        assert store.report.damage == [], store.report
        assert state.last_seq >= durable
        assert state.messages >= min(durable * 9 // 10 - 10, CONFIG.max_msgs * 8 // 10)
        for seq in range(state.first_seq, state.last_seq + 1):
            is_gone = seq % 10 == 0
            if is_gone and seq > removed:
                continue
            if is_gone:
                assert not _exists(store, seq), seq
            else:
                assert store.load(seq).payload == payload_of(seq), seq
    return state.last_seq


def _exists(store: FileStore, seq: int) -> bool:
    return any(found.seq == seq for found in _from(store, seq))


def _from(store: FileStore, seq: int) -> list:  # type: ignore[type-arg]  # of StoredMessage
    try:
        return [store.load_next(seq)]
    except LookupError:
        return []


if __name__ == "__main__":
    main()
