"""The documents of the handshake: INFO, which the server sends, and CONNECT, which the client sends.

CONNECT is read as the reference server reads it: keys in any case, unknown ones ignored, absent ones
with their defaults (`verbose`, `pedantic` and `echo` are true), a wrong type refuses the document.

Pure; any thread.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from penstock.errors import FormatError


@dataclass(slots=True)
class ConnectOptions:
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

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"ConnectOptions(name={self.name!r}, lang={self.lang!r}, user={self.user!r})"


_KEYS = {each.name: each for each in fields(ConnectOptions)} | {
    "pass": next(each for each in fields(ConnectOptions) if each.name == "password")
}
del _KEYS["password"]
_TYPES: dict[str, type] = {"bool": bool, "int": int, "str": str}


def parse_connect(text: bytes) -> ConnectOptions:
    """Read CONNECT's document; raises FormatError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"CONNECT is not JSON: {error}") from None
    if document is None:
        return ConnectOptions()
    if not isinstance(document, dict):
        raise FormatError("CONNECT is not a JSON object")
    options = ConnectOptions()
    for key, value in document.items():
        field = _KEYS.get(key.lower())
        if field is None or value is None:
            continue
        wanted = _TYPES[str(field.type)]
        if type(value) is not wanted:
            raise FormatError(f"CONNECT: {key} must be a {wanted.__name__}")
        setattr(options, field.name, value)
    return options


def encode_info(fields_in_order: dict[str, object]) -> bytes:
    """Give the INFO line; fields that are None are left out."""
    document = {key: value for key, value in fields_in_order.items() if value is not None}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    for character, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, escaped)
    return b"INFO " + text.encode() + b" \r\n"
