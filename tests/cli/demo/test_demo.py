"""The demo plays through on a small scale, and a claim that does not hold makes it fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext

from penstock.cli.demo import demo, other_client, spark
from penstock.cli.demo.shop import event, events
from penstock.cli.demo.stage import Stage
from penstock.cli.output import people_console
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Play with few events, in a folder of its own."""
    monkeypatch.setattr(spark, "SHOPS", (("nats-py", 500), ("penstock", 7500)))
    monkeypatch.setattr(other_client, "BENCH_MESSAGES", 1000)
    monkeypatch.setattr(other_client, "READ_EVENTS", 100)
    monkeypatch.setattr(other_client, "EVENTS", 1500)
    monkeypatch.setattr(other_client, "ACKED_BEFORE_KILL", 300)
    monkeypatch.setattr(other_client, "IN_FLIGHT", 200)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_claim_of_the_demo_holds_and_its_data_can_be_looked_at(run: Run, small: Path) -> None:
    ran = run("demo", "--keep", "kept")

    assert ran.code == 0, ran.out
    assert "FAIL" not in ran.out
    assert "All checks hold." in ran.out
    assert ran.out.count("  ok  ") == 25
    path = small / "kept" / "spark" / "jetstream" / "$G" / "streams" / "ORDERS" / "msgs"
    assert str(path.relative_to(small)) in ran.out
    told = run("store", "info", path, "--json").document
    assert (told["messages"], told["last_seq"]) == (8003, 8004)
    stream = other_client.stream_path(small / "kept" / "server")
    assert run("store", "info", stream, "--json").document["messages"] == 1500


def test_the_data_of_the_demo_is_removed(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "play_spark", lambda stage: None)

    assert run("demo").code == 0
    assert list(small.iterdir()) == []


def test_a_claim_that_does_not_hold_fails_the_demo(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "play_server", lambda stage: None)
    monkeypatch.setattr(demo, "play_jetstream", lambda stage: stage.check(False, "it is so"))
    monkeypatch.setattr(demo, "play_spark", lambda stage: None)

    ran = run("demo")

    assert ran.code == 1
    assert "FAIL it is so" in ran.out
    assert "1 checks FAILED" in ran.out


def test_an_acknowledged_event_that_is_lost_with_the_server_fails_the_demo(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(people_console(), small)
    read = other_client._read

    async def read_and_lose_one(jetstream: JetStreamContext, wanted: int) -> dict[int, Any]:
        messages = await read(jetstream, wanted)
        messages.pop(200, None)
        return messages

    monkeypatch.setattr(other_client, "_read", read_and_lose_one)

    other_client.play_jetstream(stage)

    assert len(stage.failed) == 2
    assert stage.failed[0].startswith("every acknowledged event is there, under its sequence")


def test_without_a_client_to_talk_with_it_is_said_how_to_get_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    monkeypatch.setattr(other_client.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]

    ran = run("demo")

    assert ran.code == 0
    assert "pip install nats-py" in ran.out
    assert "pip install 'penstock[spark]' nats-py" in ran.out
    assert "  ok  " not in ran.out


def test_an_event_is_always_the_same_and_never_like_another() -> None:
    assert events(5, 3) == [event(5), event(6), event(7)]
    assert len({payload for _, _, payload in events(1, 1000)}) == 1000
