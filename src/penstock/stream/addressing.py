"""What a stream listens to, and what becomes of its subjects: the rules for all three.

A stream may not listen to the server's own subjects unless it never answers, its subjects may not
overlap each other, and what it publishes again must not come back to it.

Pure. Only the rules of this package call it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from penstock import error_codes
from penstock.errors import ApiError, UsageError
from penstock.limits import STREAM_SUBJECTS_MAX
from penstock.protocol.quoting import quoted
from penstock.routing.transforms import SubjectTransform
from penstock.stream.config import StreamConfig
from penstock.stream.rules import collide, invalid, is_subject, pedantic_refusal
from penstock.stream.subject_index import SubjectIndex
from penstock.subjects import is_subset

_API_SUBJECTS = ("$JS.>", "$JSC.>", "$NRG.>")


def with_subjects(config: StreamConfig) -> StreamConfig:
    """Give a stream the subject of its own name where it has none and no origin; check them."""
    if not config.subjects:
        if config.mirror is None and not config.sources:
            return replace(config, subjects=(config.name,))
        return config
    if len(config.subjects) > STREAM_SUBJECTS_MAX:
        raise invalid("too many subjects to compare")
    index = _index_of(config.subjects)
    for place, subject in enumerate(config.subjects):
        if not is_subject(subject):
            raise invalid("invalid subject")
        _check_reach(config, subject)
        other = index.find(subject, after=place)
        if other is not None:
            ours, theirs = quoted(subject.encode()), quoted(config.subjects[other].encode())
            raise invalid(f"subject {ours} overlaps with {theirs}")
    return config


def _index_of(subjects: Iterable[str]) -> SubjectIndex:
    index = SubjectIndex()
    for place, subject in enumerate(subjects):
        index.add(place, subject)
    return index


def _check_reach(config: StreamConfig, subject: str) -> None:
    if subject == ">":
        if not config.no_ack:
            raise invalid("capturing all subjects requires no-ack to be true")
        if config.num_replicas != 1:
            raise invalid("capturing all subjects requires replicas of 1")
    if config.no_ack:
        return
    is_api = any(collide(subject, reserved) for reserved in _API_SUBJECTS)
    # Events are no requests: nobody would be answered twice.
    if is_api and not is_subset(subject.encode(), b"$JS.EVENT.>"):
        raise invalid("subjects that overlap with jetstream api require no-ack to be true")
    if collide(subject, "$SYS.>") and not is_subset(subject.encode(), b"$SYS.ACCOUNT.>"):
        raise invalid("subjects that overlap with system api require no-ack to be true")


def overlaps(config: StreamConfig, others: Iterable[StreamConfig]) -> bool:
    """Tell whether another stream listens to one of a stream's subjects."""
    index = _index_of(
        subject for other in others if other.name != config.name for subject in other.subjects
    )
    return any(index.find(subject) is not None for subject in config.subjects)


def transform_fault(source: str, destination: str) -> str | None:
    """Say why a transform cannot be; None for one that can, and for no destination at all."""
    if not destination:
        return None
    try:
        SubjectTransform(source, destination)
    except UsageError as error:
        return str(error)
    return None


def check_transform(config: StreamConfig) -> None:
    """Refuse a transform of incoming subjects that cannot be."""
    transform = config.subject_transform
    if transform is None:
        return
    if transform.src and not is_subject(transform.src):
        reason = f"invalid subject {transform.src}"
        raise ApiError(error_codes.STREAM_TRANSFORM_INVALID_SOURCE, err=reason)
    fault = transform_fault(transform.src, transform.dest)
    if fault is not None:
        raise ApiError(error_codes.STREAM_TRANSFORM_INVALID_DESTINATION, err=fault)


def with_republish(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Complete what a stream publishes again; refuse what would come back to it."""
    republish = config.republish
    if republish is None:
        return config
    if not republish.src:
        if pedantic:
            raise pedantic_refusal("republish source can not be empty")
        republish = replace(republish, src=">")
    transform = config.subject_transform
    is_everything = republish.src == republish.dest == ">"
    # Everything to everything would come back, but not where all of it gets another subject first.
    if is_everything and transform is not None and config.subjects == (transform.src,):
        if pedantic:
            raise pedantic_refusal("implicit republish based on subject transform")
        republish = replace(republish, src=transform.dest, dest=transform.dest)
    if any(collide(republish.dest, subject) for subject in config.subjects):
        raise invalid("stream configuration for republish destination forms a cycle")
    if transform_fault(republish.src, republish.dest) is not None:
        raise invalid(
            "stream configuration for republish with transform "
            f"from '{republish.src}' to '{republish.dest}' not valid"
        )
    return replace(config, republish=republish)
