"""`penstock store ls`, `info` and `verify` on real directories: what they tell is so."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from penstock.store.store_state import StoreState
from penstock.testing.servers import reference_server
from tests.cli.conftest import Held, Run
from tests.cli.stores import KEY, block_of, flip, make_store, read_back
from tests.support.nats_client import NatsClient


def state_of(path: Path, key: bytes | None = None) -> StoreState:
    """Ask the store itself, of a copy: opening changes files."""
    copy = path.parent / "copy" / path.name
    shutil.copytree(path, copy)
    config = StoreConfig(name=path.name, cipher=Cipher.AES_256_GCM if key else Cipher.NONE)
    store_key = None if key is None else StoreKey(key)
    with FileStore.open(str(copy), config, key=store_key, threaded=False) as store:
        state = store.state()
    shutil.rmtree(copy.parent)
    return state


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


# ls


def test_ls_finds_the_streams_of_a_tree_in_order(run: Run, tmp_path: Path) -> None:
    for name in ("a/ONE", "a/TWO", "b/deeper/THREE"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        make_store(tmp_path / name, 20)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes.txt").write_text("not a stream")

    ran = run("store", "ls", tmp_path, "--json")

    assert ran.code == 0
    assert [row["path"] for row in ran.document["streams"]] == [
        str(tmp_path / name) for name in ("a/ONE", "a/TWO", "b/deeper/THREE")
    ]
    assert {row["layout"] for row in ran.document["streams"]} == {"penstock"}


def test_ls_tells_the_numbers_that_the_store_itself_has(run: Run, orders: Path) -> None:
    state = state_of(orders)

    row = run("store", "ls", orders, "--json").document["streams"][0]

    assert row["messages"] == state.messages == 258
    assert row["bytes"] == state.bytes
    assert (row["first_seq"], row["last_seq"]) == (1, 300)
    assert row["first_time"] == "2026-07-20T12:00:00.000000000Z"
    assert row["last_time"] == "2026-07-20T12:04:59.000000000Z"
    assert row["subjects"] == 4
    assert row["blocks"] == len(list(orders.glob("*.blk")))
    assert row["damage_count"] == 0
    assert row["error"] is None


def test_ls_shows_people_a_table(run: Run, orders: Path) -> None:
    text = run("store", "ls", orders).out

    assert str(orders) in text
    assert "258" in text
    assert "2026-07-20 12:00:00.000Z" in text


def test_ls_of_a_tree_without_streams_says_so(run: Run, tmp_path: Path) -> None:
    ran = run("store", "ls", tmp_path)

    assert ran.code == 0
    assert "no streams here" in ran.out


def test_ls_names_the_old_layout(run: Run, tmp_path: Path) -> None:
    (tmp_path / "OLD").mkdir()
    (tmp_path / "OLD" / "messages.jsonl").write_text("")

    row = run("store", "ls", tmp_path, "--json").document["streams"][0]

    assert (row["layout"], row["messages"]) == ("json-lines", None)
    assert "import" in row["error"]


def test_ls_goes_on_after_a_stream_that_it_cannot_open(run: Run, tmp_path: Path) -> None:
    make_store(tmp_path / "A", 20)
    make_store(tmp_path / "B", 20)
    block = sorted((tmp_path / "A").glob("*.blk"))[0]
    block.unlink()
    block.mkdir()

    rows = run("store", "ls", tmp_path, "--json").document["streams"]

    assert [row["error"] is None for row in rows] == [False, True]


# info


def test_info_agrees_with_the_store_and_with_its_blocks(run: Run, orders: Path) -> None:
    state = state_of(orders)

    told = run("store", "info", orders, "--blocks", "--subjects", 3, "--json").document

    assert told["stream"] == "ORDERS"
    assert told["messages"] == sum(block["messages"] for block in told["blocks"]) == state.messages
    assert told["deleted"] == state.deleted == 42
    assert told["blocks_count"] == len(told["blocks"]) == len(list(orders.glob("*.blk")))
    # A store that comes to rest seals the last one too, if it is long enough.
    assert all(block["sealed"] for block in told["blocks"][:-1])
    assert told["blocks"][0]["first_seq"] == 1
    assert told["blocks"][-1]["last_seq"] == 300
    assert told["disk_bytes"] == sum(each.stat().st_size for each in orders.iterdir())
    assert (told["encryption"], told["compression"]) == (None, None)
    assert told["held_by"] is None
    assert told["damage"] == []


def test_info_tells_the_subjects_with_the_most_messages(run: Run, orders: Path) -> None:
    counts: dict[str, int] = {}
    for message in read_back(orders).values():
        counts[message.subject.decode()] = counts.get(message.subject.decode(), 0) + 1

    told = run("store", "info", orders, "--subjects", 2, "--json").document["top_subjects"]

    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
    assert [(row["subject"], row["messages"]) for row in told] == best


def test_info_for_people_shows_blocks_and_subjects(run: Run, orders: Path) -> None:
    text = run("store", "info", orders, "--blocks", "--subjects", 4).out

    assert "last sequence" in text
    assert "orders.eu.late" in text
    assert "rewrites" in text


@pytest.mark.parametrize("cipher", [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM])
def test_info_tells_how_a_stream_is_sealed_and_needs_no_key(
    run: Run, tmp_path: Path, cipher: Cipher
) -> None:
    path = tmp_path / "SECRET"
    make_store(path, 60, key=KEY, cipher=cipher, compression=Compression.SNAPPY)

    told = run("store", "info", path, "--json").document

    assert told["encryption"] == cipher.name.lower()
    assert told["compression"] == "snappy"
    assert told["messages"] == 52


def test_info_names_the_process_that_holds_the_store(run: Run, held: Held) -> None:
    told = run("store", "info", held.path, "--json").document

    assert told["held_by"] == held.pid


def test_looking_beside_a_writer_sees_what_it_made_durable(run: Run, held: Held) -> None:
    assert run("store", "ls", held.path, "--json").document["streams"][0]["messages"] == 259
    assert run("store", "verify", held.path).code == 0
    lines = run("store", "cat", held.path, "--subject", "orders.new", "--json").lines
    assert [line["payload"] for line in lines] == ["from the other process"]


@pytest.mark.parametrize("command", ["ls", "info", "verify", "cat"])
def test_looking_changes_no_file(run: Run, orders: Path, command: str) -> None:
    flip(sorted(orders.glob("*.blk"))[1], 900)
    before = fingerprint(orders)

    run("store", command, orders)

    assert fingerprint(orders) == before


# verify


def test_verify_of_a_sound_store_ends_with_zero(run: Run, orders: Path) -> None:
    ran = run("store", "verify", orders, "--json")

    assert ran.code == 0
    told = ran.document
    assert told["clean"] is True
    (row,) = told["streams"]
    assert row["damage"] == row["notes"] == []
    assert row["bytes"] == sum(path.stat().st_size for path in orders.glob("*.blk"))


@pytest.mark.parametrize("seq", [3, 101, 250])
def test_verify_tells_block_offset_and_sequence_of_a_flipped_byte(
    run: Run, orders: Path, seq: int
) -> None:
    block, offset = block_of(orders, seq)
    flip(block, offset + 12)

    ran = run("store", "verify", orders, "--json")

    assert ran.code == 1
    (damage,) = ran.document["streams"][0]["damage"]
    assert damage["block"] == int(block.stem)
    assert damage["offset"] == offset
    assert (damage["first_seq"], damage["last_seq"]) == (seq, seq)
    assert f"offset {offset}" in run("store", "verify", orders).out


def test_verify_of_several_streams_names_the_damaged_one(run: Run, tmp_path: Path) -> None:
    for name in ("SOUND", "DAMAGED"):
        make_store(tmp_path / name, 50)
    flip(sorted((tmp_path / "DAMAGED").glob("*.blk"))[0], 700)

    ran = run("store", "verify", tmp_path / "SOUND", tmp_path / "DAMAGED", "--json")

    assert ran.code == 1
    assert [row["clean"] for row in ran.document["streams"]] == [True, False]
    assert ran.document["clean"] is False


def test_verify_notes_a_missing_index_without_calling_it_damage(run: Run, orders: Path) -> None:
    sorted(orders.glob("*.idx"))[0].unlink()

    ran = run("store", "verify", orders, "--json")

    assert ran.code == 0
    assert ["index missing" in note for note in ran.document["streams"][0]["notes"]] == [True]


def test_verify_of_an_encrypted_store_wants_its_key(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "SECRET"
    make_store(path, 60, key=KEY, cipher=Cipher.AES_256_GCM)
    right, wrong = tmp_path / "right.key", tmp_path / "wrong.key"
    right.write_bytes(KEY + b"\n")
    wrong.write_bytes(b"another")

    assert run("store", "verify", path).code == 3
    assert run("store", "verify", path, "--key-file", wrong).code == 3
    assert run("store", "verify", path, "--key-file", right).code == 0
    assert run("store", "verify", path, env={"PENSTOCK_KEY": KEY.decode()}).code == 0


def test_a_key_is_bound_to_the_name_of_the_stream(run: Run, tmp_path: Path) -> None:
    make_store(tmp_path / "SECRET", 60, key=KEY, cipher=Cipher.AES_256_GCM)
    moved = tmp_path / "MOVED"
    (tmp_path / "SECRET").rename(moved)
    env = {"PENSTOCK_KEY": KEY.decode()}

    assert run("store", "verify", moved, env=env).code == 3
    assert run("store", "verify", moved, "--stream", "SECRET", env=env).code == 0


# Directories of Go's nats-server


@pytest.fixture(scope="module")
def go_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store_dir in which the real server wrote a stream, and ended."""
    folder = tmp_path_factory.mktemp("go")
    with reference_server(store_dir=folder) as server, NatsClient(server.port) as client:
        client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
        for number in range(1, 41):
            headers = b"NATS/1.0\r\nNumber: 1\r\n\r\n" if number == 1 else b""
            client.request(
                f"orders.{'eu' if number % 4 else 'us'}", b"%d" % number, headers=headers
            )
        client.api("STREAM.MSG.DELETE.ORDERS", {"seq": 5})
    return folder


