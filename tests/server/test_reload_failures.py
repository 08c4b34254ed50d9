"""A reload that fails leaves the server as it was, whichever of its steps fails.

The steps are read from `reload.STEPS`, so a new step is tested as soon as it is in the list. Each
fails before it did anything and after it did everything, in servers with and without streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from penstock.clock import SystemClock
from penstock.config.load import load_for_program
from penstock.config.options.server import ServerOptions
from penstock.errors import CannotLog, UsageError
from penstock.monitor.accountz import account_detail
from penstock.monitor.connz import ConnzOptions, SubszOptions, connz, subsz
from penstock.monitor.jsz import JszOptions, jsz
from penstock.monitor.varz import varz
from penstock.server import reload
from penstock.server.log import Log
from penstock.server.server import Server
from penstock.stream.account import AccountStreams

BASE = ServerOptions(host="127.0.0.1", port=-1)
WAIT_S = 30
OLD_USERS = """
accounts {
  KEPT { users: [{user: kept, password: old}], JETSTREAM, mappings: {in: out},
         exports: [{stream: "news.>"}, {service: ask}] }
  GONE { users: [{user: gone, password: old}], JETSTREAM,
         imports: [{stream: {account: KEPT, subject: "news.>"}},
                   {service: {account: KEPT, subject: ask}}] }
}
"""
NEW_USERS = """
accounts {
  KEPT { users: [{user: kept, password: new}], JETSTREAM, mappings: {in: elsewhere},
         limits: {max_payload: 100}, exports: [{stream: "news.>"}, {service: ask}] }
  NEW { users: [{user: new, password: new}], JETSTREAM,
        imports: [{stream: {account: KEPT, subject: "news.>"}}] }
}
max_payload: 512, max_control_line: 2048, debug: true, client_advertise: "example.org:4222"
"""
STREAMS = {"kept": (True, True), "begun": (False, True), "ended": (True, False)}
"""Whether the server has streams before and after the reload."""

VOLATILE = {"now", "uptime", "cpu", "mem", "server_time", "rtt", "idle", "last_activity"}
"""Fields of pages that change by themselves."""

HISTORY = {"num_inserts", "num_removes", "num_cache"}
"""Fields that count what was done and undone; the subscriptions themselves are compared."""


class InjectedError(UsageError):
    """What a step raises because a test wants it to."""


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(), 60)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def options(folder: Path, users: str, *, has_streams: bool, log: str, more: str = "") -> Any:
    streams = f'jetstream {{ store_dir: "{folder / "store"}" }}' if has_streams else ""
    text = f'{users}\n{streams}\nlog_file: "{folder / log}"\n{more}'
    granted = text.replace("JETSTREAM", "jetstream: enabled" if has_streams else "limits: {}")
    return load_for_program({}, {}, base=BASE, text=granted).options


def old(folder: Path, kind: str) -> ServerOptions:
    """Return the options before the reload."""
    made: ServerOptions = options(folder, OLD_USERS, has_streams=STREAMS[kind][0], log="old.log")
    return made


def new(folder: Path, kind: str, more: str = "") -> ServerOptions:
    """Return the options that the reload is about."""
    made: ServerOptions = options(
        folder,
        "" if "accounts" in more else NEW_USERS,
        has_streams=STREAMS[kind][1],
        log="new.log",
        more=more,
    )
    return made


@contextlib.asynccontextmanager
async def serving(before: ServerOptions) -> AsyncIterator[Server]:
    """Serve with a log of its own."""
    with contextlib.closing(Log(SystemClock(), before)) as log:
        async with Server(before, log=log) as server:
            yield server


class Client:
    """A connection that speaks the protocol in lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, server: Server, user: str, password: str) -> Client | None:
        """Connect; return None if the server refuses the user."""
        client = cls(*await asyncio.open_connection("127.0.0.1", server.port))
        await client._line()
        options = {"user": user, "pass": password, "verbose": False, "protocol": 1}
        client.send(f"CONNECT {json.dumps(options)}")
        if await client.is_served():
            return client
        client.close()
        return None

    def send(self, *lines: str) -> None:
        """Send lines."""
        self._writer.write("".join(f"{each}\r\n" for each in lines).encode())

    async def _line(self) -> bytes:
        return await asyncio.wait_for(self._reader.readline(), WAIT_S)

    async def is_served(self) -> bool:
        """Return True if the server answers a PING."""
        self.send("PING")
        while (line := await self._line()).startswith((b"INFO", b"MSG", b"\r\n")):
            pass
        return line == b"PONG\r\n"

    async def ask(self, subject: str, body: str = "") -> dict[str, Any]:
        """Return the answer to a request, from JSON."""
        self.send("SUB answer 9", f"PUB {subject} answer {len(body)}", body, "UNSUB 9 1")
        while not (line := await self._line()).startswith((b"MSG answer", b"HMSG answer")):
            assert line, "the server closed the connection"
        size = int(line.split()[-1])
        answered = await asyncio.wait_for(self._reader.readexactly(size), WAIT_S)
        answer: dict[str, Any] = json.loads(answered)
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def without_volatile(page: Any) -> Any:
    """Return a page of monitoring without the fields that change by themselves."""
    if isinstance(page, dict):
        kept = {name: each for name, each in page.items() if name not in VOLATILE | HISTORY}
        return {name: without_volatile(each) for name, each in kept.items()}
    return [without_volatile(each) for each in page] if isinstance(page, list) else page


