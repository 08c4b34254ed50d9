"""What the configuration changes for a client: who may connect, what it may do, when it is cut."""

from __future__ import annotations

import json

import pytest

from tests.conformance.conftest import PairWith
from tests.conformance.scripts import FULL, LAX, QUIET
from tests.conformance.servers import Pair
from tests.conformance.transcripts import Peer, Step, comparable, frames_of, play, say

pytestmark = pytest.mark.oracle

TOKEN = "authorization { token: s3cret }"
USERS = """
authorization {
  default_permissions { publish: "default.>", subscribe: "default.>" }
  users = [
    { user: all, password: p, permissions: { publish: ">", subscribe: ">" } }
    { user: some, password: p, permissions: {
      publish: { allow: ["foo.>", "req.*"], deny: ["foo.secret", "foo.d.*"] }
      subscribe: { allow: ["foo.>", "bar q", "baz q.*", "r.>"], deny: ["foo.hidden", "foo.x dq"] }
    } }
    { user: denied, password: p, permissions: {
      publish: { deny: "no.>" }, subscribe: { deny: "no.*" }
    } }
    { user: nothing, password: p, permissions: {
      publish: { allow: [] }, subscribe: { allow: [] }
    } }
    { user: once, password: p, permissions: { subscribe: "svc.>", allow_responses: true } }
    { user: twice, password: p, permissions: {
      publish: "ok", subscribe: "svc.>", allow_responses: { max: 2, expires: "10m" }
    } }
    { user: default, password: p }
  ]
}
"""
NO_AUTH_USER = """
no_auth_user: guest
authorization {
  users = [
    { user: guest, password: p, permissions: { publish: "g.>", subscribe: "g.>" } }
    { user: owner, password: p }
  ]
}
"""
ACCOUNTS = """
accounts {
  A { users: [ { user: a, password: p } ] }
  B { users: [ { user: b, password: p } ], limits { max_payload: 10, max_subscriptions: 2 } }
}
"""


def connect(user: str, password: str = "p", **options: object) -> str:
    """Return the CONNECT of a user."""
    document = {"user": user, "pass": password, "verbose": True, "pedantic": False, "headers": True}
    return f"CONNECT {json.dumps(document | options)}\r\n"


def assert_same(pair: Pair, *steps: Step) -> None:
    assert play(pair.ours.port, steps) == play(pair.reference.port, steps)


@pytest.mark.parametrize(
    "script",
    [
        'CONNECT {"auth_token":"s3cret"}\r\nSUB foo 1\r\n',
        'CONNECT {"auth_token":"wrong"}\r\n',
        'CONNECT {"auth_token":"s3cretx"}\r\n',
        'CONNECT {"auth_token":""}\r\n',
        "CONNECT {}\r\n",
        'CONNECT {"user":"s3cret"}\r\n',
        'CONNECT {"user":"a","pass":"s3cret"}\r\n',
        'CONNECT {"auth_token":"s3cret","protocol":2}\r\n',
        'CONNECT {"auth_token":"wrong","protocol":2}\r\n',
        'CONNECT {"auth_token":"s3cret"}\r\nCONNECT {"auth_token":"wrong"}\r\n',
        'CONNECT {"auth_token":"s3cret"}\r\nCONNECT {}\r\n',
        "PING\r\n",
        "SUB foo 1\r\n",
        "\r\n",
        "CONFECT",
        "CONNECT {x}\r\n",
    ],
)
def test_a_token_is_asked_for_alike(pair_with: PairWith, script: str) -> None:
    assert_same(pair_with(TOKEN), say(script))


@pytest.mark.parametrize(
    "script",
    [
        connect("all"),
        connect("all", "wrong"),
        connect("nobody"),
        connect("all", ""),
        'CONNECT {"auth_token":"p"}\r\n',
        "CONNECT {}\r\n",
        connect("all", account="x"),
    ],
)
def test_a_user_is_asked_for_alike(pair_with: PairWith, script: str) -> None:
    assert_same(pair_with(USERS), say(script))