def go_stream(folder: Path) -> Path:
    return folder / "jetstream" / "$G" / "streams" / "ORDERS"


@pytest.mark.oracle
def test_ls_finds_streams_of_the_go_server(run: Run, go_store: Path) -> None:
    (row,) = run("store", "ls", go_store, "--json").document["streams"]

    assert row["path"] == str(go_stream(go_store))
    assert (row["layout"], row["messages"], row["last_seq"]) == ("go", 39, 40)


@pytest.mark.oracle
def test_info_of_a_go_stream_counts_its_subjects(run: Run, go_store: Path) -> None:
    told = run("store", "info", go_stream(go_store), "--subjects", 5, "--json").document

    assert told["layout"] == "go"
    assert told["deleted"] == 1
    assert {row["subject"]: row["messages"] for row in told["top_subjects"]} == {
        "orders.eu": 29,
        "orders.us": 10,
    }


@pytest.mark.oracle
def test_cat_prints_messages_of_a_go_stream(run: Run, go_store: Path) -> None:
    ran = run("store", "cat", go_stream(go_store), "--subject", "orders.us", "--last", 12, "--json")

    assert [(line["seq"], line["payload"]) for line in ran.lines] == [
        (4, "4"),
        (8, "8"),
        (12, "12"),
    ]


@pytest.mark.oracle
def test_verify_finds_damage_in_a_go_stream(run: Run, go_store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "ORDERS"
    shutil.copytree(go_stream(go_store), copy)
    assert run("store", "verify", copy).code == 0
    flip(copy / "msgs" / "1.blk", 200)

    ran = run("store", "verify", copy, "--json")

    assert ran.code == 1
    assert ran.document["streams"][0]["damage"][0]["block"] == 1


@pytest.mark.oracle
@pytest.mark.parametrize("command", ["repair", "compact"])
def test_a_go_stream_is_never_changed(run: Run, go_store: Path, command: str) -> None:
    before = fingerprint(go_store)

    ran = run("store", command, go_stream(go_store))

    assert ran.code == 2
    assert "never changed" in ran.err
    assert fingerprint(go_store) == before
