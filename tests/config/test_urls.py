"""Addresses of servers."""

from __future__ import annotations

import pytest

from penstock.config.urls import ServerUrl, parse_url


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("nats://h:1", ServerUrl("nats", "h", "1")),
        ("nats-route://u:p%40@h:1", ServerUrl("nats-route", "h", "1", "u", "p@")),
        ("nats://u@h:1", ServerUrl("nats", "h", "1", "u", None)),
        ("h:1", ServerUrl("nats", "h", "1")),
        (" tls://[::1]:2 ", ServerUrl("tls", "::1", "2")),
        ("nats://h", ServerUrl("nats", "h", "")),
    ],
)
def test_an_address_is_taken_apart(url: str, parts: ServerUrl) -> None:
    assert parse_url(url) == parts


@pytest.mark.parametrize("url", ["nats://h:x", "nats://h h:1", "nats://h:1\n2", "nats://[::1:2"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"invalid|Invalid"):
        parse_url(url)


def test_a_password_does_not_show() -> None:
    assert "hidden" not in repr(parse_url("nats://u:hidden@h:1"))
