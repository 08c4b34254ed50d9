"""Mirrors and sources: the rules for where a stream takes its messages from.

A mirror copies one stream and has no subjects of its own; other streams take messages from any
number of sources. An origin need not exist, but one that exists must fit. Streams may not take from
each other in a circle.

Invariant: nothing is checked of an origin behind an external prefix, which may be anywhere.

Pure. Only the rules of this package call it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from penstock import error_codes
from penstock.errors import ApiError, ErrorCode
from penstock.limits import STREAM_SOURCES_MAX
from penstock.stream.config.config import StreamConfig, StreamSource, SubjectTransformConfig
from penstock.stream.config.subjects import (
    check_pairs,
    collide,
    invalid,
    is_name,
    is_publish_subject,
    is_subject,
    pedantic_refusal,
    transform_fault,
)
from penstock.subjects import is_subset
from penstock.text.quoting import quoted_bytes

Streams = Mapping[str, StreamConfig]

_API_PREFIX = "$JS.API"


class _Reached(msgspec.Struct):
    """The subjects that origins of this account listen to, and the prefixes of external ones."""

    names: set[str] = msgspec.field(default_factory=set)
    subjects: list[str] = msgspec.field(default_factory=list)
    deliver_prefixes: list[str] = msgspec.field(default_factory=list)
    api_prefixes: list[str] = msgspec.field(default_factory=list)

    def add(self, origin: StreamSource, streams: Streams) -> None:
        if origin.external is None:
            known = streams.get(origin.name)
            if known is not None and known.name not in self.names:
                self.names.add(known.name)
                self.subjects += known.subjects
            return
        self.deliver_prefixes += [origin.external.deliver] * bool(origin.external.deliver)
        self.api_prefixes += [origin.external.api] * bool(origin.external.api)


def with_origins(config: StreamConfig, streams: Streams, pedantic: bool) -> StreamConfig:
    """Check a stream's origins; return the configuration. A mirror takes over direct access.

    `streams` are those of the account by name. Raise ApiError.
    """
    reached = _Reached()
    if config.mirror is not None:
        _check_mirrored(config)
        _check_mirror(config.mirror, config, streams)
        reached.add(config.mirror, streams)
        config = _with_mirror_direct(config.mirror, config, streams, pedantic)
    _check_sources(config, streams, reached)
    _check_prefixes(reached)
    _check_cycles(config, streams)
    return config


def _check_mirrored(config: StreamConfig) -> None:
    for is_set, entry in (
        (config.first_seq > 0, error_codes.MIRROR_WITH_FIRST_SEQ),
        (config.subjects, error_codes.MIRROR_WITH_SUBJECTS),
        (config.sources, error_codes.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, error_codes.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, error_codes.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, error_codes.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, error_codes.MIRROR_WITH_MSG_SCHEDULES),
    ):
        if is_set:
            raise ApiError(entry)


def _check_mirror(mirror: StreamSource, config: StreamConfig, streams: Streams) -> None:
    _check_consumer(mirror, error_codes.MIRROR_DURABLE_CONSUMER_CFG_INVALID)
    if mirror.filter_subject and mirror.subject_transforms:
        raise ApiError(error_codes.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED)
    if config.subject_delete_marker_ttl > 0:
        # Markers would use sequences that belong to the origin.
        raise invalid("subject delete markers forbidden on mirrors")
    check_pairs(len(mirror.subject_transforms) ** 2)
    for place, transform in enumerate(mirror.subject_transforms):
        _check_transforms(
            mirror.subject_transforms[place : place + 1],
            error_codes.MIRROR_INVALID_SUBJECT_FILTER,
            error_codes.MIRROR_INVALID_TRANSFORM_DESTINATION,
        )
        for other, another in enumerate(mirror.subject_transforms):
            if other != place and collide(transform.src, another.src):
                raise ApiError(error_codes.MIRROR_OVERLAPPING_SUBJECT_FILTERS)
    if mirror.external is None:
        if not is_name(mirror.name):
            raise ApiError(error_codes.MIRROR_INVALID_STREAM_NAME)
        _check_size(mirror, config, streams, error_codes.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG)


def _with_mirror_direct(
    mirror: StreamSource, config: StreamConfig, streams: Streams, pedantic: bool
) -> StreamConfig:
    origin = streams.get(mirror.name)
    if mirror.external is not None or origin is None:
        return config
    if pedantic and config.mirror_direct != origin.allow_direct:
        raise pedantic_refusal("origin stream has direct get set, mirror has it disabled")
    return replace(config, mirror_direct=origin.allow_direct)


def _check_sources(config: StreamConfig, streams: Streams, reached: _Reached) -> None:
    if config.sources and config.allow_msg_schedules:
        raise ApiError(error_codes.SOURCE_WITH_MSG_SCHEDULES)
    if len(config.sources) > STREAM_SOURCES_MAX:
        raise invalid("too many sources")
    names: set[object] = set()
    consumers: set[object] = set()
    for source in config.sources:
        if not is_name(source.name):
            raise ApiError(error_codes.SOURCE_INVALID_STREAM_NAME)
        if identity(source) in names:
            raise ApiError(error_codes.SOURCE_DUPLICATE_DETECTED)
        names.add(identity(source))
        _check_source(source)
        if source.consumer is not None:
            # Two sources cannot share what one consumer delivers.
            consumer = (_place(source), source.consumer.name)
            if consumer in consumers:
                raise ApiError(error_codes.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED)
            consumers.add(consumer)
        reached.add(source, streams)
        if source.external is None:
            _check_size(source, config, streams, error_codes.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)


def _check_source(source: StreamSource) -> None:
    if source.filter_subject and source.subject_transforms:
        raise ApiError(error_codes.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED)
    _check_transforms(
        source.subject_transforms,
        error_codes.SOURCE_INVALID_SUBJECT_FILTER,
        error_codes.SOURCE_INVALID_TRANSFORM_DESTINATION,
    )
    check_pairs(len(source.subject_transforms) ** 2)
    filters = [transform.src.encode() for transform in source.subject_transforms]
    for place, one in enumerate(filters):
        if any(place != other and is_subset(one, two) for other, two in enumerate(filters)):
            raise ApiError(error_codes.SOURCE_OVERLAPPING_SUBJECT_FILTERS)
    _check_consumer(source, error_codes.SOURCE_DURABLE_CONSUMER_CFG_INVALID)


def identity(source: StreamSource) -> tuple[object, ...]:
    """Return what makes a source different from the stream's others."""
    consumer = source.consumer.name if source.consumer else None
    if not source.subject_transforms:
        return (*_place(source), consumer, ((source.filter_subject or ">", ">"),))
    pairs = tuple((each.src or ">", each.dest or ">") for each in source.subject_transforms)
    return (*_place(source), consumer, pairs)


