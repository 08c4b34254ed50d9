"""`penstock store repair`, `compact` and `import`: what is there afterwards."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.hashing import xxh64
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.testing.servers import reference_server
from tests.cli.conftest import Held, Run
from tests.cli.stores import KEY, block_of, flip, make_store, read_back
from tests.support.nats_client import NatsClient

SECRET = {"PENSTOCK_KEY": KEY.decode()}


def sizes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# repair


def test_a_repair_keeps_every_whole_message_and_lists_the_losses(run: Run, orders: Path) -> None:
    before = read_back(orders)
    for seq in (20, 150):
        block, offset = block_of(orders, seq)
        flip(block, offset + 15)

    ran = run("store", "repair", orders, "--json")

    assert ran.code == 0
    told = ran.document
    assert [(loss["first_seq"], loss["last_seq"]) for loss in told["losses"]] == [
        (20, 20),
        (150, 150),
    ]
    assert len(told["rewritten_blocks"]) == 2
    assert told["clean"] is True
    after = read_back(orders)
    assert after.keys() == before.keys() - {20, 150}
    assert all(after[seq].payload == before[seq].payload for seq in after)
    assert run("store", "verify", orders).code == 0
    with FileStore.open(str(orders), StoreConfig(name="ORDERS")) as store:
        assert store.report.clean
        assert store.state().lost == ()
        assert store.state().last_seq == 300


def test_a_repair_keeps_the_damaged_bytes_in_quarantine(run: Run, orders: Path) -> None:
    block, offset = block_of(orders, 20)
    flip(block, offset + 15)
    damaged = block.read_bytes()

    run("store", "repair", orders)

    (kept,) = (orders / "quarantine").iterdir()
    assert len(kept.read_bytes()) > 15
    assert damaged[offset:].startswith(kept.read_bytes())
    assert run("store", "info", orders, "--json").document["quarantined_files"] == [kept.name]


def test_a_dry_run_tells_what_is_wrong_and_changes_nothing(run: Run, orders: Path) -> None:
    block, offset = block_of(orders, 20)
    flip(block, offset + 15)
    before = contents(orders)

    ran = run("store", "repair", orders, "--dry-run", "--json")

    assert ran.code == 1
    assert ran.document["dry_run"] is True
    assert [loss["first_seq"] for loss in ran.document["losses"]] == [20]
    assert contents(orders) == before


def test_a_repair_of_a_sound_store_finds_nothing(run: Run, orders: Path) -> None:
    before = read_back(orders)

    ran = run("store", "repair", orders, "--json")

    assert ran.code == 0
    told = ran.document
    assert told["losses"] == told["rewritten_blocks"] == told["unreadable_blocks"] == []
    assert read_back(orders) == before


def test_a_repair_rebuilds_every_missing_or_damaged_index(run: Run, orders: Path) -> None:
    indexes = sorted(orders.glob("*.idx"))
    indexes[0].unlink()
    flip(indexes[2], 300)
    before = read_back(orders)

    ran = run("store", "repair", orders, "--json")

    assert ran.document["rebuilt_indexes"] == [int(indexes[0].stem), int(indexes[2].stem)]
    assert run("store", "verify", orders, "--json").document["streams"][0]["notes"] == []
    assert read_back(orders) == before


def test_a_repair_cuts_a_torn_tail(run: Run, orders: Path) -> None:
    last = sorted(orders.glob("*.blk"))[-1]
    with last.open("ab") as file:
        file.write(b"half a record")

    ran = run("store", "repair", orders, "--json")

    assert ran.code == 0
    assert ran.document["torn_bytes"] == len(b"half a record")
    assert run("store", "verify", orders, "--json").document["streams"][0]["tail_bytes"] == 0


def test_a_block_that_cannot_be_read_is_moved_aside(run: Run, orders: Path) -> None:
    block = sorted(orders.glob("*.blk"))[2]
    noise = bytes(block.stat().st_size)
    block.write_bytes(noise)
    block.with_suffix(".idx").unlink()

    ran = run("store", "repair", orders, "--json")

    assert ran.code == 0
    assert ran.document["unreadable_blocks"] == [int(block.stem)]
    assert not block.exists()
    assert noise in [path.read_bytes() for path in (orders / "quarantine").iterdir()]
    assert run("store", "verify", orders).code == 0
    with FileStore.open(str(orders), StoreConfig(name="ORDERS")) as store:
        assert store.state().lost == ()


def test_a_block_that_is_gone_is_listed_once_as_a_loss(run: Run, orders: Path) -> None:
    block = sorted(orders.glob("*.blk"))[2]
    lost = run("store", "info", orders, "--blocks", "--json").document["blocks"][2]
    block.unlink()
    block.with_suffix(".idx").unlink()

    ran = run("store", "repair", orders, "--json")

    assert ran.code == 0
    assert [(loss["first_seq"], loss["last_seq"]) for loss in ran.document["losses"]] == [
        (lost["first_seq"], lost["last_seq"])
    ]
    assert run("store", "repair", orders, "--json").document["losses"] == []
    with FileStore.open(str(orders), StoreConfig(name="ORDERS")) as store:
        assert store.state().lost == ()


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM])
def test_a_repaired_or_compacted_store_stays_as_sealed_as_it_was(
    run: Run, tmp_path: Path, cipher: Cipher, compression: Compression
) -> None:
    path = tmp_path / "SECRET"
    before = make_store(path, 200, key=KEY, cipher=cipher, compression=compression)
    flip(sorted(path.glob("*.blk"))[0], 700)

    assert run("store", "repair", path, env=SECRET).code == 0
    assert run("store", "compact", path, env=SECRET).code == 0

    after = read_back(path, KEY)
    assert len(after) == len(before) - 1
    told = run("store", "info", path, "--blocks", "--json").document
    assert told["encryption"] == cipher.name.lower()
    assert told["compression"] == (None if compression is Compression.NONE else "snappy")
    assert all(block["encrypted"] for block in told["blocks"])
    assert not any(b"message " in data for data in contents(path).values())


@pytest.mark.parametrize("command", ["repair", "compact"])
def test_a_store_that_another_process_holds_is_refused_with_its_pid(
    run: Run, held: Held, command: str
) -> None:
    ran = run("store", command, held.path)

    assert ran.code == 3
    assert f"process {held.pid}" in ran.err


@pytest.mark.parametrize("command", ["repair", "compact"])
def test_without_the_key_nothing_is_changed(run: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "SECRET"
    make_store(path, 60, key=KEY, cipher=Cipher.AES_256_GCM)
    before = contents(path)

    assert run("store", command, path).code == 3
    assert run("store", command, path, env={"PENSTOCK_KEY": "wrong"}).code == 3

    assert contents(path) == before


@pytest.mark.parametrize("command", ["repair", "compact", "verify"])
def test_a_newer_version_is_refused_untouched(run: Run, orders: Path, command: str) -> None:
    for block in orders.glob("*.blk"):
        data = bytearray(block.read_bytes())
        data[8] += 1
        data[120:128] = xxh64(bytes(data[:120])).to_bytes(8, "little")
        block.write_bytes(data)
    before = contents(orders)

    ran = run("store", command, orders)

    assert ran.code == 3
    assert "format version 2" in ran.err
    assert contents(orders) == before


# compact


def test_compacting_gives_the_space_of_removed_messages_back(run: Run, orders: Path) -> None:
    with FileStore.open(str(orders), StoreConfig(name="ORDERS", block_bytes=4096)) as store:
        for seq in range(1, 301, 3):
            store.remove(seq)
    before, live = sizes(orders), read_back(orders)

    ran = run("store", "compact", orders, "--json")

    assert ran.code == 0
    told = ran.document
    assert told["disk_bytes_before"] == before
    assert told["disk_bytes_after"] == sizes(orders)
    assert told["given_back_bytes"] == before - sizes(orders) > 3000
    assert {seq: message.payload for seq, message in read_back(orders).items()} == {
        seq: message.payload for seq, message in live.items()
    }
    state = run("store", "info", orders, "--json").document
    assert (state["messages"], state["last_seq"]) == (len(live), 300)


def test_compacting_also_rewrites_the_block_that_was_being_written(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "ONE"
    with FileStore.open(str(path), StoreConfig(name="ONE")) as store:
        for number in range(100):
            store.store(b"a", b"", b"payload %d" % number * 50)
        for seq in range(1, 100):
            store.remove(seq)

    ran = run("store", "compact", path, "--json")

    assert ran.document["given_back_bytes"] > ran.document["disk_bytes_before"] * 0.8
    assert list(read_back(path)) == [100]


def test_compacting_an_emptied_stream_does_not_forget_its_last_sequence(
    run: Run, orders: Path
) -> None:
    with FileStore.open(str(orders), StoreConfig(name="ORDERS")) as store:
        store.purge()

    assert run("store", "compact", orders).code == 0
    (orders / "stream.state").unlink()

    with FileStore.open(str(orders), StoreConfig(name="ORDERS")) as store:
        assert store.report.damage == []
        assert store.state().last_seq == 300
        assert store.store(b"next", b"", b"")[0] == 301


# import


def test_importing_json_lines_leaves_the_original_alone(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "OLD", tmp_path / "NEW"
    old.mkdir()
    lines = [
        {
            "sequence": seq,
            "subject": "a.b",
            "payload": base64.b64encode(b"payload %d" % seq).decode(),
            "timestamp": "2026-07-20T12:00:00Z",
        }
        for seq in (1, 2, 5)
    ]
    (old / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = contents(old)

    ran = run("store", "import", old, new, "--json")

    assert ran.code == 0
    assert (ran.document["messages"], ran.document["last_seq"]) == (3, 5)
    assert ran.document["layout"] == "json-lines"
    assert {seq: message.payload for seq, message in read_back(new).items()} == {
        seq: b"payload %d" % seq for seq in (1, 2, 5)
    }
    assert contents(old) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["NEW", "OLD"]


def test_an_import_that_fails_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "OLD", tmp_path / "NEW"
    old.mkdir()
    (old / "messages.jsonl").write_text('{"sequence": 1}\n{"sequence": 2}\n')

    ran = run("store", "import", old, new)

    assert ran.code == 1
    assert "messages.jsonl" in ran.err
    assert os.listdir(tmp_path) == ["OLD"]


def test_an_import_needs_an_empty_place_and_a_source(run: Run, orders: Path) -> None:
    old = orders.parent / "OLD"
    old.mkdir()
    (old / "messages.jsonl").write_text("")

    assert run("store", "import", old, orders).code == 2
    assert run("store", "import", orders, orders.parent / "NEW").code == 2


@pytest.fixture(scope="module", params=[None, "chacha"], ids=["plain", "encrypted"])
def go_stream(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str] | None]:
    """Return a stream that the real server wrote, with a consumer, and the key it takes."""
    folder = tmp_path_factory.mktemp("go")
    settings = ""
    if request.param:
        settings = f'jetstream {{ key: "{KEY.decode()}", cipher: {request.param} }}'
    with (
        reference_server(store_dir=folder, settings=settings) as server,
        NatsClient(server.port) as client,
    ):
        client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        config: dict[str, Any] = {"durable_name": "worker", "ack_policy": "explicit"}
        client.api(
            "CONSUMER.DURABLE.CREATE.ORDERS.worker", {"stream_name": "ORDERS", "config": config}
        )
        for number in range(1, 61):
            client.request("orders.eu", b"order %d" % number)
        for seq in (3, 60):
            client.api("STREAM.MSG.DELETE.ORDERS", {"seq": seq})
    return folder / "jetstream" / "$G" / "streams" / "ORDERS", SECRET if request.param else None


@pytest.mark.oracle
def test_importing_a_go_stream_brings_every_message_over(
    run: Run, tmp_path: Path, go_stream: tuple[Path, dict[str, str] | None]
) -> None:
    source, env = go_stream
    target = tmp_path / "ORDERS"

    ran = run("store", "import", source, target, "--json", env=env)

    assert ran.code == 0, ran.err
    told = ran.document
    assert (told["messages"], told["last_seq"], told["layout"]) == (58, 60, "go")
    assert {seq: message.payload for seq, message in read_back(target).items()} == {
        seq: b"order %d" % seq for seq in range(1, 60) if seq != 3
    }
    assert run("store", "verify", target).code == 0


@pytest.mark.oracle
def test_an_import_can_encrypt_what_it_writes(
    run: Run, tmp_path: Path, go_stream: tuple[Path, dict[str, str] | None]
) -> None:
    source, env = go_stream
    target, key_file = tmp_path / "ORDERS", tmp_path / "target.key"
    key_file.write_bytes(b"the new key\n")

    ran = run("store", "import", source, target, "--target-key-file", key_file, env=env)

    assert ran.code == 0, ran.err
    assert not any(b"order 1" in data for data in contents(target).values())
    config = StoreConfig(name="ORDERS", cipher=Cipher.CHACHA20_POLY1305)
    with FileStore.open(str(target), config, key=StoreKey(b"the new key")) as store:
        assert store.load(1).payload == b"order 1"


@pytest.mark.oracle
@pytest.mark.parametrize("go_stream", ["chacha"], indirect=True, scope="module")
def test_an_encrypted_go_stream_needs_its_key(
    run: Run, tmp_path: Path, go_stream: tuple[Path, dict[str, str] | None]
) -> None:
    source, env = go_stream
    assert run("store", "import", source, tmp_path / "NEW").code == 3
    assert run("store", "info", source).code == 3
    assert run("store", "info", source, "--json", env=env).document["messages"] == 58
    assert os.listdir(tmp_path) == []


@pytest.mark.oracle
def test_an_import_with_damage_brings_the_rest_and_ends_with_one(
    run: Run, tmp_path: Path, go_stream: tuple[Path, dict[str, str] | None]
) -> None:
    source, env = go_stream
    damaged, target = tmp_path / "damaged" / "ORDERS", tmp_path / "ORDERS"
    shutil.copytree(source, damaged)
    flip(damaged / "msgs" / "1.blk", 300)

    ran = run("store", "import", damaged, target, "--json", env=env)

    assert ran.code == 1
    assert ran.document["whole"] is False
    assert ran.document["damage"] != []
    assert len(read_back(target)) == ran.document["messages"] == 58 - ran.document["missing"]
    assert ran.document["missing"] in (1, 2)
