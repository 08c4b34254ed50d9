"""`penstock store cat`: which messages it prints, and how."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from penstock.format.envelope import Cipher, Compression
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig
from tests.cli.conftest import Run
from tests.cli.stores import KEY, block_of, flip, make_store, read_back


def test_every_live_message_is_printed_as_json_that_says_it_all(run: Run, orders: Path) -> None:
    ran = run("store", "cat", orders, "--json", "--headers")

    assert ran.code == 0
    expected = [
        (message.seq, message.subject.decode(), message.payload.decode())
        for message in read_back(orders).values()
    ]
    assert [(line["seq"], line["subject"], line["payload"]) for line in ran.lines] == expected
    with_headers = {line["seq"]: line["headers"] for line in ran.lines if line["headers"]}
    assert with_headers[10] == {"Number": ["10"]}
    assert all(seq % 5 == 0 for seq in with_headers)
    assert ran.lines[0]["time"] == "2026-07-20T12:00:00.000000000Z"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--first", "290"], [290, 291, 292, 293, 295, 296, 297, 298, 299, 300]),
        (["--last", "4"], [1, 2, 3, 4]),
        (["--first", "6", "--last", "9"], [6, 8, 9]),
        (["--limit", "3"], [1, 2, 3]),
        (["--subject", "orders.apac", "--last", "12"], [2, 6, 10]),
        (["--subject", "orders.*", "--last", "5"], [1, 2, 4, 5]),
        (["--subject", "orders.apac", "--subject", "orders.eu.>", "--last", "6"], [2, 3, 6]),
        (["--since", "2026-07-20T12:04:57Z"], [298, 299, 300]),
        (["--until", "2026-07-20T12:00:02Z"], [1, 2, 3]),
        (["--since", "2026-07-20T14:00:01+02:00", "--until", "2026-07-20T12:00:02"], [2, 3]),
        (["--since", "2026-07-20T12:04:58.5Z"], [300]),
        (["--since", "2026-07-21"], []),
    ],
)
def test_only_what_is_wanted_is_printed(
    run: Run, orders: Path, arguments: list[str], expected: list[int]
) -> None:
    ran = run("store", "cat", orders, "--json", *arguments)

    assert [line["seq"] for line in ran.lines] == expected


def test_text_is_one_line_a_message_whatever_is_in_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ODD"
    with FileStore.open(str(path), StoreConfig(name="ODD")) as store:
        store.store(b"a.b", b"NATS/1.0\r\nKind: odd\r\n\r\n", b"two\nlines \x1b[31m and \xff")
        store.store(b"a.c", b"", b"plain")

    text = run("store", "cat", path, "--headers").out

    assert len(text.splitlines()) == 2
    assert "\x1b" not in text
    assert "two\\nlines" in text
    assert "Kind: odd" in text
    assert text.splitlines()[1].endswith("a.c  plain")


def test_headers_are_left_out_unless_asked_for(run: Run, orders: Path) -> None:
    assert "Number" not in run("store", "cat", orders).out
    assert "headers" not in run("store", "cat", orders, "--json").lines[4]


def test_a_payload_that_is_no_text_is_base64_in_json(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "BINARY"
    payload = bytes(range(256))
    with FileStore.open(str(path), StoreConfig(name="BINARY")) as store:
        store.store(b"a", b"", payload)

    (line,) = run("store", "cat", path, "--format", "json").lines

    assert base64.b64decode(line["payload_base64"]) == payload
    assert "payload" not in line


def test_raw_prints_payloads_as_they_are(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "RAW"
    with FileStore.open(str(path), StoreConfig(name="RAW")) as store:
        store.store(b"a", b"", b"\x00\xff\x1b")
        store.store(b"a", b"", b"second")

    assert run("store", "cat", path, "--format", "raw").raw == b"\x00\xff\x1b\nsecond\n"


def test_an_encrypted_store_is_printed_with_its_key_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "SECRET"
    make_store(path, 40, key=KEY, cipher=Cipher.CHACHA20_POLY1305, compression=Compression.SNAPPY)

    refused = run("store", "cat", path)
    printed = run("store", "cat", path, "--json", env={"PENSTOCK_KEY": KEY.decode()})

    assert (refused.code, refused.out) == (3, "")
    expected = [message.payload.decode() for message in read_back(path, KEY).values()]
    assert [line["payload"] for line in printed.lines] == expected


def test_damage_is_told_on_stderr_and_costs_only_its_message(run: Run, orders: Path) -> None:
    block, offset = block_of(orders, 20)
    flip(block, offset + 15)

    ran = run("store", "cat", orders, "--json")

    assert ran.code == 1
    assert "sequence 20" in ran.err
    assert {line["seq"] for line in ran.lines} == {
        seq for seq in range(1, 301) if seq % 7 and seq != 20
    }


@pytest.mark.parametrize(
    "arguments",
    [["--since", "yesterday"], ["--first", "9", "--last", "3"], ["--format", "xml"]],
    ids=["no time", "backwards", "no format"],
)
def test_what_cannot_be_meant_is_refused(run: Run, orders: Path, arguments: list[str]) -> None:
    assert run("store", "cat", orders, *arguments).code == 2
