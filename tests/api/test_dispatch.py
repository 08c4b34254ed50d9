"""An unexpected error in a handler is answered as a server error and logged with its place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from penstock.api.dispatch import Answer, Call, Documents, Endpoint, Slices, Table, answer


class Listening:
    """A service as far as `answer` needs one; it keeps what is logged."""

    strict = True

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def log(self, level: str, text: str) -> None:
        self.lines.append((level, text))


def returned(slices: Generator[None, None, Answer | None]) -> Answer | None:
    """Go through all slices."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            answer: Answer | None = end.value
            return answer


def ask(handle: Any) -> tuple[Answer, list[tuple[str, str]]]:
    service = Listening()
    call = Call(service, None, "$JS.API.X", (), b"", b"", b"reply")  # type: ignore[arg-type]
    given = answer(Endpoint("X", "x_response", handle), call)
    if isinstance(given, Coroutine):
        given = asyncio.run(given)
    if isinstance(given, Generator):
        given = returned(given)
    assert isinstance(given, Answer)
    return given, service.lines


def fails(call: Call) -> Documents:
    raise OverflowError("too large")


async def fails_later(call: Call) -> Documents:
    raise OverflowError("too large")


def fails_in_slices(call: Call) -> Slices:
    yield
    raise OverflowError("too large")


@pytest.mark.parametrize("handle", [fails, fails_later, fails_in_slices])
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


def handle(call: Call) -> Documents:
    return ()


TABLE = Table(
    [
        Endpoint(subject, "x_response", handle)
        for subject in (
            "INFO",
            "S.INFO.*",
            "S.MSG.GET.*",
            "C.INFO.*.*",
            "C.MAKE.*.*",
            "C.MAKE.*.*.>",
        )
    ]
)


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        ("INFO", ("INFO", ())),
        ("S.INFO.a", ("S.INFO.*", ("a",))),
        ("S.MSG.GET.a", ("S.MSG.GET.*", ("a",))),
        ("C.INFO.GET.a", ("C.INFO.*.*", ("GET", "a"))),
        ("C.MAKE.a.b", ("C.MAKE.*.*", ("a", "b"))),
        ("C.MAKE.a.b.c", ("C.MAKE.*.*.>", ("a", "b", "c"))),
        ("C.MAKE.a.b.c.d.>", ("C.MAKE.*.*.>", ("a", "b", "c.d.>"))),
        ("S.INFO", None),
        ("S.INFO.a.b", None),
        ("S.MSG.PUT.a", None),
        ("INFO.a", None),
        ("", None),
    ],
)
def test_an_endpoint_is_found_by_its_subject(subject: str, found: Any) -> None:
    given = TABLE.find(subject)

    assert (None if given is None else (given[0].subject, given[1])) == found
