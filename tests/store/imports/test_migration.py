"""Migration of the old layout: no message lost or doubled, wherever it is interrupted."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.errors import CorruptStore, PenstockError
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import LEGACY_NAME, MIGRATING_NAME
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.vfs import FileSystem, OsFileSystem, Root
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultPlan, FaultyFileSystem, every_fault
from penstock.testing.filesystem import MemoryFileSystem

PATH = "/store/orders"
ORIGINAL = f"{PATH}/{LEGACY_NAME}"
START_NS = 1_600_000_000_000_000_000
CONFIG = StoreConfig(name="orders", block_bytes=4096)
CHANCE = Random(1)
Row = tuple[int, int, bytes, bytes, bytes]


def message_line(seq: int) -> bytes:
    fields: dict[str, Any] = {
        "sequence": seq,
        "subject": f"orders.{seq % 3}",
        "payload": base64.b64encode(b"%d" % seq * (seq % 60)).decode(),
        "timestamp": START_NS + seq,
    }
    if seq % 4 == 0:
        fields["headers"] = {"Number": str(seq)}
    return json.dumps(fields).encode() + b"\n"


def expected_row(seq: int) -> Row:
    headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % seq if seq % 4 == 0 else b""
    return seq, START_NS + seq, b"orders.%d" % (seq % 3), headers, b"%d" % seq * (seq % 60)


SEQUENCES = [*range(3, 40), *range(45, 60)]
LINES = b"".join(message_line(seq) for seq in SEQUENCES)
ROWS = [expected_row(seq) for seq in SEQUENCES]


def old_layout(data: bytes = LINES) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_dirs(PATH)
    for folder in ("/", "/store"):
        files.sync_dir(folder)
    file = files.open(ORIGINAL, "create")
    file.write_at(0, data)
    file.sync_data()
    file.close()
    files.sync_dir(PATH)
    return files


def open_store(files: FileSystem, config: StoreConfig = CONFIG, path: str = PATH) -> FileStore:
    return FileStore.open(
        path,
        config,
        files=files,
        clock=FakeClock(),
        random_bytes=CHANCE.randbytes,
        key=StoreKey(b"secret"),
        threaded=False,
    )


def rows(store: FileStore) -> list[Row]:
    found: list[Row] = []
    seq = 1
    with contextlib.suppress(LookupError):
        while True:
            message = store.load_next(seq)
            seq = message.seq + 1
            found.append(
                (
                    message.seq,
                    message.timestamp_ns,
                    message.subject,
                    message.headers,
                    message.payload,
                )
            )
    return found


def leftovers(files: FileSystem) -> set[str]:
    return {LEGACY_NAME, MIGRATING_NAME} & set(files.list_names(PATH))


def test_every_message_moves_to_blocks_and_the_original_goes() -> None:
    files = old_layout()

    store = open_store(files)

    assert rows(store) == ROWS
    assert store.report.migrated_messages == len(ROWS)
    assert store.report.clean
    assert leftovers(files) == set()
    assert sum(name.endswith(".blk") for name in files.list_names(PATH)) > 1
    assert store.store(b"orders.1", b"", b"next")[0] == SEQUENCES[-1] + 1


def test_a_migrated_store_is_not_migrated_again() -> None:
    files = old_layout()
    open_store(files).stop()

    store = open_store(files)

    assert rows(store) == ROWS
    assert store.report.migrated_messages == 0


def test_the_new_blocks_are_sealed_as_the_configuration_says() -> None:
    for cipher in Cipher:
        for compression in Compression:
            files = old_layout()
            config = StoreConfig(
                name="orders", block_bytes=4096, cipher=cipher, compression=compression
            )

            assert rows(open_store(files, config)) == ROWS


def test_the_limits_apply_after_the_migration() -> None:
    store = open_store(old_layout(), StoreConfig(name="orders", max_msgs=10))

    assert rows(store) == ROWS[-10:]
    assert store.report.migrated_messages == len(ROWS)


def test_an_empty_original_becomes_an_empty_store() -> None:
    files = old_layout(b"")

    store = open_store(files)

    assert (store.state().messages, store.state().last_seq) == (0, 0)
    assert leftovers(files) == set()


def test_an_unreadable_line_ends_the_opening_and_changes_nothing() -> None:
    data = LINES + b"{oops}\n" + message_line(200)
    files = old_layout(data)

    with pytest.raises(CorruptStore) as caught:
        open_store(files)

    assert (caught.value.path, caught.value.offset) == (ORIGINAL, len(LINES))
    assert caught.value.reason.startswith(f"line {len(SEQUENCES) + 1}: ")
    assert set(files.list_names(PATH)) == {LEGACY_NAME, "LOCK"}
    assert files.snapshot()[ORIGINAL] == data


def test_a_torn_last_line_is_kept_aside_and_noted() -> None:
    torn = message_line(200)[:-5]
    files = old_layout(LINES + torn)

    store = open_store(files)

    assert rows(store) == ROWS
    (note,) = store.report.notes
    assert LEGACY_NAME in note
    (kept,) = files.list_names(f"{PATH}/quarantine")
    assert files.snapshot()[f"{PATH}/quarantine/{kept}"] == torn


def test_an_original_beside_blocks_is_refused_and_both_are_left_alone() -> None:
    files = old_layout()
    store = open_store(files)
    store.stop()
    file = files.open(ORIGINAL, "create")
    file.write_at(0, message_line(1))
    file.close()
    before = files.snapshot()

    with pytest.raises(CorruptStore) as caught:
        open_store(files)

    assert caught.value.path == ORIGINAL
    assert files.snapshot() == before


def test_what_others_put_beside_is_left_alone() -> None:
    files = MemoryFileSystem()
    files.make_dirs(f"{PATH}/{MIGRATING_NAME}")
    files.open(f"{PATH}/{MIGRATING_NAME}/notes.txt", "create").close()

    store = open_store(files)

    assert files.exists(f"{PATH}/{MIGRATING_NAME}/notes.txt")
    assert len(store.report.notes) == 1


def test_a_power_cut_after_the_opening_finds_every_message() -> None:
    files = old_layout()
    open_store(files)

    survivor = files.crash()

    assert rows(open_store(survivor)) == ROWS
    assert leftovers(survivor) == set()


@pytest.mark.parametrize("torn", [b"", message_line(200)[:-5]], ids=["whole", "torn"])
def test_a_crash_at_any_call_loses_and_doubles_nothing(torn: bytes) -> None:
    runs = 0
    for plan in every_fault(forever=True):
        disk = old_layout(LINES + torn)
        with contextlib.suppress(OSError, PenstockError):
            open_store(FaultyFileSystem(disk, plan)).stop()
        # A power cut that loses all that was not synced, some that keep parts of it, and the death
        # of the process alone, after which the disk holds everything.
        seeds = [f"{plan.nth} {turn}" for turn in range(4)]
        survivors = [disk.survivor(keep) for keep in (None, *map(Random, seeds))]
        for found in [*survivors, disk]:
            assert rows(open_store(found)) == ROWS
            assert leftovers(found) == set()
            assert len(found.list_names(f"{PATH}/quarantine") if torn else []) == (1 if torn else 0)
        assert rows(open_store(survivors[0].crash())) == ROWS
        runs += 1
    assert runs > 50


def test_a_crash_while_going_on_after_a_crash_loses_and_doubles_nothing() -> None:
    chance = Random(7)
    calls = FaultyFileSystem(old_layout())
    open_store(calls)
    for _ in range(60):
        disk = old_layout()
        for _ in range(3):
            nth = chance.randrange(1, len(calls.audit))
            plan = FaultPlan(nth, forever=True)
            with contextlib.suppress(OSError, PenstockError):
                open_store(FaultyFileSystem(disk, plan))
            disk = disk.crash(Random(chance.random()))

        assert rows(open_store(disk)) == ROWS


def test_a_call_that_fails_once_ends_the_opening_or_costs_nothing() -> None:
    for plan in every_fault():
        disk = old_layout()
        with contextlib.suppress(OSError, PenstockError):
            assert rows(open_store(FaultyFileSystem(disk, plan))) == ROWS

        assert rows(open_store(disk.crash())) == ROWS


class _KilledAtCall:
    """The real file system, in a process that kills itself before its n-th call."""

    root: Root | None = None
    """Files are made by `open` alone, which is counted."""

    def __init__(self, nth: int) -> None:
        self._files = OsFileSystem()
        self._left = nth

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._files, name)

        def counted(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        return counted


def test_a_killed_process_loses_and_doubles_nothing(tmp_path: Path) -> None:
    was_killed = True
    nth = 0
    while was_killed:
        # Every third call: the memory file system above is stopped at each of them.
        nth += 3
        path = tmp_path / str(nth)
        path.mkdir()
        (path / LEGACY_NAME).write_bytes(LINES)
        child = os.fork()
        if child == 0:
            # Only the kernel may see this process end, not the test runner that it is a copy of.
            with contextlib.suppress(BaseException):
                open_store(_KilledAtCall(nth), path=str(path))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        was_killed = os.WIFSIGNALED(status)

        with open_store(OsFileSystem(), path=str(path)) as store:
            assert rows(store) == ROWS
        assert not {LEGACY_NAME, MIGRATING_NAME} & set(os.listdir(path))
    assert nth > 20
