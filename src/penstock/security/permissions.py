"""What a client may publish and subscribe to.

The rules are the reference server's, with its corners:

- A list that is absent allows everything; an empty publish list allows nothing, an empty subscribe
  list everything. A deny always wins over an allow.
- A subject is compared literally, wildcards and all: `foo.*` allows a subscription to `foo.>`,
  whose last token is one token like any other, and `foo.secret` does not deny one to `foo.*`.
  What such a subscription must not see is kept from it at delivery (`delivery_deny`).
- A subscribe entry may name a queue group, `"foo workers.*"`; it then speaks of that group's
  members only. Where an allow list has such entries for a subject, members of other groups are out.
- A subject with an empty token matches no entry.

Invariant: a `Permissions` always gives the same answer to the same question.

Called by connections, on the event loop's thread. What is asked for each publish is compiled:
`security.publishing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from penstock.errors import UsageError
from penstock.security.publishing import PublishPermissions, ResponsePermissions
from penstock.subjects import (
    SubjectFilter,
    is_literal,
    is_subset,
    is_valid_subject,
    matches,
    patterns_overlap,
)

RESPONSES_MAX_DEFAULT = 1
"""Messages to one reply subject where `allow_responses` does not say."""

RESPONSES_EXPIRE_NS_DEFAULT = 120 * 10**9
"""How long a reply subject may be answered where `allow_responses` does not say."""

QueueEntry = tuple[bytes, bytes]
"""A subject pattern and the queue pattern whose groups it is for."""


class ResponseOptions(Protocol):
    """The right to answer, as a configuration states it."""

    @property
    def max(self) -> int:
        """Messages to one reply subject."""
        ...

    @property
    def expires_ns(self) -> int:
        """How long it may be answered."""
        ...


class PermissionOptions(Protocol):
    """Permissions as a configuration states them."""

    @property
    def publish_allow(self) -> tuple[str, ...] | None:
        """Subjects to publish to; None for all."""
        ...

    @property
    def publish_deny(self) -> tuple[str, ...] | None:
        """Subjects not to publish to."""
        ...

    @property
    def subscribe_allow(self) -> tuple[str, ...] | None:
        """Subjects to subscribe to; None or none for all."""
        ...

    @property
    def subscribe_deny(self) -> tuple[str, ...] | None:
        """Subjects not to subscribe to."""
        ...

    @property
    def responses(self) -> ResponseOptions | None:
        """The right to answer; None for no such right."""
        ...


class Permissions:
    """What one user may; see the module.

    `responses` is (most messages, nanoseconds) for each reply subject: 0 is the default, and a
    negative number is no bound. With it and without a publish list, nothing else may be published.
    Raises UsageError, in the reference server's words, for an entry that is not valid.
    """

    def __init__(
        self,
        *,
        publish_allow: Iterable[str] | None = None,
        publish_deny: Iterable[str] = (),
        subscribe_allow: Iterable[str] | None = None,
        subscribe_deny: Iterable[str] = (),
        responses: tuple[int, int] | None = None,
    ) -> None:
        if responses is not None:
            publish_allow = () if publish_allow is None else publish_allow
            responses = (
                responses[0] or RESPONSES_MAX_DEFAULT,
                responses[1] or RESPONSES_EXPIRE_NS_DEFAULT,
            )
        self.publish_allow = None if publish_allow is None else tuple(publish_allow)
        self.publish_deny = tuple(publish_deny)
        self.subscribe_allow = tuple(subscribe_allow or ())
        self.subscribe_deny = tuple(subscribe_deny)
        self.responses = responses
        allow = _publish_patterns("publish allow", self.publish_allow or ())
        self.publishing = PublishPermissions(
            None if self.publish_allow is None else allow,
            _publish_patterns("publish deny", self.publish_deny),
        )
        """The answers for each publish, compiled."""

        self._plain_allow, self._queue_allow = _subscribe_entries(
            "subscribe allow", self.subscribe_allow
        )
        self._plain_deny, self._queue_deny = _subscribe_entries(
            "subscribe deny", self.subscribe_deny
        )

    @classmethod
    def from_options(cls, options: PermissionOptions) -> Permissions:
        """Build from what a configuration states."""
        responses = options.responses
        return cls(
            publish_allow=options.publish_allow,
            publish_deny=options.publish_deny or (),
            subscribe_allow=options.subscribe_allow,
            subscribe_deny=options.subscribe_deny or (),
            responses=None if responses is None else (responses.max, responses.expires_ns),
        )

    def _stated(self) -> tuple[object, ...]:
        return (
            self.publish_allow,
            self.publish_deny,
            self.subscribe_allow,
            self.subscribe_deny,
            self.responses,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Permissions):
            return NotImplemented
        return self._stated() == other._stated()

    def __hash__(self) -> int:
        return hash(self._stated())

    @property
    def checks_publish(self) -> bool:
        """Whether there is any subject that may not be published to."""
        return self.publish_allow is not None or bool(self.publish_deny)

    def may_publish(self, subject: bytes) -> bool:
        """Return True if `subject` may be published to, responses aside."""
        return self.publishing.allows(subject)

    def may_subscribe(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Return True if a subscription is allowed, in the group `queue` or without one."""
        if b"" in subject.split(b"."):
            return not self.subscribe_allow
        return self._is_subscribe_allowed(subject, queue) and not (
            _any_matches(self._plain_deny, subject)
            or any(_queue_fits(each, queue) for each in _named(self._queue_deny, subject))
        )

    def _is_subscribe_allowed(self, subject: bytes, queue: bytes | None) -> bool:
        if not self.subscribe_allow:
            return True
        named = _named(self._queue_allow, subject) if queue else []
        if named:
            return any(_queue_fits(each, queue) for each in named)
        return _any_matches(self._plain_allow, subject)

    def delivery_deny(self, subject: bytes, queue: bytes | None = None) -> SubjectFilter | None:
        """Return what an allowed subscription must not receive; None for nothing."""
        denied = [each for each in self._plain_deny if patterns_overlap(each, subject)]
        denied += (
            each
            for each, group in self._queue_deny
            if patterns_overlap(each, subject) and _queue_fits(group, queue)
        )
        return SubjectFilter(denied) if denied else None

    def new_responses(self) -> ResponsePermissions | None:
        """Return a new memory of replies for a connection; None if responses are not allowed."""
        if self.responses is None:
            return None
        return ResponsePermissions(self.publishing, *self.responses)


