"""Streams with sources hold what the reference server's hold, and continue where they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stream.config.config import ExternalStream, StreamSource, SubjectTransformConfig
from penstock.stream.replication import source_positions
from penstock.stream.replication.source import name_of, read_mark
from penstock.testing.servers import server_process, start_server
from tests.stream.fed import Side, Story, check_alike, restarted

pytestmark = pytest.mark.oracle


def everything(side: Side) -> list[str]:
    side.origin("A")
    side.drop("A", 2, 6)
    side.make("AS", sources=[{"name": "A"}])
    side.wait_for("AS", 4)
    side.put("A.more")
    side.wait_for("AS", 5)
    return ["AS"]


def two_origins_and_its_own(side: Side) -> list[str]:
    side.origin("B", 3)
    side.make("BS", subjects=["own"], sources=[{"name": "B"}])
    side.wait_for("BS", 3)
    side.put("own", b"mine")
    side.origin("C", 2)
    side.change("BS", subjects=["own"], sources=[{"name": "B"}, {"name": "C"}])
    side.wait_for("BS", 6)
    return ["BS"]


def filtered(side: Side) -> list[str]:
    side.origin("F")
    side.make("FS", sources=[{"name": "F", "filter_subject": "F.1.*"}])
    side.wait_for("FS", 3)
    return ["FS"]


def renamed(side: Side) -> list[str]:
    side.origin("T")
    one = {"name": "T", "subject_transforms": [{"src": "T.0.*", "dest": "even.$1"}]}
    two = [{"src": "T.*.3", "dest": "{{partition(3,1)}}.x"}, {"src": "T.*.5", "dest": ""}]
    side.make("TS", sources=[one])
    side.make("TT", sources=[{"name": "T", "subject_transforms": two}])
    side.wait_for("TS", 3)
    side.wait_for("TT", 2)
    return ["TS", "TT"]


def renamed_again_by_the_stream(side: Side) -> list[str]:
    side.origin("N", 2)
    transform = {"src": "N.*.*", "dest": "new.$2.$1"}
    side.make("NS", sources=[{"name": "N"}], subject_transform=transform)
    side.wait_for("NS", 2)
    return ["NS"]


def from_a_sequence(side: Side) -> list[str]:
    side.origin("Q")
    side.make("QS", sources=[{"name": "Q", "opt_start_seq": 5}])
    side.wait_for("QS", 2)
    return ["QS"]


def from_a_time(side: Side) -> list[str]:
    side.origin("W")
    fourth = side.kept("W")[3].time
    side.make("WS", sources=[{"name": "W", "opt_start_time": fourth}])
    side.wait_for("WS", 3)
    return ["WS"]


def of_a_stream_with_sources(side: Side) -> list[str]:
    side.origin("H", 3)
    side.make("HS", sources=[{"name": "H"}])
    side.make("HT", sources=[{"name": "HS"}])
    side.wait_for("HT", 3)
    return ["HS", "HT"]


def without_expectations(side: Side) -> list[str]:
    side.origin("X", 1)
    side.put("X.a", b"1", Nats_Expected_Stream="X", Nats_Expected_Last_Sequence="1", A="b")
    side.put("X.a", b"2", Nats_Expected_Last_Subject_Sequence="2", Nats_Msg_Id="m")
    side.make("XS", sources=[{"name": "X"}])
    side.wait_for("XS", 3)
    return ["XS"]


def an_id_that_is_there_already(side: Side) -> list[str]:
    window = {"duplicate_window": 60_000_000_000}
    side.origin("D", 1)
    side.put("D.a", b"1", Nats_Msg_Id="one")
    side.put("D.a", b"2", Nats_Msg_Id="two")
    side.make("DS", subjects=["ds"], **window)
    side.put("ds", b"mine", Nats_Msg_Id="one")
    side.change("DS", subjects=["ds"], sources=[{"name": "D"}], **window)
    side.wait_for("DS", 3)
    return ["DS"]


def taken_from_a_work_queue(side: Side) -> list[str]:
    side.origin("K", 4, retention="workqueue")
    side.make("KS", sources=[{"name": "K"}])
    side.wait_for("KS", 4)
    side.wait("K", lambda info: info["state"]["messages"] == 0)
    return ["K", "KS"]


def of_what_is_kept_for_interest(side: Side) -> list[str]:
    side.origin("O", 2, retention="interest")
    side.make("OS", sources=[{"name": "O", "filter_subject": "O.1.*"}])
    side.wait("OS", lambda info: info["sources"][0]["active"] >= 0)
    side.put("O.1.a", b"wanted")
    side.put("O.2.a", b"not wanted")
    side.put("O.1.b", b"wanted, too")
    side.wait_for("OS", 2)
    return ["OS"]


def counters(side: Side) -> list[str]:
    for name in ("I", "J"):
        side.make(name, subjects=[f"{name}.*"], allow_msg_counter=True, allow_direct=True)
    for name, step in (("I", "3"), ("J", "-5"), ("I", "10")):
        side.put(f"{name}.hits", Nats_Incr=step)
    transforms = [[{"src": f"{name}.*", "dest": "all.$1"}] for name in ("I", "J")]
    first, second = (
        {"name": name, "subject_transforms": pairs}
        for name, pairs in zip(("I", "J"), transforms, strict=True)
    )
    side.make("IS", allow_msg_counter=True, allow_direct=True, sources=[first])
    side.wait_for("IS", 2)
    side.change("IS", allow_msg_counter=True, allow_direct=True, sources=[first, second])
    side.wait_for("IS", 3)
    return ["IS"]


def within_its_own_limits(side: Side) -> list[str]:
    side.origin("L", 0)
    for number in range(9):
        side.put(f"L.{number % 3}", b"%d" % number)
    side.make("LS", sources=[{"name": "L"}], max_msgs_per_subject=1)
    side.make("LT", sources=[{"name": "L"}], max_msgs=4)
    side.wait_for("LS", 9)
    side.wait_for("LT", 9)
    return ["LS", "LT"]


def taken_out_and_put_back(side: Side) -> list[str]:
    side.origin("P", 3)
    side.make("PS", subjects=["p"], sources=[{"name": "P"}])
    side.wait_for("PS", 3)
    side.change("PS", subjects=["p"])
    side.put("P.missed")
    side.put("p", b"mine")
    side.change("PS", subjects=["p"], sources=[{"name": "P"}])
    side.wait_for("PS", 5)
    return ["PS"]


def emptied(side: Side) -> list[str]:
    side.origin("E", 3)
    side.make("ES", sources=[{"name": "E"}])
    side.wait_for("ES", 3)
    side.api("STREAM.PURGE.ES")
    side.put("E.more")
    side.wait_for("ES", 4)
    return ["ES"]


def in_memory(side: Side) -> list[str]:
    side.origin("M", 4, storage="memory")
    side.make("MS", sources=[{"name": "M"}], storage="memory")
    side.wait_for("MS", 4)
    return ["MS"]


STORIES: tuple[Story, ...] = (
    everything,
    two_origins_and_its_own,
    filtered,
    renamed,
    renamed_again_by_the_stream,
    from_a_sequence,
    from_a_time,
    of_a_stream_with_sources,
    without_expectations,
    an_id_that_is_there_already,
    taken_from_a_work_queue,
    of_what_is_kept_for_interest,
    counters,
    within_its_own_limits,
    taken_out_and_put_back,
    emptied,
    in_memory,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_stream_with_sources_is_what_the_reference_server_makes_of_it(
    both: tuple[Side, Side], story: Story
) -> None:
    check_alike(both, story)


def test_a_mark_names_the_very_stream_it_came_from(both: tuple[Side, Side]) -> None:
    for side in both:
        side.origin("Y", 1)
        side.make("YS", sources=[{"name": "Y"}])
        side.wait_for("YS", 1)
        (kept,) = side.kept("YS")
        assert f" {side.identity('Y')}\r\n" in kept.headers


def test_what_is_kept_for_interest_goes_when_it_has_been_taken(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("V", 0, retention="interest")
    ours.make("VS", sources=[{"name": "V"}])
    ours.make("VM", mirror={"name": "V"})
    for number in range(20):
        ours.put("V.a", b"%d" % number)
    ours.wait_for("VS", 20)
    ours.wait_for("VM", 20)
    state = ours.wait("V", lambda info: info["state"]["messages"] == 0)["state"]
    assert state["last_seq"] == 20


def test_an_origin_that_was_made_again_is_taken_from_its_start(both: tuple[Side, Side]) -> None:
    _, ours = both
    ours.origin("G", 3)
    ours.make("GS", sources=[{"name": "G"}])
    ours.wait_for("GS", 3)
    ours.api("STREAM.DELETE.G")
    (source,) = ours.info("GS")["sources"]
    assert source["error"]["err_code"] == 10059
    ours.origin("G", 2)
    ours.wait_for("GS", 5)
    assert [each.data for each in ours.kept("GS")] == ["0", "1", "2", "0", "1"]


def test_a_stream_without_room_says_so_and_goes_on_when_there_is_some(
    both: tuple[Side, Side],
) -> None:
    _, ours = both
    ours.origin("Z", 4)
    ours.make("ZS", sources=[{"name": "Z"}], max_msgs=3, discard="new")
    info = ours.wait("ZS", lambda info: "error" in info["sources"][0])
    assert (info["state"]["last_seq"], info["sources"][0]["lag"]) == (3, 1)
    ours.drop("ZS", 1)
    info = ours.wait_for("ZS", 4)
    assert "error" not in info["sources"][0]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_sources_go_on_after_a_restart(tmp_path: Path, is_killed: bool) -> None:
    server = server_process(store_dir=tmp_path)
    with Side(server.port) as side:
        side.origin("A", 4)
        side.origin("B", 3)
        side.make("S", subjects=["own"], sources=[{"name": "A"}, {"name": "B"}])
        side.wait_for("S", 7)
        side.put("own")
    server = restarted(server, tmp_path, is_killed=is_killed)
    with server, Side(server.port) as side:
        assert [source["seq"] for source in side.info("S")["sources"]] == [4, 3]
        side.put("A.more", b"a")
        side.wait_for("S", 9)
        side.put("B.more", b"b")
        side.wait_for("S", 10)
        assert [each.data for each in side.kept("S")[7:]] == ["", "a", "b"]


def test_what_is_kept_for_a_mirror_alone_is_still_there_after_a_restart(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.origin("A", 0, retention="interest")
        config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "A.other"}
        side.api("CONSUMER.DURABLE.CREATE.A.C", {"stream_name": "A", "config": config})
        side.make("M", mirror={"name": "A"}, max_msgs=1, discard="new")
        side.put("A.a", b"1")
        side.put("A.a", b"2")
        side.wait("M", lambda info: "error" in info["mirror"])
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.drop("M", 1)
        side.wait_for("M", 2)
        assert [each.data for each in side.kept("M")] == ["2"]


def test_an_emptied_stream_knows_after_a_restart_how_far_it_had_come(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.origin("A", 4)
        side.make("S", sources=[{"name": "A", "opt_start_seq": 2}])
        side.wait_for("S", 3)
        side.api("STREAM.PURGE.S")
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.put("A.more", b"only this")
        side.wait_for("S", 4)
        assert [each.data for each in side.kept("S")] == ["only this"]


def test_positions_are_written_down_while_the_server_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_positions, "SOURCE_POSITIONS_INTERVAL_S", 0.0)
    settings = f'jetstream {{ store_dir: "{tmp_path}" }}'
    with start_server(settings=settings) as server, Side(server.port) as side:
        side.origin("A", 4)
        side.make("S", sources=[{"name": "A"}])

        def is_written(_: object) -> bool:
            texts = [path.read_bytes() for path in tmp_path.rglob("sources.json")]
            return any(json.loads(text)["sources"][0]["seq"] == 4 for text in texts)

        assert side.wait("S", is_written)["state"]["messages"] == 4


def test_a_damaged_document_of_positions_costs_nothing_that_marks_tell(tmp_path: Path) -> None:
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.origin("A", 4)
        side.make("S", sources=[{"name": "A"}])
        side.wait_for("S", 4)
    (document,) = tmp_path.rglob("sources.json")
    assert json.loads(document.read_bytes())["sources"][0]["seq"] == 4
    document.write_bytes(b'{"sources": [')
    with server_process(store_dir=tmp_path) as server, Side(server.port) as side:
        side.put("A.more")
        side.wait_for("S", 5)
        assert len(side.kept("S")) == 5


_WORD = st.text(alphabet="abc*>.$", min_size=1, max_size=8)


@given(
    name=st.text(alphabet="ABC", min_size=1),
    filter_subject=st.one_of(st.just(""), _WORD),
    pairs=st.lists(st.tuples(st.one_of(st.just(""), _WORD), st.one_of(st.just(""), _WORD))),
    api=st.one_of(st.none(), _WORD),
    seq=st.integers(1, 2**63 - 1),
    subject=_WORD,
    identity=st.sampled_from(["", "Qd3kPw0Z"]),
)
def test_a_mark_tells_its_source_and_place_again(
    name: str,
    filter_subject: str,
    pairs: list[tuple[str, str]],
    api: str | None,
    seq: int,
    subject: str,
    identity: str,
) -> None:
    source = StreamSource(
        name=name,
        filter_subject=filter_subject,
        subject_transforms=tuple(SubjectTransformConfig(*pair) for pair in pairs),
        external=None if api is None else ExternalStream(api),
    )
    mark = read_mark(name_of(source).mark(seq, subject.encode(), identity))
    assert mark is not None
    assert (mark.name, mark.seq, mark.identity) == (name_of(source), seq, identity)


@pytest.mark.parametrize(
    "value", [b"", b"A", b"A 1", b"A x > >", b"$JS.ACK.A.c.1.2.3.4.5", b"A -1 > >"]
)
def test_what_is_no_mark_is_none(value: bytes) -> None:
    assert read_mark(value) is None