def pages(server: Server) -> dict[str, Any]:
    """Return what monitoring shows."""
    source = server.source
    names = [each.name for each in server.identities.accounts]
    shown = {
        "varz": varz(source, {}),
        "connz": connz(source, ConnzOptions(subscriptions_detail=True, auth=True)),
        "subsz": subsz(source, SubszOptions(subscriptions=True)),
        "jsz": jsz(source, JszOptions(accounts=True, streams=True, config=True)),
        **{name: account_detail(source, name) for name in names},
    }
    kept: dict[str, Any] = without_volatile(json.loads(json.dumps(shown, default=str)))
    return kept


def parts(server: Server) -> dict[str, Any]:
    """Return the objects and values that a reload may replace; equal only if they are the same."""
    service, users = server.jetstream, server.identities
    return {
        "options": server.options,
        "tls": (server.tls, server.websockets.tls),
        "users": users.authenticator,
        "slow": users.is_slow,
        "accounts": {each.name: (id(each), each.declaration) for each in users.accounts},
        "subscriptions": {
            each.name: {(sub.subject, id(sub.receiver)) for sub in each.sublist.subscriptions()}
            for each in users.accounts
        },
        "connections": dict(server.clients.connections),
        "closed": len(server.clients.closed),
        "loaded": server.config_load_ns,
        "streams": None
        if service is None
        else (
            id(service),
            service.options,
            service.resources.path,
            {name: (id(each), each.limits) for name, each in service.accounts.items()},
        ),
    }


def log_of(server: Server, folder: Path) -> str:
    """Return the name of the file that lines of the log go to."""
    server.log("INF", marker := f"here {server.clock.now_ns()}")
    found = [each.name for each in folder.glob("*.log") if marker in each.read_text()]
    return " ".join(found)


async def check_is_as_before(server: Server, folder: Path, kind: str) -> None:
    """Check what clients of the old configuration can do, and those of the new one cannot."""
    had_streams = STREAMS[kind][0]
    assert log_of(server, folder) == "old.log"
    assert await Client.connect(server, "new", "new") is None
    assert await Client.connect(server, "kept", "new") is None
    client = await Client.connect(server, "kept", "old")
    assert client is not None
    if had_streams:
        assert (await client.ask("stored"))["seq"] > 1
    client.send("SUB out 1", "PUB in 0", "")
    client.close()
    gone = await Client.connect(server, "gone", "old")
    assert gone is not None
    gone.close()


async def check_is_new(server: Server, folder: Path, kind: str) -> None:
    """Check that the new configuration is in use, all of it."""
    assert log_of(server, folder) == "new.log"
    assert await Client.connect(server, "gone", "old") is None
    assert await Client.connect(server, "kept", "old") is None
    client = await Client.connect(server, "new", "new")
    assert client is not None
    if STREAMS[kind][1]:
        answer = await client.ask("$JS.API.STREAM.CREATE.S", '{"name": "S", "subjects": ["s"]}')
        assert answer["config"]["name"] == "S"
    assert (server.jetstream is not None) == STREAMS[kind][1]
    assert server.options.max_payload == 512
    client.close()


async def store_a_stream(server: Server) -> None:
    """Make a stream of the account KEPT, with one message."""
    client = await Client.connect(server, "kept", "old")
    assert client is not None
    stream = '{"name": "STORED", "subjects": ["stored"]}'
    await client.ask("$JS.API.STREAM.CREATE.STORED", stream)
    assert (await client.ask("stored"))["seq"] == 1
    client.close()


