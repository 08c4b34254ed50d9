"""What people type for a job: sources, targets, options and trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.spark.jobs import (
    expand_tree,
    parse_options,
    parse_source,
    parse_target,
    split_server,
)
from penstock.errors import UsageError
from penstock.store.filestore import FileStore


def test_a_source_is_a_stream_of_a_server_a_directory_or_an_archive() -> None:
    found = [
        parse_source("nats://user@host:4222/ORDERS", ["subject=orders.>"]),
        parse_source("/data/ORDERS", None),
        parse_source("s3://bucket/ORDERS", ["keyFile=a=b"]),
        parse_source("archive:s3://bucket/ORDERS", None),
    ]

    assert [(each.format, each.options) for each in found] == [
        (
            "penstock",
            {"servers": "nats://user@host:4222", "stream": "ORDERS", "subject": "orders.>"},
        ),
        ("penstock-blocks", {"path": "/data/ORDERS"}),
        ("penstock-blocks", {"path": "s3://bucket/ORDERS", "keyFile": "a=b"}),
        ("penstock-archive", {"path": "s3://bucket/ORDERS"}),
    ]


@pytest.mark.parametrize("source", ["nats://host:4222", "nats://host/", "tls://host/A/B"])
def test_a_server_needs_its_stream(source: str) -> None:
    with pytest.raises(UsageError, match="which stream"):
        split_server(source)


def test_a_target_is_a_stream() -> None:
    given = parse_target("nats://host/COPY", ["sinkId=x"])

    assert given == {"servers": "nats://host", "stream": "COPY", "sinkId": "x"}
    with pytest.raises(UsageError, match="a target is a stream"):
        parse_target("/data/COPY", None)


def test_an_option_has_a_name_and_a_value() -> None:
    with pytest.raises(UsageError, match="name=value"):
        parse_options(["subject"])


def test_a_tree_stands_for_the_streams_in_it(tmp_path: Path) -> None:
    for name in ("A", "deeper/B"):
        with FileStore.open(str(tmp_path / name)) as store:
            store.store(b"a", b"", b"")

    assert expand_tree(str(tmp_path)) == [str(tmp_path / "A"), str(tmp_path / "deeper" / "B")]
    assert expand_tree(str(tmp_path / "A")) == [str(tmp_path / "A")]
    assert expand_tree(str(tmp_path / "nowhere")) == [str(tmp_path / "nowhere")]
