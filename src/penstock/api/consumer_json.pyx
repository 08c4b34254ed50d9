"""What answers show of a consumer, written from what it holds; `ConsumerInfo` has the fields.

    {"stream_name":"S","name":"c","created":"…","config":{…},"delivered":{…},"ack_floor":{…},…}

A list is written without an object for each consumer.

Thread: the event loop's.
"""

from libc.stdint cimport int64_t, uint64_t

from penstock.api.shown_configs cimport ShownConfigs
from penstock.consumer.needs cimport PendingCount, Position
from penstock.consumer.pending cimport Pending
from penstock.store.store_state cimport StoreState
from penstock.text.json.write cimport Encoded, Writer

from penstock.text.times import ZERO_TIME


def consumer_json(consumer, int64_t now_ns, Encoded config not None):
    """Return the info document of a consumer, with what is shown of its configuration."""
    cdef Writer out = Writer.__new__(Writer)
    cdef object progress = consumer.progress
    _put_consumer(
        out, consumer, progress, config, progress.store.state(), now_ns, progress.clock.ahead_ns()
    )
    return Encoded(out.take())


def consumers_json(list consumers not None, int64_t now_ns, ShownConfigs configs not None):
    """Return the info documents of some consumers of one stream, with commas between them."""
    cdef Writer out = Writer.__new__(Writer)
    cdef StoreState state = None
    cdef int64_t ahead_ns = 0
    cdef object progress
    for consumer in consumers:
        progress = consumer.progress
        if state is None:
            state, ahead_ns = progress.store.state(), progress.clock.ahead_ns()
        else:
            out.put_byte(c",")
        _put_consumer(
            out, consumer, progress, configs.listed(progress.config), state, now_ns, ahead_ns
        )
    return out.take()


cdef int _put_consumer(
    Writer out, object consumer, object progress, Encoded config, StoreState state,
    int64_t now_ns, int64_t ahead_ns,
) except -1:
    cdef Pending pending = progress.pending
    cdef Position position = progress.position
    cdef PendingCount counting = progress.counting
    cdef object settings = progress.config, delivery = consumer.delivery, keys = progress.keys
    cdef bint is_push = bool(settings.deliver_subject)
    cdef object until = settings.pause_until
    cdef uint64_t redelivered = len(pending.redelivered)
    out.put(b'{"stream_name":', 15)
    out.put_str(consumer.stream.config.name)
    out.put(b',"name":', 8)
    out.put_str(consumer.name)
    out.put(b',"created":', 11)
    out.put_when(consumer.created)
    out.put(b',"config":', 10)
    out.put_encoded(config)
    out.put(b',"delivered":', 13)
    _put_sequence(
        out, pending.delivered_consumer_seq, pending.delivered_stream_seq,
        progress.last_delivered_ns, ahead_ns,
    )
    out.put(b',"ack_floor":', 13)
    _put_sequence(
        out, pending.floor_consumer_seq, pending.floor_stream_seq, progress.last_acked_ns, ahead_ns
    )
    out.put(b',"num_ack_pending":', 19)
    out.put_unsigned(pending.count)
    out.put(b',"num_redelivered":', 19)
    # As the reference server: 0 if nothing is ever delivered again.
    out.put_unsigned(0 if redelivered and settings.max_deliver == 1 else redelivered)
    out.put(b',"num_waiting":', 15)
    out.put_unsigned(delivery.waiting_count)
    out.put(b',"num_pending":', 15)
    out.put_unsigned(
        len(position.chosen)
        + (0 if keys is None else len(keys))
        + <uint64_t>counting.count_in(state, position.cursor)
    )
    if is_push and delivery.is_wanting:
        out.put(b',"push_bound":true', 18)
    if until is not None and now_ns < until.time_ns:
        out.put(b',"paused":true,"pause_remaining":', 33)
        out.put_unsigned(until.remaining_ns(now_ns))
    out.put(b',"ts":', 6)
    out.put_instant(now_ns)
    if settings.priority_groups and not is_push:
        _put_group(out, settings.priority_groups[0], delivery.pin, ahead_ns)
    return out.put_byte(c"}")


cdef int _put_sequence(
    Writer out, uint64_t consumer_seq, uint64_t stream_seq, int64_t active_ns, int64_t ahead_ns
) except -1:
    out.put(b'{"consumer_seq":', 16)
    out.put_unsigned(consumer_seq)
    out.put(b',"stream_seq":', 14)
    out.put_unsigned(stream_seq)
    if active_ns:
        out.put(b',"last_active":', 15)
        out.put_instant(active_ns + ahead_ns)
    return out.put_byte(c"}")


cdef int _put_group(Writer out, object group, tuple pin, int64_t ahead_ns) except -1:
    # The group, and the client of it that is served.
    pin_id, pinned_ns = pin
    out.put(b',"priority_groups":[{"group":', 29)
    out.put_str(group)
    if pin_id:
        out.put(b',"pinned_client_id":', 20)
        out.put_str(pin_id)
    out.put(b',"pinned_ts":', 13)
    if pin_id:
        out.put_instant(<int64_t>pinned_ns + ahead_ns)
    else:
        out.put_when(ZERO_TIME)
    return out.put(b"}]", 2)
