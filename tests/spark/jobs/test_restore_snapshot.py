"""Restoring a snapshot: a backup of which any server makes the stream again, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import CorruptStore, UsageError
from penstock.spark.jobs.restore_files import restore_snapshot
from penstock.testing.servers import environ
from tests.support.archives import (
    archive_here,
    connect,
    directory,
    make_store,
    messages,
    publish,
    server_input,
)


def test_a_server_makes_the_stream_again(url: str, tmp_path: Path) -> None:
    streams = connect(url)
    streams.call("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})
    publish(streams, "orders", 100)
    for seq in (1, 2, 50, 100):
        streams.call("STREAM.MSG.DELETE.ORDERS", {"seq": seq})
    archive_here(server_input(url, "ORDERS"), tmp_path / "archive")
    before, info = messages(streams, "ORDERS"), streams.call("STREAM.INFO.ORDERS")
    streams.call("STREAM.DELETE.ORDERS")

    restore_snapshot(str(tmp_path / "archive"), str(tmp_path / "backup"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            "stream",
            "restore",
            str(tmp_path / "backup"),
            "-s",
            url,
        ],
        check=True,
        capture_output=True,
        timeout=100,
        env=environ(),
    )

    assert messages(streams, "ORDERS") == before
    state = streams.call("STREAM.INFO.ORDERS")["state"]
    # When the last message came, which is gone, no archive of what is there can tell.
    assert {**state, "last_ts": ""} == {**info["state"], "last_ts": ""}
    told = json.loads((tmp_path / "backup" / "backup.json").read_bytes())
    for name in ("messages", "bytes", "first_seq", "first_ts", "last_seq"):
        assert told["state"][name] == info["state"][name], name
    streams.call("STREAM.DELETE.ORDERS")
    streams.client.close()


def test_a_backup_is_not_written_over_another(url: str, tmp_path: Path) -> None:
    streams = connect(url)
    streams.call("STREAM.CREATE.SMALL", {"name": "SMALL", "subjects": ["small.>"]})
    publish(streams, "small", 3)
    archive_here(server_input(url, "SMALL"), tmp_path / "archive")
    streams.call("STREAM.DELETE.SMALL")
    streams.client.close()

    dry = restore_snapshot(str(tmp_path / "archive"), str(tmp_path / "backup"), dry_run=True)
    assert not (tmp_path / "backup").exists()
    report = restore_snapshot(str(tmp_path / "archive"), str(tmp_path / "backup"))

    assert report.outputs == dry.outputs
    with pytest.raises(UsageError):
        restore_snapshot(str(tmp_path / "archive"), str(tmp_path / "backup"))


def test_damage_leaves_no_backup(url: str, tmp_path: Path) -> None:
    streams = connect(url)
    streams.call("STREAM.CREATE.SMALL", {"name": "SMALL", "subjects": ["small.>"]})
    publish(streams, "small", 100)
    manifest = archive_here(server_input(url, "SMALL"), tmp_path / "archive")
    streams.call("STREAM.DELETE.SMALL")
    streams.client.close()
    (tmp_path / "archive" / manifest.files[-1].name).write_bytes(b"PAR1 no more PAR1")

    with pytest.raises(CorruptStore):
        restore_snapshot(str(tmp_path / "archive"), str(tmp_path / "backup"))

    assert not (tmp_path / "backup").exists()


def test_an_archive_that_knows_no_configuration_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path / "ORDERS", count=10)
    archive_here(directory(tmp_path / "ORDERS"), tmp_path / "archive")

    with pytest.raises(UsageError, match="configuration"):
        restore_snapshot(str(tmp_path / "archive"), str(tmp_path / "backup"))
