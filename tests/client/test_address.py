"""URLs of servers: what is one, what is not, and that secrets stay out of sight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.credentials import Address, Credentials, parse_url
from penstock.errors import UsageError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nats://h:1", Address("h", 1)),
        ("h", Address("h", 4222)),
        ("tcp://u:p@h", Address("h", 4222, Credentials("u", "p"))),
        ("tls://h", Address("h", 4222, is_tls=True)),
        ("nats://t%40ken@h", Address("h", 4222, Credentials(token="t@ken"))),
        ("nats://[::1]:7", Address("::1", 7)),
    ],
)
def test_addresses_are_read(url: str, address: Address) -> None:
    assert parse_url(url) == address


def test_an_address_is_shown_as_people_write_it() -> None:
    assert [str(parse_url(url)) for url in ("h", "nats://u:p@[::1]:7")] == ["h:4222", "[::1]:7"]


@pytest.mark.parametrize("url", ["http://h", "nats://h:port", "nats://h:99999", "nats://[::1"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_url(url)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        assert 0 < parse_url(text).port < 65536
    except UsageError:
        return


def test_an_address_does_not_show_its_secrets() -> None:
    for url in ("nats://u:s3cret@h", "s3cret@h"):
        address = parse_url(url)
        assert "s3cret" not in f"{address!r} {address}"