async def serve_and_fail(
    folder: Path,
    kind: str,
    wanted: ServerOptions,
    error: type[Exception],
    repair: Callable[[], None],
) -> None:
    """Let a reload fail, see that nothing has changed, and that the next one works."""
    if not (folder / "store").exists():
        # Streams that were stored before: a half started JetStream would show them.
        async with serving(old(folder, "kept")) as server:
            await store_a_stream(server)
    async with serving(old(folder, kind)) as server:
        client = await Client.connect(server, "kept", "old")
        imports = await Client.connect(server, "gone", "old")
        assert client is not None
        assert imports is not None
        imports.send("SUB news.> 1")
        assert await imports.is_served()
        had, shown = parts(server), pages(server)

        with pytest.raises(error):
            await reload.take_options(server, wanted)

        assert parts(server) == had
        assert pages(server) == shown
        assert await client.is_served()
        assert await imports.is_served()
        await check_is_as_before(server, folder, kind)
        repair()
        await reload.take_options(server, new(folder, kind))
        assert not await client.is_served()
        await check_is_new(server, folder, kind)
        client.close()
        imports.close()


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("failing", [name for name, _ in reload.STEPS])
def test_a_reload_whose_step_fails_changes_nothing(
    failing: str, when: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = reload.STEPS

    def step_that_fails(step: Callable[[reload.Reload], None]) -> Callable[[reload.Reload], None]:
        def fail(current: reload.Reload) -> None:
            if when == "after":
                step(current)
            raise InjectedError("a test wants it")

        return fail

    patched = tuple(
        (name, step_that_fails(step) if name == failing else step) for name, step in steps
    )
    monkeypatch.setattr(reload, "STEPS", patched)
    run(
        lambda: serve_and_fail(
            tmp_path,
            kind,
            new(tmp_path, kind),
            InjectedError,
            lambda: monkeypatch.setattr(reload, "STEPS", steps),
        )
    )


def test_streams_of_a_new_account_that_cannot_be_opened_leave_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover = AccountStreams.recover

    def fail(account: AccountStreams, *arguments: Any) -> Any:
        if account.name == "NEW":
            raise OSError("a test wants it")
        return recover(account, *arguments)

    monkeypatch.setattr(AccountStreams, "recover", fail)
    for kind in ("kept", "begun"):
        folder = tmp_path / kind
        folder.mkdir()
        run(
            lambda folder=folder, kind=kind: serve_and_fail(  # type: ignore[misc]
                folder,
                kind,
                new(folder, kind),
                OSError,
                lambda: monkeypatch.setattr(AccountStreams, "recover", recover),
            )
        )
        monkeypatch.setattr(AccountStreams, "recover", fail)


def test_a_log_that_cannot_be_opened_leaves_all_as_it_was(tmp_path: Path) -> None:
    wanted = new(tmp_path, "kept", f'log_file: "{tmp_path / "no" / "such" / "file"}"')
    run(lambda: serve_and_fail(tmp_path, "kept", wanted, CannotLog, lambda: None))


def test_a_store_that_cannot_be_made_leaves_all_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    repair = (tmp_path / "store").unlink
    run(lambda: serve_and_fail(tmp_path, "begun", new(tmp_path, "begun"), UsageError, repair))


@pytest.mark.parametrize(
    "more",
    [
        'client_advertise: "a:b:c"',
        'tls { cert_file: "FILE", key_file: "FILE" }',
        "NOT AVAILABLE",
    ],
    ids=["advertised", "certificate", "not available"],
)
def test_options_that_cannot_be_used_leave_all_as_it_was(more: str, tmp_path: Path) -> None:
    (file := tmp_path / "no.pem").write_text("no certificate")
    if more == "NOT AVAILABLE":
        more = NEW_USERS.replace("user: new,", "user: new, proxy_required: true,")
    wanted = new(tmp_path, "kept", more.replace("FILE", str(file)))
    run(lambda: serve_and_fail(tmp_path, "kept", wanted, UsageError, lambda: None))


def test_a_fault_after_the_switch_is_logged_and_the_rest_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(old(tmp_path, "kept")) as server:
            monkeypatch.setattr(server, "serve_imports", lambda: 1 / 0)
            await reload.take_options(server, new(tmp_path, "kept"))
            await check_is_new(server, tmp_path, "kept")

    run(scenario)
    assert "[ERR] Internal error: ZeroDivisionError" in (tmp_path / "new.log").read_text()


def test_a_client_that_cannot_be_checked_is_refused_and_the_others_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(old(tmp_path, "kept")) as server:
            first = await Client.connect(server, "kept", "old")
            second = await Client.connect(server, "gone", "old")
            third = await Client.connect(server, "gone", "old")
            assert first is not None
            assert second is not None
            assert third is not None
            identify = server.identities.identify

            def fail_once(connection: Any, *arguments: Any) -> Any:
                if connection.options.user == "kept":
                    raise ValueError("a test wants it")
                return identify(connection, *arguments)

            monkeypatch.setattr(server.identities, "identify", fail_once)
            await reload.take_options(server, new(tmp_path, "kept"))
            for client in (first, second, third):
                assert not await client.is_served()
                client.close()
            assert server.clients.connections == {}

    run(scenario)
