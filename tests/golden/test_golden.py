"""What any released version wrote is read by this one, message for message; a newer one is not."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UnsupportedVersion
from penstock.format.block import HEADER_BYTES, decode_block_header
from penstock.format.envelope import StoreKey
from penstock.format.hashing import xxh64
from penstock.format.reader import StreamReader
from penstock.format.record import DELETED, EXPIRES, SKIP, TOMBSTONE, decode
from penstock.format.state.consumer import decode_consumer_state
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.clock import FakeClock
from tests.format.folders import fingerprints
from tests.golden.make_golden import (
    CASES,
    CONSUMER,
    CONSUMER_2,
    MANIFEST,
    SECRET,
    STREAM,
    describe,
    make_all,
)

HERE = Path(__file__).parent
GOLDEN = sorted(folder for folder in HERE.glob("v*/*") if folder.is_dir())
NEWEST = max(HERE.glob("v*"), key=lambda folder: int(folder.name[1:]))
Manifest = dict[str, Any]  # Any: a JSON document

every_store = pytest.mark.parametrize(
    "golden", GOLDEN, ids=lambda folder: f"{folder.parent.name}-{folder.name}"
)


def manifest_of(golden: Path) -> Manifest:
    text = (golden.parent / f"{golden.name}.{MANIFEST}").read_text()
    manifest: Manifest = json.loads(text)
    return manifest


def open_golden(path: Path) -> FileStore:
    return FileStore.open(
        str(path),
        StoreConfig(name=STREAM, block_bytes=4096),
        clock=FakeClock(),
        key=StoreKey(SECRET),
        threaded=False,
    )


@every_store
def test_a_reader_gives_every_message_of_a_golden_store(golden: Path) -> None:
    reader = StreamReader(str(golden), stream=STREAM, key=StoreKey(SECRET))

    found = [
        {
            "seq": message.seq,
            "subject": message.subject.decode(),
            "headers": base64.b64encode(message.headers).decode(),
            "payload_sha256": hashlib.sha256(message.payload).hexdigest(),
            "timestamp_ns": message.timestamp_ns,
        }
        for batch in reader.batches()
        for message in batch.messages()
    ]

    expected = manifest_of(golden)
    for message in expected["messages"]:
        del message["expires_ns"]
    assert found == expected["messages"]
    assert reader.damage == []
    assert not any(check.damage or check.notes for check in reader.verify())


@every_store
@pytest.mark.parametrize("derived", [True, False], ids=["with all files", "blocks alone"])
def test_a_store_opens_a_golden_store_and_goes_on_with_it(
    golden: Path, tmp_path: Path, *, derived: bool
) -> None:
    path = Path(shutil.copytree(golden, tmp_path / "copy"))
    if not derived:
        for file in (*path.glob("*.idx"), path / "stream.state", path / "high.water"):
            file.unlink()
    expected = manifest_of(golden)

    with open_golden(path) as store:
        found = {"stream": STREAM, **describe(store)}
        assert store.report.damage == []
        seq, _ = store.store(b"one.more", b"", b"goes on")
    with open_golden(path) as store:
        message = store.load(seq)
        after = describe(store)

    assert found == expected
    assert (message.subject, message.payload) == (b"one.more", b"goes on")
    assert after["messages"][:-1] == expected["messages"]  # type: ignore[index]  # a JSON document


def test_a_golden_consumer_state_is_read() -> None:
    for version in HERE.glob("v*"):
        data = (version / "plain" / "consumers" / "mailer.state").read_bytes()
        assert decode_consumer_state(data) == CONSUMER
    assert decode_consumer_state((HERE / "consumer_state_2.state").read_bytes()) == CONSUMER_2


def test_the_golden_stores_hold_every_kind_of_record() -> None:
    flags = 0
    generations = set()
    for golden in (folder for folder in GOLDEN if folder.parent == NEWEST):
        reader = StreamReader(str(golden), stream=STREAM, key=StoreKey(SECRET))
        for block in reader.blocks:
            generations.add(block.generation)
            index = reader.load_index(block.number)
            data = (golden / f"{block.number:06d}.blk").read_bytes()
            seed = decode_block_header(index.header, golden.name).seed
            offset = HEADER_BYTES
            while offset < len(data):
                record = decode(data, offset, seed=(seed + offset) & (2**64 - 1))
                flags |= record.flags
                offset += record.length

    assert flags & (DELETED | SKIP | TOMBSTONE | EXPIRES) == DELETED | SKIP | TOMBSTONE | EXPIRES
    assert generations >= {0, 1}


def test_this_version_still_writes_what_the_newest_golden_stores_hold(tmp_path: Path) -> None:
    make_all(tmp_path / "again")

    assert {folder.name for folder in NEWEST.iterdir() if folder.is_dir()} == set(CASES)
    for name in CASES:
        assert manifest_of(tmp_path / "again" / name) == manifest_of(NEWEST / name)


# A later version


def raise_version(at: int, start: int, end: int | None) -> Callable[[bytes], bytes]:
    """Return a function that adds one to the version at `at` of a part, and renews its checksum."""

    def change(data: bytes) -> bytes:
        part = bytearray(data[start:end])
        struct.pack_into("<H", part, at, struct.unpack_from("<H", part, at)[0] + 1)
        struct.pack_into("<Q", part, len(part) - 8, xxh64(part[:-8]))
        return data[:start] + bytes(part) + (b"" if end is None else data[end:])

    return change


def slot_of(data: bytes) -> int:
    """Return where the later of the two marks is."""
    first, second = (struct.unpack_from("<Q", data, at + 8)[0] for at in (0, 64))
    return 0 if first > second else 64


LATER: dict[str, Callable[[bytes], bytes]] = {
    "000001.blk": raise_version(8, 0, HEADER_BYTES),
    "000003.blk": raise_version(8, 0, HEADER_BYTES),
    "000001.idx": raise_version(8, 0, None),
    "stream.state": raise_version(8, 0, None),
    "high.water": lambda data: raise_version(4, slot_of(data), slot_of(data) + 64)(data),
}


@pytest.mark.parametrize("name", LATER)
def test_a_store_with_a_file_of_a_later_version_is_refused_untouched(
    name: str, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(NEWEST / "plain", tmp_path / "copy"))
    (path / name).write_bytes(LATER[name]((path / name).read_bytes()))
    # An index is looked at when it is needed; without the checkpoint that is at once.
    if name.endswith(".idx"):
        (path / "stream.state").unlink()
    # What a later version left half written is not ours to clear away.
    (path / "000001.idx.0123456789abcdef.tmp").write_bytes(b"half")
    before = fingerprints(path)

    with pytest.raises(UnsupportedVersion) as refusal:
        open_golden(path)

    assert refusal.value.path.endswith(name)
    newest = 2 if name.endswith(".idx") else 1
    assert (refusal.value.found, refusal.value.supported) == (newest + 1, newest)
    after = fingerprints(path)
    after.pop("LOCK", None)
    assert after == before


@pytest.mark.parametrize("name", [name for name in LATER if name[0] == "0"])
def test_a_reader_refuses_a_block_or_index_of_a_later_version(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(NEWEST / "plain", tmp_path / "copy"))
    (path / name).write_bytes(LATER[name]((path / name).read_bytes()))

    with pytest.raises(UnsupportedVersion):
        StreamReader(str(path), stream=STREAM)


def test_a_consumer_state_of_a_later_version_is_refused() -> None:
    data = (HERE / "consumer_state_2.state").read_bytes()

    with pytest.raises(UnsupportedVersion) as refusal:
        decode_consumer_state(raise_version(8, 0, None)(data), path="mailer.state")

    assert (refusal.value.path, refusal.value.found) == ("mailer.state", 3)
