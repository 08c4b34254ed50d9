"""A folder of JSON lines becomes a store, and stays as it is."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from penstock.errors import CorruptStore, UsageError
from penstock.format.envelope import Cipher, StoreKey
from penstock.format.layout import LEGACY_NAME
from penstock.store.filestore import FileStore
from penstock.store.imports.from_json_lines import import_json_lines
from penstock.store.interface import StoreConfig


def lines(path: Path, *seqs: int, end: str = "") -> Path:
    path.mkdir()
    told = [
        {
            "sequence": seq,
            "subject": "a.b",
            "payload": base64.b64encode(b"payload %d" % seq).decode(),
            "timestamp": "2026-07-20T12:00:00Z",
        }
        for seq in seqs
    ]
    text = "".join(json.dumps(each) + "\n" for each in told) + end
    (path / LEGACY_NAME).write_text(text)
    return path


def test_messages_keep_their_sequences_and_can_be_encrypted(tmp_path: Path) -> None:
    source, target = lines(tmp_path / "old", 1, 2, 5), tmp_path / "new"
    before = (source / LEGACY_NAME).read_bytes()
    config = StoreConfig(name="NEW", cipher=Cipher.AES_256_GCM)
    key = StoreKey(b"secret")

    report = import_json_lines(str(source), str(target), config, key=key)

    assert (report.messages, report.first_seq, report.last_seq) == (3, 1, 5)
    assert report.is_whole
    assert (source / LEGACY_NAME).read_bytes() == before
    with FileStore.open(str(target), config, key=key) as store:
        assert [store.load(seq).payload for seq in (1, 2, 5)] == [
            b"payload 1",
            b"payload 2",
            b"payload 5",
        ]


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    source = lines(tmp_path / "old", 1, end='{"sequence": 2, "sub')

    report = import_json_lines(str(source), str(tmp_path / "new"), StoreConfig())

    assert report.messages == 1
    assert not report.is_whole
    assert "torn" in report.problems[0]


def test_what_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    source = lines(tmp_path / "old", 1, end="no line\n")
    taken = lines(tmp_path / "taken", 1)

    with pytest.raises(CorruptStore):
        import_json_lines(str(source), str(tmp_path / "new"), StoreConfig())
    with pytest.raises(UsageError):
        import_json_lines(str(taken), str(source), StoreConfig())

    assert sorted(os.listdir(tmp_path)) == ["old", "taken"]
