"""Rows that compare two servers: ratios of turns, and what the processor time counts for."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import batches, nats_bench
from benchmarks.compared import Runs, compared_row
from benchmarks.measure import at_least
from penstock.bench.runs import Run


def runs(name: str, *measured: tuple[float, float]) -> Runs:
    """Return runs of 1,000 messages by their seconds, and the server's seconds on processors."""
    return Runs(
        name,
        [Run(1_000, 0, seconds, processor_ns=int(used * 1e9)) for seconds, used in measured],
    )


def test_ratios_are_medians_of_turns() -> None:
    ours = runs("penstock", (1.0, 0.1), (2.0, 0.2), (4.0, 0.8))
    theirs = runs("nats-server", (2.0, 0.4), (2.0, 0.4), (40.0, 8.0))

    row = compared_row("breadth", "publish", ours, theirs, at_least(2))

    assert row.what == "publish: of nats-server"
    assert row.value == 2.0
    assert row.detail == "500 msg/s; nats-server 500 msg/s"
    assert row.processor is not None
    assert row.processor.times_less == 4.0
    assert (row.processor.ours_ns, row.processor.theirs_ns) == (200_000, 400_000)


@pytest.mark.parametrize(
    ("used", "asked", "counts"), [(0.5, True, True), (0.95, True, False), (0.5, False, False)]
)
def test_processor_time_counts_only_where_our_server_waits(
    used: float, asked: bool, counts: bool
) -> None:
    ours, theirs = runs("penstock", (1.0, used)), runs("nats-server", (1.0, 4.0))

    row = compared_row("breadth", "publish", ours, theirs, at_least(2), either=asked)

    assert row.either == counts
    assert row.passed == counts


def test_a_batch_is_whole_and_its_id_fits_its_room() -> None:
    frames = batches.batch_with_room(b"in", b"hi").replace(batches.ROOM, b"%08d" % 7)

    at = 0
    for number in range(1, batches.BATCH_MESSAGES + 1):
        line, _, rest = frames[at:].partition(b"\r\n")
        *words, headers, total = line.split()
        last = number == batches.BATCH_MESSAGES
        assert words == [b"HPUB", b"batches.all", *([b"in"] if last else [])]
        block = rest[: int(headers)]
        assert block.startswith(b"NATS/1.0\r\nNats-Batch-Id: 00000007\r\nNats-Batch-Sequence: ")
        assert b"Sequence: %d\r\n" % number in block
        assert (b"Nats-Batch-Commit: 1\r\n" in block) == last
        assert rest[int(headers) : int(total) + 2] == b"hi\r\n"
        at += len(line) + 2 + int(total) + 2
    assert at == len(frames)


def test_the_rates_of_the_tool_are_added_up() -> None:
    text = "#RunID,ClientID,MsgCount,MsgsPerSec\nA,C0,10,1000\nA,C1,10,500\n"

    assert nats_bench.read_rate(text) == 1_500


def test_without_go_the_tool_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "tools" / "install.sh"
    script.parent.mkdir()
    script.write_text(nats_bench.INSTALL.read_text())
    script.chmod(0o755)
    empty = tmp_path / "bin"
    empty.mkdir()
    for name in ("sh", "dirname", "cat"):
        (empty / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setattr(nats_bench, "INSTALL", script)

    assert not nats_bench.install()
    assert "Go is missing" in capsys.readouterr().err
