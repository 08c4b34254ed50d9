"""Handlers about streams: making, changing, showing, listing, emptying and removing them.

Called by the dispatch, on the event loop's thread.
"""

from __future__ import annotations

from typing import Any

from penstock.api.dispatch import Call
from penstock.documents.decoding import decode_request
from penstock.documents.encoding import document_of
from penstock.documents.times import timestamp
from penstock.stream.config import StreamConfigRequest
from penstock.stream.stream import Stream
from penstock.stream.versioning import for_answer


def stream_document(call: Call, stream: Stream) -> dict[str, Any]:
    """Give a stream as answers show it."""
    state = stream.store.state()
    first_ts = timestamp(state.first_time_ns) if state.messages else "0001-01-01T00:00:00Z"
    last_ts = timestamp(state.last_time_ns) if state.last_seq else "0001-01-01T00:00:00Z"
    return {
        "config": document_of(for_answer(stream.config, call.service.version)),
        "created": str(stream.created),
        "state": {
            "messages": state.messages,
            "bytes": state.bytes,
            "first_seq": state.first_seq if state.last_seq else 0,
            "first_ts": first_ts,
            "last_seq": state.last_seq,
            "last_ts": last_ts,
            "num_subjects": state.subjects,
            "consumer_count": 0,
        },
        "ts": timestamp(call.service.now_ns()),
    }


def create(call: Call) -> dict[str, Any]:
    """Make a stream."""
    request = decode_request(StreamConfigRequest, call.body, strict=call.service.strict)
    stream, is_new = call.account.create(request, name=call.names[0], server=call.service.limits)
    document = stream_document(call, stream)
    return document | {"did_create": True} if is_new else document


def update(call: Call) -> dict[str, Any]:
    """Change a stream's configuration."""
    request = decode_request(StreamConfigRequest, call.body, strict=call.service.strict)
    stream = call.account.update(request, name=call.names[0], server=call.service.limits)
    return stream_document(call, stream)


def info(call: Call) -> dict[str, Any]:
    """Show a stream."""
    return stream_document(call, call.account.find(call.names[0]))


def delete(call: Call) -> dict[str, Any]:
    """Remove a stream."""
    call.account.delete(call.names[0])
    return {"success": True}


def names(call: Call) -> dict[str, Any]:
    """List the names of the streams."""
    found = sorted(call.account.streams)
    return {"total": len(found), "offset": 0, "limit": 1024, "streams": found or None}
