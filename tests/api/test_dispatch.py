"""An unexpected error in a handler is answered as a server error and logged with its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.api.dispatch import Answer, Call, Endpoint, answer


class Listening:
    """A service as far as `answer` needs one; it keeps what is logged."""

    strict = True

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def log(self, level: str, text: str) -> None:
        self.lines.append((level, text))


def ask(handle: Any) -> tuple[Answer, list[tuple[str, str]]]:
    service = Listening()
    call = Call(service, None, "$JS.API.X", (), b"", b"", b"reply")  # type: ignore[arg-type]
    given = answer(Endpoint("X", "x_response", handle), call)
    if isinstance(given, Coroutine):
        given = asyncio.run(given)
    assert isinstance(given, Answer)
    return given, service.lines


def fails(call: Call) -> dict[str, Any]:
    raise OverflowError("too large")


async def fails_later(call: Call) -> dict[str, Any]:
    raise OverflowError("too large")


@pytest.mark.parametrize("handle", [fails, fails_later])
def test_an_unforeseen_error_is_answered_and_told(handle: Any) -> None:
    given, lines = ask(handle)

    assert given.has_failed
    assert json.loads(given.body)["error"] == {
        "code": 500,
        "err_code": 10051,
        "description": "too large",
    }
    [(level, text)] = lines
    assert level == "ERR"
    assert handle.__name__ in text
