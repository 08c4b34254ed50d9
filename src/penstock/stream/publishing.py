"""What becomes of a published message that wants a closer look: headers, limits that refuse.

Called by the stream, on the event loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import error_codes
from penstock.documents.encoding import to_json
from penstock.errors import ApiError, LimitReached, StoreError
from penstock.stream.config import DiscardPolicy

if TYPE_CHECKING:
    from penstock.stream.stream import Stream


class Publishing:
    """The careful way into one stream; see the module."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.is_careful = False
        self.configure()

    def configure(self) -> None:
        """Take over the stream's configuration."""
        config = self._stream.config
        self.is_careful = config.sealed or config.discard is DiscardPolicy.NEW

    def take(self, subject: bytes, reply: bytes | None, headers: bytes, body: bytes) -> None:
        """Store a message or refuse it, and answer its publisher."""
        stream = self._stream
        try:
            seq, _ = stream.store.store(subject, headers, body)
        except LimitReached as error:
            self.refuse(reply, ApiError(error_codes.STREAM_STORE_FAILED, err=str(error)))
            return
        except StoreError as error:
            stream.host.log("ERR", f"JetStream stream {stream.name!r}: {error}")
            self.refuse(reply, ApiError(error_codes.INSUFFICIENT_RESOURCES))
            return
        if reply is not None and not stream.config.no_ack:
            stream.ingest.hold(seq, reply, stream.ingest.plain_ack(seq))
        stream.on_stored()

    def refuse(self, reply: bytes | None, error: ApiError) -> None:
        """Tell a publisher why its message was not stored."""
        stream = self._stream
        if reply is None or stream.config.no_ack:
            return
        answer = {"error": error.document(), "stream": stream.name, "seq": 0}
        stream.host.hub.publish(stream.sublist, reply, None, b"", to_json(answer))
