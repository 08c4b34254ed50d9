"""JSON that is written in slices is the JSON that is written in one go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.text.json.codec import to_json, to_json_in_slices

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False).filter(lambda number: abs(number) != float("inf")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.fixture(autouse=True, scope="module")
def few_at_once() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.text.json.codec.JSON_WORDS_AT_ONCE", 3)
        yield


def written(value: Any) -> tuple[bytes, int]:
    """Return the JSON, and the number of its slices."""
    slices, count = to_json_in_slices(value), 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return end.value, count
        count += 1


@given(VALUES)
def test_slices_are_what_is_written_at_once(value: Any) -> None:
    assert written(value)[0] == to_json(value, indented=True)


def test_a_long_value_has_many_slices() -> None:
    text, count = written({"list": list(range(1_000))})
    assert count >= 300
    assert text.startswith(b'{\n  "list": [\n    0,')
