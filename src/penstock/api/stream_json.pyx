"""What answers show of a stream, written from what it holds; `StreamInfo` has the fields.

    {"config":{…},"created":"…","state":{"messages":3,…},"ts":"…"}

A list is written without an object for each stream.

Thread: the event loop's.
"""

from libc.stdint cimport int64_t

from penstock.api.shown_configs cimport ShownConfigs
from penstock.store.store_state cimport StoreState
from penstock.text.json.write cimport Encoded, Writer

from penstock.stream.info import NOTHING
from penstock.text.json.codec import encode
from penstock.text.times import ZERO_TIME


def state_json(stream, *, Encoded subjects not None=NOTHING, Encoded deleted not None=NOTHING):
    """Return the state of a stream, with details if there are any; `StreamState` has the fields."""
    cdef Writer out = Writer.__new__(Writer)
    _put_state(out, stream, subjects, deleted)
    return Encoded(out.take())


def stream_json(
    stream, replication, int64_t now_ns, Encoded config not None, Encoded state not None,
    *, str domain not None="", str leader not None="",
):
    """Return the info document of a stream, with what is shown of its configuration, and a state.

    `leader` is the server that leads it; empty if that is not shown.
    """
    cdef Writer out = Writer.__new__(Writer)
    _put_start(out, stream, config)
    out.put_encoded(state)
    _put_rest(out, stream, replication, now_ns, domain, leader)
    return Encoded(out.take())


def streams_json(
    list streams not None, replication, int64_t now_ns, ShownConfigs configs not None,
    str domain not None,
):
    """Return the info documents of some streams, with commas between them."""
    cdef Writer out = Writer.__new__(Writer)
    for stream in streams:
        if out.size:
            out.put_byte(c",")
        _put_start(out, stream, configs.listed(stream.config))
        _put_state(out, stream, NOTHING, NOTHING)
        _put_rest(out, stream, replication, now_ns, domain, "")
    return out.take()


cdef int _put_start(Writer out, object stream, Encoded config) except -1:
    out.put(b'{"config":', 10)
    out.put_encoded(config)
    out.put(b',"created":', 11)
    out.put_when(stream.created)
    return out.put(b',"state":', 9)


cdef int _put_rest(
    Writer out, object stream, object replication, int64_t now_ns, str domain, str leader
) except -1:
    cdef object config = stream.config
    cdef tuple sources
    if domain:
        out.put(b',"domain":', 10)
        out.put_str(domain)
    if leader:
        out.put(b',"cluster":{"leader":', 21)
        out.put_str(leader)
        out.put_byte(c"}")
    if config.mirror is not None or config.sources:
        mirror, sources = replication.mirror_info(stream), replication.sources_info(stream)
        if mirror is not None:
            out.put(b',"mirror":', 10)
            out.put_encoded(Encoded(encode(mirror)))
        if sources:
            out.put(b',"sources":[', 12)
            out.put_encoded(Encoded(b",".join([encode(each) for each in sources])))
            out.put_byte(c"]")
    out.put(b',"ts":', 6)
    out.put_instant(now_ns)
    return out.put_byte(c"}")


cdef int _put_state(Writer out, object stream, Encoded subjects, Encoded deleted) except -1:
    cdef StoreState state = stream.store.state()
    cdef int64_t last_time_ns = max(state.last_time_ns, <int64_t>stream.ingest.last_skip_ns)
    out.put(b'{"messages":', 12)
    out.put_unsigned(state.messages)
    out.put(b',"bytes":', 9)
    out.put_unsigned(state.bytes)
    out.put(b',"first_seq":', 13)
    out.put_unsigned(state.first_seq if state.last_seq or stream.tells_first_seq else 0)
    out.put(b',"first_ts":', 12)
    if state.messages:
        out.put_instant(state.first_time_ns)
    else:
        out.put_when(ZERO_TIME)
    out.put(b',"last_seq":', 12)
    out.put_unsigned(state.last_seq)
    out.put(b',"last_ts":', 11)
    if last_time_ns:
        out.put_instant(last_time_ns)
    else:
        out.put_when(ZERO_TIME)
    if state.subjects:
        out.put(b',"num_subjects":', 16)
        out.put_unsigned(state.subjects)
    if subjects.text:
        out.put(b',"subjects":', 12)
        out.put_encoded(subjects)
    if state.deleted:
        out.put(b',"num_deleted":', 15)
        out.put_unsigned(state.deleted)
    if deleted.text:
        out.put(b',"deleted":', 11)
        out.put_encoded(deleted)
    out.put(b',"consumer_count":', 18)
    out.put_unsigned(stream.consumers.count)
    return out.put_byte(c"}")
