"""Accounts, domains, limits and advisories: the real server's answers and ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess, server_process
from tests.api.compared import (
    Answers,
    Listener,
    Step,
    Story,
    ask,
    ask_in_vain,
    create,
    differences,
    filled,
    info,
    publish,
    update,
)

pytestmark = pytest.mark.oracle

SETTINGS = """
jetstream {{ store_dir: "{folder}", domain: D, max_mem: 10M, max_file: 20M }}
accounts {{
    A {{ users: [{{user: a, password: a}}], jetstream: enabled }}
    B {{ users: [{{user: b, password: b}}] }}
    C {{
        users: [{{user: c, password: c}}]
        jetstream: {{
            max_mem: 1M, max_file: 2M, max_streams: 3, max_consumers: 4, max_ack_pending: 5
            mem_max_stream_bytes: 500K, disk_max_stream_bytes: 1M, max_bytes_required: true
        }}
    }}
    SYS {{ users: [{{user: s, password: s}}] }}
}}
system_account: SYS
"""

Servers = tuple[ServerProcess, ServerProcess]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("accounts")
    with (
        server_process(REFERENCE, settings=SETTINGS.format(folder=folder / "real")) as real,
        server_process(PENSTOCK, settings=SETTINGS.format(folder=folder / "ours")) as ours,
    ):
        yield real, ours


def compared(servers: Servers, user: str, story: Story) -> list[object]:
    real, ours = servers
    login = {"user": user, "pass": user}
    with Listener(real.port, **login) as one, Listener(ours.port, **login) as other:
        return differences(one, other, story)


def by_domain(endpoint: str, body: bytes = b"") -> Step:
    return Step(f"$JS.D.API.{endpoint}", body)


def test_an_account_without_jetstream_is_told_so(servers: Servers) -> None:
    story = [
        ask("INFO"),
        ask("STREAM.NAMES"),
        ask("STREAM.LIST"),
        ask("STREAM.INFO.S"),
        create("S"),
        ask("STREAM.MSG.GET.S", b""),
        ask("STREAM.PURGE.S", b"{"),
        ask("STREAM.RESTORE.S", b"{}"),
        ask("STREAM.SNAPSHOT.S", b"{}"),
        ask("STREAM.INFO.S", headers={"Nats-Required-Api-Level": "99"}),
        ask("DIRECT.GET.S.a"),
        ask("CONSUMER.MSG.NEXT.S.C"),
        by_domain("INFO"),
        by_domain("STREAM.NAMES"),
    ]

    assert compared(servers, "b", story) == []


def test_the_system_account_has_no_jetstream(servers: Servers) -> None:
    story = [
        ask("INFO"),
        ask("STREAM.NAMES"),
        create("S"),
        ask("BOGUS"),
        ask("DIRECT.GET.S.a"),
        by_domain("INFO"),
    ]

    assert compared(servers, "s", story) == []


def test_the_system_account_removes_all_that_an_account_has(servers: Servers) -> None:
    vain = ("META.LEADER.STEPDOWN", "SERVER.REMOVE", "META.RESCUE", "ACCOUNT.PURGE", "ACCOUNT.X")
    made = [create("purged-1"), create("purged-2", storage="memory"), ask("STREAM.NAMES")]
    removed = [
        ask("ACCOUNT.PURGE.nobody"),
        ask("ACCOUNT.PURGE.A"),
        ask("ACCOUNT.PURGE.A", b"x"),
        ask("ACCOUNT.PURGE."),
        ask("ACCOUNT.PURGE.a/b"),
        ask("ACCOUNT.PURGE.a\\b"),
        by_domain("ACCOUNT.PURGE.A"),
        *(Step(f"$JS.API.{each}", answers=Answers.NONE) for each in vain),
    ]

    assert compared(servers, "a", made) == []
    assert compared(servers, "s", removed) == []
    after = [ask("STREAM.NAMES"), *filled("purged-3"), ask("STREAM.DELETE.purged-3")]
    assert compared(servers, "a", after) == []


def test_the_domain_may_stand_in_the_subject(servers: Servers) -> None:
    story = [
        *filled("domain", allow_direct=True),
        by_domain("INFO"),
        by_domain("STREAM.INFO.domain"),
        by_domain("STREAM.NAMES"),
        by_domain("STREAM.LIST"),
        by_domain("STREAM.MSG.GET.domain", b'{"seq":1}'),
        by_domain("DIRECT.GET.domain", b'{"seq":2}'),
        by_domain("DIRECT.GET.domain.domain.a"),
        by_domain("DIRECT.GET.nothing.a"),
        by_domain("CONSUMER.MSG.NEXT.domain.c"),
        by_domain("BOGUS"),
        Step("$JS.other.API.INFO"),
        update("domain", allow_direct=True, description="x"),
        Step("$JS.D.API.STREAM.BOGUS", answers=Answers.NONE),
        ask("STREAM.DELETE.domain"),
    ]

    assert compared(servers, "a", story) == []


def test_an_accounts_limits_hold(servers: Servers) -> None:
    big, small = 600 * 1024, 100 * 1024
    story = [
        ask("INFO"),
        create("no-bound"),
        create("too-big-in-memory", storage="memory", max_bytes=big),
        create("too-big-on-disk", storage="file", max_bytes=2 * 1024 * 1024),
        create("one", max_bytes=big),
        create("two", max_bytes=big, storage="file"),
        create("three", max_bytes=small, storage="memory"),
        create("four", max_bytes=small),
        ask("INFO"),
        update("one", max_bytes=1024 * 1024),
        update("one", max_bytes=big, max_consumers=9),
        publish("one.a", b"x" * 1000),
        publish("three.a", b"x" * 1000),
        ask("INFO"),
        ask("STREAM.DELETE.two"),
        create("five", max_bytes=900 * 1024),
        ask("INFO"),
    ]

    assert compared(servers, "c", story) == []


def test_the_servers_limits_hold(servers: Servers) -> None:
    mib = 1024 * 1024
    story = [
        create("a", max_bytes=15 * mib),
        create("b", max_bytes=15 * mib),
        create("c", max_bytes=9 * mib, storage="memory"),
        create("d", max_bytes=9 * mib, storage="memory"),
        update("a", max_bytes=30 * mib),
        ask("INFO"),
        ask("STREAM.DELETE.a"),
        create("b", max_bytes=15 * mib),
        info("b"),
        ask("INFO"),
        ask_in_vain("BOGUS"),
    ]

    assert compared(servers, "a", story) == []


def test_whoever_watches_hears_of_requests_and_streams(servers: Servers) -> None:
    steps = [
        (create("watched"), 3),
        (update("watched", description="x"), 3),
        (ask("STREAM.INFO.nothing"), 2),
        (ask("STREAM.NAMES", b'{"subject":"<a>"}'), 2),
        (ask("STREAM.MSG.GET.watched", {"seq": 1}), 2),
        (ask("STREAM.DELETE.watched"), 3),
        (ask("INFO"), 2),
    ]
    told = []

    for server in servers:
        with Listener(server.port, user="a", **{"pass": "a"}, name="n", lang="l") as listener:
            listener.watch("$JS.EVENT.ADVISORY.>")
            told.append([listener.events(step, count) for step, count in steps])

    assert told[0] == told[1]
