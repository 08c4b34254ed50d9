"""What rules share: how they refuse, and what is a name or a subject.

Pure. Only the rules of streams and consumers call it.
"""

from __future__ import annotations

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import SUBJECT_PAIRS_MAX
from penstock.subjects import is_literal, is_valid_subject, patterns_overlap

_NOT_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")


def invalid(reason: str) -> ApiError:
    """Give the refusal of a configuration that cannot be."""
    return ApiError(error_codes.STREAM_INVALID_CONFIG, err=reason)


def pedantic_refusal(reason: str) -> ApiError:
    """Give the refusal of what would be corrected silently for a less demanding client."""
    return ApiError(error_codes.PEDANTIC, err=reason)


def check_pairs(pair_count: int) -> None:
    """Refuse to compare more pairs of subjects than a moment's work; raise ApiError."""
    if pair_count > SUBJECT_PAIRS_MAX:
        raise invalid("too many subjects to compare")


def is_name(name: str) -> bool:
    """Tell whether a stream or consumer may have this name, as far as its characters go."""
    return bool(name) and _NOT_IN_NAMES.isdisjoint(name)


def is_subject(subject: str) -> bool:
    """Tell whether this is a subject, wildcards included."""
    return is_valid_subject(subject.encode())


def is_publish_subject(subject: str) -> bool:
    """Tell whether this is a subject without wildcards."""
    return is_valid_subject(subject.encode()) and is_literal(subject.encode())


def collide(one: str, other: str) -> bool:
    """Tell whether a message could be meant by both."""
    return patterns_overlap(one.encode(), other.encode())