def _publish_patterns(what: str, entries: tuple[str, ...]) -> tuple[bytes, ...]:
    patterns = tuple(_encoded(entry) for entry in entries)
    for entry, pattern in zip(entries, patterns, strict=True):
        if not is_valid_subject(pattern):
            raise UsageError(f'{what}: subject "{entry}" is not a valid subject')
    return patterns


def _subscribe_entries(
    what: str, entries: tuple[str, ...]
) -> tuple[tuple[bytes, ...], tuple[QueueEntry, ...]]:
    plain: list[bytes] = []
    queued: list[QueueEntry] = []
    for entry in entries:
        words = entry.split()
        subject = words[0] if len(words) == 2 else entry
        if not is_valid_subject(_encoded(subject)):
            raise UsageError(f'{what}: subject "{subject}" is not a valid subject')
        if len(words) == 1:
            plain.append(_encoded(subject))
        elif is_valid_subject(_encoded(words[1])):
            queued.append((_encoded(subject), _encoded(words[1])))
        else:
            raise UsageError(f'{what}: queue "{words[1]}" is not a valid queue')
    return tuple(plain), tuple(queued)


def _encoded(text: str) -> bytes:
    # A configuration file may hold bytes that are no text; on the wire they are the same bytes.
    return text.encode("utf-8", "surrogateescape")


def _any_matches(patterns: tuple[bytes, ...], subject: bytes) -> bool:
    return any(matches(pattern, subject) for pattern in patterns)


def _named(entries: tuple[QueueEntry, ...], subject: bytes) -> list[bytes]:
    """Return the queue patterns of the entries that select a subject."""
    return [queue for pattern, queue in entries if matches(pattern, subject)]


def _queue_fits(pattern: bytes, queue: bytes | None) -> bool:
    """Return True if an entry for the groups `pattern` is for `queue`; None is no group."""
    if not queue:
        return False
    if queue == pattern:
        return True
    if is_literal(pattern) or not is_subset(queue, pattern):
        return False
    # Within a group's name `*` stands for a token that is not empty; `>` for any rest.
    tokens = pattern.split(b".")
    compared = len(tokens) - (tokens[-1] == b">")
    return b"" not in queue.split(b".")[:compared]
