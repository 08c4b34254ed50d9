"""Handlers about streams: create, update, show, list, purge and delete them.

Thread: the event loop's. `dispatch` calls the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from itertools import islice
from typing import TypeVar

import msgspec

from penstock import error_codes
from penstock.api.dispatch import Call, Documents, Slices
from penstock.api.documents import (
    Created,
    Done,
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
    Page,
    Refused,
    StreamList,
    StreamNames,
    StreamPurged,
)
from penstock.api.shown_configs import ShownConfigs
from penstock.api.stream_json import state_json, stream_json, streams_json
from penstock.errors import ApiError, InvalidDocument, PenstockError
from penstock.format.subjects.listing import SubjectListing
from penstock.limits import (
    DELETED_LISTED_PER_TURN,
    NAMES_LISTED_PER_TURN,
    STREAM_INFO_SUBJECTS_MAX,
    STREAM_LIST_MAX,
    STREAM_NAMES_MAX,
    STREAMS_LISTED_PER_TURN,
    SUBJECTS_LISTED_PER_TURN,
)
from penstock.stream.config.config import StreamConfig, StreamConfigRequest, for_answer
from penstock.stream.config.subjects import is_subject
from penstock.stream.info import NOTHING, StreamState
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter, patterns_overlap
from penstock.text.json.codec import decode
from penstock.text.json.write import Encoded

CONFIGS: ShownConfigs[StreamConfig] = ShownConfigs(for_answer)

_NO_PAGE = Page()
_WHITE = b" \t\r\n"

T = TypeVar("T")


class _Nothing(msgspec.Struct, frozen=True):
    """A document without fields."""


def is_empty(body: bytes) -> bool:
    """Return True if a request is empty: no body, or a document without fields."""
    if not body:
        return True
    start = body.lstrip(_WHITE)
    # A document whose first field begins here has one, or is none at all.
    if start[:1] != b"{" or start[1:].lstrip(_WHITE)[:1] != b"}":
        return False
    try:
        decode(_Nothing, body)
    except InvalidDocument:
        return False
    return True


def check_empty(call: Call) -> None:
    """Raise ApiError if a request that takes no fields has some."""
    if not is_empty(call.body):
        raise ApiError(error_codes.NOT_EMPTY_REQUEST)


def filter_of(*patterns: str) -> SubjectFilter | None:
    """Return the filter of some patterns without the invalid ones, which no subject matches.

    Return None if no pattern is left.
    """
    valid = [pattern.encode() for pattern in patterns if is_subject(pattern)]
    return SubjectFilter(valid) if valid else None


def state_of(stream: Stream) -> StreamState:
    """Return the state of a stream, as the API shows it."""
    return decode(StreamState, state_json(stream).text)


def answered(call: Call, stream: Stream, *, domain: str) -> Encoded:
    """Return what is shown of a stream that was created, changed or restored."""
    config = CONFIGS.answered(stream.config, call.service.version)
    now_ns, replication = call.service.now_ns(), call.account.replication
    return stream_json(stream, replication, now_ns, config, state_json(stream), domain=domain)


async def create(call: Call) -> Documents:
    """Create a stream; one that exists with the same configuration counts as created."""
    request = call.read(StreamConfigRequest)
    stream, change = await call.account.create(
        request, name=call.names[0], server=call.service.limits
    )
    call.answer_after(
        change, ApiError(error_codes.STREAM_CREATE, err="error creating store for stream")
    )
    return answered(call, stream, domain=""), Created(did_create=True)


async def update(call: Call) -> Documents:
    """Change a stream's configuration."""
    request = call.read(StreamConfigRequest)
    stream = await call.account.update(request, name=call.names[0], server=call.service.limits)
    return answered(call, stream, domain=call.service.domain)


def info(call: Call) -> Documents | Slices:
    """Show a stream, with its subjects and gaps if the client asks for them."""
    request = call.read_if_any(JSApiStreamInfoRequest)
    stream = call.account.find(call.names[0])
    if request.subjects_filter or request.deleted_details:
        return _info_in_detail(call, stream, request)
    return _NO_PAGE, _info(call, stream, state_json(stream))


def _info(call: Call, stream: Stream, state: Encoded) -> Encoded:
    service = call.service
    return stream_json(
        stream,
        call.account.replication,
        service.now_ns(),
        CONFIGS.answered(stream.config, service.version),
        state,
        domain=service.domain,
        leader=service.server_name,
    )


def _info_in_detail(call: Call, stream: Stream, request: JSApiStreamInfoRequest) -> Slices:
    page, subjects, deleted = _NO_PAGE, NOTHING, NOTHING
    if request.deleted_details:
        deleted = yield from _deleted(stream)
    wanted = filter_of(request.subjects_filter) if request.subjects_filter else None
    if wanted is not None:
        offset = max(request.offset, 0)
        listing = SubjectListing(wanted, offset, STREAM_INFO_SUBJECTS_MAX)
        while not stream.store.list_subjects(listing, SUBJECTS_LISTED_PER_TURN):
            yield
        if listing.total:
            page = Page(listing.total, offset, STREAM_INFO_SUBJECTS_MAX)
            subjects = listing.json
    return page, _info(call, stream, state_json(stream, subjects=subjects, deleted=deleted))


