"""Connections to a server: their options, and one connection for each process.

A connection is made where it is used, in the driver or in a task. Only its options are pickled. A
worker process keeps its connection for the next task, because small tasks would otherwise spend
their time on connecting; a connection that failed is closed. Secrets are best given as files:
options are shown by Spark and stored with tables.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, TypeVar

import msgspec

from penstock.client.client import Client
from penstock.client.connect import ClientTls
from penstock.client.credentials import NOBODY, Credentials
from penstock.client.jetstream import API_PREFIX, JetStream
from penstock.errors import CannotConnect, NoAnswer, PenstockError, UsageError
from penstock.format.files import LocalFile
from penstock.limits import CREDENTIALS_FILE_BYTES_MAX, SPARK_RETRY_S_MAX
from penstock.spark.options import Names
from penstock.subjects import is_literal, is_valid_subject

BROKEN = (ConnectionError, TimeoutError, NoAnswer)
"""The errors that mean that a connection, or the server at its end, is gone."""


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
"""Names of the official NATS connector for our options."""

Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]


class Connection(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which servers, and with which credentials."""

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
        """Return the servers alone: no secret is shown."""
        return f"Connection({', '.join(self.servers)})"

    def credentials(self) -> Credentials:
        """Return the credentials; raise UsageError if several kinds are given or a file cannot be
        read."""
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
        """Return a secret from an option, a file or the environment; raise UsageError for
        several."""
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
        """Return the prefix of JetStream API subjects; raise UsageError if it cannot be one."""
        if self.js_domain and self.js_api_prefix:
            raise UsageError("give one of jsDomain and jsApiPrefix, not both")
        prefix = f"$JS.{self.js_domain}.API" if self.js_domain else self.js_api_prefix
        prefix = prefix.rstrip(".") or API_PREFIX
        if not is_valid_subject(prefix.encode()) or not is_literal(prefix.encode()):
            raise UsageError(f"JetStream cannot be called below {prefix!r}")
        return prefix

    def client_tls(self) -> ClientTls | None:
        """Return the TLS settings; None to use TLS only if the server requires it."""
        if not (self.tls or self.tls_ca or self.tls_cert):
            return None
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key)

    def connect(self) -> JetStream:
        """Connect to the first server that answers, trying again up to `retries` times.

        Raise the error of the last server. A server that refuses the client is not tried again.
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
    """Wait before another try, longer each turn: a server may be starting."""
    threading.Event().wait(min(0.1 * 2 ** min(turn, 8), SPARK_RETRY_S_MAX))


Result = TypeVar("Result")


def ask(connection: Connection, action: Callable[[JetStream], Result]) -> Result:
    """Call `action`, again over a new connection if the old one broke.

    The action may therefore run several times, and must allow that.
    """
    for turn in range(connection.retries):
        try:
            with streams_of(connection) as streams:
                return action(streams)
        except CannotConnect:
            # Connecting has its own retries.
            raise
        except BROKEN:
            wait_before(turn)
    with streams_of(connection) as streams:
        return action(streams)


_kept: dict[Connection, tuple[int, JetStream]] = {}


@contextlib.contextmanager
def streams_of(connection: Connection) -> Iterator[JetStream]:
    """Return this process's connection to a server, or a second one if it is in use."""
    # A forked worker must not share its parent's socket, so the process id is checked too.
    pid, streams = _kept.pop(connection, (0, None))
    if streams is None or pid != os.getpid():
        streams = connection.connect()
    try:
        yield streams
    except BaseException:
        streams.client.close()
        raise
    else:
        # A task that calls the API while it reads has two connections: one of them is
        # kept.
        _, known = _kept.setdefault(connection, (os.getpid(), streams))
        if known is not streams:
            streams.client.close()
