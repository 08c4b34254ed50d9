"""Addresses of servers."""

from __future__ import annotations

import pytest

from penstock.config.options.values import ServerUrl, advertised, parse_url


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ("0.0.0.0", 4222)),
        ("me", ("me", 4222)),
        ("me:99", ("me", 99)),
        ("me:0", ("me", 4222)),
        ("me:-1", ("me", 4222)),
        ("[::1]:99", ("::1", 99)),
        ("[::1]", ("::1", 4222)),
    ],
)
def test_what_is_advertised_stands_for_the_own_address(text: str, told: tuple[str, int]) -> None:
    assert advertised(text, "0.0.0.0", 4222) == told


@pytest.mark.parametrize("text", ["a:b", "a:b:c", "a:1x"])
def test_what_is_no_address_cannot_be_advertised(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        advertised(text, "0.0.0.0", 4222)


def test_a_password_does_not_show() -> None:
    assert "hidden" not in repr(parse_url("nats://u:hidden@h:1"))
