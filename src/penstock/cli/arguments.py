"""What people type: options that several commands share, times, keys, and how to reach a server.

    @with_server
    def pub(connection: ConnectionOptions, subject: …) -> None:
        with connection.connect() as client: …

Options of connections, their variables and their meaning are those of the `nats` tool: NATS_URL,
NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_NKEY, NATS_CREDS, NATS_CA, NATS_CERT, NATS_KEY,
NATS_TIMEOUT. A failure to connect names the address and what to do about it, never a secret.

Only reads arguments, the environment and key files, and connects.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from penstock.client.client import DEFAULT_URL, Client
from penstock.client.connect import ClientTls
from penstock.client.credentials import Credentials, parse_url
from penstock.errors import AuthorizationError, CannotConnect, UsageError
from penstock.format.envelope import StoreKey
from penstock.text.times import parse_duration

# Arguments

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


# Connections

_ADVICE = {
    "none": "give --user and --password, --token, --nkey or --creds",
    "user": "are --user and --password right?",
    "token": "is --token right?",
    "nkey": "does the server know the public key of --nkey?",
    "creds file": "does the server trust the account of --creds, and has it not expired?",
}


def duration_s(text: str) -> float:
    """Return the seconds of a duration as Go writes it (500ms, 5s, 1m30s); raise UsageError."""
    try:
        seconds = parse_duration(text) / 1e9
    except ValueError:
        raise UsageError(f"not a duration: {text!r} (like 500ms, 5s or 1m)") from None
    if seconds <= 0:
        raise UsageError(f"a duration must be above 0: {text!r}")
    return seconds


def _option(*names: str, variable: str, metavar: str, help: str) -> Any:
    return typer.Option(*names, envvar=variable, metavar=metavar, help=help, show_default=False)


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionOptions:
    """The options for reaching a server."""

    server: Annotated[
        str,
        typer.Option("--server", "-s", envvar="NATS_URL", metavar="URL", help="Where to connect."),
    ] = DEFAULT_URL
    user: Annotated[
        str, _option("--user", variable="NATS_USER", metavar="NAME", help="User, or a token.")
    ] = ""
    password: Annotated[
        str, _option("--password", variable="NATS_PASSWORD", metavar="TEXT", help="Its password.")
    ] = ""
    token: Annotated[
        str, _option("--token", variable="NATS_TOKEN", metavar="TEXT", help="A token.")
    ] = ""
    nkey: Annotated[
        str, _option("--nkey", variable="NATS_NKEY", metavar="FILE", help="A user's nkey seed.")
    ] = ""
    creds: Annotated[
        str, _option("--creds", variable="NATS_CREDS", metavar="FILE", help="A .creds file.")
    ] = ""
    tls_ca: Annotated[
        str,
        _option("--tls-ca", "--tlsca", variable="NATS_CA", metavar="FILE", help="Whom to trust."),
    ] = ""
    tls_cert: Annotated[
        str,
        _option("--tls-cert", "--tlscert", variable="NATS_CERT", metavar="FILE", help="Our own."),
    ] = ""
    tls_key: Annotated[
        str,
        _option("--tls-key", "--tlskey", variable="NATS_KEY", metavar="FILE", help="Its key."),
    ] = ""
    tls_first: Annotated[
        bool, typer.Option("--tls-first", "--tlsfirst", help="Speak TLS before INFO.")
    ] = False
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", envvar="NATS_TIMEOUT", metavar="DURATION", help="How long to wait."
        ),
    ] = "5s"

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer; raise UsageError if it is no duration."""
        return duration_s(self.timeout)

    def credentials(self) -> Credentials:
        """Return the credentials of the options; raise UsageError or OSError."""
        if self.creds:
            return Credentials.from_creds_file(self.creds)
        if self.nkey:
            return Credentials.from_seed_file(self.nkey)
        if self.token or (self.user and not self.password):
            return Credentials(token=self.token or self.user)
        return Credentials(user=self.user, password=self.password)

    def tls(self) -> ClientTls | None:
        """Return the TLS settings, None if the server and the URL decide."""
        if not (self.tls_ca or self.tls_cert or self.tls_key or self.tls_first):
            return None
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key, self.tls_first)

    def connect(self) -> Client:
        """Connect to the first server of the list that answers; an error says what to do."""
        *others, last = [url.strip() for url in self.server.split(",")]
        for url in others:
            try:
                return self._connect(url)
            except (CannotConnect, TimeoutError):
                continue
        return self._connect(last)

    def _connect(self, url: str) -> Client:
        known = self.credentials()
        address = parse_url(url)
        try:
            return Client.connect(
                url,
                credentials=known,
                tls=self.tls(),
                timeout_s=self.timeout_s,
                name="penstock cli",
            )
        except AuthorizationError as error:
            advice = _ADVICE[(known or address.credentials).kind]
            raise AuthorizationError(f"{address} refused us: {error.reason}; {advice}") from None
        except CannotConnect as error:
            advice = _advice(error.reason)
            raise CannotConnect(error.host, error.port, f"{error.reason}{advice}") from None


def _advice(reason: str) -> str:
    if "not trusted" in reason:
        return "; --tls-ca names the file of the authority that signed it"
    if "certificate required" in reason:
        return "; it wants to see ours: --tls-cert and --tls-key"
    if reason == "connection refused":
        return "; `penstock server` starts a server, -s names another one"
    return "; -s names another server"


def with_options(*kinds: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the fields of these dataclasses to a command's options.

    Its first arguments are one object of each.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = list(inspect.signature(command).parameters.values())[len(kinds) :]
        shared = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default)
            for kind in kinds
            for each in fields(kind)
        ]

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            made = [
                kind(**{each.name: arguments.pop(each.name) for each in fields(kind)})
                for kind in kinds
            ]
            command(*made, **arguments)

        hints = {each.name: hints[each.name] for each in own}
        for kind in kinds:
            hints |= get_type_hints(kind, include_extras=True)
        named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
        run.__annotations__ = hints
        run.__dict__["__signature__"] = inspect.Signature(
            [each.replace(annotation=hints[each.name]) for each in named]
        )
        return run

    return give


with_server = with_options(ConnectionOptions)
"""Adds the options for reaching a server to a command, whose first argument they become."""
