"""`penstock object` against the real server and ours, and together with nats-py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import nats
import pytest

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from tests.cli.conftest import Ran, Run

pytestmark = pytest.mark.slow
Objects = Callable[..., Ran]
LARGE = Random(1).randbytes(3_000_001)


@pytest.fixture
def objects(run: Run, jetstream_url: str) -> Iterator[Objects]:
    """Return a function that runs `penstock object`, where there is a bucket `pics`."""
    with Client.connect(jetstream_url) as client:
        streams = JetStream(client)
        assert run("object", "add", "pics", "-s", jetstream_url).code == 0
        yield lambda *arguments: run("object", *arguments, "-s", jetstream_url)
        for name in list(streams.pages("STREAM.NAMES", "streams", {})):
            streams.call(f"STREAM.DELETE.{name}")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Return a file of several chunks."""
    file = tmp_path / "cat.jpg"
    file.write_bytes(LARGE)
    return file


@pytest.mark.parametrize("data", [LARGE, b"x", b""], ids=["large", "small", "empty"])
def test_a_file_comes_back_as_it_was(objects: Objects, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    target = tmp_path / "back"

    put = objects("put", "pics", tmp_path / "file", "--name", "a/b c", "--json").document
    gotten = objects("get", "pics", "a/b c", "-O", target, "--json").document

    assert target.read_bytes() == data
    assert (put["size"], put["digest"]) == (len(data), gotten["digest"])
    assert put["chunks"] == -(-len(data) // (128 * 1024))


def test_objects_and_buckets_are_listed_and_shown(objects: Objects, large: Path) -> None:
    objects("put", "pics", large, "--description", "a cat")

    (listed,) = objects("ls", "pics", "--json").document["objects"]

    assert (listed["name"], listed["size"], listed["description"]) == (
        "cat.jpg",
        len(LARGE),
        "a cat",
    )
    assert objects("info", "pics", "cat.jpg", "--json").document["chunks"] == listed["chunks"]
    assert "2.9 MiB" in objects("info", "pics", "cat.jpg").out
    (bucket,) = objects("ls", "--json").document["buckets"]
    assert bucket == objects("info", "pics", "--json").document
    assert bucket["bucket"] == "pics"


def test_a_name_cannot_play_with_the_terminal(objects: Objects, large: Path) -> None:
    objects("put", "pics", large, "--name", "\x1b[2J", "--description", "a\x07bell")

    shown = objects("ls", "pics").out

    assert "\\x1b[2J" in shown
    assert "a\\x07bell" in shown
    assert "\x1b" not in shown


def test_a_second_put_replaces_the_first_and_frees_its_chunks(
    objects: Objects, large: Path, tmp_path: Path
) -> None:
    objects("put", "pics", large)
    large.write_bytes(b"smaller")

    objects("put", "pics", large)

    assert objects("info", "pics", "--json").document["bytes"] < 2_000
    objects("get", "pics", "cat.jpg", "-O", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == b"smaller"


def test_what_is_removed_is_gone(objects: Objects, large: Path) -> None:
    objects("put", "pics", large)

    assert objects("rm", "pics", "cat.jpg", "-f").code == 0

    assert objects("ls", "pics", "--json").document["objects"] == []
    assert objects("info", "pics", "--json").document["bytes"] < 2_000
    assert objects("rm", "pics", "-f").code == 0
    assert objects("ls", "--json").document["buckets"] == []


def test_nats_py_reads_what_was_put_and_the_other_way_round(
    objects: Objects, jetstream_url: str, large: Path, tmp_path: Path
) -> None:
    objects("put", "pics", large)

    async def story() -> tuple[bytes | None, list[str]]:
        connection = await nats.connect(jetstream_url)
        try:
            store = await connection.jetstream().object_store("pics")
            await store.put("theirs", LARGE[::-1])
            gotten = await store.get("cat.jpg")
            return gotten.data, sorted(str(each.name) for each in await store.list())
        finally:
            await connection.close()

    assert asyncio.run(story()) == (LARGE, ["cat.jpg", "theirs"])
    objects("get", "pics", "theirs", "-O", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == LARGE[::-1]


def test_an_object_that_lost_a_chunk_takes_no_place(
    objects: Objects, run: Run, jetstream_url: str, large: Path, tmp_path: Path
) -> None:
    objects("put", "pics", large)
    run("stream", "rmm", "OBJ_pics", 2, "-f", "-s", jetstream_url)

    ran = objects("get", "pics", "cat.jpg", "-O", tmp_path / "back")

    assert ran.code == 1
    assert "is not whole" in ran.err
    assert [file.name for file in tmp_path.iterdir()] == ["cat.jpg"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("get", "pics", "nothing"), "there is no object 'nothing'; `penstock object ls pics`"),
        (("info", "pix"), "there is no bucket 'pix'; did you mean 'pics'?"),
        (("add", "a.b"), "not a name for a bucket: 'a.b'"),
        (("rm", "pics"), "--force"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_that_helps(
    objects: Objects, command: tuple[object, ...], text: str
) -> None:
    ran = objects(*command)

    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
