"""Messages that leave the stream under a consumer: purged, removed, or pushed out by limits.

What was pending of them is done with. Of one that somebody removed, or that gave way to a limit,
whoever listens is told; a purge is no news.

Called by the registry and by the consumer's own pump. One thread: the event loop's.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import neg
from typing import TYPE_CHECKING

from penstock.consumer.acks import GONE_REASON, About
from penstock.subjects import SubjectFilter, is_subset

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer


def on_purged(consumer: Consumer, purged: SubjectFilter | None) -> None:
    """Messages were purged: some or all of what a filter wants, of everything where None."""
    consumer.counting.forget()
    store = consumer.stream.store
    state = store.state()
    first_seq = state.first_seq
    subjects = consumer.subjects
    if purged is not None and subjects is not None and _covers(purged, subjects):
        # Nothing that it wants was left out, so it need not look at the rest.
        first_seq = store.filtered_state(purged).first_seq or state.last_seq + 1
    consumer.cursor = max(consumer.cursor, first_seq)
    consumer.chosen = [seq for seq in consumer.chosen if seq >= first_seq and store.has(seq)]
    gone = [seq for seq, _, _ in consumer.pending.entries() if not store.has(seq)]
    consumer.pending.pass_over(gone, consumer.cursor)
    if consumer.keys is not None:
        consumer.keys.review()
    consumer.remember()
    consumer.pump_soon()


def _covers(outer: SubjectFilter, inner: SubjectFilter) -> bool:
    return all(any(is_subset(one, each) for each in outer.patterns) for one in inner.patterns)


def on_removed(consumer: Consumer, stream_seq: int) -> None:
    """Somebody removed a message."""
    consumer.counting.forget()
    if consumer.keys is not None:
        consumer.keys.let_go(stream_seq)
    place = bisect_left(consumer.chosen, -stream_seq, key=neg)
    if consumer.chosen[place : place + 1] == [stream_seq]:
        del consumer.chosen[place]
    if stream_seq in consumer.pending:
        on_lost(consumer, stream_seq)


def on_limited(consumer: Consumer, first_seq: int, *, everywhere: bool) -> None:
    """Messages gave way to limits: those before `first_seq`, perhaps others too."""
    first = consumer.pending.first()
    if first is None or not (everywhere or first[0] < first_seq):
        return
    store = consumer.stream.store
    for seq, _, _ in consumer.pending.entries():
        if seq < first_seq or (everywhere and not store.has(seq)):
            on_lost(consumer, seq)


def on_lost(consumer: Consumer, stream_seq: int) -> None:
    """Be done with a pending message that is no longer in the stream."""
    deliveries = consumer.pending.redelivered.get(stream_seq, 0) + 1
    about = About(deliveries, stream_seq, consumer.pending.consumer_seq_of(stream_seq))
    consumer.acks.terminate(about, GONE_REASON, is_gone=True)
