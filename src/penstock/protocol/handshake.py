"""The documents of the handshake: INFO, which the server sends, and CONNECT, the client's.

CONNECT is read as the reference server reads it: keys in any case, unknown ones ignored, absent
ones keep what they had (at first `verbose`, `pedantic` and `echo` are true), a wrong type refuses
the document. What is not UTF-8 becomes replacement characters.

Pure; any thread.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from penstock.errors import FormatError


class ConnectOptions(msgspec.Struct):
    """What a client asks for."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = ""
    auth_token: str = ""
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    account: str = ""
    new_account: bool = False
    remote_account: str = ""
    proxy_sig: str = ""

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"ConnectOptions(name={self.name!r}, lang={self.lang!r}, user={self.user!r})"


_TYPES: dict[str, type] = {"bool": bool, "int": int, "str": str}
# What each key sets, and of which type it is.
_KEYS = {
    "pass" if name == "password" else name: (name, _TYPES[kind])
    for name, kind in ConnectOptions.__annotations__.items()
}

# Only servers have something to say under these keys, but wrong is wrong.
_OBJECTS = frozenset(("import", "export"))
_INT_MAX = 2**63 - 1


def parse_connect(text: bytes, before: ConnectOptions | None = None) -> ConnectOptions:
    """Read CONNECT's document; what it leaves out is as it was `before`. Raises FormatError."""
    options = ConnectOptions() if before is None else replace(before)
    for key, value in parse_object(text, "CONNECT").items():
        if key.lower() in _OBJECTS and not isinstance(value, dict | None):
            raise FormatError(f"CONNECT: {key} must be an object")
        known = _KEYS.get(key.lower())
        if known is None or value is None:
            continue
        name, wanted = known
        if type(value) is not wanted or not _fits(value):
            raise FormatError(f"CONNECT: {key} must be a {wanted.__name__}")
        setattr(options, name, _without_surrogates(value))
    return options


def parse_object(text: bytes, operation: str) -> dict[str, Any]:
    """Read the JSON object of an operation; null is an empty one. Raises FormatError."""
    try:
        document = json.loads(text.decode("utf-8", "replace"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{operation} is not JSON: {error}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise FormatError(f"{operation} is not a JSON object")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -_INT_MAX - 1 <= value <= _INT_MAX


def _without_surrogates(value: object) -> object:
    # JSON can name half a character; nothing that is written later could hold it.
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def encode_info(fields_in_order: dict[str, object]) -> bytes:
    """Give the INFO line; fields that are None are left out."""
    document = {key: value for key, value in fields_in_order.items() if value is not None}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return b"INFO " + text.encode() + b" \r\n"
