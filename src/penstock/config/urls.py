"""Addresses of servers, as routes, remotes and flags give them. Pure.

They come as `nats://user:password@host:port`, with other schemes, and bare as `host:port`.
"""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from penstock.config.reading import decimal, split_host_port


class ServerUrl(msgspec.Struct, frozen=True):
    """One address taken apart; `password` is None if there is none, which "" is not."""

    scheme: str
    host: str
    port: str
    user: str = ""
    password: str | None = None

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"ServerUrl({self.scheme!r}, {self.host!r}, {self.port!r}, {self.user!r})"


def parse_url(url: str) -> ServerUrl:
    """Take an address apart; raise ValueError if it is none."""
    text = url.strip()
    if any(character < " " or character == "\x7f" for character in text):
        raise ValueError("invalid control character in URL")
    if "://" not in text:
        text = f"nats://{text}"
    split: SplitResult = urlsplit(text)
    user_info, at, address = split.netloc.rpartition("@")
    if " " in split.netloc:
        raise ValueError("invalid character in host name")
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, ""
    elif not (port.isdecimal() or not port):
        raise ValueError(f'invalid port ":{port}" after host')
    user, has_password, password = user_info.partition(":")
    return ServerUrl(
        split.scheme,
        host.removeprefix("[").removesuffix("]"),
        port,
        unquote(user) if at else "",
        unquote(password) if has_password else None,
    )


def advertised(text: str, host: str, port: int) -> tuple[str, int]:
    """Give what others are told of an address: that, or where nothing is said the own one.

    Raises ValueError.
    """
    if not text:
        return host, port
    split = split_host_port(text) or split_host_port(f"{text}:{port}")
    if split is None:
        raise ValueError(f"address {text}: too many colons in address")
    said = decimal(split[1].strip())
    return split[0].strip(), port if said in (0, -1) else said


def join_host_port(host: str, port: int) -> str:
    """Write an address; one of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
