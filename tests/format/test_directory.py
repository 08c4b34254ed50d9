"""One judgement of a directory: a reader serves and reports what a recovering store does.

Directories are damaged in many ways: bits flipped, files cut off, lengthened, removed, swapped,
replaced by those of another stream or by noise. Before a store recovers such a directory, a reader
reads it; both must give the same messages, call the same sequences lost and end at the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from penstock.errors import StoreReadOnly
from penstock.format.block import HEADER_BYTES
from penstock.format.damage import Damage
from penstock.format.directory import read_state, survey_directory
from penstock.format.envelope import Cipher
from penstock.format.layout import HIGH_WATER_NAME, STATE_NAME
from penstock.format.reader import StreamReader
from penstock.format.sequence_set import SequenceSet
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.filesystem import MemoryFileSystem
from tests.crash.test_damage import (
    CONFIG,
    KEY,
    PATH,
    Content,
    Files,
    flipped,
    lay_out,
    open_store,
    read_all,
    told,
    write_store,
)
from tests.format.folders import StoreFolder

CASES = 60
SEALED = StoreConfig(name="orders", block_bytes=4096, cipher=Cipher.AES_256_GCM)


def read_directory(disk: MemoryFileSystem, config: StoreConfig) -> tuple[Content, StreamReader]:
    """Read all messages of a directory without a store."""
    key = KEY if config.cipher else None
    reader = StreamReader(StoreFolder(disk, PATH), stream=config.name, key=key)
    found = {}
    for batch in reader.batches():
        for row in batch.messages():
            found[row.seq] = (row.subject, row.headers, row.payload)
    return found, reader


def lost(damage: Sequence[Damage], found: Content, removed: SequenceSet) -> set[int]:
    """Return the sequences that reports call lost, without those that are there or removed."""
    return {seq for seq in told(list(damage)) if seq not in found and seq not in removed}


def recover(disk: MemoryFileSystem, config: StoreConfig) -> tuple[Content, FileStore, int]:
    """Open a store and load all its messages; open it again if it asks for that."""
    store = open_store(disk, config, KEY if config.cipher else None)
    last_seq = store.state().last_seq
    found, _ = read_all(store, last_seq)
    try:
        store.store(b"next", b"", b"")
    except StoreReadOnly:
        # The checkpoint agreed with the files' lengths, and not with what they hold.
        files = {path.removeprefix(f"{PATH}/"): data for path, data in disk.snapshot().items()}
        assert STATE_NAME not in files
        return recover(lay_out(files), config)
    return found, store, last_seq


def compare(files: Files, config: StoreConfig = CONFIG) -> None:
    """Read a directory without a store, then recover it, and compare the two."""
    disk = lay_out(files)
    found, reader = read_directory(disk, config)
    assert disk.snapshot() == lay_out(files).snapshot(), "a reader writes nothing"
    recovered, store, last_seq = recover(disk, config)

    assert found == recovered
    reported = [*store.report.damage, *store.state().lost]
    assert lost(reader.damage, found, reader.removed) == lost(reported, found, reader.removed)
    assert reader.last_seq == last_seq


def damage_once(files: Files, others: Files, dice: Random) -> str:
    """Damage one file of a directory in one way; return which."""
    name = dice.choice(sorted(files))
    data = files[name]
    blocks = sorted(name for name in files if name.endswith(".blk"))
    how = dice.choice(
        ["flip", "flip", "flip", "cut", "cut", "lengthen", "remove", "swap", "foreign", "noise",
         "header", "zeros", "tail"]
    )  # fmt: skip
    if how == "flip" and data:
        files[name] = flipped(data, dice.randrange(8 * len(data)))
    elif how == "cut":
        files[name] = data[: dice.randint(0, len(data))]
    elif how == "lengthen":
        files[name] = data + dice.choice([bytes(100), dice.randbytes(100), data[-200:]])
    elif how == "remove":
        del files[name]
    elif how == "swap" and len(blocks) > 1:
        one, two = dice.sample(blocks, 2)
        files[one], files[two] = files[two], files[one]
    elif how == "foreign":
        name = dice.choice(sorted(others))
        files[name] = others[name]
    elif how == "noise":
        files[name] = dice.randbytes(len(data))
    elif how == "header" and blocks:
        name = dice.choice(blocks)
        files[name] = dice.randbytes(HEADER_BYTES) + files[name][HEADER_BYTES:]
    elif how == "zeros" and data:
        start = dice.randrange(len(data))
        files[name] = data[:start] + bytes(len(data[start : start + 512])) + data[start + 512 :]
    elif how == "tail" and blocks:
        name = blocks[-1]
        files[name] = files[name][: -dice.randint(1, min(200, len(files[name]) or 1))]
    return f"{how} {name}"


@pytest.mark.parametrize("config", [CONFIG, SEALED], ids=["plain", "encrypted"])
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("times", [0, 1, 2, 4])
def test_a_reader_serves_and_reports_what_a_recovering_store_does(
    stop: bool, times: int, config: StoreConfig
) -> None:
    key = KEY if config.cipher else None
    files, content = write_store(14, stop=stop, config=config, key=key)
    others, _ = write_store(14, stop=stop, config=config, key=key, seed=5)
    assert read_directory(lay_out(files), config)[0] == content
    for seed in range(CASES if times else 1):
        dice = Random(f"{stop} {times} {seed}")
        damaged = dict(files)
        done = [damage_once(damaged, others, dice) for _ in range(times)]
        try:
            compare(damaged, config)
        except Exception as error:
            error.add_note(f"seed {seed}: {', '.join(done)}")
            raise


@pytest.mark.parametrize("known", [True, False], ids=["acknowledged", "nothing tells"])
@pytest.mark.parametrize("commit_every", [1, 4, 30])
def test_a_last_block_cut_at_any_byte_is_judged_alike(commit_every: int, known: bool) -> None:
    files, _ = write_store(10, payload_bytes=24, commit_every=commit_every, stop=False)
    if not known:
        files = {name: data for name, data in files.items() if name.endswith(".blk")}
    data = files["000001.blk"]

    for size in range(0, len(data), 7):
        compare({**files, "000001.blk": data[:size]})


@pytest.mark.parametrize("commit_every", [1, 4, 30])
def test_a_flip_in_a_last_commit_that_nothing_vouches_for_is_judged_alike(
    commit_every: int,
) -> None:
    files, _ = write_store(10, payload_bytes=24, commit_every=commit_every, stop=False)
    data = files["000001.blk"]

    for bit in range(0, 8 * len(data), 41):
        compare({"000001.blk": flipped(data, bit)})


def test_a_survey_names_what_lies_there_and_changes_nothing() -> None:
    files, _ = write_store(14)
    extra = {"000002.idx.0123456789abcdef.tmp": b"half", "000009.idx": files["000001.idx"]}
    damaged = {**files, **extra, "000001.blk": bytes(HEADER_BYTES) + files["000001.blk"][128:]}
    disk = lay_out(damaged)
    folder = StoreFolder(disk, PATH)
    before = disk.snapshot()

    survey = survey_directory(folder, read_state(folder))

    assert survey.readable == [1, 2, 3]
    assert survey.blocks[1].reason == "not a block file: wrong magic"
    assert survey.indexed >= {1, 2, 9}
    assert survey.temporaries == ["000002.idx.0123456789abcdef.tmp"]
    assert survey.notes == ["000009.idx: an index without its block, left alone"]
    assert survey.never_acknowledged == []
    assert disk.snapshot() == before


def test_a_block_that_was_begun_and_not_finished_is_no_loss() -> None:
    files, content = write_store(14, stop=False)
    disk = lay_out({**files, "000004.blk": b"PNSTKBLK"})

    found, reader = read_directory(disk, CONFIG)

    assert (found, reader.damage) == (content, [])


def test_a_mark_and_a_checkpoint_of_another_stream_are_not_used() -> None:
    files, content = write_store(14)
    others, _ = write_store(30, seed=5)
    names = (HIGH_WATER_NAME, STATE_NAME)
    disk = lay_out({**files, **{name: others[name] for name in names}})
    folder = StoreFolder(disk, PATH)

    survey = survey_directory(folder, read_state(folder))

    assert (survey.state.mark, survey.state.checkpoint) == (None, None)
    assert survey.state.notes == [
        "high.water is of another stream and not used",
        "checkpoint not used: it is of another stream",
    ]
    assert read_directory(disk, CONFIG)[0] == content
