"""Who waits for the disk: the caller that removes messages, and no other thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.vfs import File, Mode, OsFileSystem
from penstock.testing.servers import WAIT_S


class GatedFiles(OsFileSystem):
    """A disk on which overwriting or removing a block waits while the gate is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.is_waiting = False

    def open(self, path: str, mode: Mode) -> File:
        if mode == "update":
            self._pass(path)
        return super().open(path, mode)

    def unlink(self, path: str) -> None:
        self._pass(path)
        super().unlink(path)

    def _pass(self, path: str) -> None:
        if path.endswith(".blk") and not self.gate.is_set():
            self.is_waiting = True
            self.reached.set()
            assert self.gate.wait(WAIT_S)
            self.is_waiting = False


@pytest.fixture
def files() -> Iterator[GatedFiles]:
    gated = GatedFiles()
    yield gated
    gated.gate.set()


def filled(files: GatedFiles, path: Path) -> FileStore:
    store = FileStore.open(str(path), StoreConfig(block_bytes=4096), files=files)
    for _ in range(100):
        store.store(b"a", b"", bytes(200))
    store.flush()
    store.reclaim()
    return store


def check_that_others_go_on(store: FileStore, files: GatedFiles) -> None:
    assert files.reached.wait(WAIT_S)
    store.store(b"a", b"", b"next")
    last_seq = store.state().last_seq
    payload = store.load(last_seq).payload

    assert (last_seq, payload) == (101, b"next")
    assert files.is_waiting


def test_no_thread_waits_while_the_files_of_purged_messages_go(
    files: GatedFiles, tmp_path: Path
) -> None:
    with filled(files, tmp_path) as store:
        files.gate.clear()
        assert store.purge() == 100

        check_that_others_go_on(store, files)
        files.gate.set()
        store.reclaim()
        assert len(list(tmp_path.glob("*.blk"))) <= 2


def test_no_thread_waits_while_a_message_is_overwritten(files: GatedFiles, tmp_path: Path) -> None:
    with filled(files, tmp_path) as store:
        files.gate.clear()
        erasing = threading.Thread(target=store.erase, args=(7,))
        erasing.start()

        check_that_others_go_on(store, files)
        files.gate.set()
        erasing.join()
        assert store.state().messages == 100
