"""Messages of a consumer pulled into columns, with the next batch asked for ahead.

    pulling = Pulling(streams, "ORDERS", "reader", batch=1000, bytes_max=16 << 20)
    while not pulling.collect(builder, last_seq, 10_000, 8 << 20): …
    pulling.end()

For reading what a stream holds already: where the server has no more for us, that is the end.
Without acknowledgements. Blocking; one thread at a time, as the client that it uses.
"""

from __future__ import annotations

import json

from penstock.client.jetstream import JetStream
from penstock.client.wire import Message
from penstock.errors import RefusedByServer
from penstock.format.columns import ColumnBuilder

AHEAD = 2
"""Batches that are asked for at a time: one comes while the other is being looked at."""


class Pulling:
    """One consumer being read; see the module."""

    def __init__(
        self, streams: JetStream, stream: str, consumer: str, *, batch: int, bytes_max: int
    ) -> None:
        self._client = client = streams.client
        asked = f"{streams.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._subject = asked.encode("utf-8", "surrogateescape")
        self._batch = batch
        self._bytes_max = bytes_max
        self._inbox = client.new_inbox() + b".pull"
        self._sid = client.subscribe(self._inbox)
        # A request with a limit of bytes always ends with a status.
        self._outstanding = 0
        self._is_drained = False

    def collect(self, builder: ColumnBuilder, last_seq: int, rows_max: int, bytes_max: int) -> bool:
        """Add messages until the columns are full; True where `last_seq` or the end was reached.

        Raises RefusedByServer, TimeoutError, ConnectionError.
        """
        while True:
            self._ask()
            before = builder.count
            status, is_last = self._client.collect(
                builder, self._sid, last_seq, rows_max=rows_max, bytes_max=bytes_max
            )
            if status is None:
                return is_last
            self._note(status, came=builder.count - before)
            # A server may say that it has no more for the second request before the messages of
            # the first have come: only when no request is left, nothing can come.
            if self._is_drained and not self._outstanding:
                return True

    def _ask(self) -> None:
        while self._outstanding < AHEAD and not self._is_drained:
            wish = {"batch": self._batch, "no_wait": True, "max_bytes": self._bytes_max}
            self._client.publish(self._subject, json.dumps(wish).encode(), reply=self._inbox)
            self._outstanding += 1
        self._client.send()

    def _note(self, status: Message, *, came: int) -> None:
        self._outstanding -= 1
        text = status.headers[9:].partition(b"\r\n")[0]
        if text.startswith((b"404", b"408")):
            self._is_drained = True
        elif text.startswith(b"409 Message Size Exceeds"):
            # A message that is larger than all that we ask for would never come.
            if not came:
                self._bytes_max *= 2
        elif not text.startswith(b"409 Batch Completed"):
            raise RefusedByServer(text.decode(errors="replace"))

    def end(self) -> None:
        """Take no more."""
        self._client.unsubscribe(self._sid)
