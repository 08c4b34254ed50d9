"""Mirrors hold what their origins hold, as the reference server's mirrors do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import server_process
from tests.stream.fed import Side, Story, check_alike, restarted

pytestmark = pytest.mark.oracle


def _mirror(side: Side, name: str, origin: str, **mirror: Any) -> str:
    side.make(name, mirror={"name": origin} | mirror)
    return name


def with_gaps(side: Side) -> list[str]:
    side.origin("G")
    side.drop("G", 2, 3, 6)
    _mirror(side, "GM", "G")
    side.wait_for("GM", 5)
    for number in range(3):
        side.put("G.more", b"%d" % number)
    side.wait_for("GM", 9)
    return ["G", "GM"]


def removals_of_the_origin_stay(side: Side) -> list[str]:
    side.origin("R")
    _mirror(side, "RM", "R")
    side.wait_for("RM", 6)
    side.drop("R", 1, 4)
    side.api("STREAM.PURGE.R", {"seq": 3})
    side.put("R.end")
    side.wait_for("RM", 7)
    return ["R", "RM"]


def filtered(side: Side) -> list[str]:
    side.origin("F", 9)
    _mirror(side, "FM", "F", filter_subject="F.1.*")
    side.wait_for("FM", 8)
    side.put("F.0.x")
    side.put("F.1.y")
    side.wait_for("FM", 11)
    return ["FM"]


def renamed(side: Side) -> list[str]:
    side.origin("T", 5)
    transforms = [{"src": "T.0.*", "dest": "even.$1"}, {"src": "T.1.*", "dest": ""}]
    _mirror(side, "TM", "T", subject_transforms=transforms)
    side.wait_for("TM", 5)
    return ["TM"]


def from_a_sequence(side: Side) -> list[str]:
    side.origin("Q")
    _mirror(side, "QM", "Q", opt_start_seq=4)
    _mirror(side, "QN", "Q", opt_start_seq=40)
    side.wait_for("QM", 6)
    side.wait_for("QN", 39)
    return ["QM", "QN"]


def from_a_time(side: Side) -> list[str]:
    side.origin("W")
    fourth = side.kept("W")[3].time
    _mirror(side, "WM", "W", opt_start_time=fourth)
    side.wait_for("WM", 6)
    return ["WM"]


def purged_itself(side: Side) -> list[str]:
    side.origin("H", 5)
    _mirror(side, "HM", "H")
    side.wait_for("HM", 5)
    side.api("STREAM.PURGE.HM", {"seq": 4})
    side.put("H.a", b"after")
    side.wait_for("HM", 6)
    side.api("STREAM.PURGE.HM")
    side.put("H.a", b"after that")
    side.wait_for("HM", 7)
    return ["HM"]


def of_an_emptied_stream(side: Side) -> list[str]:
    side.origin("E", 3)
    side.api("STREAM.PURGE.E")
    _mirror(side, "EM", "E")
    side.wait_for("EM", 3)
    side.put("E.a", b"again")
    side.wait_for("EM", 4)
    return ["EM"]


def within_its_own_limits(side: Side) -> list[str]:
    side.origin("L", 0)
    for number in range(9):
        side.put(f"L.{number % 3}", b"%d" % number)
    side.make("LM", mirror={"name": "L"}, max_msgs_per_subject=1)
    side.make("LN", mirror={"name": "L"}, max_msgs=4)
    side.wait_for("LM", 9)
    side.wait_for("LN", 9)
    return ["LM", "LN"]


def without_expectations(side: Side) -> list[str]:
    side.origin("X", 1)
    side.put("X.a", b"1", Nats_Expected_Stream="X", Nats_Expected_Last_Sequence="1", A="b")
    side.put("X.a", b"2", Nats_Expected_Last_Subject_Sequence="2", Nats_Msg_Id="m")
    side.put("X.a", b"3", Nats_Expected_Last_Msg_Id="m")
    _mirror(side, "XM", "X")
    side.wait_for("XM", 4)
    return ["XM"]


def with_the_same_id_twice(side: Side) -> list[str]:
    side.origin("D", 0, duplicate_window=100_000_000)
    ids = [side.put("D.a", b"1", Nats_Msg_Id="same")["seq"]]
    while ids[-1] < 2:
        # The window is short, and its end is reached.
        ids.append(side.put("D.a", b"2", Nats_Msg_Id="same")["seq"])
    _mirror(side, "DM", "D")
    side.wait_for("DM", 2)
    return ["DM"]


def rolled_up(side: Side) -> list[str]:
    side.origin("U", 5, allow_rollup_hdrs=True)
    side.make("UM", mirror={"name": "U"}, allow_rollup_hdrs=True)
    side.make("UN", mirror={"name": "U"})
    side.wait_for("UM", 5)
    side.wait_for("UN", 5)
    side.put("U.0.0", b"alone", Nats_Rollup="sub")
    side.wait_for("UM", 6)
    side.put("U.1.1", b"all", Nats_Rollup="all")
    side.wait_for("UM", 7)
    side.wait_for("UN", 7)
    return ["U", "UM", "UN"]


def of_a_mirror(side: Side) -> list[str]:
    side.origin("C", 4)
    _mirror(side, "CM", "C")
    _mirror(side, "CN", "CM")
    side.wait_for("CN", 4)
    return ["CM", "CN"]


def promoted(side: Side) -> list[str]:
    side.origin("P", 3)
    _mirror(side, "PM", "P")
    side.wait_for("PM", 3)
    assert "mirror" not in side.change("PM", subjects=["own"])
    side.put("P.a", b"not mirrored")
    side.put("own", b"of its own")
    return ["PM"]


def in_memory(side: Side) -> list[str]:
    side.origin("M", 4)
    side.make("MM", mirror={"name": "M"}, storage="memory")
    side.wait_for("MM", 4)
    return ["MM"]


STORIES: tuple[Story, ...] = (
    with_gaps,
    removals_of_the_origin_stay,
    filtered,
    renamed,
    from_a_sequence,
    from_a_time,
    purged_itself,
    of_an_emptied_stream,
    within_its_own_limits,
    without_expectations,
    with_the_same_id_twice,
    rolled_up,
    of_a_mirror,
    promoted,
    in_memory,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_mirror_is_what_the_reference_server_makes_of_it(
    both: tuple[Side, Side], story: Story
) -> None:
    check_alike(both, story)


def test_a_mirror_keeps_the_times_of_its_origin(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("Y")
    _mirror(ours, "YM", "Y")
    ours.wait_for("YM", 6)
    assert ours.kept("YM") == ours.kept("Y")


def test_a_mirror_answers_for_its_origin_when_it_has_caught_up(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("B", 4, allow_direct=True)
    ours.make("BM", mirror={"name": "B"}, max_msgs=2, discard="new")
    ours.wait("BM", lambda info: "error" in info["mirror"])
    asked = "$JS.API.DIRECT.GET.B.B.1.3"
    assert {_answering(ours, asked) for _ in range(40)} == {b"B"}
    ours.drop("BM", 1, 2)
    ours.wait_for("BM", 4)
    while _answering(ours, asked) != b"BM":
        # Which of them answers is random.
        pass


def _answering(side: Side, subject: str) -> bytes:
    headers = side.request(subject).headers
    return headers.partition(b"Nats-Stream: ")[2].partition(b"\r\n")[0]


def test_a_mirror_that_was_purged_beyond_its_end_goes_on_there(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("J", 2)
    _mirror(ours, "JM", "J")
    ours.wait_for("JM", 2)
    ours.api("STREAM.PURGE.JM", {"seq": 5})
    for number in range(4):
        ours.put("J.a", b"%d" % number)
    ours.wait_for("JM", 6)
    assert ours.kept("JM") == ours.kept("J")[4:]


def test_a_mirror_waits_for_an_origin_that_is_not_there_yet(both: tuple[Side, Side]) -> None:
    _, ours = both
    info = ours.make("VM", mirror={"name": "V"})
    assert info["mirror"]["error"]["err_code"] == 10059
    ours.origin("V")
    info = ours.wait_for("VM", 6)
    assert "error" not in info["mirror"]


def test_a_mirror_keeps_what_it_has_when_its_origin_is_made_again(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("A", 3)
    _mirror(ours, "AM", "A")
    ours.wait_for("AM", 3)
    before = ours.kept("AM")
    ours.api("STREAM.DELETE.A")
    assert ours.info("AM")["mirror"]["error"]["err_code"] == 10059
    ours.origin("A", 5)
    ours.wait_for("AM", 5)
    assert ours.kept("AM") == before + ours.kept("A")[3:]


def test_a_full_mirror_that_refuses_says_so_and_goes_on_when_there_is_room(
    both: tuple[Side, Side],
) -> None:
    _, ours = both
    ours.origin("Z", 4)
    ours.make("ZM", mirror={"name": "Z"}, max_msgs=2, discard="new")
    info = ours.wait("ZM", lambda info: "error" in info["mirror"])
    assert (info["state"]["last_seq"], info["mirror"]["lag"]) == (2, 2)
    ours.drop("ZM", 1, 2)
    info = ours.wait_for("ZM", 4)
    assert "error" not in info["mirror"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_mirror_goes_on_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    server = server_process(store_dir=tmp_path)
    with Side(server.port) as side:
        side.origin("O", 4)
        _mirror(side, "OM", "O")
        side.wait_for("OM", 4)
    server = restarted(server, tmp_path, is_killed=is_killed)
    with server, Side(server.port) as side:
        side.put("O.more")
        side.wait_for("OM", 5)
        assert side.kept("OM") == side.kept("O")


def test_a_long_origin_is_mirrored_whole(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.make("O", subjects=["o"], storage="memory")
        for number in range(3000):
            side.publish("o", b"%d" % number)
        side.make("OM", mirror={"name": "O"})
        for number in range(3000, 5000):
            side.publish("o", b"%d" % number)
        state = side.wait_for("OM", 5000)["state"]
        assert state["messages"] == 5000