def _deleted(stream: Stream) -> Generator[None, None, Encoded]:
    """Write the sequences of a stream without a message, in slices."""
    parts: list[str] = []
    missing = iter(stream.store.deleted())
    while part := ",".join(map(str, islice(missing, DELETED_LISTED_PER_TURN))):
        parts.append(part)
        yield
    return Encoded(f"[{','.join(parts)}]".encode()) if parts else NOTHING


async def delete(call: Call) -> Documents:
    """Delete a stream."""
    check_empty(call)
    await call.account.delete(call.names[0])
    return Done(success=True)


def names(call: Call) -> Slices:
    """List the names of the streams."""
    request = call.read_if_any(JSApiStreamNamesRequest)
    found = yield from _listed(call, request.subject)
    offset = min(max(request.offset, 0), len(found))
    shown = found[offset : offset + STREAM_NAMES_MAX]
    return StreamNames(len(found), offset, STREAM_NAMES_MAX, tuple(shown) or None)


def list_all(call: Call) -> Slices:
    """Show the streams."""
    request = call.read_if_any(JSApiStreamListRequest)
    found = yield from _listed(call, request.subject)
    offset = min(max(request.offset, 0), len(found))
    account, service = call.account, call.service

    def written(streams: list[Stream]) -> bytes:
        now_ns, replication = service.now_ns(), account.replication
        return streams_json(streams, replication, now_ns, CONFIGS, service.domain)

    shown, offline = yield from listed(
        found[offset:], account.streams, account.offline, STREAM_LIST_MAX, written
    )
    return StreamList(len(found), offset, STREAM_LIST_MAX, shown, tuple(offline), offline)


def listed(
    names: list[str],
    items: Mapping[str, T],
    offline: Mapping[str, str],
    limit: int,
    written: Callable[[list[T]], bytes],
) -> Generator[None, None, tuple[Encoded, dict[str, str]]]:
    """Write the items of some names in slices, up to a limit; return them, and who is offline.

    `written` returns the JSON of some items, with commas between them.
    """
    parts = [b"["]
    absent: dict[str, str] = {}
    place = count = 0
    while place < len(names) and count < limit:
        some = names[place : place + min(STREAMS_LISTED_PER_TURN, limit - count)]
        place += len(some)
        if offline:
            absent |= {name: offline[name] for name in some if name in offline}
        # Others may have been deleted since the names were looked up.
        found = [items[name] for name in some if name in items and name not in absent]
        if found:
            parts += (b"," if count else b"", written(found))
            count += len(found)
        yield
    # Joined in one go: a list is long.
    return Encoded(b"".join((*parts, b"]"))), absent


def in_slices(items: Iterator[T], size: int) -> Iterator[T | None]:
    """Iterate over items, with None after every `size` of them: there the caller yields."""
    while some := tuple(islice(items, size)):
        yield from some
        yield None


def _listed(call: Call, subject: str) -> Generator[None, None, list[str]]:
    """Return the names of the streams that listen to a subject, or of all, in order."""
    account = call.account
    if not subject:
        return sorted([*account.streams, *account.offline])
    wanted = subject.encode()
    found: list[str] = []
    for each in in_slices(iter(tuple(account.streams.items())), NAMES_LISTED_PER_TURN):
        if each is None:
            yield
            continue
        name, stream = each
        if any(patterns_overlap(wanted, own.encode()) for own in stream.config.subjects):
            found.append(name)
    return sorted(found)


async def purge(call: Call) -> Documents:
    """Remove a stream's messages, all or those that the client names."""
    request = call.read_if_any(JSApiStreamPurgeRequest)
    if request.seq and request.keep:
        raise ApiError(error_codes.BAD_REQUEST)
    stream = call.account.find(call.names[0])
    if stream.config.sealed:
        raise ApiError(error_codes.STREAM_SEALED)
    if stream.config.deny_purge:
        raise ApiError(error_codes.STREAM_PURGE_FAILED, err="stream purge not permitted")
    subjects = filter_of(request.filter)
    is_wanted = subjects is not None or not request.filter

    async def purged_now() -> int:
        purged = 0
        if is_wanted:
            purged = await stream.purge(subjects, seq=request.seq, keep=request.keep)
        await stream.make_durable()
        return purged

    try:
        purged = await stream.healing.removing(purged_now)
    except PenstockError as error:
        failed = ApiError(error_codes.STREAM_GENERAL_ERROR, err=str(error))
        return Refused.of(failed), StreamPurged()
    return StreamPurged(success=True, purged=purged)
