"""The same bodies put to the real server: the same words about what is wrong with each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stream.compared import OurRules, Reference, Request, differences, reference_in
from tests.text.json.bodies import BODIES, TIMES

pytestmark = pytest.mark.oracle

TIMED = tuple(
    b'{"name":"A","sources":[{"name":"B","opt_start_time":"' + text + b'"}]}' for text in TIMES
)
PIECES = (
    *(bytes([byte]) for byte in b"\"{}[],:\\u01-.eE +'`\n\x00\x7f\xff\xc3"),
    *(b"null", b"true", b"false", b"\xc3\xa9", b"\\u0041", b"\\ud800", b"\xe2\x80\xa8"),
    *(b'"name"', b'"max_msgs":', b"\xf0\x9f\x98\x80"),
)
DAMAGED_COUNT = 600


@pytest.fixture(scope="module", params=[True, False], ids=["strict", "lenient"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Reference, bool]]:
    folder: Path = tmp_path_factory.mktemp("reference")
    settings = "" if request.param else "jetstream { strict: false }"
    with reference_in(folder, settings) as server:
        yield server, request.param


def answers_that_differ(both: tuple[Reference, bool], bodies: Iterator[bytes]) -> list[object]:
    server, strict = both
    found: list[object] = []
    with server.connect() as client:
        for body in bodies:
            rules = OurRules(client.server_version, strict=strict)
            found += differences(server, client, rules, (Request("CREATE", "A", body),))
    return found


def damaged(body: bytes, chance: random.Random) -> bytes:
    """Put something in, take something out or replace it, up to three times."""
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(body))
        taken = chance.choice((0, 0, 1, 2))
        put = chance.choice(PIECES) if taken < 2 else b""
        body = body[:place] + put + body[place + taken :]
    return body


def test_every_body_has_the_real_servers_answer(both: tuple[Reference, bool]) -> None:
    assert answers_that_differ(both, iter(BODIES)) == []


def test_every_time_has_the_real_servers_answer(both: tuple[Reference, bool]) -> None:
    assert answers_that_differ(both, iter(TIMED)) == []


def test_damaged_bodies_have_the_real_servers_answers(both: tuple[Reference, bool]) -> None:
    chance = random.Random(4)
    bodies = [body for body in (*BODIES, *TIMED) if len(body) < 1000]

    found = answers_that_differ(
        both, (damaged(chance.choice(bodies), chance) for _ in range(DAMAGED_COUNT))
    )

    assert found == []
