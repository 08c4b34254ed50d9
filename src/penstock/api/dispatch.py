"""From a request on `$JS.API.>` to its answer.

A request with a known subject gets the handler's document, or an error of the same type. An
ApiError that a handler raises is answered; any other error is logged and answered as a server
error. Before a handler is called, the account has JetStream, and the server has the API level that
the client requires.

A handler that waits, mostly for a disk, is a coroutine, and then so is the answer. A handler whose
change is in force at once, and only has to be put on stable storage, says what to wait for
(`Call.answer_after`), and its client is answered after that.

Invariant: a request never raises into the router, and whether it failed is counted.

Thread: the event loop's.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Coroutine, Mapping
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from penstock import error_codes
from penstock.api.documents import beside_error
from penstock.errors import ApiError, PenstockError
from penstock.limits import API_REQUEST_BYTES_MAX
from penstock.protocol.headers import value_of
from penstock.routing.sublist import Sublist
from penstock.stream.account import AccountStreams
from penstock.stream.changes import Change
from penstock.stream.config.config import is_level_known
from penstock.stream.quota import ServerLimits
from penstock.text.json.codec import decode_request, to_json

API_PREFIX = "$JS.API."
TYPE_PREFIX = "io.nats.jetstream.api.v1."

_JSON_SPACE = b" \t\r\n"

D = TypeVar("D", bound=msgspec.Struct)


class JetStream(Protocol):
    """What handlers need of the server beside an account's streams."""

    version: str
    strict: bool
    domain: str

    @property
    def server_name(self) -> str:
        """The server's name: without a cluster, it leads every stream."""
        ...

    @property
    def limits(self) -> ServerLimits:
        """What the server has for streams, and what is reserved of it."""
        ...

    @property
    def payload_bytes_max(self) -> int:
        """The largest message that a client may publish."""
        ...

    @property
    def pending_bytes_max(self) -> int:
        """The most bytes that may wait for one client."""
        ...

    def now_ns(self) -> int:
        """Return the time of the wall clock."""
        ...

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        ...

    def unique_id(self) -> str:
        """Return an id that was never returned before."""
        ...

    def publish(
        self,
        sublist: Sublist,
        subject: bytes,
        headers: bytes,
        body: bytes,
        *,
        reply: bytes | None = None,
    ) -> int:
        """Publish to all subscribers; return how many received it."""
        ...

    def flush(self) -> None:
        """Send what was published after an answer."""
        ...

    def client_info(self, account: str) -> dict[str, Any]:
        """Return the identity of the requesting client, as shown to an account."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run something after the answer; the server cancels it when it stops."""
        ...


class Call(msgspec.Struct, frozen=True):
    """One request of an account that has JetStream."""

    service: JetStream
    account: AccountStreams
    subject: str
    names: tuple[str, ...]
    """The tokens of the subject at the endpoint's wildcards."""

    headers: bytes
    body: bytes
    reply: bytes | None
    answer_headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Headers that the handler adds to the answer."""

    changes: list[tuple[Change, ApiError | None]] = msgspec.field(default_factory=list)

    def answer_after(self, change: Change | None, refusal: ApiError | None = None) -> None:
        """Answer when a change is on stable storage, if it is not yet.

        If it cannot be put there the answer is the refusal, or the system's error.
        """
        if change is not None:
            self.changes.append((change, refusal))

    def read(self, made: type[D]) -> D:
        """Decode the body; raise ApiError."""
        return decode_request(made, self.body, strict=self.service.strict)

    def read_if_any(self, made: type[D]) -> D:
        """Decode the body if it looks like a document; anything else is an empty request."""
        start = self.body.lstrip(_JSON_SPACE)[:1]
        return self.read(made) if start in (b"{", b"[") else made()


Fields: TypeAlias = dict[str, Any] | None
"""The fields of an answer; None for no answer."""

Handler = Callable[[Call], Fields | Coroutine[Any, Any, Fields]]


class Endpoint(msgspec.Struct, frozen=True):
    """One kind of request."""

    subject: str
    """The subject below the prefix, with a `*` for each name; a final `>` is one with dots."""

    kind: str
    """The type of the answer, without the common prefix."""

    handle: Handler
    is_quiet: bool = False
    """Successful requests are not counted, and no advisory is published for them."""

    is_change: bool = False
    """Its answer may wait for the disk, though the handler does not."""

    @property
    def may_wait(self) -> bool:
        """Whether the answer may wait."""
        return self.is_change or iscoroutinefunction(self.handle)


def _unforeseen(error: OSError) -> Answer:
    raise error


class Answer(msgspec.Struct, frozen=True):
    """The outcome of a request."""

    body: bytes
    has_failed: bool
    is_told: bool
    """Whether it is counted and published as an advisory."""

    headers: bytes = b""
    change: Change | None = None
    """What has to be on stable storage before the answer is sent."""

    if_failed: Callable[[OSError], Answer] = _unforeseen
    """Returns the answer if it cannot be put there."""


class Table:
    """The endpoints by their subjects."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self._by_size: dict[int, list[tuple[list[str], Endpoint]]] = {}
        self._open: list[tuple[list[str], Endpoint]] = []
        for endpoint in endpoints:
            *front, last = tokens = endpoint.subject.split(".")
            if last == ">":
                self._open.append((front, endpoint))
            else:
                self._by_size.setdefault(len(tokens), []).append((tokens, endpoint))

    def find(self, subject: str) -> tuple[Endpoint, tuple[str, ...]] | None:
        """Return the endpoint of a subject below the prefix, and the names in it."""
        tokens = subject.split(".")
        for pattern, endpoint in self._by_size.get(len(tokens), ()):
            names = _names_in(pattern, tokens)
            if names is not None:
                return endpoint, names
        for pattern, endpoint in self._open:
            front, rest = tokens[: len(pattern)], tokens[len(pattern) :]
            names = _names_in(pattern, front) if rest else None
            if names is not None:
                return endpoint, (*names, ".".join(rest))
        return None


