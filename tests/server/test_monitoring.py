"""Monitoring of a server in this process: ports, paths, what is kept of closed connections."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import nats
import pytest
from cryptography import x509

from penstock.config.options.server import AuthorizationOptions, ServerOptions, TlsOptions
from penstock.limits import CLOSED_SUBSCRIPTIONS_KEPT_MAX, KIB, MIB
from penstock.server.server import Server
from tests.security.made_certificates import Authority, rdns
from tests.support.settling import settle


async def fetched(address: str, context: ssl.SSLContext | None = None) -> Any:
    """Return a page, read from JSON."""

    def fetch() -> Any:
        with urllib.request.urlopen(address, context=context) as answer:
            return json.loads(answer.read())

    return await asyncio.to_thread(fetch)


def monitored(**options: Any) -> Server:
    return Server(ServerOptions(host="127.0.0.1", port=-1, http_port=-1, **options))


async def page(server: Server, path: str) -> Any:
    return await fetched(f"http://127.0.0.1:{server.options.http_port}{path}")


def test_server_without_monitoring_opens_no_port_for_it() -> None:
    async def scenario() -> tuple[int, int]:
        async with Server(ServerOptions(host="127.0.0.1", port=-1)) as server:
            return server.options.http_port, server.options.https_port

    assert asyncio.run(scenario()) == (0, 0)


def test_port_that_may_be_any_is_told() -> None:
    async def scenario() -> None:
        async with monitored() as server:
            varz = await page(server, "/varz")
            assert varz["http_port"] == server.options.http_port > 0
            assert varz["port"] == server.port

    asyncio.run(scenario())


def test_port_is_free_again_after_the_server_stopped() -> None:
    async def scenario() -> int:
        async with monitored() as server:
            return server.options.http_port

    port = asyncio.run(scenario())

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("base_path", ["/nats", "nats", "/nats/"])
def test_pages_are_below_the_base_path_and_nowhere_else(base_path: str) -> None:
    async def scenario() -> None:
        async with monitored(http_base_path=base_path) as server:
            assert (await page(server, "/nats/varz"))["http_base_path"] == base_path
            for path in ("/varz", "/", "/natsvarz"):
                with pytest.raises(urllib.error.HTTPError, match="404") as raised:
                    await page(server, path)
                raised.value.close()

    asyncio.run(scenario())


def test_pages_are_there_over_tls_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [x509.DNSName("localhost")])
    tls = TlsOptions(cert_file=str(made.cert_file), key_file=str(made.key_file))

    async def scenario() -> None:
        options = ServerOptions(host="127.0.0.1", port=-1, https_port=-1, tls=tls)
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        async with Server(options) as server:
            address = f"https://localhost:{server.options.https_port}/varz"
            varz = await fetched(address, context)
            assert varz["tls_required"] is True
            assert varz["https_port"] == server.options.https_port

    asyncio.run(scenario())


def test_token_of_a_client_is_never_shown() -> None:
    async def scenario() -> tuple[Any, Any]:
        authorization = AuthorizationOptions(token="a-very-secret-token")
        async with monitored(authorization=authorization) as server:
            client = await nats.connect(server.url, token="a-very-secret-token")
            found = await page(server, "/connz?auth=1&subs=detail")
            varz = await page(server, "/varz")
            await client.close()
            return found, varz

    connz, varz = asyncio.run(scenario())

    assert connz["connections"][0]["authorized_user"] == "[REDACTED]"
    assert "a-very-secret-token" not in json.dumps([connz, varz])


def test_publishing_is_an_activity_and_receiving_is_none() -> None:
    async def activities(server: Server) -> list[str]:
        found = (await page(server, "/connz"))["connections"]
        return [each["last_activity"] for each in found]

    async def scenario() -> tuple[list[str], list[str]]:
        async with monitored() as server:
            receiver = await nats.connect(server.url)
            await receiver.subscribe("news")
            await settle(receiver)
            publisher = await nats.connect(server.url)
            before = await activities(server)
            # The clock that is looked at moves every few milliseconds.
            while (after := await activities(server))[1] == before[1]:
                await publisher.publish("news", b"!")
                await publisher.flush()
            await publisher.close()
            await receiver.close()
            return before, after

    before, after = asyncio.run(scenario())

    assert after[1] > before[1]
    assert after[0] == before[0]


def test_a_producer_that_was_slowed_down_is_counted() -> None:
    async def scenario() -> tuple[Any, Any]:
        async with monitored(max_pending=4 * MIB) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false}\r\nSUB news 1\r\nPING\r\n')
            assert await reader.readline() == b"PONG\r\n"
            # From now on it does not read.
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream it can
            publisher = await nats.connect(server.url)
            while not server.clients.stalls:
                await publisher.publish("news", bytes(64 * KIB))
                await publisher.flush()
            varz = await page(server, "/varz")
            connz = await page(server, "/connz")
            writer.transport.abort()
            await publisher.close()
            return varz, connz

    varz, connz = asyncio.run(scenario())

    assert varz["stalled_clients"] >= 1
    assert ["stalls" in each for each in connz["connections"]] == [False, True]


def test_a_host_to_tell_clients_is_told_everywhere() -> None:
    async def scenario() -> None:
        async with monitored(client_advertise="nats.example:4333") as server:
            client = await nats.connect(server.url)
            told = client._server_info
            varz = await page(server, "/varz")
            await client.close()
            for fields in (told, varz):
                assert (fields["host"], fields["port"]) == ("nats.example", 4333)

    asyncio.run(scenario())


def test_closed_connections_are_kept_up_to_their_number() -> None:
    async def scenario() -> Any:
        async with monitored(max_closed_clients=2) as server:
            for name in ("one", "two", "three"):
                client = await nats.connect(server.url, name=name)
                await client.close()
                while (await page(server, "/connz"))["total"]:
                    pass
            return await page(server, "/connz?state=closed")

    closed = asyncio.run(scenario())

    assert [each["name"] for each in closed["connections"]] == ["two", "three"]


def test_closed_connection_keeps_a_bounded_part_of_its_subscriptions() -> None:
    async def scenario() -> Any:
        async with monitored() as server:
            client = await nats.connect(server.url)
            for number in range(CLOSED_SUBSCRIPTIONS_KEPT_MAX + 10):
                await client.subscribe(f"subject.{number}")
            await settle(client)
            await client.close()
            while (await page(server, "/connz"))["total"]:
                pass
            return await page(server, "/connz?state=closed&subs=1")

    (closed,) = asyncio.run(scenario())["connections"]

    assert closed["subscriptions"] == CLOSED_SUBSCRIPTIONS_KEPT_MAX + 10
    assert len(closed["subscriptions_list"]) == CLOSED_SUBSCRIPTIONS_KEPT_MAX


def test_server_without_a_system_account_serves_pages_and_answers_no_requests() -> None:
    async def scenario() -> None:
        async with monitored(no_system_account=True) as server:
            client = await nats.connect(server.url)
            with pytest.raises(nats.errors.NoRespondersError):
                await client.request("$SYS.REQ.USER.INFO")
            assert "system_account" not in await page(server, "/varz")
            assert (await page(server, "/connz"))["total"] == 1
            await client.close()

    asyncio.run(scenario())
