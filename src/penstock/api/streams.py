"""Handlers about streams: create, update, show, list, purge and delete them.

Thread: the event loop's. `dispatch` calls the handlers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call
from penstock.api.documents import (
    Created,
    Done,
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
    Page,
    StreamList,
    StreamNames,
    StreamPurged,
)
from penstock.errors import ApiError, InvalidDocument, PenstockError
from penstock.limits import STREAM_INFO_SUBJECTS_MAX, STREAM_LIST_MAX, STREAM_NAMES_MAX
from penstock.stream.config.config import StreamConfig, StreamConfigRequest, for_answer
from penstock.stream.config.subjects import is_subject
from penstock.stream.info import ClusterInfo, StreamInfo, StreamState
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter, patterns_overlap
from penstock.text.json.codec import decode, document_of
from penstock.text.times import ZERO_TIME, Instant


class _Nothing(msgspec.Struct, frozen=True):
    """A document without fields."""


def is_empty(body: bytes) -> bool:
    """Return True if a request is empty: no body, or a document without fields."""
    if not body:
        return True
    if body.lstrip(b" \t\r\n")[:1] != b"{":
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


def state_of(stream: Stream, *, with_deleted: bool = False) -> StreamState:
    """Return the state of a stream, as the API shows it."""
    state = stream.store.state()
    last_time_ns = max(state.last_time_ns, stream.last_skip_ns)
    return StreamState(
        messages=state.messages,
        bytes=state.bytes,
        first_seq=state.first_seq if state.last_seq or stream.tells_first_seq else 0,
        first_ts=Instant(state.first_time_ns) if state.messages else ZERO_TIME,
        last_seq=state.last_seq,
        last_ts=Instant(last_time_ns) if last_time_ns else ZERO_TIME,
        num_subjects=state.subjects,
        num_deleted=state.deleted,
        deleted=tuple(stream.store.deleted()) if with_deleted else (),
        consumer_count=stream.consumer_count,
    )


def info_of(call: Call, stream: Stream, *, config: StreamConfig | None = None) -> StreamInfo:
    """Return all that the API shows of a stream, with its configuration or the given one."""
    return StreamInfo(
        config=stream.config if config is None else config,
        created=stream.created,
        state=state_of(stream),
        domain=call.service.domain,
        mirror=call.account.replication.mirror_info(stream),
        sources=call.account.replication.sources_info(stream),
        ts=Instant(call.service.now_ns()),
    )


def _answered(call: Call, stream: Stream) -> StreamInfo:
    return info_of(call, stream, config=for_answer(stream.config, call.service.version))


async def create(call: Call) -> dict[str, Any]:
    """Create a stream; one that exists with the same configuration counts as created."""
    request = call.read(StreamConfigRequest)
    stream, change = await call.account.create(
        request, name=call.names[0], server=call.service.limits
    )
    call.answer_after(
        change, ApiError(error_codes.STREAM_CREATE, err="error creating store for stream")
    )
    made = replace(_answered(call, stream), domain="")
    return document_of(made) | document_of(Created(did_create=True))


async def update(call: Call) -> dict[str, Any]:
    """Change a stream's configuration."""
    request = call.read(StreamConfigRequest)
    stream = await call.account.update(request, name=call.names[0], server=call.service.limits)
    return document_of(_answered(call, stream))


def info(call: Call) -> dict[str, Any]:
    """Show a stream, with its subjects and gaps if the client asks for them."""
    request = call.read_if_any(JSApiStreamInfoRequest)
    stream = call.account.find(call.names[0])
    state = state_of(stream, with_deleted=request.deleted_details)
    page = Page()
    if request.subjects_filter:
        page, subjects = _subjects(stream, request)
        state = replace(state, subjects=subjects)
    told = replace(
        _answered(call, stream),
        state=state,
        cluster=ClusterInfo(leader=call.service.server_name),
    )
    return document_of(page) | document_of(told)


def _subjects(stream: Stream, request: JSApiStreamInfoRequest) -> tuple[Page, dict[str, int]]:
    wanted = filter_of(request.subjects_filter)
    totals = {} if wanted is None else stream.store.subjects_totals(wanted)
    if not totals:
        return Page(), {}
    offset = max(request.offset, 0)
    page = Page(total=len(totals), offset=offset, limit=STREAM_INFO_SUBJECTS_MAX)
    shown: Sequence[bytes] = list(totals)
    if offset or len(totals) > STREAM_INFO_SUBJECTS_MAX:
        shown = sorted(totals)[offset : offset + STREAM_INFO_SUBJECTS_MAX]
    return page, {subject.decode("utf-8", "replace"): totals[subject] for subject in shown}


async def delete(call: Call) -> dict[str, Any]:
    """Delete a stream."""
    check_empty(call)
    await call.account.delete(call.names[0])
    return document_of(Done(success=True))


def names(call: Call) -> dict[str, Any]:
    """List the names of the streams."""
    request = call.read_if_any(JSApiStreamNamesRequest)
    found = _listed(call, request.subject)
    offset = min(max(request.offset, 0), len(found))
    shown = found[offset : offset + STREAM_NAMES_MAX]
    return document_of(StreamNames(len(found), offset, STREAM_NAMES_MAX, tuple(shown) or None))


def list_all(call: Call) -> dict[str, Any]:
    """Show the streams."""
    request = call.read_if_any(JSApiStreamListRequest)
    found = _listed(call, request.subject)
    offset = min(max(request.offset, 0), len(found))
    shown: list[StreamInfo] = []
    offline: dict[str, str] = {}
    for name in found[offset:]:
        if name in call.account.offline:
            offline[name] = call.account.offline[name]
            continue
        shown.append(info_of(call, call.account.streams[name]))
        if len(shown) >= STREAM_LIST_MAX:
            break
    listed = StreamList(len(found), offset, STREAM_LIST_MAX, tuple(shown), tuple(offline), offline)
    return document_of(listed)


def _listed(call: Call, subject: str) -> list[str]:
    """Return the names of the streams that listen to a subject, or of all, in order."""
    account = call.account
    if not subject:
        return sorted([*account.streams, *account.offline])
    wanted = subject.encode()
    return sorted(
        name
        for name, stream in account.streams.items()
        if any(patterns_overlap(wanted, own.encode()) for own in stream.config.subjects)
    )


async def purge(call: Call) -> dict[str, Any]:
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
    try:
        is_wanted = subjects is not None or not request.filter
        purged = stream.purge(subjects, seq=request.seq, keep=request.keep) if is_wanted else 0
        await stream.make_durable()
    except PenstockError as error:
        failed = ApiError(error_codes.STREAM_GENERAL_ERROR, err=str(error))
        return {"error": failed.document()} | document_of(StreamPurged())
    return document_of(StreamPurged(success=True, purged=purged))
