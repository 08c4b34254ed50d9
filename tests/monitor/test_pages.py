"""Every page, field by field, against the reference server in the same situation."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.monitor.compared import SECRETS, Watched, as_text, both

pytestmark = pytest.mark.oracle

OWN_SUBSCRIPTIONS = ("num_subscriptions", "num_inserts", "num_removes", "subscriptions", "total")
"""Counted over all accounts they hold the server's own, of which the reference server has more."""

PAGES = (
    "/connz",
    "/connz?subs=1&auth=1",
    "/connz?subs=detail&auth=true",
    "/connz?state=closed",
    "/connz?state=closed&auth=1&subs=1",
    "/connz?state=closed&auth=1&subs=detail",
    "/connz?state=any&limit=1&offset=1&sort=bytes_to",
    "/connz?state=ALL&sort=cid",
    "/connz?limit=-1",
    "/connz?limit=9223372036854775807&offset=1",
    "/connz?offset=9223372036854775807&limit=9223372036854775807",
    "/connz?offset=-9223372036854775808",
    "/connz?cid=8",
    "/connz?cid=12&state=closed",
    "/connz?cid=18446744073709551615",
    "/connz?user=a",
    "/connz?user=a&state=any&auth=1",
    "/connz?acc=A&auth=1",
    "/connz?acc=A&state=closed",
    "/connz?acc=NOBODY",
    "/connz?sort=subs&acc=A",
    "/connz?sort=start",
    "/connz?sort=stop&state=closed",
    "/connz?sort=reason&state=closed",
    "/connz?sort=msgs_from&acc=B",
    "/connz?mqtt_client=x",
    "/subsz?subs=1&acc=A",
    "/subsz?acc=B",
    "/subsz?subs=1&acc=NOBODY",
    "/subsz?subs=1&acc=A&test=foo.x",
    "/subsz?subs=1&acc=A&offset=9223372036854775807",
    "/routez",
    "/routez?subs=detail",
    "/gatewayz",
    "/leafz",
    "/accountz",
    "/accountz?acc=A",
    "/accountz?acc=$G",
    "/jsz",
    "/jsz?acc=A&streams=1",
    "/healthz",
    "/healthz?js-enabled-only=true",
    "/healthz?details=1&account=A",
    "/ipqueuesz",
)

REFUSED = (
    "/connz?sort=nope",
    "/connz?sort=stop",
    "/connz?sort=reason&state=any",
    "/connz?limit=abc",
    "/connz?limit=1.5",
    "/connz?limit=%20",
    "/connz?limit=99999999999999999999",
    "/connz?offset=-99999999999999999999",
    "/connz?cid=x",
    "/connz?cid=-1",
    "/connz?cid=18446744073709551616",
    "/connz?state=bogus",
    "/connz?auth=maybe",
    "/connz?subs=2",
    "/subsz?test=foo.*",
    "/subsz?test=foo..x",
    "/subsz?limit=x",
    "/subsz?subs=detail",
    "/routez?subs=x",
    "/leafz?subs=x",
    "/accountz?acc=NOBODY",
    "/accstatz?unused=x",
    "/jsz?streams=x",
    "/healthz?details=x",
    "/raftz",
    "/nope",
    "/varz/",
    "/favicon.ico",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Watched, Watched]]:
    """The two servers, after clients came, spoke and went in the same way."""
    pair = both(tmp_path_factory.mktemp("pages"))
    clients = []
    try:
        for server in pair:
            clients += [server.client("admin", "administrator"), server.client("a", "client-a")]
            clients += [server.client("limited"), server.client("b", "<b> & co")]
            with pytest.raises(ConnectionError):
                server.client("b", password="wrong-secret")
            gone = server.client("a", "gone")
            gone.subscribe("g.>", 1)
            gone.publish("foo.bar", "12345")
            gone.flush()
            gone.close()
            a, b = clients[-3], clients[-1]
            a.subscribe("foo.*", 1)
            a.subscribe("bar", 2, "workers")
            a.publish("foo.x", "abc")
            a.flush()
            b.subscribe("zed", 7)
            b.publish("zed", "hello")
            b.flush()
            while json.loads(server.get("/connz?state=closed")[2])["total"] < 2:
                pass
        yield pair
    finally:
        for client in clients:
            client.close()
        for server in pair:
            server.stop()


@pytest.mark.parametrize("path", PAGES)
def test_page_has_the_fields_and_values_of_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    answers = [server.get(path) for server in servers]

    (status, headers, body), (own_status, own_headers, own_body) = answers
    assert own_status == status == 200
    for header in ("Content-Type", "Access-Control-Allow-Origin"):
        assert own_headers[header] == headers[header]
    assert as_text(json.loads(own_body)) == as_text(json.loads(body))


