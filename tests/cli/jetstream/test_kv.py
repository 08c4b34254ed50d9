"""`penstock kv` against the real server and ours, and together with nats-py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import nats
import pytest
from nats.js.kv import KeyValue

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from tests.cli.conftest import Ran, Run

pytestmark = pytest.mark.slow
Kv = Callable[..., Ran]


@pytest.fixture
def kv(run: Run, jetstream_url: str) -> Iterator[Kv]:
    """Return a function that runs `penstock kv`, where there is a bucket `cfg`."""
    with Client.connect(jetstream_url) as client:
        streams = JetStream(client)
        assert run("kv", "add", "cfg", "--history", 5, "-s", jetstream_url).code == 0
        yield lambda *arguments: run("kv", *arguments, "-s", jetstream_url)
        for name in list(streams.pages("STREAM.NAMES", "streams", {})):
            streams.call(f"STREAM.DELETE.{name}")


def with_nats_py(jetstream_url: str, story: Callable[[KeyValue], object]) -> object:
    """Let nats-py do something with the bucket `cfg`."""

    async def tell() -> object:
        connection = await nats.connect(jetstream_url)
        try:
            bucket = await connection.jetstream().key_value("cfg")
            return await story(bucket)  # type: ignore[misc]  # a coroutine of any kind
        finally:
            await connection.close()

    return asyncio.run(tell())


def test_a_value_is_what_was_put_last(kv: Kv) -> None:
    assert kv("put", "cfg", "a.b", "one").out == "1\n"
    assert kv("put", "cfg", "a.b", "two", "--json").document["revision"] == 2

    found = kv("get", "cfg", "a.b", "--json").document
    assert found.pop("created").startswith("20")
    assert found == {
        "bucket": "cfg",
        "key": "a.b",
        "revision": 2,
        "operation": "PUT",
        "value": "two",
    }
    assert kv("get", "cfg", "a.b", "--raw").raw == b"two"
    assert kv("get", "cfg", "a.b", "--revision", 1, "--raw").raw == b"one"


def test_a_history_has_every_change_until_it_is_purged(kv: Kv) -> None:
    kv("put", "cfg", "a", "one")
    kv("del", "cfg", "a", "-f")
    kv("put", "cfg", "a", "two")

    entries = kv("history", "cfg", "a", "--json").document["entries"]

    assert [(each["operation"], each["value"]) for each in entries] == [
        ("PUT", "one"),
        ("DEL", ""),
        ("PUT", "two"),
    ]
    kv("purge", "cfg", "a", "-f")
    (left,) = kv("history", "cfg", "a", "--json").document["entries"]
    assert left["operation"] == "PURGE"


def test_keys_are_listed_that_have_a_value(kv: Kv) -> None:
    for key in ("b", "a.x", "gone"):
        kv("put", "cfg", key, key)
    kv("del", "cfg", "gone", "-f")

    assert kv("ls", "cfg").out.split() == ["a.x", "b"]
    assert kv("ls", "cfg", "--json").document == {"keys": ["a.x", "b"]}


def test_buckets_are_listed_and_shown(kv: Kv, run: Run, jetstream_url: str) -> None:
    assert kv("add", "other", "--ttl", "1h", "--max-value-size", "1KB").code == 0
    run("stream", "add", "PLAIN", "-s", jetstream_url)

    listed = kv("ls", "--json").document["buckets"]

    assert [(each["bucket"], each["ttl_ns"]) for each in listed] == [
        ("cfg", 0),
        ("other", 3600 * 10**9),
    ]
    assert kv("info", "other", "--json").document["max_value_bytes"] == 1024
    assert kv("status", "cfg", "--json").document["history"] == 5
    assert kv("rm", "other", "-f").code == 0
    assert [each["bucket"] for each in kv("ls", "--json").document["buckets"]] == ["cfg"]


def test_a_watch_tells_values_and_then_changes(kv: Kv) -> None:
    kv("put", "cfg", "a.x", "old")
    kv("put", "cfg", "a.x", "new")
    kv("put", "cfg", "b", "other")
    kv("del", "cfg", "a.y", "-f")

    told = kv("watch", "cfg", "--count", 3, "--json").lines

    assert [(each["operation"], each["key"], each["value"]) for each in told] == [
        ("PUT", "a.x", "new"),
        ("PUT", "b", "other"),
        ("DEL", "a.y", ""),
    ]
    assert "PUT cfg > b: other\n" in kv("watch", "cfg", "b", "--count", 1).out


def test_nats_py_reads_what_was_put_and_the_other_way_round(kv: Kv, jetstream_url: str) -> None:
    kv("put", "cfg", "ours", "from the shell")
    kv("put", "cfg", "gone", "x")
    kv("del", "cfg", "gone", "-f")

    async def story(bucket: KeyValue) -> tuple[object, list[str]]:
        await bucket.put("theirs", b"from nats-py")
        await bucket.put("dropped", b"x")
        await bucket.delete("dropped")
        return (await bucket.get("ours")).value, sorted(await bucket.keys())

    assert with_nats_py(jetstream_url, story) == (b"from the shell", ["ours", "theirs"])
    assert kv("get", "cfg", "theirs", "--raw").raw == b"from nats-py"
    assert kv("ls", "cfg").out.split() == ["ours", "theirs"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("get", "cfg", "nothing"), "the key 'nothing' has no value; `penstock kv ls cfg`"),
        (("get", "cfg", "nothing", "--revision", 7), "has no value at revision 7"),
        (("get", "cgf", "x"), "there is no bucket 'cgf'; did you mean 'cfg'?"),
        (("put", "nope", "x", "y"), "there is no bucket 'nope'"),
        (("put", "cfg", "a b", "y"), "not a key: 'a b'"),
        (("put", "cfg", ".a", "y"), "not a key: '.a'"),
        (("get", "cfg", "a.*"), "not a key: 'a.*'"),
        (("add", "a.b"), "not a name for a bucket: 'a.b'"),
        (("del", "cfg", "x"), "--force"),
        (("rm", "cfg"), "--force"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_that_helps(
    kv: Kv, command: tuple[object, ...], text: str
) -> None:
    ran = kv(*command)

    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err
