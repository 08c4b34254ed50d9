"""What people type: options that several commands share, times, and keys.

Only reads arguments, the environment and key files.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import UsageError
from penstock.format.envelope import StoreKey

KEY_VARIABLE = "PENSTOCK_KEY"

StreamFolder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A stream's directory.",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"The key of an encrypted store; or set {KEY_VARIABLE} to the key itself.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
StreamName = Annotated[
    str | None,
    typer.Option(
        "--stream",
        metavar="NAME",
        help="The stream's name, which its keys are bound to (default: the directory's name).",
        show_default=False,
    ),
]

_AGO = re.compile(r"(?P<amount>[0-9]+)(?P<unit>ms|s|m|h|d)\Z")
_UNIT_NS = {
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_FRACTION = re.compile(r"[.,](?P<digits>[0-9]+)")


def load_secret(key_file: Path | None) -> bytes | None:
    """Return the secret of the file or the environment, None without either.

    A line end after the secret, as editors leave it, is not part of it.
    """
    if key_file is None:
        secret = os.environb.get(KEY_VARIABLE.encode(), b"")
    else:
        secret = key_file.read_bytes().rstrip(b"\r\n")
        if not secret:
            raise UsageError(f"{key_file}: the key file is empty")
    return secret or None


def load_key(key_file: Path | None) -> StoreKey | None:
    """Return the key of a Penstock store, None if no key was given."""
    secret = load_secret(key_file)
    return None if secret is None else StoreKey(secret)


def parse_time(text: str, now_ns: int) -> int:
    """Return the nanoseconds of a time: RFC 3339 (UTC without a zone), or 15m, 2h or 3d ago."""
    if ago := _AGO.match(text):
        return now_ns - int(ago["amount"]) * _UNIT_NS[ago["unit"]]
    fraction = _FRACTION.search(text)
    digits = fraction["digits"][:9].ljust(9, "0") if fraction else "0"
    try:
        moment = datetime.fromisoformat(_FRACTION.sub("", text, count=1))
    except ValueError:
        raise UsageError(
            f"not a time: {text!r} (like 2026-07-20T12:30:00Z, 2026-07-20 or 2h)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp()) * 1_000_000_000 + int(digits)