def _place(source: StreamSource) -> tuple[str, str | None]:
    return source.name, source.external.api if source.external else None


def _check_transforms(
    transforms: Sequence[SubjectTransformConfig], bad_filter: ErrorCode, bad_destination: ErrorCode
) -> None:
    for transform in transforms:
        if transform.src and not is_subject(transform.src):
            raise ApiError(bad_filter, err=f"invalid subject {transform.src}")
        fault = transform_fault(transform.src, transform.dest)
        if fault is not None:
            raise ApiError(bad_destination, err=fault)


def _check_consumer(origin: StreamSource, refusal: ErrorCode) -> None:
    consumer = origin.consumer
    if consumer is None:
        return
    if (
        not is_name(consumer.name)
        or not is_publish_subject(consumer.deliver_subject)
        or origin.opt_start_seq
        or origin.opt_start_time is not None
        or origin.filter_subject
    ):
        raise ApiError(refusal)


def _check_size(
    origin: StreamSource, config: StreamConfig, streams: Streams, refusal: ErrorCode
) -> None:
    known = streams.get(origin.name)
    if known is not None and 0 < config.max_msg_size < known.max_msg_size:
        raise ApiError(refusal)


def _check_prefixes(reached: _Reached) -> None:
    check_pairs(len(reached.deliver_prefixes) * len(reached.subjects))
    for prefix in reached.deliver_prefixes:
        if not is_publish_subject(prefix):
            raise ApiError(error_codes.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ, prefix=prefix)
        for subject in reached.subjects:
            if collide(subject, f"{prefix}.{subject}"):
                raise ApiError(
                    error_codes.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS, prefix=prefix, subject=subject
                )
    for prefix in reached.api_prefixes:
        if not is_publish_subject(prefix):
            shown = quoted_bytes(prefix.encode())
            raise invalid(
                f"stream external api prefix {shown} must be a valid subject without wildcards"
            )
        if collide(prefix, _API_PREFIX):
            raise ApiError(
                error_codes.STREAM_EXTERNAL_API_OVERLAP, prefix=prefix, subject=_API_PREFIX
            )


def _check_cycles(config: StreamConfig, streams: Streams) -> None:
    waiting = deque([config])
    # A stream is visited once, however many take from it, or the work would grow with every path.
    found = {config.name}
    visited: set[str] = set()
    while waiting:
        stream = waiting.popleft()
        visited.add(stream.name)
        check_pairs(len(stream.sources) * len(stream.subjects))
        following = []
        for source in stream.sources:
            if source.external is None:
                if source.name in visited and _takes(source, stream.subjects):
                    raise invalid("detected cycle")
                following.append(source.name)
        mirror = stream.mirror
        if mirror is not None and mirror.external is None:
            if mirror.name in visited:
                raise invalid("detected cycle")
            following.append(mirror.name)
        for name in following:
            if name in streams and name not in found:
                found.add(name)
                waiting.append(streams[name])


def _takes(source: StreamSource, subjects: Sequence[str]) -> bool:
    return not source.filter_subject or any(
        collide(subject, source.filter_subject) for subject in subjects
    )
