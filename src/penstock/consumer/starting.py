"""Where a new consumer begins.

Called when a consumer is made. Reads the store's state; changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock import error_codes
from penstock.consumer.config import ConsumerConfig, DeliverPolicy
from penstock.errors import ApiError
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreState
from penstock.subjects import SubjectFilter


class Start(NamedTuple):
    """The first sequence to look at, and single messages that are to be delivered before it."""

    stream_seq: int
    chosen: tuple[int, ...] = ()


def find_start(
    config: ConsumerConfig,
    store: FileStore,
    subjects: SubjectFilter | None,
    *,
    per_subject_max: int,
) -> Start:
    """Give where a consumer of this configuration begins; `per_subject_max` is the stream's."""
    state = store.state()
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and per_subject_max != 1:
        chosen = tuple(store.multi_last(subjects or SubjectFilter([])))
        # As the reference server shows it; where nothing was chosen, the last one is not wanted.
        if chosen:
            return Start(state.last_seq + 1, chosen)
        return Start(max(state.last_seq, state.first_seq, 1))
    first = _first(config, store, state, subjects)
    if config.opt_start_seq:
        return Start(max(first, state.first_seq))
    return Start(min(max(first, state.first_seq), state.last_seq + 1))


def checked_reset(config: ConsumerConfig, store: FileStore, seq: int, *, floor_seq: int) -> int:
    """Give where a consumer may begin anew; 0 stands for what follows on its ack floor.

    Raises ApiError.
    """
    if seq == 0:
        return floor_seq + 1
    match config.deliver_policy:
        case DeliverPolicy.ALL:
            return seq
        case DeliverPolicy.BY_START_SEQUENCE if seq >= config.opt_start_seq:
            return seq
        case DeliverPolicy.BY_START_SEQUENCE:
            reason = "below start seq"
        case DeliverPolicy.BY_START_TIME if config.opt_start_time is not None:
            if seq >= store.seq_from_time(config.opt_start_time.time_ns):
                return seq
            reason = "below start time"
        case _:
            reason = "not allowed"
    raise ApiError(error_codes.CONSUMER_INVALID_RESET, err=reason)


def _first(
    config: ConsumerConfig, store: FileStore, state: StoreState, subjects: SubjectFilter | None
) -> int:
    match config.deliver_policy:
        case DeliverPolicy.BY_START_SEQUENCE:
            return config.opt_start_seq
        case DeliverPolicy.BY_START_TIME if config.opt_start_time is not None:
            return store.seq_from_time(config.opt_start_time.time_ns)
        case DeliverPolicy.NEW:
            return state.last_seq + 1
        case DeliverPolicy.LAST if subjects is None:
            # Also where that one was removed, as with the reference server.
            return state.last_seq
        case DeliverPolicy.LAST:
            return store.filtered_state(subjects).last_seq
        case _:
            return state.first_seq
