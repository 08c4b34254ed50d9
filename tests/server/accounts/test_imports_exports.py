"""What accounts share while the server runs: reloads, and answers that never come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.config.options.server import ServerOptions
from penstock.server.accounts import imports_exports
from penstock.server.accounts.imports_exports import Answer, Answers
from penstock.server.server import Server
from penstock.testing.clock import FakeClock
from tests.server.test_reload import DONE, Configured, both

SECOND_NS = 10**9
OFFERED = 'exports: [ { stream: "s.>" }, { service: ask } ]'
TAKEN = (
    'imports: [ { stream: { account: A, subject: "s.>" } }, '
    "{ service: { account: A, subject: ask }, to: far } ]"
)


def accounts(a: str, b: str) -> str:
    return f"""accounts {{
      A {{ users: [ {{ user: a, password: p }} ], {a} }}
      B {{ users: [ {{ user: b, password: p }} ], {b} }}
    }}"""


@pytest.mark.oracle
@pytest.mark.slow
@both
def test_a_reload_begins_and_ends_sharing(name: str, tmp_path: Path) -> None:
    login = {"pass": "p"}
    with (
        Configured(name, tmp_path, accounts(OFFERED, "")) as configured,
        configured.connect(user="a", **login) as a,
        configured.connect(user="b", **login) as b,
    ):
        b.send("SUB s.* 1", "SUB box 2")
        b.answers()
        a.send("SUB ask 1", "PUB s.1 1", "x")
        a.answers()

        assert configured.reload(accounts(OFFERED, TAKEN)).startswith(DONE)
        b.send("SUB s.x 3", "PUB far 2", "me")
        before = b.answers()
        asked = a.answers()
        a.send("PUB s.x 1", "y")
        a.answers()
        heard = b.answers()
        assert configured.reload(accounts(OFFERED, "")).startswith(DONE)
        a.send("PUB s.x 1", "z")
        b.send("PUB far 1", "n")
        silence = a.answers(), b.answers()

    assert before == []
    assert asked[-1] == "me"
    assert "y" in heard
    assert "MSG s.x 3 1" in heard
    assert silence == ([], [])


def test_an_answer_that_does_not_come_is_given_up() -> None:
    async def scenario() -> list[bool]:
        clock = FakeClock()
        async with Server(ServerOptions(host="127.0.0.1", port=-1), clock=clock) as server:
            account = server.identities.accounts.global_account
            answers = Answers(server, is_single=False, wait_ns=60 * SECOND_NS)
            expected = [answers.expect(account, account, b"early")]
            clock.advance_seconds(40)
            expected.append(answers.expect(account, account, b"late"))
            clock.advance_seconds(20)
            answers.sweep()
            waited = _awaited(account, expected)
            answers.close()
            return [*waited, *_awaited(account, expected)]

    assert asyncio.run(scenario()) == [False, True, False, False]


def test_answers_that_are_waited_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[bool]:
        async with Server(ServerOptions(host="127.0.0.1", port=-1)) as server:
            account = server.identities.accounts.global_account
            answers = Answers(server, is_single=True, wait_ns=60 * SECOND_NS)
            expected = [answers.expect(account, account, b"r%d" % n) for n in range(5)]
            waited = _awaited(account, expected)
            answers.close()
            return waited

    monkeypatch.setattr(imports_exports, "SERVICE_ANSWERS_MAX", 3)
    assert asyncio.run(scenario()) == [False, False, True, True, True]


def _awaited(account: Any, expected: list[Answer]) -> list[bool]:
    return [bool(account.sublist.matches(each.subject).plain) for each in expected]
