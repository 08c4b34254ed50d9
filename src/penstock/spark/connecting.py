"""Connections to a server: their options, and one for each process that reads or publishes.

A connection is made where it is used, in the driver or in a task, and never travels: only its
options do. A worker process keeps its connection for the next task, because small tasks would
otherwise spend their time on connecting; one that failed is thrown away. Secrets are best given as
files: options are shown by Spark and stored with tables.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

import msgspec

from penstock.client.client import Client
from penstock.client.credentials import NOBODY, Credentials
from penstock.client.jetstream import API_PREFIX, JetStream
from penstock.client.opening import ClientTls
from penstock.errors import CannotConnect, NoAnswer, PenstockError, UsageError
from penstock.format.files import LocalFile
from penstock.limits import CREDENTIALS_FILE_BYTES_MAX
from penstock.spark.options import Names
from penstock.subjects import is_literal, is_valid_subject

BROKEN = (ConnectionError, TimeoutError, NoAnswer)
"""What says that a connection, or the server at its end, is not there any more."""

RETRY_S_MAX = 5.0
"""The longest wait before something is tried again: within it a server starts."""

ALIASES = {
    "nats.servers": "servers",
    "nats.credential.file": "credsFile",
    "nats.stream.name": "stream",
    "nats.pull.subscription.stream.name": "stream",
    "nats.stream.subjects": "subject",
    "nats.js.api.prefix": "jsApiPrefix",
    "nats.pull.subscription.durable.name": "ackConsumer",
    "nats.pull.batch.size": "fetchBatch",
    "nats.storage.payload-compression": "payloadCompression",
}
"""What the official NATS connector calls them."""

Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]


class Connection(msgspec.Struct, frozen=True, rename="camel"):
    """Which server, as whom."""

    servers: Names = Names(("nats://127.0.0.1:4222",))
    user: str = ""
    password: str = ""
    token: str = ""
    creds_file: str = ""
    nkey_seed_file: str = ""
    tls: bool = False
    tls_ca: str = msgspec.field(name="tls.ca", default="")
    tls_cert: str = msgspec.field(name="tls.cert", default="")
    tls_key: str = msgspec.field(name="tls.key", default="")
    password_file: str = ""
    password_env: str = ""
    token_file: str = ""
    token_env: str = ""
    js_domain: str = ""
    js_api_prefix: str = ""
    connect_timeout_ms: Milliseconds = 10_000
    request_timeout_ms: Milliseconds = 30_000
    retries: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"Connection({', '.join(self.servers)})"

    def credentials(self) -> Credentials:
        """Give with what to log in; raises UsageError."""
        token = self._secret("token", self.token, self.token_file, self.token_env)
        password = self._secret("password", self.password, self.password_file, self.password_env)
        ways = [bool(self.user), bool(token), bool(self.creds_file), bool(self.nkey_seed_file)]
        if sum(ways) > 1:
            raise UsageError("give one of user, token, credsFile and nkeySeedFile, not several")
        try:
            if self.creds_file:
                return Credentials.from_creds_file(self.creds_file)
            if self.nkey_seed_file:
                return Credentials.from_seed_file(self.nkey_seed_file)
        except OSError as error:
            raise UsageError(f"cannot read the credentials: {error}") from None
        if not any(ways):
            return NOBODY
        return Credentials(user=self.user, password=password, token=token)

    def _secret(self, name: str, text: str, path: str, variable: str) -> str:
        """Give a secret that is written out, in a file, or in the environment of the process."""
        if sum(map(bool, (text, path, variable))) > 1:
            raise UsageError(f"give one of {name}, {name}File and {name}Env, not several")
        if variable:
            if variable not in os.environ:
                raise UsageError(f"option {name}Env: no variable {variable!r} in the environment")
            return os.environ[variable]
        if not path:
            return text
        try:
            return _read_secret(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"option {name}File: {path}: {type(error).__name__}") from None

    def api_prefix(self) -> str:
        """Give what the subjects of JetStream calls begin with; raises UsageError."""
        if self.js_domain and self.js_api_prefix:
            raise UsageError("give one of jsDomain and jsApiPrefix, not both")
        prefix = f"$JS.{self.js_domain}.API" if self.js_domain else self.js_api_prefix
        prefix = prefix.rstrip(".") or API_PREFIX
        if not is_valid_subject(prefix.encode()) or not is_literal(prefix.encode()):
            raise UsageError(f"JetStream cannot be called below {prefix!r}")
        return prefix

    def client_tls(self) -> ClientTls | None:
        """Give how to speak TLS; None for as the server wants it."""
        if not (self.tls or self.tls_ca or self.tls_cert):
            return None
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key)

    def connect(self) -> JetStream:
        """Connect to the first server that answers, trying again as often as `retries` says.

        Raises what the last one said; a server that refuses us is not asked again.
        """
        for turn in range(self.retries):
            try:
                return self._connect()
            except (CannotConnect, ConnectionError, TimeoutError):
                wait_before(turn + 1)
        return self._connect()

    def _connect(self) -> JetStream:
        problem: Exception = UsageError("no server is given")
        prefix, credentials = self.api_prefix(), self.credentials()
        for url in self.servers:
            try:
                client = Client.connect(
                    url,
                    credentials=credentials,
                    tls=self.client_tls(),
                    name="penstock spark",
                    timeout_s=self.connect_timeout_ms / 1000,
                )
            except (PenstockError, OSError) as error:
                problem = error
            else:
                client.set_timeout(self.request_timeout_ms / 1000)
                return JetStream(client, prefix)
        raise problem


def _read_secret(path: str) -> bytes:
    file = LocalFile(path)
    try:
        return file.read_at(0, CREDENTIALS_FILE_BYTES_MAX).strip()
    finally:
        file.close()


def wait_before(turn: int) -> None:
    """Wait before something is tried again, longer each time: a server may be starting."""
    threading.Event().wait(min(0.1 * 2 ** min(turn, 8), RETRY_S_MAX))


Result = TypeVar("Result")


def ask(connection: Connection, action: Callable[[JetStream], Result]) -> Result:
    """Do something that may be done twice, again over a new connection where the old one broke."""
    for turn in range(connection.retries):
        try:
            with streams_of(connection) as streams:
                return action(streams)
        except CannotConnect:
            # That was tried often enough.
            raise
        except BROKEN:
            wait_before(turn)
    with streams_of(connection) as streams:
        return action(streams)


_kept: dict[Connection, tuple[int, JetStream]] = {}


@contextlib.contextmanager
def streams_of(connection: Connection) -> Iterator[JetStream]:
    """Give this process's connection to a server, or a second one where it is in use."""
    # A worker that was forked must not share its parent's socket: the process is looked at too.
    pid, streams = _kept.pop(connection, (0, None))
    if streams is None or pid != os.getpid():
        streams = connection.connect()
    try:
        yield streams
    except BaseException:
        streams.client.close()
        raise
    else:
        # Who asks while it reads has two: one of them is enough to keep.
        _, known = _kept.setdefault(connection, (os.getpid(), streams))
        if known is not streams:
            streams.client.close()
