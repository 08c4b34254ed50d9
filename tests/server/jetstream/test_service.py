"""JetStream as a part of the server: starting, recovery, accounts, keys, and what goes wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.config.options.jetstream import JetStreamOptions
from penstock.format.hashing import xxh64
from penstock.server.jetstream.resources import make_resources
from penstock.testing.servers import BOTH, PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.support.dialogue import Dialogue
from tests.support.nats_client import NatsClient

STREAMS = Path("jetstream") / "$G" / "streams"


def start(folder: Path, **options: Any) -> ServerProcess:
    return server_process(PENSTOCK, store_dir=folder, **options)


def fill(client: NatsClient, name: str, count: int = 3, **config: Any) -> None:
    client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]} | config)
    for _ in range(count):
        client.request(f"{name}.a", b"hello")


def asked(client: NatsClient, endpoint: str, **request: Any) -> dict[str, Any]:
    body = json.dumps(request).encode() if request else b""
    answer: dict[str, Any] = json.loads(client.request(f"$JS.API.{endpoint}", body).payload)
    return answer


def contents(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


def keyed(folder: Path, key: str, more: str = "") -> str:
    return f'jetstream {{ store_dir: "{folder}", key: "{key}", {more} }}'


# Starting


def test_what_is_stored_leaves_the_bound_of_the_disk_where_it_was(tmp_path: Path) -> None:
    bounds = [make_resources(JetStreamOptions(store_dir=str(tmp_path))).storage_bytes_max]
    size = 256 * 1024 * 1024
    with (tmp_path / "jetstream" / "stored").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)

    bounds.append(make_resources(JetStreamOptions(store_dir=str(tmp_path))).storage_bytes_max)

    # Others may write to the same disk meanwhile, but hardly as much.
    assert abs(bounds[1] - bounds[0]) < size // 4


@pytest.mark.oracle
def test_the_log_says_what_the_real_servers_says(tmp_path: Path) -> None:
    said = {}
    for kind in BOTH:
        settings = f'jetstream {{ store_dir: "{tmp_path / kind}", domain: D, max_mem: 1G }}'
        with server_process(kind, settings=settings) as server:
            lines = [line.replace(kind, "X") for line in server.messages]
        first = next(place for place, line in enumerate(lines) if "Starting JetStream" in line)
        last = next(place for place, line in enumerate(lines) if "to start JetStream" in line)
        said[kind] = [line for line in lines[first:last] if "Max Storage" not in line]

    assert said[PENSTOCK] == said[REFERENCE]


@pytest.mark.oracle
def test_info_is_the_real_servers(tmp_path: Path) -> None:
    settings = 'jetstream {{ store_dir: "{}", domain: D }}'
    infos = {}
    for kind in BOTH:
        with (
            server_process(kind, settings=settings.format(tmp_path / kind)) as server,
            Dialogue(server.port) as dialogue,
        ):
            infos[kind] = dialogue.info

    assert list(infos[PENSTOCK]) == list(infos[REFERENCE])
    for name in ("jetstream", "domain", "api_lvl"):
        assert infos[PENSTOCK][name] == infos[REFERENCE][name]


@pytest.mark.oracle
def test_a_store_directory_that_cannot_be_is_refused_in_the_real_servers_words(
    tmp_path: Path,
) -> None:
    (tmp_path / "jetstream").write_text("a file")
    said = {}
    for kind in BOTH:
        server = ServerProcess(kind, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", tmp_path)
        assert server.wait() == 1
        said[kind] = server.messages[-1]

    assert said[PENSTOCK] == said[REFERENCE]


@pytest.mark.oracle
def test_a_key_in_a_security_chip_is_refused_in_the_real_servers_words(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(f'jetstream {{ store_dir: "{tmp_path}", tpm {{ keys_file: "keys.json" }} }}')
    said = {}
    for kind in BOTH:
        server = ServerProcess(kind, "-a", "127.0.0.1", "-p", "-1", "-c", config)
        assert server.wait() == 1
        said[kind] = server.messages[-1]

    assert said[PENSTOCK] == said[REFERENCE]


def test_streams_are_there_again_after_a_restart(tmp_path: Path) -> None:
    with start(tmp_path) as server, NatsClient(server.port) as client:
        for name in ("ONE", "TWO", "THREE"):
            fill(client, name)
        fill(client, "FORGETFUL", storage="memory")
        client.api("STREAM.UPDATE.TWO", {"name": "TWO", "subjects": ["two"]})
        before = asked(client, "STREAM.LIST")["streams"]

    with start(tmp_path) as server, NatsClient(server.port) as client:
        after = asked(client, "STREAM.LIST")["streams"]
        lines = [line for line in server.messages if "Restored" in line]
        client.request("two", b"hello")
        two = asked(client, "STREAM.INFO.TWO")["state"]

    def without_time(streams: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [each | {"ts": ""} for each in streams if each["config"]["name"] != "FORGETFUL"]

    assert without_time(after) == without_time(before)
    assert [line.split(" in ")[0] for line in lines] == [
        f"[INF]   Restored 3 messages for stream '$G > {name}'" for name in ("ONE", "THREE", "TWO")
    ]
    assert (two["messages"], two["last_seq"]) == (4, 4)


# What goes wrong


def test_a_stream_that_cannot_be_served_stays_offline_and_the_others_go_on(tmp_path: Path) -> None:
    names = ("LEVEL", "FIELD", "GONE", "GARBAGE", "NAME", "VERSION", "GOOD")
    with start(tmp_path) as server, NatsClient(server.port) as client:
        for name in names:
            fill(client, name)
    documents = {name: tmp_path / STREAMS / name / "stream.json" for name in names}

    def change(name: str, **fields: Any) -> None:
        # As an earlier server wrote it, or who changes it by hand: without a checksum.
        document = json.loads(documents[name].read_text()) | {"version": 1}
        del document["checksum"]
        document["config"] |= fields.pop("config", {})
        documents[name].write_text(json.dumps(document | fields))

    change("LEVEL", config={"metadata": {"_nats.req.level": "99"}})
    change("FIELD", config={"from_the_future": 1})
    change("NAME", config={"name": "OTHER"})
    change("VERSION", version=99)
    documents["GONE"].unlink()
    documents["GARBAGE"].write_bytes(b"\x00garbage")
    before = sorted(tmp_path.rglob("*"))

    with start(tmp_path) as server, NatsClient(server.port) as client:
        listed = asked(client, "STREAM.LIST")
        answers = {name: asked(client, f"STREAM.INFO.{name}") for name in names}
        refused = asked(client, "STREAM.CREATE.LEVEL", name="LEVEL")
        kept = asked(client, "STREAM.DELETE.FIELD")
        client.request("GOOD.a", b"hello")
        good = asked(client, "STREAM.INFO.GOOD")["state"]["messages"]

    reasons = {
        name: answer["error"]["description"]
        for name, answer in answers.items()
        if answer.get("error")
    }
    offline = "stream is offline: "
    assert reasons == {
        "LEVEL": f"{offline}unsupported - required API level: 99, current API level: 5",
        "FIELD": f'{offline}decoding error: json: unknown field "from_the_future"',
        "GONE": f"{offline}there is no stream.json",
        "GARBAGE": reasons["GARBAGE"],
        "NAME": f"{offline}the name in it is 'OTHER'",
        "VERSION": f"{offline}unsupported - document version 99",
    }
    assert reasons["GARBAGE"].startswith(f"{offline}decoding error: invalid character")
    assert sorted(listed["offline"]) == sorted(listed["missing"]) == sorted(reasons)
    assert [each["config"]["name"] for each in listed["streams"]] == ["GOOD"]
    assert refused["error"]["err_code"] == kept["error"]["err_code"] == 10194
    assert good == 4
    assert sorted(tmp_path.rglob("*")) == before


def test_a_removal_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    with start(tmp_path) as server, NatsClient(server.port) as client:
        fill(client, "HALF")
    folder = tmp_path / STREAMS / "HALF"
    (folder / "stream.json").rename(folder / "stream.removed")

    with start(tmp_path) as server, NatsClient(server.port) as client:
        names = asked(client, "STREAM.NAMES")["streams"]

    assert names is None
    assert not folder.exists()


def test_a_deleted_stream_leaves_nothing_behind(tmp_path: Path) -> None:
    with start(tmp_path) as server, NatsClient(server.port) as client:
        fill(client, "GONE")
        client.api("STREAM.DELETE.GONE")

        assert list((tmp_path / STREAMS).iterdir()) == []


@pytest.mark.parametrize("name", ["..", "a/b", "a\\b", "/etc", "x\0y", "x" * 256, "*", ">"])
def test_a_name_that_could_lead_elsewhere_makes_no_stream(tmp_path: Path, name: str) -> None:
    with start(tmp_path) as server, NatsClient(server.port) as client:
        body = json.dumps({"name": name, "subjects": ["s"]}).encode()
        answer = json.loads(client.request("$JS.API.STREAM.CREATE.x", body).payload)
        before = sorted(tmp_path.rglob("*"))

        assert answer["error"]["err_code"] in (10052, 10056, 10128)
        assert asked(client, "STREAM.NAMES")["streams"] is None
        assert sorted(tmp_path.rglob("*")) == before


# Keys


def test_an_encrypted_stream_needs_its_key(tmp_path: Path) -> None:
    secret = b"a secret that nobody may read"

    def state(settings: str) -> dict[str, Any]:
        with server_process(settings=settings) as server, NatsClient(server.port) as client:
            return asked(client, "STREAM.INFO.S")

    settings = keyed(tmp_path, "one", "cipher: aes")
    with server_process(settings=settings) as server, NatsClient(server.port) as client:
        fill(client, "S", 0)
        client.request("S.a", secret)
    on_disk = contents(tmp_path)

    assert secret not in on_disk
    assert state(settings)["state"]["messages"] == 1
    assert state(keyed(tmp_path, "two"))["error"]["err_code"] == 10194
    assert state(f'jetstream {{ store_dir: "{tmp_path}" }}')["error"]["err_code"] == 10194
    assert state(keyed(tmp_path, "two", "prev_key: one"))["state"]["messages"] == 1
    assert state(settings)["state"]["messages"] == 1


def test_configurations_are_encrypted_too(tmp_path: Path) -> None:
    settings = keyed(tmp_path, "one", "cipher: chacha")
    with server_process(settings=settings) as server, NatsClient(server.port) as client:
        fill(client, "S", metadata={"known": "secret-of-the-stream"})
        filtered = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "S.hidden"}
        request = {"stream_name": "S", "config": filtered}
        client.api("CONSUMER.DURABLE.CREATE.S.C", request)
    on_disk = contents(tmp_path)

    def told_of(settings: str) -> list[dict[str, Any]]:
        with server_process(settings=settings) as server, NatsClient(server.port) as client:
            return [asked(client, "STREAM.INFO.S"), asked(client, "CONSUMER.INFO.S.C")]

    stream, consumer = told_of(settings)
    assert stream["config"]["metadata"]["known"] == "secret-of-the-stream"
    assert consumer["config"]["filter_subject"] == "S.hidden"
    assert b"secret-of-the-stream" not in on_disk
    assert b"S.hidden" not in on_disk
    assert told_of(keyed(tmp_path, "two"))[0]["error"]["err_code"] == 10194
    assert told_of(keyed(tmp_path, "two", "prev_key: one"))[1]["config"] == consumer["config"]


def test_a_server_that_is_given_a_key_goes_on_with_what_was_plain(tmp_path: Path) -> None:
    with start(tmp_path) as server, NatsClient(server.port) as client:
        fill(client, "S")

    with (
        server_process(settings=keyed(tmp_path, "one")) as server,
        NatsClient(server.port) as client,
    ):
        assert asked(client, "STREAM.INFO.S")["state"]["messages"] == 3


# Accounts


def accounts(folder: Path, for_a: str, for_b: str, *, jetstream: str = "enabled: true") -> str:
    return f"""
        jetstream {{ store_dir: "{folder}", {jetstream} }}
        accounts {{
            A {{ users: [{{user: a, password: a}}], jetstream: {for_a} }}
            B {{ users: [{{user: b, password: b}}], jetstream: {for_b} }}
        }}
    """


def told(server: ServerProcess, user: str, endpoint: str, **request: Any) -> dict[str, Any]:
    with NatsClient(server.port, user=user, **{"pass": user}) as client:
        return asked(client, endpoint, **request)


def test_each_account_has_streams_of_its_own(tmp_path: Path) -> None:
    settings = accounts(tmp_path, "enabled", "enabled")
    with server_process(settings=settings) as server:
        for user in "ab":
            made = told(server, user, "STREAM.CREATE.S", name="S", subjects=["s"])
            assert made["did_create"]

        assert told(server, "a", "STREAM.DELETE.S")["success"]
        assert told(server, "a", "STREAM.NAMES")["streams"] is None
        assert told(server, "b", "STREAM.NAMES")["streams"] == ["S"]


def test_an_account_gets_and_loses_jetstream_by_a_reload(tmp_path: Path) -> None:
    with server_process(settings=accounts(tmp_path, "enabled", "disabled")) as server:
        told(server, "a", "STREAM.CREATE.S", name="S", subjects=["s"])
        assert told(server, "b", "INFO")["error"]["err_code"] == 10039

        server.config_file.write_text(accounts(tmp_path, "disabled", "{ max_streams: 7 }"))
        server.reload()

        assert told(server, "a", "INFO")["error"]["err_code"] == 10039
        assert told(server, "b", "INFO")["limits"]["max_streams"] == 7

        server.config_file.write_text(accounts(tmp_path, "enabled", "{ max_streams: 8 }"))
        server.reload()

        assert told(server, "a", "STREAM.NAMES")["streams"] == ["S"]
        assert told(server, "b", "INFO")["limits"]["max_streams"] == 8


def test_jetstream_is_switched_off_and_on_by_a_reload(tmp_path: Path) -> None:
    with server_process(settings=accounts(tmp_path, "enabled", "enabled")) as server:
        told(server, "a", "STREAM.CREATE.S", name="S", subjects=["s"])

        off = accounts(tmp_path, "enabled", "enabled", jetstream="enabled: false")
        server.config_file.write_text(off)
        server.reload()

        with NatsClient(server.port, user="a", **{"pass": "a"}) as client:
            assert client.request("$JS.API.INFO").headers.startswith(b"NATS/1.0 503")

        server.config_file.write_text(accounts(tmp_path, "enabled", "enabled"))
        server.reload()

        assert told(server, "a", "STREAM.NAMES")["streams"] == ["S"]


def test_the_servers_bounds_rise_by_a_reload(tmp_path: Path) -> None:
    small = accounts(tmp_path, "enabled", "enabled", jetstream="max_file: 1M")
    with server_process(settings=small) as server:
        refused = told(server, "a", "STREAM.CREATE.S", name="S", max_bytes=2_000_000)

        server.config_file.write_text(small.replace("1M", "10M"))
        server.reload()
        made = told(server, "a", "STREAM.CREATE.S", name="S", max_bytes=2_000_000)

        assert refused["error"]["err_code"] == 10047
        assert made["did_create"]


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("for_a", "for_b"),
    [
        ("{ max_file: 800M, max_mem: 1M }", "{ max_file: 300M, max_mem: 1M }"),
        ("{ max_file: 1M, max_mem: 800M }", "{ max_file: 1M, max_mem: 300M }"),
        ("{ max_file: 1M, max_mem: 2G }", "disabled"),
    ],
    ids=["files", "memory", "one alone"],
)
def test_accounts_that_were_promised_too_much_are_refused_in_the_real_servers_words(
    tmp_path: Path, for_a: str, for_b: str
) -> None:
    said = {}
    for kind in BOTH:
        config = tmp_path / f"{kind}.conf"
        bounds = "max_file: 1G, max_mem: 1G"
        config.write_text(accounts(tmp_path / kind, for_a, for_b, jetstream=bounds))
        server = ServerProcess(kind, "-a", "127.0.0.1", "-p", "-1", "-c", config)
        assert server.wait() == 1
        said[kind] = server.messages[-1]

    assert said[PENSTOCK] == said[REFERENCE]


def test_an_account_keeps_its_limits_when_a_reload_promises_it_too_much(tmp_path: Path) -> None:
    bounds = "max_file: 1G, max_mem: 1G"
    few = accounts(tmp_path, "{ max_file: 800M }", "{ max_file: 100M }", jetstream=bounds)
    with server_process(settings=few) as server:
        server.config_file.write_text(few.replace("100M", "300M"))
        server.reload()

        assert told(server, "b", "INFO")["limits"]["max_storage"] == 100_000_000
        assert "insufficient storage resources available (10047)" in server.log


def test_a_stream_whose_files_a_later_version_wrote_stays_offline_and_untouched(
    tmp_path: Path,
) -> None:
    with start(tmp_path) as server, NatsClient(server.port) as client:
        fill(client, "NEWER")
        fill(client, "GOOD")
    block = tmp_path / STREAMS / "NEWER" / "msgs" / "000001.blk"
    image = bytearray(block.read_bytes())
    image[8] = 99
    image[120:128] = xxh64(bytes(image[:120])).to_bytes(8, "little")
    block.write_bytes(image)

    with start(tmp_path) as server, NatsClient(server.port) as client:
        newer = asked(client, "STREAM.INFO.NEWER")
        good = asked(client, "STREAM.INFO.GOOD")

    assert newer["error"]["err_code"] == 10194
    assert "version 99" in newer["error"]["description"]
    assert good["state"]["messages"] == 3
    assert block.read_bytes() == image
