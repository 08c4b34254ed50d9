"""HighwayHash-64 against its published vectors and the hashes of Go's own records."""

from __future__ import annotations

import pytest

from penstock.errors import UsageError
from penstock.format.golang.highway import highway_hash, named_key
from tests.format.golang.written_by_go import WrittenStore


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, 0x907A56DE22C26E53),
        (1, 0x7EAB43AAC7CDDD78),
        (2, 0xB8D0569AB0B53D62),
        (3, 0x5C6BEFAB8A463D80),
    ],
)
def test_published_vectors_come_out(size: int, digest: int) -> None:
    key = bytes(range(32))

    assert int.from_bytes(highway_hash(bytes(range(size)), key), "little") == digest


@pytest.mark.oracle
def test_every_record_hash_of_the_server_comes_out(stopped: WrittenStore) -> None:
    block = (stopped.stream_path("PLAIN") / "msgs" / "1.blk").read_bytes()
    lengths = set()
    at = 0

    while at < len(block):
        marked = int.from_bytes(block[at : at + 4], "little")
        record = block[at : at + (marked & 0x7FFFFFFF)]
        rest = 22 + int.from_bytes(record[20:22], "little")
        hashed = record[4:20] + record[22:rest] + record[rest + (marked >> 31) * 4 : -8]
        assert highway_hash(hashed, named_key("PLAIN-1")) == record[-8:]
        lengths.add(len(hashed) % 32)
        at += len(record)

    # Every way in which a last, partial packet can be laid out.
    assert lengths == set(range(32))


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(UsageError):
        highway_hash(b"", bytes(31))
