"""Subjects: which ones a stream may listen to, transform and publish again.

A stream may not listen to the server's own subjects unless it never acknowledges. Its subjects may
not overlap each other or another stream's. What it publishes again must not come back to it.

`SubjectIndex` compares many subjects with many others. Literal subjects collide with equal ones
only, patterns with those of the same first token or with a wildcard there; nothing else is
compared. The number of pairs that are left is bounded, since it grows with the square of what a
client sends.

Pure; one thread. Only the rules of streams and consumers call it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from penstock import error_codes
from penstock.errors import ApiError, UsageError
from penstock.limits import STREAM_SUBJECTS_MAX, SUBJECT_PAIRS_MAX
from penstock.routing.subject_transform import SubjectTransform
from penstock.stream.config.config import StreamConfig
from penstock.subjects import is_literal, is_subset, is_valid_subject, patterns_overlap
from penstock.text.quoting import quoted_bytes

_NOT_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")


def invalid(reason: str) -> ApiError:
    """Return the refusal of an invalid configuration."""
    return ApiError(error_codes.STREAM_INVALID_CONFIG, err=reason)


def pedantic_refusal(reason: str) -> ApiError:
    """Return the refusal of what would be corrected silently for a client that is not pedantic."""
    return ApiError(error_codes.PEDANTIC, err=reason)


def check_pairs(pair_count: int) -> None:
    """Raise ApiError if more pairs of subjects are to be compared than a moment's work."""
    if pair_count > SUBJECT_PAIRS_MAX:
        raise invalid("too many subjects to compare")


def is_name(name: str) -> bool:
    """Return True if a stream or consumer may have this name, as far as its characters go."""
    return bool(name) and _NOT_IN_NAMES.isdisjoint(name)


def is_subject(subject: str) -> bool:
    """Return True for a valid subject, wildcards allowed."""
    return is_valid_subject(subject.encode())


def is_publish_subject(subject: str) -> bool:
    """Return True for a valid subject without wildcards."""
    return is_valid_subject(subject.encode()) and is_literal(subject.encode())


def collide(one: str, other: str) -> bool:
    """Return True if a subject can match both."""
    return patterns_overlap(one.encode(), other.encode())


_Placed = list[tuple[int, bytes]]


class SubjectIndex:
    """Subjects by their index in a list; they are added in ascending order of it."""

    def __init__(self) -> None:
        self._literals: defaultdict[bytes, list[int]] = defaultdict(list)
        self._literals_by_first: defaultdict[bytes, _Placed] = defaultdict(list)
        self._patterns_by_first: defaultdict[bytes, _Placed] = defaultdict(list)
        self._all: _Placed = []
        self._compared_count = 0

    def add(self, place: int, subject: str) -> None:
        """Add a subject with its index."""
        raw = subject.encode()
        first = _first(raw)
        self._all.append((place, raw))
        if is_literal(raw):
            self._literals[raw].append(place)
            self._literals_by_first[first].append((place, raw))
        else:
            self._patterns_by_first[first].append((place, raw))

    def find(self, subject: str, *, after: int = -1) -> int | None:
        """Return the lowest index above `after` whose subject collides with this one, or None.

        Raise ApiError if that would take too long.
        """
        raw = subject.encode()
        first = _first(raw)
        found: list[int] = []
        if not first:
            candidates = [self._all]
        else:
            candidates = [self._patterns_by_first[first], self._patterns_by_first[b""]]
            if is_literal(raw):
                found += [place for place in self._literals[raw][:2] if place > after]
            else:
                candidates.append(self._literals_by_first[first])
        for placed in candidates:
            hit = self._find_among(placed, raw, after)
            found += [] if hit is None else [hit]
        return min(found, default=None)

    def _find_among(self, placed: _Placed, raw: bytes, after: int) -> int | None:
        self._compared_count += len(placed)
        check_pairs(self._compared_count)
        for place, other in placed:
            if place > after and patterns_overlap(raw, other):
                return place
        return None


def _first(subject: bytes) -> bytes:
    # Empty for a wildcard: a valid subject does not begin with an empty token.
    token = subject.partition(b".")[0]
    return b"" if token in (b"*", b">") else token


_API_SUBJECTS = ("$JS.>", "$JSC.>", "$NRG.>")


def with_subjects(config: StreamConfig) -> StreamConfig:
    """Check a stream's subjects; without any, and without origins, it gets that of its own name."""
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
            ours = quoted_bytes(subject.encode())
            theirs = quoted_bytes(config.subjects[other].encode())
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
    # Advisories are not requests: no request would be answered twice.
    if is_api and not is_subset(subject.encode(), b"$JS.EVENT.>"):
        raise invalid("subjects that overlap with jetstream api require no-ack to be true")
    if collide(subject, "$SYS.>") and not is_subset(subject.encode(), b"$SYS.ACCOUNT.>"):
        raise invalid("subjects that overlap with system api require no-ack to be true")


def transform_fault(source: str, destination: str) -> str | None:
    """Return why a transform is invalid; None for a valid one and for no destination."""
    if not destination:
        return None
    try:
        SubjectTransform(source, destination)
    except UsageError as error:
        return str(error)
    return None


def check_transform(config: StreamConfig) -> None:
    """Raise ApiError for an invalid transform of incoming subjects."""
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
    """Complete what a stream publishes again; raise ApiError for what would come back to it."""
    republish = config.republish
    if republish is None:
        return config
    if not republish.src:
        if pedantic:
            raise pedantic_refusal("republish source can not be empty")
        republish = replace(republish, src=">")
    transform = config.subject_transform
    is_everything = republish.src == republish.dest == ">"
    # Everything to everything would come back, unless all subjects are transformed first.
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
