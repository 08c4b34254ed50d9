"""What is told of a consumer.

Called for answers and by monitoring, on the event loop's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.consumer.info import ConsumerInfo, PriorityGroupState, SequenceInfo
from penstock.consumer.pulling import PullOutlet
from penstock.consumer.pushing import PushOutlet
from penstock.documents.times import ZERO_TIME, Instant

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer


def describe(consumer: Consumer, now_ns: int) -> ConsumerInfo:
    """Tell everything about a consumer, as it is now."""
    pending = consumer.pending
    outlet = consumer.outlet
    until = consumer.config.pause_until
    is_paused = until is not None and now_ns < until.time_ns
    ahead_ns = consumer.clock.ahead_ns()
    return ConsumerInfo(
        stream_name=consumer.stream.name,
        name=consumer.name,
        created=consumer.created,
        config=consumer.config,
        delivered=SequenceInfo(
            pending.delivered_consumer_seq,
            pending.delivered_stream_seq,
            _instant(consumer.last_delivered_ns, ahead_ns),
        ),
        ack_floor=SequenceInfo(
            pending.floor_consumer_seq,
            pending.floor_stream_seq,
            _instant(consumer.last_acked_ns, ahead_ns),
        ),
        num_ack_pending=len(pending),
        # Where nothing is ever delivered again, it would only confuse.
        num_redelivered=0 if consumer.config.max_deliver == 1 else len(pending.redelivered),
        num_waiting=outlet.waiting_count if isinstance(outlet, PullOutlet) else 0,
        num_pending=consumer.num_pending(),
        push_bound=isinstance(outlet, PushOutlet) and outlet.is_active,
        paused=is_paused,
        pause_remaining=until.remaining_ns(now_ns) if is_paused and until is not None else 0,
        ts=Instant(now_ns),
        priority_groups=_groups(consumer),
    )


def _instant(time_ns: int, ahead_ns: int) -> Instant | None:
    return Instant(time_ns + ahead_ns) if time_ns else None


def _groups(consumer: Consumer) -> tuple[PriorityGroupState, ...]:
    outlet = consumer.outlet
    if not consumer.config.priority_groups or not isinstance(outlet, PullOutlet):
        return ()
    ahead_ns = consumer.clock.ahead_ns()
    pinned = Instant(outlet.pinned_ns + ahead_ns) if outlet.pin_id else ZERO_TIME
    return (PriorityGroupState(consumer.config.priority_groups[0], outlet.pin_id, pinned),)
