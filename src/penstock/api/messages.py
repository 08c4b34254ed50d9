"""Handlers about single messages: get and delete them.

Thread: the event loop's. `dispatch` calls the handlers, and `direct_get` the queries.
"""

from __future__ import annotations

from penstock import error_codes
from penstock.api.dispatch import Call, Documents
from penstock.api.documents import (
    Done,
    GottenMessage,
    JSApiMsgDeleteRequest,
    JSApiMsgGetRequest,
    Refused,
)
from penstock.api.message_json import message_json
from penstock.api.streams import filter_of, is_empty
from penstock.errors import ApiError, CorruptStore, PenstockError, RecordNotFound
from penstock.store.interface import StreamStore
from penstock.store.log.block import StoredMessage
from penstock.stream.config.config import StorageType
from penstock.stream.stream import Stream
from penstock.subjects import SubjectFilter, is_literal, is_valid_subject


def is_contradictory(request: JSApiMsgGetRequest) -> bool:
    """Return True if a request names its message in two ways that exclude each other."""
    return bool(
        (request.seq and request.last_by_subj)
        or (request.seq and request.start_time is not None)
        or (request.start_time is not None and request.last_by_subj)
        or (request.last_by_subj and request.next_by_subj)
    )


def names_nothing(request: JSApiMsgGetRequest) -> bool:
    """Return True if a request does not say which message it wants."""
    return not (
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.start_time is not None
    )


def start_of(store: StreamStore, request: JSApiMsgGetRequest) -> int:
    """Return the sequence from which a request wants messages; 0 for the beginning."""
    if request.start_time is not None:
        return store.seq_from_time(request.start_time.time_ns)
    return request.seq


def load_last(store: StreamStore, subject: bytes) -> StoredMessage:
    """Return the newest message of a subject or pattern; raise RecordNotFound."""
    if is_literal(subject) or not is_valid_subject(subject):
        return store.load_last(subject)
    return store.load_previous(store.state().last_seq, SubjectFilter([subject]))


def load_next(store: StreamStore, seq: int, pattern: str) -> StoredMessage:
    """Return the first message of a subject or pattern from `seq` on; raise RecordNotFound."""
    subjects = filter_of(pattern)
    if subjects is None:
        raise RecordNotFound(seq)
    return store.load_next(seq, subjects)


def find(store: StreamStore, request: JSApiMsgGetRequest) -> StoredMessage:
    """Return the one message that a request wants; raise RecordNotFound or CorruptStore."""
    seq = start_of(store, request)
    if request.next_by_subj:
        return load_next(store, seq, request.next_by_subj)
    if seq:
        return store.load(seq)
    return load_last(store, request.last_by_subj.encode())


def get(call: Call) -> Documents:
    """Show a message."""
    if is_empty(call.body):
        raise ApiError(error_codes.BAD_REQUEST)
    request = call.read(JSApiMsgGetRequest)
    several = request.batch > 0 or request.max_bytes > 0
    if several or is_contradictory(request) or names_nothing(request):
        raise ApiError(error_codes.BAD_REQUEST)
    stream = call.account.find(call.names[0])
    try:
        found = find(stream.store, request)
    except RecordNotFound:
        raise ApiError(error_codes.NO_MESSAGE_FOUND) from None
    except CorruptStore as error:
        call.service.log("ERR", f"JetStream stream {stream.name!r}: {error}")
        raise ApiError(error_codes.NO_MESSAGE_FOUND) from None
    return GottenMessage(message_json(found, not request.no_hdr))


async def delete(call: Call) -> Documents:
    """Delete a message; its bytes are overwritten unless the client asks not to."""
    if is_empty(call.body):
        raise ApiError(error_codes.BAD_REQUEST)
    request = call.read(JSApiMsgDeleteRequest)
    stream = call.account.find(call.names[0])
    if stream.config.sealed:
        raise ApiError(error_codes.STREAM_SEALED)
    if stream.config.deny_delete:
        raise ApiError(error_codes.STREAM_MSG_DELETE_FAILED, err="message delete not permitted")
    error = await _delete(stream, request)
    # The reference server does not count these as errors.
    return Done(success=True) if error is None else Refused.of(error)


async def _delete(stream: Stream, request: JSApiMsgDeleteRequest) -> ApiError | None:
    # Beyond the stream's end only the reference server's file store has a reason of its own.
    if stream.config.storage is StorageType.FILE:
        state = stream.store.state()
        if request.seq > state.last_seq:
            return ApiError(error_codes.STREAM_MSG_DELETE_FAILED, err="stream store EOF")
        if request.seq < state.first_seq:
            return ApiError(error_codes.STREAM_MSG_DELETE_FAILED, err="no message found")
    try:
        removed = await stream.remove_message(request.seq, erase=not request.no_erase)
    except PenstockError as error:
        return ApiError(error_codes.STREAM_MSG_DELETE_FAILED, err=str(error))
    return None if removed else ApiError(error_codes.SEQUENCE_NOT_FOUND, seq=request.seq)