def _names_in(pattern: list[str], tokens: list[str]) -> tuple[str, ...] | None:
    pairs = list(zip(pattern, tokens, strict=True))
    if not all(wanted in ("*", token) for wanted, token in pairs):
        return None
    return tuple(token for wanted, token in pairs if wanted == "*")


def needs_newer(headers: bytes) -> bool:
    """Return True if a request requires an API level that this server does not have."""
    level = value_of(headers, b"Nats-Required-Api-Level")
    return level is not None and level != b"" and not is_level_known(level.decode("latin-1"))


def refusal(kind: str, error: ApiError) -> bytes:
    """Return the JSON of an answer that is an error."""
    document = {"type": TYPE_PREFIX + kind, "error": error.document()}
    return to_json(document | beside_error(kind))


def _check(call: Call) -> None:
    if needs_newer(call.headers):
        raise ApiError(error_codes.REQUIRED_API_LEVEL)
    if len(call.body) > API_REQUEST_BYTES_MAX:
        raise ApiError(error_codes.BAD_REQUEST)


def answer(endpoint: Endpoint, call: Call) -> Answer | Coroutine[Any, Any, Answer | None] | None:
    """Handle a request; return None if there is no answer."""
    try:
        _check(call)
        fields = endpoint.handle(call)
    except Exception as error:  # noqa: BLE001 - a fault of ours is answered too, and told
        return _refused(endpoint, call, error)
    if isinstance(fields, Coroutine):
        return _answer_later(endpoint, call, fields)
    return _answered(endpoint, call, fields)


async def _answer_later(
    endpoint: Endpoint, call: Call, work: Coroutine[Any, Any, Fields]
) -> Answer | None:
    try:
        fields = await work
    except Exception as error:  # noqa: BLE001 - as above
        return _refused(endpoint, call, error)
    return _answered(endpoint, call, fields)


def _refused(endpoint: Endpoint, call: Call, error: Exception) -> Answer:
    if not isinstance(error, ApiError):
        is_foreseen = isinstance(error, PenstockError | OSError)
        told = str(error) if is_foreseen else "".join(traceback.format_exception(error))
        call.service.log("ERR", f"JetStream API {call.subject}: {told}")
        error = ApiError(error_codes.STREAM_GENERAL_ERROR, err=str(error))
    return Answer(refusal(endpoint.kind, error), has_failed=True, is_told=True)


def _answered(endpoint: Endpoint, call: Call, fields: Fields) -> Answer | None:
    if fields is None:
        return None
    body = to_json({"type": TYPE_PREFIX + endpoint.kind} | fields)
    headers = _header_block(call.answer_headers)
    answered = Answer(body, has_failed=False, is_told=not endpoint.is_quiet, headers=headers)
    if not call.changes:
        return answered
    change, refusal = call.changes[-1]
    return replace(
        answered,
        change=change,
        if_failed=lambda error: _refused(endpoint, call, refusal or error),
    )


def _header_block(values: Mapping[str, str]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in values.items())
    return f"NATS/1.0\r\n{lines}\r\n".encode() if lines else b""
