"""The table of what JetStream answers, and errors made of it."""

from __future__ import annotations

import re

import pytest

from penstock import error_codes
from penstock.errors import ApiError, ErrorCode

ENTRIES = {name: value for name, value in vars(error_codes).items() if isinstance(value, ErrorCode)}


def test_every_code_is_there_once() -> None:
    codes = sorted(entry.err_code for entry in ENTRIES.values())

    assert codes == list(range(10002, 10228))


def test_an_error_is_written_with_its_values() -> None:
    error = ApiError(error_codes.STREAM_WRONG_LAST_SEQUENCE, seq=5)

    assert error.document() == {
        "code": 400,
        "err_code": 10071,
        "description": "wrong last sequence: 5",
    }
    assert str(error) == "wrong last sequence: 5 (10071)"


def test_a_value_may_hold_what_looks_like_a_placeholder() -> None:
    error = ApiError(error_codes.INVALID_JSON, err="{seq} {}")

    assert error.description == "invalid JSON: {seq} {}"


@pytest.mark.parametrize("name", [name for name in ENTRIES if "{" in ENTRIES[name].description])
def test_every_placeholder_must_be_filled(name: str) -> None:
    names = re.findall(r"\{(\w+)\}", ENTRIES[name].description)

    with pytest.raises(KeyError):
        ApiError(ENTRIES[name])

    filled = ApiError(ENTRIES[name], **dict.fromkeys(names, "x"))
    assert "{" not in filled.description
