"""Rows of columns as messages: single ones with acknowledgements, and members of atomic batches."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from penstock.client.client import Client
from penstock.client.jetstream import JetStream
from penstock.client.row_publisher import Rows
from penstock.errors import FormatError, RefusedByServer, UsageError
from penstock.testing.servers import BOTH, server_process

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("rows")
    with server_process(request.param, store_dir=folder) as server:
        yield server.url


@pytest.fixture
def streams(url: str) -> Iterator[JetStream]:
    with Client.connect(url, timeout_s=60) as client:
        made = JetStream(client)
        config = {"name": "R", "subjects": ["r.>"], "allow_atomic": True, "storage": "memory"}
        made.call("STREAM.CREATE.R", config)
        yield made
        made.call("STREAM.DELETE.R")


def column(*texts: bytes) -> tuple[array[int], bytes]:
    return array("i", accumulate(map(len, texts), initial=0)), b"".join(texts)


def rows_of(*triples: tuple[bytes, bytes, bytes]) -> Rows:
    subjects, headers, payloads = zip(*triples, strict=True)
    return Rows(column(*subjects), column(*headers), column(*payloads))


BLOCK = b"NATS/1.0\r\nA: 1\r\n\r\n"


def test_each_row_is_a_message_with_its_headers(streams: JetStream) -> None:
    with streams.client.publishing_rows(in_flight=2) as publisher:
        for number in range(3):
            publisher.publish(rows_of((b"r.%d" % number, BLOCK, b"x"), (b"r.9", b"", b"")))

    found = [(each.subject, each.headers, each.payload) for each in streams.each("R")]
    assert found == [
        row for number in range(3) for row in ((b"r.%d" % number, BLOCK, b"x"), (b"r.9", b"", b""))
    ]
    assert publisher.duplicates == 0


def test_rows_that_the_stream_has_are_counted(streams: JetStream) -> None:
    rows = rows_of((b"r.1", b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n", b"x"), (b"r.1", b"", b"y"))
    with streams.client.publishing_rows(in_flight=10) as publisher:
        publisher.publish(rows)
        publisher.publish(rows)

    assert publisher.duplicates == 1
    assert [each.payload for each in streams.each("R")] == [b"x", b"y", b"y"]


def test_rows_without_a_stream_are_refused_by_their_number(streams: JetStream) -> None:
    rows = rows_of((b"r.1", b"", b""), (b"r.1", b"", b""), (b"q.1", b"", b""))
    with (
        pytest.raises(RefusedByServer, match="row 2: no stream takes it"),
        streams.client.publishing_rows(in_flight=1) as publisher,
    ):
        publisher.publish(rows)


def test_members_come_in_with_the_commit(streams: JetStream) -> None:
    client = streams.client
    rows = rows_of((b"r.0", b"", b"no"), (b"r.1", b"", b"x"), (b"r.2", BLOCK, b"y"))
    client.publish_members(rows, 1, 3, batch_id=b"b", number=1)
    assert list(streams.each("R")) == []

    end = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 3\r\nNats-Batch-Commit: 1\r\n\r\n"
    answer = streams.publish(b"r.end", headers=end)

    member = b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: %d\r\n%b\r\n"
    assert (answer["batch"], answer["count"], answer["seq"]) == ("b", 3, 3)
    assert [(each.subject, each.headers, each.payload) for each in streams.each("R")] == [
        (b"r.1", member % (1, b""), b"x"),
        (b"r.2", member % (2, b"A: 1\r\n"), b"y"),
        (b"r.end", end, b""),
    ]


def test_members_are_answered_where_that_is_wanted(streams: JetStream) -> None:
    client = streams.client
    inbox = client.new_inbox()
    sid = client.subscribe(inbox + b".*")
    rows = rows_of((b"r.1", b"", b"x"), (b"r.2", b"", b"y"))
    client.publish_members(rows, 0, 2, batch_id=b"b", number=1, inbox=inbox)
    client.publish_members(rows, 0, 1, batch_id=b"b", number=9, inbox=inbox)
    client.send()

    answers = [client.next_message(sid) for _ in range(3)]
    assert [each.subject for each in answers] == [inbox + b".%d" % n for n in (1, 2, 9)]
    assert [each.payload for each in answers[:2]] == [b"", b""]
    assert b"incomplete" in answers[2].payload


def test_the_hash_tells_columns_and_rows_apart() -> None:
    hashes = {
        rows_of(*triples).hashed(0, len(triples), 0)
        for triples in (
            [(b"r.1", b"", b"ab")],
            [(b"r.1", b"", b"a"), (b"r.1", b"", b"b")],
            [(b"r.1", b"", b"b"), (b"r.1", b"", b"a")],
            [(b"r.1a", b"", b"b")],
            [(b"r.1", b"a", b"b")],
            [(b"r.1", b"ab", b"")],
        )
    }

    assert len(hashes) == 6


def test_a_part_ends_with_the_row_that_fills_it() -> None:
    rows = rows_of((b"r.1", b"", b"x"), (b"r.1", b"", b"x"), (b"r.1", b"", b"x"))

    assert rows.end_of(0, 10, 100) == (3, 12)
    assert rows.end_of(0, 2, 100) == (2, 8)
    assert rows.end_of(1, 10, 1) == (2, 4)
    assert rows.end_of(3, 10, 100) == (3, 0)


@pytest.mark.parametrize(
    "offsets", [[0, 5], [-1, 3], [0, 2, 1], [0, 1, 2, 3]], ids=["long", "low", "back", "many"]
)
def test_columns_that_do_not_fit_are_refused(offsets: list[int]) -> None:
    good = column(b"a", b"b")

    with pytest.raises(FormatError):
        Rows(good, None, (array("i", offsets), b"abc"))


def test_rows_that_are_not_there_are_refused() -> None:
    rows = rows_of((b"r.1", b"", b"x"))
    for first, end in ((0, 2), (-1, 1), (1, 0)):
        with pytest.raises(UsageError, match="no rows"):
            rows.hashed(first, end, 0)


def test_a_row_that_is_larger_than_the_server_takes_is_refused(streams: JetStream) -> None:
    rows = rows_of((b"r.1", b"", b""), (b"r.1", b"", bytes(2**20 + 1)))

    with pytest.raises(UsageError, match=r"row 1: .* takes 1048576 at the most"):
        streams.client.publish_members(rows, 0, 2, batch_id=b"b", number=1)
    with (
        pytest.raises(UsageError, match="row 1: 1048577 bytes"),
        streams.client.publishing_rows(in_flight=9) as publisher,
    ):
        publisher.publish(rows)


@pytest.mark.parametrize("subject", [b"", b"r .x", b"r.\r\nPUB q"])
def test_what_is_no_subject_is_refused(streams: JetStream, subject: bytes) -> None:
    rows = rows_of((b"r.1", b"", b""), (subject, b"", b""))

    with pytest.raises(UsageError, match=r"row 1: .*subject"):
        streams.client.publish_members(rows, 0, 2, batch_id=b"b", number=1)
    with (
        pytest.raises(UsageError, match=r"row 1: .*subject"),
        streams.client.publishing_rows(in_flight=9) as publisher,
    ):
        publisher.publish(rows)
