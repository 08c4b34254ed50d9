"""Imports of directories that the real nats-server wrote: every message as it answered."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest

from penstock.errors import StoreError, UsageError, WrongKey
from penstock.format.columns import MessageRow
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.golang.metadata import GoConsumerState, PendingAck
from penstock.format.state.consumer import (
    PendingDelivery,
    SequencePair,
    decode_consumer_state,
)
from penstock.store.filestore import FileStore
from penstock.store.imports.from_go import import_go_stream, to_consumer_state, ttl_seconds
from penstock.store.interface import NEVER_NS, StoreConfig
from penstock.testing.clock import FakeClock
from penstock.testing.faults import FaultyFileSystem, every_fault
from penstock.testing.filesystem import MemoryFileSystem
from penstock.testing.servers import reference_server
from tests.format.golang.written_by_go import WrittenStore, write_streams
from tests.support.nats_client import NatsClient

pytestmark = pytest.mark.oracle

KEY = StoreKey(b"our own secret")
SECOND_NS = 1_000_000_000
Written = Callable[[str | None], WrittenStore]
STREAMS = (
    "PLAIN",
    "LATEST",
    "COUNTED",
    "SIZED",
    "PACKED",
    "LATER",
    "UNBORN",
    "PURGED",
    "INTEREST",
    "WORK",
    "AGED",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return the store that a server with this cipher wrote and left in peace."""

    @cache
    def write(cipher: str | None) -> WrittenStore:
        return write_streams(tmp_path_factory.mktemp("go"), cipher=cipher, killed=False)

    return write


def messages_of(store: FileStore) -> list[MessageRow]:
    found: list[MessageRow] = []
    seq = 1
    while True:
        try:
            message = store.load_next(seq)
        except LookupError:
            return found
        found.append(
            MessageRow(
                message.seq,
                message.timestamp_ns,
                message.subject,
                message.headers,
                message.payload,
            )
        )
        seq = message.seq + 1


def opened(path: Path, config: StoreConfig, *, clock: FakeClock | None = None) -> FileStore:
    return FileStore.open(
        str(path), config, key=KEY, threaded=False, clock=clock or FakeClock(now_ns=0)
    )


