"""How messages are printed: text for people, JSON lines, or payloads as they are.

Every line of text or JSON is one message. Writes to a binary stream, since a payload is bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from enum import StrEnum
from typing import BinaryIO

from penstock.cli.output import moment, printable, rfc3339
from penstock.format.columns import Message


class Format(StrEnum):
    """What one message becomes."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


def text_line(message: Message, *, headers: bool) -> bytes:
    """Give a message as a line for people: sequence, time, subject, payload."""
    parts = [
        f"{message.seq:>10}",
        moment(rfc3339(message.timestamp_ns) or ""),
        printable(message.subject),
    ]
    if headers and message.headers:
        parts.append(f"[{printable(message.headers.strip())}]")
    parts.append(printable(message.payload))
    return "  ".join(parts).encode() + b"\n"


def json_line(message: Message, *, headers: bool) -> bytes:
    """Give a message as a JSON object on a line."""
    document: dict[str, object] = {
        "seq": message.seq,
        "time": rfc3339(message.timestamp_ns),
        "subject": message.subject.decode("utf-8", "backslashreplace"),
    }
    return json_document(document, message.headers if headers else None, message.payload)


def json_document(
    document: dict[str, object], headers: bytes | None, payload: bytes | None
) -> bytes:
    """Give fields with headers and a payload, where these are wanted, as a JSON object on a line.

    A payload that is UTF-8 stands under `payload`, any other in base64 under `payload_base64`.
    """
    if headers is not None:
        document["headers"] = parse_headers(headers)
    if payload is not None:
        try:
            document["payload"] = payload.decode()
        except UnicodeDecodeError:
            document["payload_base64"] = base64.b64encode(payload).decode()
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def raw_line(message: Message, *, headers: bool) -> bytes:
    """Give the payload as it is and a line end, after the header block where that is wanted."""
    return (message.headers if headers else b"") + message.payload + b"\n"


LINES: dict[Format, Callable[..., bytes]] = {
    Format.TEXT: text_line,
    Format.JSON: json_line,
    Format.RAW: raw_line,
}


def parse_headers(block: bytes) -> dict[str, list[str]]:
    """Give a header block's values by name; the status line and what is no header are left out."""
    headers: dict[str, list[str]] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            key = name.decode("utf-8", "backslashreplace")
            headers.setdefault(key, []).append(value.strip().decode("utf-8", "backslashreplace"))
    return headers


def write_message(target: BinaryIO, message: Message, how: Format, *, headers: bool) -> None:
    """Write one message."""
    target.write(LINES[how](message, headers=headers))
