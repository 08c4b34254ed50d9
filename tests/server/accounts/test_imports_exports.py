"""What accounts share while the server runs, and reloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.test_reload import DONE, Configured, both

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
