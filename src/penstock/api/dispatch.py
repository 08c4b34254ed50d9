"""From a request on `$JS.API.>` to its answer.

A request with a known subject gets the handler's document, or an error of the same type. An
ApiError that a handler raises is answered; any other error is logged and answered as a server
error. Before a handler is called, the account has JetStream, and the server has the API level that
the client requires.

A handler returns the documents whose fields are the answer's. One that waits, mostly for a disk, is
a coroutine; one with much to compute is a generator that yields wherever others may have their
turn. Then so is the answer. A handler whose change is in force at once, and only has to be put on
stable storage, says what to wait for (`Call.answer_after`), and its client is answered after that.

Invariant: a request never raises into the router, and whether it failed is counted.

Thread: the event loop's.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import lru_cache
from inspect import iscoroutinefunction
from types import CoroutineType, GeneratorType
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from penstock import error_codes
from penstock.api.documents import Refused, beside_error
from penstock.errors import ApiError, PenstockError
from penstock.limits import API_REQUEST_BYTES_MAX, API_SUBJECTS_KEPT
from penstock.protocol.headers import value_of
from penstock.routing.sublist import Sublist
from penstock.stream.account import AccountStreams
from penstock.stream.changes import Change
from penstock.stream.config.config import is_level_known
from penstock.stream.quota import ServerLimits
from penstock.text.json.codec import decode_request, encode_after
from penstock.text.json.write import Encoded

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

    def client_info(self, account: str, client: Any) -> dict[str, Any]:
        """Return the identity of a client, as shown to an account; {} for None."""
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
    client: Any = None
    """The connection that asked; None for the server itself."""

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


Document: TypeAlias = msgspec.Struct | Encoded
Documents: TypeAlias = Document | tuple[Document, ...] | None
"""The documents whose fields an answer has, in their order; None for no answer."""

Slices: TypeAlias = Generator[None, None, Documents]
"""Work that yields wherever others may have their turn, and returns the documents."""

Handler = Callable[[Call], Documents | Slices | Coroutine[Any, Any, Documents]]


def start_of(kind: str) -> bytes:
    """Return what an answer of a type begins with."""
    return f'{{"type":"{TYPE_PREFIX}{kind}"'.encode()


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

    may_wait: bool = False
    """Whether the answer may wait; found out."""

    start: bytes = b""
    """The beginning of every answer: its type; made of the kind."""

    def __post_init__(self) -> None:
        may_wait = self.is_change or iscoroutinefunction(self.handle)
        force_setattr(self, "may_wait", may_wait)
        force_setattr(self, "start", start_of(self.kind))


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


AnswerLater: TypeAlias = Coroutine[Any, Any, Answer | None]
AnswerInSlices: TypeAlias = Generator[None, None, Answer | None]
Outcome: TypeAlias = Answer | AnswerLater | AnswerInSlices | None


class Table:
    """The endpoints by their subjects."""

    def __init__(self, endpoints: list[Endpoint]) -> None:
        self._found: dict[tuple[int, str], Endpoint] = {}
        """By the number of tokens and the tokens before the first wildcard."""

        self._open: dict[tuple[int, str], Endpoint] = {}
        """Those that end in `>`, by the number of tokens before it."""

        sizes: dict[int, set[int]] = {}
        for endpoint in endpoints:
            tokens = endpoint.subject.split(".")
            words = [token for token in tokens if token not in ("*", ">")]
            is_open = tokens[-1] == ">"
            place = (len(tokens) - is_open, ".".join(words))
            (self._open if is_open else self._found)[place] = endpoint
            sizes.setdefault(place[0], set()).add(len(words))
        # The most words first: a name may be a word of another endpoint.
        self._sizes = {size: sorted(words, reverse=True) for size, words in sizes.items()}
        self.find = lru_cache(API_SUBJECTS_KEPT)(self._find)

    def _find(self, subject: str) -> tuple[Endpoint, tuple[str, ...]] | None:
        """Return the endpoint of a subject below the prefix, and the names in it."""
        tokens = subject.split(".")
        count = len(tokens)
        for words in self._sizes.get(count, ()):
            endpoint = self._found.get((count, ".".join(tokens[:words])))
            if endpoint is not None:
                return endpoint, tuple(tokens[words:])
        for (size, start), endpoint in self._open.items():
            words = start.count(".") + 1
            if count > size and ".".join(tokens[:words]) == start:
                return endpoint, (*tokens[words:size], ".".join(tokens[size:]))
        return None


def needs_newer(headers: bytes) -> bool:
    """Return True if a request requires an API level that this server does not have."""
    level = value_of(headers, b"Nats-Required-Api-Level")
    return level is not None and level != b"" and not is_level_known(level.decode("latin-1"))


def refusal(kind: str, error: ApiError) -> bytes:
    """Return the JSON of an answer that is an error."""
    return encode_after(start_of(kind), Refused.of(error), *beside_error(kind))


def _check(call: Call) -> None:
    if call.headers and needs_newer(call.headers):
        raise ApiError(error_codes.REQUIRED_API_LEVEL)
    if len(call.body) > API_REQUEST_BYTES_MAX:
        raise ApiError(error_codes.BAD_REQUEST)


def answer(endpoint: Endpoint, call: Call) -> Outcome:
    """Handle a request; return None if there is no answer."""
    try:
        _check(call)
        documents = endpoint.handle(call)
        if isinstance(documents, CoroutineType):
            return _answer_later(endpoint, call, documents)
        if isinstance(documents, GeneratorType):
            return _answer_in_slices(endpoint, call, documents)
        return _answered(endpoint, call, documents)
    except Exception as error:  # noqa: BLE001 - a fault of ours is answered too, and told
        return _refused(endpoint, call, error)


async def _answer_later(
    endpoint: Endpoint, call: Call, work: Coroutine[Any, Any, Documents]
) -> Answer | None:
    try:
        return _answered(endpoint, call, await work)
    except Exception as error:  # noqa: BLE001 - as above
        return _refused(endpoint, call, error)


def _answer_in_slices(endpoint: Endpoint, call: Call, work: Slices) -> AnswerInSlices:
    try:
        return _answered(endpoint, call, (yield from work))
    except Exception as error:  # noqa: BLE001 - as above
        return _refused(endpoint, call, error)


def _refused(endpoint: Endpoint, call: Call, error: Exception) -> Answer:
    if not isinstance(error, ApiError):
        is_foreseen = isinstance(error, PenstockError | OSError)
        told = str(error) if is_foreseen else "".join(traceback.format_exception(error))
        call.service.log("ERR", f"JetStream API {call.subject}: {told}")
        error = ApiError(error_codes.STREAM_GENERAL_ERROR, err=str(error))
    return Answer(refusal(endpoint.kind, error), has_failed=True, is_told=True)


def _answered(endpoint: Endpoint, call: Call, documents: Any) -> Answer | None:
    if documents is None:
        return None
    if not isinstance(documents, tuple):
        documents = (documents,)
    body = encode_after(endpoint.start, *documents)
    headers = _header_block(call.answer_headers) if call.answer_headers else b""
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
    return f"NATS/1.0\r\n{lines}\r\n".encode()