SUBJECTS = [
    "foo",
    "foo.a",
    "foo.secret",
    "foo.d.x",
    "foo.d",
    "req.1",
    "req.1.2",
    "no.a",
    "no.a.b",
    "no",
    "*",
    "foo.*",
    "foo.>",
    ">",
    "ok",
    "default.x",
    "other",
    "$SYS.x",
    "_INBOX.x",
    'q"uote',
    "back\\slash",
    "\x01",
    "foo..a",
]
QUEUES = ["q", "q.x", "q.*", "q.>", "dq", "other", "_sys_"]


@pytest.mark.parametrize("user", ["all", "some", "denied", "nothing", "once", "twice", "default"])
def test_publish_permissions_are_alike(pair_with: PairWith, user: str) -> None:
    publishes = "".join(f"PUB {each} 1\r\nx\r\nPUB {each} r.1 1\r\ny\r\n" for each in SUBJECTS)

    assert_same(pair_with(USERS), say(connect(user) + publishes))


@pytest.mark.parametrize("user", ["all", "some", "denied", "nothing", "once", "twice", "default"])
def test_subscribe_permissions_are_alike(pair_with: PairWith, user: str) -> None:
    subjects = [*SUBJECTS, "bar", "baz", "foo.hidden", "foo.x", "no.*", "no.>", "svc.a", "r.*"]
    subscribes = "".join(f"SUB {each} s{number}\r\n" for number, each in enumerate(subjects))
    queued = "".join(
        f"SUB {each} {queue} {each}/{queue}\r\n"
        for each in ("foo.a", "foo.x", "bar", "baz", "foo.*", "foo.hidden", "no.a")
        for queue in QUEUES
    )

    assert_same(pair_with(USERS), say(connect(user) + subscribes + queued))


def test_denied_subjects_are_held_back_at_delivery(pair_with: PairWith) -> None:
    publishes = "".join(
        f"PUB {each} 3\r\n{number}\r\n"
        for number, each in enumerate(("foo.a", "foo.hidden", "foo.x", "no.a", "no.a.b"), 100)
    )

    assert_same(
        pair_with(USERS),
        say(connect("some") + "SUB foo.* 1\r\nSUB foo.> dq 2\r\nSUB foo.* other 3\r\n", "s"),
        say(connect("denied") + "SUB > 1\r\nSUB no.> 2\r\nSUB *.* 3\r\n", "d"),
        say(connect("all") + publishes),
    )


@pytest.mark.parametrize("user", ["once", "twice"])
def test_responses_are_allowed_so_often(pair_with: PairWith, user: str) -> None:
    assert_same(
        pair_with(USERS),
        say(connect("all") + "SUB r.* 1\r\n"),
        say(connect(user) + "SUB svc.a 1\r\nPUB r.1 1\r\nx\r\n", "s"),
        say("PUB svc.a r.1 1\r\nq\r\nPUB svc.a r.2 1\r\nq\r\n"),
        say("".join(f"PUB r.1 1\r\n{number}\r\n" for number in range(4)), "s"),
        say("PUB r.2 1\r\na\r\nPUB r.3 1\r\nb\r\nPUB ok 1\r\nc\r\n", "s"),
        say("PING\r\n"),
    )


@pytest.mark.parametrize(
    "script",
    [
        "PING\r\n",
        "SUB g.a 1\r\nPUB g.a 1\r\nx\r\nPUB h 1\r\ny\r\n",
        FULL + "SUB g.a 1\r\nSUB h 2\r\n",
        "SUB g.a 1\r\n" + FULL + "PUB g.a 1\r\nx\r\n",
        "SUB g.a 1\r\n" + connect("owner") + "PUB g.a 1\r\nx\r\nPUB h 1\r\ny\r\n",
        connect("owner") + "SUB h 1\r\nPUB h 1\r\ny\r\n",
        connect("owner", "wrong"),
        connect("guest") + "SUB h 1\r\n",
        "PING\r\n" + FULL + "PING\r\n",
    ],
)
def test_a_client_without_credentials_is_the_no_auth_user(pair_with: PairWith, script: str) -> None:
    assert_same(pair_with(NO_AUTH_USER), say(script))


