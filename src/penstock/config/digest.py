"""The digest of a configuration, as `-t` prints it: `sha256:` and 64 hexadecimal digits.

It is taken of the values, not of the file: comments, order and spelling do not change it. The
values are written as Go's encoding/json writes them, byte for byte, so that the digest of a file is
the one that the reference server prints and serves.

Pure. Called by load and by tests, which prove with it that both servers read the same values.
"""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime

from penstock.config.parser import ConfigMap, Value

_ESCAPED = re.compile("[<>&\u2028\u2029\udc80-\udcff]")


def config_digest(values: ConfigMap) -> str:
    """Give the digest of a parsed configuration."""
    text = _map_text(values) + "\n"
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _map_text(values: ConfigMap) -> str:
    # Go sorts keys by their bytes, which is by code point except for undecodable bytes.
    keys = sorted(values, key=lambda key: key.encode("utf-8", "surrogateescape"))
    return "{" + ",".join(f"{_string(key)}:{_text(values[key])}" for key in keys) + "}"


def _text(value: Value) -> str:
    inner = value.value
    match inner:
        case bool():
            return "true" if inner else "false"
        case int():
            return str(inner)
        case float():
            return _float(inner)
        case str():
            return _string(inner)
        case datetime():
            return f'"{inner:%Y-%m-%dT%H:%M:%SZ}"'
        case list():
            return "[" + ",".join(map(_text, inner)) + "]"
        case dict():
            return _map_text(inner)


def _string(text: str) -> str:
    return _ESCAPED.sub(_escape, json.dumps(text, ensure_ascii=False))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    # A byte that was no UTF-8: Go writes the replacement character.
    return "\\ufffd" if code >= 0xDC80 else f"\\u{code:04x}"


def _float(number: float) -> str:
    """Write the shortest text that reads back the same, with an exponent where Go has one."""
    if number == 0:
        return "-0" if str(number).startswith("-") else "0"
    if 1e-6 <= abs(number) < 1e21:
        text = format(number, "f") if number.is_integer() else _plain(number)
        return text.removesuffix(".000000")
    mantissa, _, exponent = repr(number).partition("e")
    return f"{mantissa.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0')}"


def _plain(number: float) -> str:
    text = repr(number)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.replace("-", "").replace(".", "")
    sign = "-" if number < 0 else ""
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{digits}"
