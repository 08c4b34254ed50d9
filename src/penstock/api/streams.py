"""Handlers about streams: making, changing, showing, listing, emptying and removing them.

Called by the dispatch, on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock import error_codes
from penstock.api.dispatch import Call
from penstock.api.requests import (
    JSApiStreamInfoRequest,
    JSApiStreamListRequest,
    JSApiStreamNamesRequest,
    JSApiStreamPurgeRequest,
)
from penstock.api.responses import (
    Created,
    Done,
    Page,
    StreamList,
    StreamNames,
    StreamPurged,
)
from penstock.documents.decoding import decode
from penstock.documents.encoding import document_of
from penstock.documents.times import ZERO_TIME, Instant
from penstock.errors import ApiError, InvalidDocument, PenstockError
from penstock.limits import STREAM_INFO_SUBJECTS_MAX, STREAM_LIST_MAX, STREAM_NAMES_MAX
from penstock.stream.config import StreamConfig, StreamConfigRequest
from penstock.stream.info import ClusterInfo, StreamInfo, StreamState
from penstock.stream.rules import is_subject
from penstock.stream.stream import Stream
from penstock.stream.versioning import for_answer
from penstock.subjects import SubjectFilter, patterns_overlap


class _Nothing(msgspec.Struct, frozen=True):
    """A document without a field."""


def is_empty(body: bytes) -> bool:
    """Tell whether a request says nothing: no body, or a document without fields."""
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
    """Refuse a request that says something where there is nothing to say; raise ApiError."""
    if not is_empty(call.body):
        raise ApiError(error_codes.NOT_EMPTY_REQUEST)


def filter_of(*patterns: str) -> SubjectFilter | None:
    """Give the filter of some patterns; those that no subject matches, however odd, are left out.

    None where nothing is left.
    """
    valid = [pattern.encode() for pattern in patterns if is_subject(pattern)]
    return SubjectFilter(valid) if valid else None


def state_of(stream: Stream, *, with_deleted: bool = False) -> StreamState:
    """Give what a stream holds."""
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
    """Give everything that is told of a stream, with the configuration as it is kept or another."""
    return StreamInfo(
        config=stream.config if config is None else config,
        created=stream.created,
        state=state_of(stream),
        domain=call.service.domain,
        mirror=call.account.feeding.mirror_info(stream),
        sources=call.account.feeding.sources_info(stream),
        ts=Instant(call.service.now_ns()),
    )


def _answered(call: Call, stream: Stream) -> StreamInfo:
    return info_of(call, stream, config=for_answer(stream.config, call.service.version))


async def create(call: Call) -> dict[str, Any]:
    """Make a stream; one that is as asked for counts as made."""
    request = call.read(StreamConfigRequest)
    stream = await call.account.create(request, name=call.names[0], server=call.service.limits)
    made = replace(_answered(call, stream), domain="")
    return document_of(made) | document_of(Created(did_create=True))


async def update(call: Call) -> dict[str, Any]:
    """Change a stream's configuration."""
    request = call.read(StreamConfigRequest)
    stream = await call.account.update(request, name=call.names[0], server=call.service.limits)
    return document_of(_answered(call, stream))


def info(call: Call) -> dict[str, Any]:
    """Show a stream, and of its subjects and gaps what is asked for."""
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
    """Remove a stream."""
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
    """Give the names of those that listen to a subject, or of all, in their order."""
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
    """Remove a stream's messages, all or those that are asked for."""
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
