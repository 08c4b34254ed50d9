"""Text between double quotes, as Go's %q and the reference server's errors show it.

`quoted` is for text of configuration files, `quoted_bytes` for bytes that a client sent: what
cannot be printed is escaped, so that nothing a client sends can end a line or a quotation.

Pure; any thread.
"""

from __future__ import annotations

import json

_ESCAPED = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quoted(text: str) -> str:
    """Quote a text of a configuration as Go's %q does."""
    return json.dumps(text, ensure_ascii=False)


def quoted_bytes(text: bytes) -> str:
    """Quote a text; bytes that are not UTF-8 are shown as `\\xff`."""
    return '"' + "".join(map(_shown, text.decode("utf-8", "surrogateescape"))) + '"'


def _shown(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