@pytest.mark.parametrize(
    "path",
    [
        "/healthz?stream=s",
        "/healthz?stream=s&details=1",
        "/healthz?consumer=c&account=A",
        "/healthz?consumer=c&details=true",
    ],
)
def test_what_health_cannot_be_asked_is_told_as_by_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    (status, _, body), (own_status, own_headers, own_body) = (
        server.get(path) for server in servers
    )

    assert own_status == status == 400
    assert own_body == body
    assert own_headers["Content-Type"] == "application/json"


def test_stacks_are_shown_as_text(servers: tuple[Watched, Watched]) -> None:
    (status, headers, _), (own_status, own_headers, own_body) = (
        server.get("/stacksz") for server in servers
    )

    assert own_status == status == 200
    assert own_headers["Content-Type"] == headers["Content-Type"]
    assert b"[MainThread]:" in own_body


def test_variables_of_the_process_have_the_names_of_the_reference(
    servers: tuple[Watched, Watched],
) -> None:
    (_, headers, body), (_, own_headers, own_body) = (
        server.get("/debug/vars") for server in servers
    )
    reference, ours = json.loads(body), json.loads(own_body)

    assert own_headers["Content-Type"] == headers["Content-Type"]
    assert ours.keys() == reference.keys()
    assert ours["memstats"].keys() <= reference["memstats"].keys()
    assert ours["memstats"]["Sys"] > 0


@pytest.mark.parametrize("path", ["/varz", "/subsz", "/subscriptionsz", "/accountz?acc=SYS"])
def test_page_of_the_whole_server_has_the_fields_of_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    reference, ours = (json.loads(server.get(path)[2]) for server in servers)
    # The reference server has no event loop: these are the only fields of ours.
    turns = ours.pop("event_loop", {})

    assert as_text(ours, *OWN_SUBSCRIPTIONS) == as_text(reference, *OWN_SUBSCRIPTIONS)
    assert list(turns) == (["turns", "long_turns", "longest_turn"] if path == "/varz" else [])
    assert all(isinstance(each, int) for each in turns.values())


@pytest.mark.parametrize("path", ["/accstatz", "/accstatz?unused=1"])
def test_account_statistics_are_those_of_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    pages = [json.loads(server.get(path)[2]) for server in servers]
    for page in pages:
        system = next(each for each in page["account_statz"] if each["acc"] == "SYS")
        system["num_subscriptions"] = 0

    assert as_text(pages[1]) == as_text(pages[0])


@pytest.mark.parametrize("path", REFUSED)
def test_what_cannot_be_asked_is_refused_in_the_words_of_the_reference(
    servers: tuple[Watched, Watched], path: str
) -> None:
    (status, headers, body), (own_status, own_headers, own_body) = (
        server.get(path) for server in servers
    )

    assert own_status == status >= 400
    assert own_body == body
    assert own_headers["Content-Type"] == headers["Content-Type"]
    assert "Access-Control-Allow-Origin" not in own_headers


def test_json_is_laid_out_as_the_reference_does(servers: tuple[Watched, Watched]) -> None:
    reference, ours = (server.get("/connz?auth=1")[2] for server in servers)

    assert [line.split(b":")[0] for line in ours.splitlines()] == [
        line.split(b":")[0] for line in reference.splitlines()
    ]
    assert b'"\\u003cb\\u003e \\u0026 co"' in ours


def test_requests_are_counted_by_page(servers: tuple[Watched, Watched]) -> None:
    def grown(server: Watched) -> dict[str, int]:
        before = json.loads(server.get("/varz")[2])["http_req_stats"]
        for path in ("/", "/connz", "/connz?cid=x", "/subsz", "/subscriptionsz", "/nope", "/jsz"):
            server.get(path)
        after = json.loads(server.get("/varz")[2])["http_req_stats"]
        return {path: count - before.get(path, 0) for path, count in after.items()}

    reference, ours = (grown(server) for server in servers)

    counted = {path: count for path, count in reference.items() if count}
    assert {path: count for path, count in ours.items() if count} == counted


def test_first_page_links_to_pages_that_exist(servers: tuple[Watched, Watched]) -> None:
    ours = servers[1]
    status, headers, body = ours.get("/")

    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    links = [part.split('"')[0] for part in body.decode().split('href=".')[1:]]
    assert "/varz" in links
    assert {ours.get(link)[0] for link in links} == {200}


def test_no_page_shows_a_secret(servers: tuple[Watched, Watched]) -> None:
    for path in (*PAGES, *REFUSED, "/", "/varz", "/metrics", "/stacksz", "/debug/vars"):
        body = servers[1].get(path)[2].decode()
        assert not [secret for secret in SECRETS if secret in body], path
