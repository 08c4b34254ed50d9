"""What the system account answers and tells, field by field, against the reference server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import BOTH, ServerProcess
from tests.monitor.compared import CONFIG, SECRETS, Client, Watched, as_text, both
from tests.support.dialogue import Dialogue

pytestmark = pytest.mark.oracle

TRAFFIC = (
    "msgs", "bytes", "in_msgs", "out_msgs", "in_bytes", "out_bytes", "in_client_msgs",
    "out_client_msgs", "in_client_bytes", "out_client_bytes",
)  # fmt: skip
"""Answers of the two servers differ in length, and so does what was sent so far."""

OWN_SUBSCRIPTIONS = ("num_subscriptions", "num_inserts", "num_removes", "subscriptions", "total")

REQUESTS = (
    ("$SYS.REQ.SERVER.PING.IDZ", ""),
    ("$SYS.REQ.SERVER.PING.IDZ", "{bad"),
    ("$SYS.REQ.SERVER.<id>.IDZ", ""),
    ("$SYS.REQ.SERVER.PING.CONNZ", ""),
    ("$SYS.REQ.SERVER.<id>.CONNZ", '{"subscriptions":true,"auth":true}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"subscriptions_detail":true,"acc":"A"}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"cid":7}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"state":1}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"state":2,"limit":1,"unknown":[1]}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"filter_subject":"foo.x","acc":"A"}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"filter_subject":"foo.x"}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"sort":"nope"}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"offset":9223372036854775807,"limit":-7}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"server_name":"alp"}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", '{"server_name":"alpha","exact_match":true}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", '{"host":"127.0"}'),
    ("$SYS.REQ.SERVER.PING.SUBSZ", '{"account":"A","subscriptions":true}'),
    ("$SYS.REQ.SERVER.PING.SUBSZ", '{"account":"A","subscriptions":true,"test":"foo.x"}'),
    ("$SYS.REQ.SERVER.PING.SUBSZ", '{"test":"foo.*"}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", ""),
    ("$SYS.REQ.SERVER.<id>.GATEWAYZ", ""),
    ("$SYS.REQ.SERVER.PING.LEAFZ", ""),
    ("$SYS.REQ.SERVER.PING.ACCOUNTZ", ""),
    ("$SYS.REQ.SERVER.PING.ACCOUNTZ", '{"account":"A"}'),
    ("$SYS.REQ.SERVER.PING.ACCOUNTZ", '{"account":"NOBODY"}'),
    ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"details":true}'),
    ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"stream":"s"}'),
    ("$SYS.REQ.SERVER.PING.HEALTHZ", '{"consumer":"c","details":true}'),
    ("$SYS.REQ.SERVER.<id>.PROFILEZ", ""),
    ("$SYS.REQ.SERVER.PING.PROFILEZ", '{"name":"nope"}'),
    ("$SYS.REQ.SERVER.PING.RAFTZ", ""),
    ("$SYS.REQ.SERVER.<id>.JSZ", ""),
    ("$SYS.REQ.SERVER.PING.NOPE", ""),
    ("$SYS.REQ.SERVER.NOBODY.VARZ", ""),
    ("$SYS.REQ.ACCOUNT.A.SUBSZ", ""),
    ("$SYS.REQ.ACCOUNT.NOBODY.SUBSZ", ""),
    ("$SYS.REQ.ACCOUNT.A.CONNZ", '{"auth":true,"acc":"B"}'),
    ("$SYS.REQ.ACCOUNT.NOBODY.CONNZ", ""),
    ("$SYS.REQ.ACCOUNT.A.LEAFZ", ""),
    ("$SYS.REQ.ACCOUNT.A.JSZ", ""),
    ("$SYS.REQ.ACCOUNT.A.INFO", ""),
    ("$SYS.REQ.ACCOUNT.NOBODY.INFO", ""),
    ("$SYS.REQ.ACCOUNT.A.STATZ", ""),
    ("$SYS.REQ.ACCOUNT.A.CONNS", ""),
    ("$SYS.REQ.ACCOUNT.A.NOPE", ""),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", '{"accounts":["A","B"]}'),
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", ""),
    ("$SYS.REQ.USER.INFO", ""),
    ("$SYS.DEBUG.SUBSCRIBERS", "_INBOX.answer"),
    ("$SYS.DEBUG.SUBSCRIBERS", "_INBOX.*"),
    ("$SYS.DEBUG.SUBSCRIBERS", "_INBOX.answer q"),
    ("$SYS.DEBUG.SUBSCRIBERS", "nobody"),
    ("$SYS.REQ.SERVER.<id>.KICK", '{"cid":99999}'),
    ("$SYS.REQ.SERVER.<id>.LDM", '{"cid":99999}'),
)

SILENT = (
    ("$SYS.REQ.SERVER.PING.CONNZ", '{"server_name":"beta"}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", '{"server_name":"alp","exact_match":true}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", '{"tags":["x"]}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", '{"cluster":"c"}'),
    ("$SYS.REQ.SERVER.PING.ROUTEZ", '{"domain":"d"}'),
    ("$SYS.REQ.ACCOUNT.NOBODY.STATZ", ""),
    ("$SYS.REQ.ACCOUNT.NOBODY.CONNS", ""),
    ("$SYS.REQ.SERVER.<id>.KICK", ""),
    ("$SYS.REQ.SERVER.<id>.LDM", "{bad"),
)

FROM_OTHER_ACCOUNTS = (
    ("$SYS.REQ.USER.INFO", ""),
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", '{"acc":"B","auth":true}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", ""),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", '{"accounts":["B"]}'),
    ("$SYS.REQ.SERVER.PING", ""),
    ("$SYS.REQ.SERVER.PING.VARZ", ""),
    ("$SYS.REQ.SERVER.PING.STATSZ", ""),
    ("$SYS.REQ.SERVER.<id>.VARZ", ""),
    ("$SYS.REQ.SERVER.<id>.KICK", '{"cid":7}'),
    ("$SYS.REQ.SERVER.<id>.RELOAD", ""),
    ("$SYS.REQ.ACCOUNT.A.CONNZ", ""),
    ("$SYS.REQ.ACCOUNT.B.STATZ", ""),
    ("$SYS.REQ.ACCOUNT.A.INFO", ""),
    ("$SYS.DEBUG.SUBSCRIBERS", "foo.x"),
)

Asking = tuple[Watched, dict[str, Client], str]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Asking]]:
    """The two servers, each with the same clients and its id."""
    pair = both(tmp_path_factory.mktemp("services"))
    asking: list[Asking] = []
    try:
        for server in pair:
            clients = {user: server.client(user) for user in ("admin", "a", "limited", "b")}
            with pytest.raises(ConnectionError):
                server.client("b", password="wrong-secret")
            clients["a"].subscribe("foo.*", 1)
            clients["a"].flush()
            server_id = json.loads(server.get("/varz")[2])["server_id"]
            while not json.loads(server.get("/connz?state=closed")[2])["total"]:
                pass
            asking.append((server, clients, server_id))
        yield asking
    finally:
        for _, clients, _ in asking:
            for client in clients.values():
                client.close()
        for server in pair:
            server.stop()


def answers(servers: list[Asking], user: str, subject: str, body: str) -> list[Any]:
    """Ask the servers, and read their answers."""
    return [
        json.loads(clients[user].ask(subject.replace("<id>", server_id), body))
        for _, clients, server_id in servers
    ]


@pytest.mark.parametrize(("subject", "body"), REQUESTS)
def test_system_user_is_answered_as_by_the_reference(
    servers: list[Asking], subject: str, body: str
) -> None:
    reference, ours = answers(servers, "admin", subject, body)

    assert as_text(ours, *TRAFFIC) == as_text(reference, *TRAFFIC)


@pytest.mark.parametrize(
    "subject",
    [
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.STATSZ",
        "$SYS.REQ.SERVER.<id>.STATSZ",
        "$SYS.REQ.SERVER.PING.VARZ",
        "$SYS.REQ.SERVER.PING.SUBSZ",
        "$SYS.REQ.ACCOUNT.PING.STATZ",
    ],
)
def test_answer_about_the_whole_server_has_the_fields_of_the_reference(
    servers: list[Asking], subject: str
) -> None:
    reference, ours = answers(servers, "admin", subject, "")
    # The reference server has no event loop: this is the only field of ours.
    turns = ours.get("data", {}).pop("event_loop", {})

    assert bool(turns) == subject.endswith("VARZ")
    different = (*TRAFFIC, *OWN_SUBSCRIPTIONS)
    assert as_text(ours, *different) == as_text(reference, *different)


@pytest.mark.parametrize(("subject", "body"), SILENT)
def test_request_that_the_reference_ignores_is_ignored(
    servers: list[Asking], subject: str, body: str
) -> None:
    for _, clients, server_id in servers:
        assert clients["admin"].is_unanswered(subject.replace("<id>", server_id), body)


@pytest.mark.parametrize("subject", ["$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.SERVER.PING.STATSZ"])
@pytest.mark.parametrize("body", ["{bad", "[]", '{"server_name":7}', "[" * 5000])
def test_request_that_cannot_be_read_is_refused(
    servers: list[Asking], subject: str, body: str
) -> None:
    reference, ours = answers(servers, "admin", subject, body)

    assert as_text(ours, "description") == as_text(reference, "description")
    assert ours["error"]["code"] == 400


@pytest.mark.parametrize(("subject", "body"), FROM_OTHER_ACCOUNTS)
def test_other_accounts_learn_only_of_themselves(
    servers: list[Asking], subject: str, body: str
) -> None:
    reference, ours = answers(servers, "a", subject, body)

    assert as_text(ours, *TRAFFIC) == as_text(reference, *TRAFFIC)
    assert '"b"' not in json.dumps(ours)


def test_user_learns_its_own_permissions(servers: list[Asking]) -> None:
    reference, ours = answers(servers, "limited", "$SYS.REQ.USER.INFO", "")

    assert as_text(ours) == as_text(reference)
    assert ours["data"]["permissions"]["subscribe"]["deny"] == ["y.z"]


def test_no_answer_holds_a_secret(servers: list[Asking]) -> None:
    for subject, body in (*REQUESTS, ("$SYS.REQ.SERVER.PING.VARZ", "")):
        text = json.dumps(answers(servers[1:], "admin", subject, body))
        assert not [secret for secret in SECRETS if secret in text], subject


def events(server: Watched) -> list[tuple[str, Any]]:
    """Let clients come and go, and give what was told of it, by subject."""
    admin = server.client("admin")
    server_id = json.loads(server.get("/varz")[2])["server_id"]
    admin.subscribe("$SYS.ACCOUNT.>", 1)
    admin.subscribe("$SYS.SERVER.ACCOUNT.*.CONNS", 2)
    admin.subscribe("$SYS.SERVER.*.CLIENT.AUTH.ERR", 3)
    admin.flush()
    client = server.client("a", "visitor")
    client.publish("foo", "12345")
    client.flush()
    with pytest.raises(ConnectionError):
        server.client("b", password="wrong-secret")
    client.close()
    found: list[tuple[str, Any]] = []
    while len(found) < 8:
        subject, body = admin.message()
        if ".SYS." not in subject:
            found.append((subject.replace(server_id, "<id>"), json.loads(body)))
    admin.close()
    return sorted(found, key=lambda each: (each[0], each[1].get("conns", 0)))


def test_clients_that_come_and_go_are_told_of_as_by_the_reference(tmp_path: Path) -> None:
    pair = both(tmp_path)
    try:
        reference, ours = (events(server) for server in pair)
    finally:
        for server in pair:
            server.stop()

    assert [subject for subject, _ in ours] == [subject for subject, _ in reference]
    assert as_text([body for _, body in ours]) == as_text([body for _, body in reference])


def told(server: Watched, kind: str) -> str:
    """Return the first event of a kind, brought about by what the test has to do for it."""
    admin = server.client("admin")
    admin.subscribe(f"$SYS.SERVER.*.{kind}", 1)
    admin.flush()
    if kind == "STATSZ":
        admin.publish("$SYS.REQ.SERVER.PING.STATSZ")
    else:
        os.kill(server.pid, signal.SIGUSR2 if kind == "LAMEDUCK" else signal.SIGINT)
    _, body = admin.message()
    if kind == "LAMEDUCK":
        # Else it would let its client go slowly.
        os.kill(server.pid, signal.SIGINT)
    admin.close()
    return as_text(json.loads(body), *TRAFFIC, *OWN_SUBSCRIPTIONS)


@pytest.mark.parametrize("kind", ["STATSZ", "LAMEDUCK", "SHUTDOWN"])
def test_how_the_server_is_and_that_it_goes_is_told_as_by_the_reference(
    tmp_path: Path, kind: str
) -> None:
    pair = both(tmp_path, CONFIG + 'lame_duck_duration: "30s"\nlame_duck_grace_period: "10s"\n')
    try:
        reference, ours = (told(server, kind) for server in pair)
    finally:
        for server in pair:
            server.stop()

    assert ours == reference


def test_client_can_be_told_to_go_and_be_kicked(tmp_path: Path) -> None:
    pair = both(tmp_path)
    try:
        for server in pair:
            admin, victim = server.client("admin"), server.client("b", "victim")
            server_id = json.loads(server.get("/varz")[2])["server_id"]
            cid = json.loads(server.get("/connz?acc=B")[2])["connections"][0]["cid"]

            told = admin.ask(f"$SYS.REQ.SERVER.{server_id}.LDM", json.dumps({"cid": cid}))
            while not any(info.get("ldm") for info in victim.infos):
                victim.flush()
            kicked = admin.ask(f"$SYS.REQ.SERVER.{server_id}.KICK", json.dumps({"cid": cid}))

            assert [list(json.loads(each)) for each in (told, kicked)] == [["server"]] * 2
            with pytest.raises(ConnectionError):
                victim.message()
            closed = json.loads(server.get(f"/connz?state=closed&cid={cid}")[2])
            assert closed["connections"][0]["reason"] == "Kicked"
            for client in (admin, victim):
                client.close()
    finally:
        for server in pair:
            server.stop()


def test_reload_that_is_asked_for_takes_the_file_as_it_is_then(tmp_path: Path) -> None:
    for server in both(tmp_path):
        with server:
            admin = server.client("admin")
            server_id = json.loads(server.get("/varz")[2])["server_id"]
            (tmp_path / "server.conf").write_text(CONFIG + "max_payload: 4096\n")

            answer = admin.ask(f"$SYS.REQ.SERVER.{server_id}.RELOAD")

            assert list(json.loads(answer)) == ["server"]
            while json.loads(server.get("/varz")[2])["max_payload"] != 4096:
                pass
            admin.close()
        (tmp_path / "server.conf").write_text(CONFIG)


def test_members_of_an_account_hear_of_a_client_that_was_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text(
        "listen: 127.0.0.1:-1\nauthorization { users [ { user: ann, password: a } ] }\n"
    )
    heard = []
    for name in BOTH:
        with ServerProcess(name, "-c", str(file)) as server, Dialogue(server.port) as ann:
            ann.login(user="ann", **{"pass": "a"})
            ann.send("SUB $SYS.ACCOUNT.CLIENT.AUTH.ERR 1")
            assert ann.answers() == []

            with Dialogue(server.port) as stranger:
                assert stranger.login(user="eve", **{"pass": "wrong-secret"})[-1] == "closed"

            assert ann.next().startswith("MSG $SYS.ACCOUNT.CLIENT.AUTH.ERR 1 ")
            heard.append(json.loads(ann.next()))

    ours, theirs = heard
    assert ours.keys() == theirs.keys()
    assert ours["client"].keys() == theirs["client"].keys()
    for key in ("type", "reason"):
        assert ours[key] == theirs[key]
    assert ours["client"]["user"] == "eve"
    assert "wrong-secret" not in json.dumps(ours)
