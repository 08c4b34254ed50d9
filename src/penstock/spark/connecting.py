"""Connections to a server: their options, and one for each process that reads or publishes.

A connection is made where it is used, in the driver or in a task, and never travels: only its
options do. A worker process keeps its connection for the next task, because small tasks would
otherwise spend their time on connecting; one that failed is thrown away. Secrets are best given as
files: options are shown by Spark and stored with tables.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Annotated

import msgspec

from penstock.client.client import Client
from penstock.client.credentials import NOBODY, Credentials
from penstock.client.jetstream import JetStream
from penstock.client.opening import ClientTls
from penstock.errors import PenstockError, UsageError
from penstock.spark.options import Names

ALIASES = {
    "nats.servers": "servers",
    "nats.credential.file": "credsFile",
    "nats.stream.name": "stream",
    "nats.pull.subscription.stream.name": "stream",
    "nats.stream.subjects": "subject",
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
    connect_timeout_ms: Milliseconds = 10_000
    request_timeout_ms: Milliseconds = 30_000

    def __repr__(self) -> str:
        """Leave out what is secret."""
        return f"Connection({', '.join(self.servers)})"

    def credentials(self) -> Credentials:
        """Give with what to log in; raises UsageError."""
        ways = [
            bool(self.user),
            bool(self.token),
            bool(self.creds_file),
            bool(self.nkey_seed_file),
        ]
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
        return Credentials(user=self.user, password=self.password, token=self.token)

    def client_tls(self) -> ClientTls | None:
        """Give how to speak TLS; None for as the server wants it."""
        if not (self.tls or self.tls_ca or self.tls_cert):
            return None
        return ClientTls(self.tls_ca, self.tls_cert, self.tls_key)

    def connect(self) -> JetStream:
        """Connect to the first server that answers; raises what the last one said."""
        problem: Exception = UsageError("no server is given")
        for url in self.servers:
            try:
                client = Client.connect(
                    url,
                    credentials=self.credentials(),
                    tls=self.client_tls(),
                    name="penstock spark",
                    timeout_s=self.connect_timeout_ms / 1000,
                )
            except (PenstockError, OSError) as error:
                problem = error
            else:
                client.set_timeout(self.request_timeout_ms / 1000)
                return JetStream(client)
        raise problem


_kept: dict[Connection, tuple[int, JetStream]] = {}


@contextlib.contextmanager
def streams_of(connection: Connection) -> Iterator[JetStream]:
    """Give this process's connection to a server; one task at a time uses it."""
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
        _kept[connection] = (os.getpid(), streams)
