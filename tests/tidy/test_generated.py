"""Files that a tool writes are what the tool would write now."""

from __future__ import annotations

import pytest

from tools.gen_error_codes import MODULE, TABLE, module_text, name_of


def test_the_error_codes_are_those_of_the_table() -> None:
    assert MODULE.read_text() == module_text(TABLE.read_text())


@pytest.mark.parametrize(
    ("constant", "name"),
    [
        ("JSStreamNotFoundErr", "STREAM_NOT_FOUND"),
        ("JSStreamWrongLastSequenceErrF", "STREAM_WRONG_LAST_SEQUENCE"),
        ("JSStreamInvalidConfigF", "STREAM_INVALID_CONFIG"),
        ("JSInvalidJSONErr", "INVALID_JSON"),
        ("JSConsumerFCRequiresPushErr", "CONSUMER_FC_REQUIRES_PUSH"),
        ("JSConsumerEmptyFilter", "CONSUMER_EMPTY_FILTER"),
    ],
)
def test_names_are_the_reference_servers_in_our_manner(constant: str, name: str) -> None:
    assert name_of(constant) == name