def tree_hash(path: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        digest.update(str(file.relative_to(path)).encode())
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("cipher", [None, "chacha", "aes"])
def test_every_message_is_as_the_server_answered(
    written: Written, tmp_path: Path, cipher: str | None, name: str
) -> None:
    store = written(cipher)
    said = store.streams[name]
    source = store.stream_path(name)
    before = tree_hash(source)

    report = import_go_stream(str(source), str(tmp_path / "new"), go_key=store.key)

    with opened(tmp_path / "new", StoreConfig(name=name)) as imported:
        assert imported.report.clean
        assert messages_of(imported) == said.messages
        state = imported.state()
        assert (state.messages, state.bytes) == (said.state["messages"], said.state["bytes"])
        assert (state.first_seq, state.last_seq) == (
            said.state["first_seq"],
            said.state["last_seq"],
        )
        assert imported.store(b"next", b"", b"")[0] == said.state["last_seq"] + 1
    assert (report.stream, report.messages) == (name, len(said.messages))
    assert (report.first_seq, report.last_seq) == (state.first_seq, state.last_seq)
    assert report.bytes == state.bytes
    assert report.is_whole
    assert tree_hash(source) == before
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("cipher", list(Cipher))
@pytest.mark.parametrize("compression", list(Compression))
def test_the_new_store_is_sealed_as_its_configuration_says(
    written: Written, tmp_path: Path, cipher: Cipher, compression: Compression
) -> None:
    store = written("aes")
    config = StoreConfig(name="mine", cipher=cipher, compression=compression)

    import_go_stream(
        str(store.stream_path("PLAIN")), str(tmp_path / "new"), config, key=KEY, go_key=store.key
    )

    with opened(tmp_path / "new", config) as imported:
        assert messages_of(imported) == store.streams["PLAIN"].messages
    if cipher is not Cipher.NONE:
        with pytest.raises(WrongKey):
            FileStore.open(str(tmp_path / "new"), config, threaded=False)


@pytest.mark.parametrize("cipher", [None, "chacha", "aes"])
def test_consumers_and_configuration_come_along(
    written: Written, tmp_path: Path, cipher: str | None
) -> None:
    store = written(cipher)
    (said,) = store.streams["WORK"].consumers

    report = import_go_stream(
        str(store.stream_path("WORK")), str(tmp_path / "new"), go_key=store.key
    )

    assert report.consumers == ["worker"]
    assert report.unsupported == ["retention: workqueue"]
    state = decode_consumer_state((tmp_path / "new/consumers/worker.state").read_bytes())
    assert state.delivered == (said["delivered"]["consumer_seq"], said["delivered"]["stream_seq"])
    assert state.ack_floor == (said["ack_floor"]["consumer_seq"], said["ack_floor"]["stream_seq"])
    assert sorted(state.pending) == [4, 5, 7, 8, 9, 10]
    assert len(state.pending) == said["num_ack_pending"]
    assert state.redelivered == {4: 1}
    kept = json.loads((tmp_path / "new/import.json").read_text())
    assert kept["stream"]["subjects"] == ["work.>"]
    assert kept["consumers"]["worker"]["ack_policy"] == "explicit"


def test_limits_apply_when_the_new_store_is_opened_and_not_before(
    written: Written, tmp_path: Path
) -> None:
    store = written(None)
    said = store.streams["PLAIN"].messages
    config = StoreConfig(name="PLAIN", max_msgs=10)

    report = import_go_stream(str(store.stream_path("PLAIN")), str(tmp_path / "new"), config)

    assert report.messages == len(said)
    with opened(tmp_path / "new", config) as imported:
        assert messages_of(imported) == said[-10:]


def test_a_time_to_live_becomes_an_expiry(tmp_path: Path) -> None:
    with (
        reference_server(store_dir=tmp_path / "go") as server,
        NatsClient(server.port) as client,
    ):
        config = {"name": "BRIEF", "subjects": ["brief.>"], "allow_msg_ttl": True}
        client.api("STREAM.CREATE.BRIEF", {**config, "max_age": 10**6 * SECOND_NS})
        for ttl in (b"3600", b"90m", b"never", b""):
            headers = b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % ttl if ttl else b""
            client.request("brief.a", ttl, headers=headers)
    source = tmp_path / "go/jetstream/$G/streams/BRIEF"

    report = import_go_stream(str(source), str(tmp_path / "new"))

    with opened(tmp_path / "new", StoreConfig(name="BRIEF")) as imported:
        found = [imported.load(seq) for seq in range(1, 5)]
    brief = found[:2]
    assert [(each.expires_ns - each.timestamp_ns) // SECOND_NS for each in brief] == [3600, 5400]
    assert [each.expires_ns for each in found[2:]] == [NEVER_NS, 0]
    assert report.expiring == 2
    late = FakeClock(now_ns=found[0].timestamp_ns + 4000 * SECOND_NS)
    with opened(tmp_path / "new", StoreConfig(name="BRIEF"), clock=late) as imported:
        assert [message.seq for message in messages_of(imported)] == [2, 3, 4]


def test_progress_is_told_up_to_the_last_message(written: Written, tmp_path: Path) -> None:
    store = written(None)
    told: list[tuple[int, int]] = []

    report = import_go_stream(
        str(store.stream_path("SIZED")),
        str(tmp_path / "new"),
        progress=lambda done, total: told.append((done, total)),
    )

    assert len(told) > 1
    assert told == sorted(told)
    assert told[-1] == (report.messages, report.messages)


def test_damage_costs_what_it_touches_and_is_reported(written: Written, tmp_path: Path) -> None:
    store = written(None)
    said = store.streams["PLAIN"].messages
    source = tmp_path / "$G/streams/PLAIN"
    shutil.copytree(store.stream_path("PLAIN"), source)
    block = source / "msgs/1.blk"
    data = bytearray(block.read_bytes())
    hit = said[40]
    data[data.index(hit.payload)] ^= 1
    block.write_bytes(data)

    report = import_go_stream(str(source), str(tmp_path / "new"))

    with opened(tmp_path / "new", StoreConfig(name="PLAIN")) as imported:
        assert messages_of(imported) == [each for each in said if each.seq != hit.seq]
        assert imported.state().last_seq == 140
    assert [(each.first_seq, each.last_seq) for each in report.damage] == [(hit.seq, hit.seq)]
    assert (report.missing, report.is_whole) == (1, False)


def test_a_target_that_is_taken_is_refused_and_left_alone(written: Written, tmp_path: Path) -> None:
    store = written(None)
    (tmp_path / "new").mkdir()
    (tmp_path / "new/notes.txt").write_text("mine")

    with pytest.raises(UsageError):
        import_go_stream(str(store.stream_path("PLAIN")), str(tmp_path / "new"))

    assert (tmp_path / "new/notes.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_source_that_is_no_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        import_go_stream(str(tmp_path), str(tmp_path / "new"))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("go_key", [None, "another key"])
def test_a_wrong_key_leaves_nothing_behind(
    written: Written, tmp_path: Path, go_key: str | None
) -> None:
    source = written("chacha").stream_path("PLAIN")

    with pytest.raises(WrongKey):
        import_go_stream(str(source), str(tmp_path / "new"), go_key=go_key)

    assert list(tmp_path.iterdir()) == []


def test_a_crash_at_any_call_leaves_the_whole_store_or_none(written: Written) -> None:
    store = written(None)
    source = str(store.stream_path("WORK"))
    outcomes = set()

    for plan in every_fault(forever=True):
        disk = MemoryFileSystem()
        with contextlib.suppress(OSError, StoreError):
            import_go_stream(source, "/new/work", files=FaultyFileSystem(disk, plan))
        for keep in (None, Random(plan.nth)):
            found = disk.survivor(keep)
            there = found.exists("/new/work")
            if not there:
                import_go_stream(source, "/new/work", files=found)
            config = StoreConfig(name="WORK")
            imported = FileStore.open("/new/work", config, files=found, threaded=False)
            assert messages_of(imported) == store.streams["WORK"].messages
            assert found.exists("/new/work/consumers/worker.state")
            assert found.exists("/new/work/import.json")
            assert found.list_names("/new") == ["work"]
            outcomes.add(there)
    assert outcomes == {True, False}


def test_a_failed_call_leaves_nothing_behind(written: Written) -> None:
    source = str(written(None).stream_path("WORK"))

    for plan in every_fault():
        disk = MemoryFileSystem()
        try:
            import_go_stream(source, "/new/work", files=FaultyFileSystem(disk, plan))
        except (OSError, StoreError):
            names = disk.list_names("/new") if disk.exists("/new") else []
            # Where the last step failed the store is whole and in its place.
            assert names in ([], ["work"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("1s", 1),
        ("1.9s", 1),
        ("999ms", 0),
        ("1h2m3s", 3723),
        (".5h", 1800),
        ("1.5m", 90),
        ("1500000µs", 1),
        ("never", 0),
        ("", 0),
        ("-5", 0),
        ("5x", 0),
        ("1h!", 0),
        ("99999999999999999999", 0),
        ("٣", 0),
    ],
)
def test_times_to_live_are_read_as_the_server_reads_them(text: str, seconds: int) -> None:
    assert ttl_seconds(text) == seconds


def test_deliveries_that_were_not_numbered_get_the_numbers_after_the_floor() -> None:
    state = to_consumer_state(
        GoConsumerState(3, 10, 9, 20, {15: PendingAck(0, 5), 12: PendingAck(0, 4)}, {12: 2})
    )

    assert state.ack_floor == SequencePair(3, 10)
    assert state.pending == {12: PendingDelivery(4, 4), 15: PendingDelivery(5, 5)}
    assert state.redelivered == {12: 2}