@pytest.mark.parametrize(
    "script",
    [
        "PING\r\n",
        "SUB a 1\r\nPUB a 1\r\nx\r\n",
        FULL + "SUB a 1\r\nPUB a 1\r\nx\r\n",
        "SUB a 1\r\n" + FULL + "PUB a 1\r\nx\r\n",
        connect("admin") + "SUB a 1\r\nPUB a 1\r\nx\r\n",
        connect("admin", "wrong"),
        connect("nobody"),
    ],
)
def test_where_only_the_system_account_has_users_others_need_none(
    pair_with: PairWith, script: str
) -> None:
    system = "accounts { $SYS { users: [ { user: admin, password: p } ] } }"

    assert_same(pair_with(system), say(script))


def test_accounts_do_not_hear_each_other(pair_with: PairWith) -> None:
    assert_same(
        pair_with(ACCOUNTS),
        say(connect("a") + "SUB > 1\r\n", "a"),
        say(connect("b") + "SUB > 1\r\nPUB foo 1\r\nb\r\n", "b"),
        say("PUB foo 1\r\na\r\n", "a"),
    )


@pytest.mark.parametrize(
    "script",
    [
        connect("b", protocol=1)
        + "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB a 1\r\nUNSUB 1\r\nSUB d 4\r\n",
        connect("b", protocol=1) + "PUB foo 10\r\n0123456789\r\nPUB foo 11\r\n01234567890\r\n",
        connect("a", protocol=1) + "SUB a 1\r\n" + connect("b", protocol=1) + "PUB a 1\r\nx\r\n",
        connect("nobody"),
        LAX,
    ],
)
def test_an_account_has_its_own_limits(pair_with: PairWith, script: str) -> None:
    assert_same(pair_with(ACCOUNTS), say(script))


@pytest.mark.parametrize(
    "script",
    [
        LAX + "SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPUB c 1\r\nx\r\n",
        LAX + "SUB a 1\r\nSUB b 2\r\nSUB a 1\r\nUNSUB 1\r\nSUB c 3\r\n",
        LAX + "SUB a 1\r\nUNSUB 1 1\r\nSUB b 2\r\nPUB a 1\r\nx\r\nSUB c 3\r\nSUB d 4\r\n",
        LAX + "SUB a.. 1\r\nSUB a 2\r\nSUB b 3\r\nSUB a.. 4\r\n",
    ],
)
def test_subscriptions_are_counted_alike(pair_with: PairWith, script: str) -> None:
    assert_same(pair_with("max_subscriptions: 2"), say(script))


def test_subjects_may_have_so_many_tokens(pair_with: PairWith) -> None:
    script = LAX + "SUB a.b 1\r\nSUB a.b.c 2\r\nSUB a.b.c.d 3\r\nSUB *.*.*.> 4\r\n"

    assert_same(pair_with("max_subscription_tokens: 3"), say(script))


def test_one_connection_too_many_is_told_so(pair_with: PairWith) -> None:
    pair = pair_with("max_connections: 2")
    endings = []

    for server in (pair.reference, pair.ours):
        peers = [Peer(server.port) for _ in range(2)]
        for peer in peers:
            peer.wait()
        extra = Peer(server.port)
        extra.wait_closed()
        endings.append(comparable(frames_of(bytes(extra.received))))
        for peer in (*peers, extra):
            peer.close()

    assert endings[1] == endings[0]


def ending_without_a_word(port: int, first: str = "") -> list[bytes]:
    """Return everything that a client receives that sends only `first`."""
    peer = Peer(port)
    peer.send_uncounted(first.encode())
    peer.wait_closed()
    peer.close()
    return [
        frame if frame == b"PING\r\n" else comparable([frame])[0]
        for frame in frames_of(bytes(peer.received))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "C", "CONNECT {"])
def test_who_says_nothing_is_cut_after_the_time_to_authenticate(
    pair_with: PairWith, first: str
) -> None:
    pair = pair_with("authorization { token: s3cret, timeout: 0.2 }")

    expected = ending_without_a_word(pair.reference.port, first)

    assert ending_without_a_word(pair.ours.port, first) == expected


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", QUIET])
@pytest.mark.parametrize("pings", [1, 2, 3])
def test_who_does_not_answer_pings_is_stale(pair_with: PairWith, pings: int, first: str) -> None:
    pair = pair_with(f'ping_interval: "150ms", ping_max: {pings}')

    expected = ending_without_a_word(pair.reference.port, first)

    assert ending_without_a_word(pair.ours.port, first) == expected
