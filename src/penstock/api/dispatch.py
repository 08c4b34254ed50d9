"""From a request on `$JS.API.>` to its answer.

Every request gets one: the handler's document, or an error with the same type. What a handler
raises as ApiError is the client's to know; anything else is logged and answered as a server error.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from penstock import error_codes
from penstock.documents.encoding import to_json
from penstock.errors import ApiError, PenstockError
from penstock.stream.account import AccountStreams
from penstock.stream.allowances import ServerLimits

API_PREFIX = "$JS.API."
TYPE_PREFIX = "io.nats.jetstream.api.v1."


class JetStream(Protocol):
    """What handlers ask of the server beyond an account's streams."""

    version: str
    strict: bool
    domain: str

    @property
    def limits(self) -> ServerLimits:
        """What the server has for streams, and what is reserved of it."""
        ...

    def now_ns(self) -> int:
        """The wall clock."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    service: JetStream
    account: AccountStreams
    subject: str
    names: tuple[str, ...]
    """What stands in the subject where the endpoint has wildcards."""

    headers: bytes
    body: bytes
    reply: bytes | None


Handler = Callable[[Call], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that can be asked for."""

    subject: str
    """Below the prefix, with a `*` for each name."""

    kind: str
    """Type of the answer, without what all types begin with."""

    handle: Handler


class Table:
    """The endpoints by their subjects."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self._by_size: dict[int, list[tuple[list[str], Endpoint]]] = {}
        for endpoint in endpoints:
            tokens = endpoint.subject.split(".")
            self._by_size.setdefault(len(tokens), []).append((tokens, endpoint))

    def find(self, subject: str) -> tuple[Endpoint, tuple[str, ...]] | None:
        """Give the endpoint of a subject below the prefix, and the names in it."""
        tokens = subject.split(".")
        for pattern, endpoint in self._by_size.get(len(tokens), ()):
            pairs = list(zip(pattern, tokens, strict=True))
            if all(wanted in ("*", token) for wanted, token in pairs):
                return endpoint, tuple(token for wanted, token in pairs if wanted == "*")
        return None


def answer(endpoint: Endpoint, call: Call) -> bytes:
    """Handle a request; give the JSON of its answer."""
    document: dict[str, Any] = {"type": TYPE_PREFIX + endpoint.kind}
    try:
        document |= endpoint.handle(call)
    except ApiError as error:
        document["error"] = error.document()
    except (PenstockError, OSError) as error:
        call.service.log("ERR", f"JetStream API {call.subject}: {error}")
        document["error"] = ApiError(error_codes.STREAM_GENERAL, err=str(error)).document()
    return to_json(document)
