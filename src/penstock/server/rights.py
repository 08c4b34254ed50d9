"""What a connection may: its account, its user's permissions, and what follows for each operation.

Joins what `security` decides with what `net` asks. One object belongs to one connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.routing.sublist import Sublist
from penstock.routing.transforms import SubjectMappings
from penstock.security.accounts import Account, tighter
from penstock.security.permissions import Permissions, ResponsePermissions
from penstock.subjects import SubjectFilter

if TYPE_CHECKING:
    # A server without operators starts without loading what is about tokens.
    from penstock.security.token_authenticator import Grant


class Rights:
    """One connection's rights; see the module."""

    def __init__(
        self,
        account: Account[Sublist, SubjectMappings],
        *,
        user: str,
        permissions: Permissions | None,
        clock: Clock,
        grant: Grant | None = None,
    ) -> None:
        self.account = account
        self.grant = grant
        self.user = user
        self.permissions = permissions
        self._clock = clock
        self._responses: ResponsePermissions | None = None
        if permissions is not None:
            self._responses = permissions.new_responses()

    @property
    def account_name(self) -> str:
        """The account's name."""
        return self.account.name

    @property
    def account_label(self) -> str:
        """The account as log lines show it."""
        return self.account.label

    @property
    def token_user(self) -> str:
        """The public key of a user that came with a token; "" for any other."""
        return self.user if self.grant is not None else ""

    @property
    def sublist(self) -> Sublist:
        """The account's subscriptions."""
        return self.account.sublist

    @property
    def checks_publish(self) -> bool:
        """Tell whether each publish must be looked at."""
        limited = self.permissions is not None and self.permissions.checks_publish
        return limited or self.account.mappings is not None

    @property
    def traces_parents(self) -> bool:
        """Tell whether messages with a sampled `traceparent` are traced."""
        return bool(self.account.trace_destination)

    @property
    def tracks_replies(self) -> bool:
        """Tell whether replies that are delivered must be noted."""
        return self._responses is not None

    def may_publish(self, subject: bytes) -> bool:
        """Tell whether the user may publish to a subject."""
        if self.permissions is None or self.permissions.may_publish(subject):
            return True
        return self._responses is not None and self._responses.allows(
            subject, self._clock.monotonic_ns()
        )

    def may_trace_to(self, subject: bytes) -> bool:
        """Tell whether traces of the user's messages may go to a subject."""
        return self.permissions is None or self.permissions.may_publish(subject)

    def note_reply(self, reply: bytes) -> None:
        """Let the user answer to a reply subject that it was given."""
        assert self._responses is not None
        assert self.permissions is not None
        if not self.permissions.may_publish(reply):
            self._responses.note(reply, self._clock.monotonic_ns())

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        """Tell whether the user may subscribe."""
        return self.permissions is None or self.permissions.may_subscribe(subject, queue)

    def delivery_deny(self, subject: bytes, queue: bytes | None) -> SubjectFilter | None:
        """Give the subjects that a subscription matches and must not be given."""
        if self.permissions is None:
            return None
        return self.permissions.delivery_deny(subject, queue)

    def mapped(self, subject: bytes) -> bytes:
        """Give the subject that a publish goes on with."""
        return subject if self.account.mappings is None else self.account.mappings.map(subject)

    def max_payload(self, server_max: int) -> int:
        """Give the largest payload the user may send."""
        own = self.account.limits.max_payload
        if self.grant is not None:
            return tighter(tighter(self.grant.grants.payload, own), server_max)
        return min(server_max, own) if own > 0 else server_max

    def max_subscriptions(self, server_max: int) -> int:
        """Give how many subscriptions a connection may have; 0 for any number."""
        own = self.account.limits.max_subscriptions
        if self.grant is not None:
            own = tighter(self.grant.grants.subs, own)
        if own > 0 and server_max > 0:
            return min(server_max, own)
        return max(own, server_max, 0)

    @property
    def forbids_subscriptions(self) -> bool:
        """Tell whether there may not be a single subscription: then there is no connection."""
        own = self.account.limits.max_subscriptions
        return self.grant is not None and tighter(self.grant.grants.subs, own) == 0
