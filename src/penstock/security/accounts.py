"""Accounts: separate subject spaces.

An account has its own subscriptions, limits and mappings, and counts the traffic of its members.
The types of subscriptions and mappings are chosen by the caller; here they are only held.

Invariants: the account `$G` exists, for clients without another account, and so does the system
account unless it was switched off. An account that is declared again keeps its subscriptions and
members, so that a reload does not disturb them. Traffic is counted for the account that the member
was in at that time.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"

NO_LIMIT = -1
"""Where there is no limit; the wire and the configuration say it this way too."""

SublistT = TypeVar("SublistT")
MappingsT = TypeVar("MappingsT")


class AccountLimits(msgspec.Struct, frozen=True):
    """What an account may have at most: of connections in all, of the others each connection."""

    max_connections: int = NO_LIMIT
    max_subscriptions: int = NO_LIMIT
    max_payload: int = NO_LIMIT
    max_leafnodes: int = NO_LIMIT


class Traffic(msgspec.Struct, frozen=True):
    """Messages and bytes, as seen from the server."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.in_msgs + other.in_msgs,
            self.in_bytes + other.in_bytes,
            self.out_msgs + other.out_msgs,
            self.out_bytes + other.out_bytes,
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.in_msgs - other.in_msgs,
            self.in_bytes - other.in_bytes,
            self.out_msgs - other.out_msgs,
            self.out_bytes - other.out_bytes,
        )


class Member(Protocol):
    """A connection, as far as its account looks at it."""

    @property
    def in_msgs(self) -> int:
        """Messages that it sent to the server."""
        ...

    @property
    def in_bytes(self) -> int:
        """Bytes of these."""
        ...

    @property
    def out_msgs(self) -> int:
        """Messages that it was sent."""
        ...

    @property
    def out_bytes(self) -> int:
        """Bytes of these."""
        ...


class Account(Generic[SublistT, MappingsT]):
    """One account; see the module."""

    def __init__(
        self,
        name: str,
        sublist: SublistT,
        *,
        limits: AccountLimits | None = None,
        mappings: MappingsT | None = None,
        is_system: bool = False,
    ) -> None:
        self.name = name
        # What people call it, where its name is a key.
        self.name_tag = ""
        self.sublist = sublist
        self.limits = limits or AccountLimits()
        self.mappings = mappings
        self.is_system = is_system
        # Where messages with a sampled `traceparent` are traced to, and how many in 100 of them.
        self.trace_destination = ""
        self.trace_sampling = 100
        self.slow_receivers = 0
        self._past = Traffic()
        # What each had done before it came.
        self._clients: dict[Member, Traffic] = {}
        self._leafnodes: dict[Member, Traffic] = {}

    def __repr__(self) -> str:
        return f"Account({self.name!r})"

    @property
    def declaration(self) -> tuple[AccountLimits, MappingsT | None, str, int, str]:
        """Everything that a configuration or claims declare, and that a reload may change."""
        tracing = self.trace_destination, self.trace_sampling
        return self.limits, self.mappings, *tracing, self.name_tag

    @declaration.setter
    def declaration(self, stated: tuple[AccountLimits, MappingsT | None, str, int, str]) -> None:
        self.limits, self.mappings = stated[:2]
        self.trace_destination, self.trace_sampling, self.name_tag = stated[2:]

    @property
    def label(self) -> str:
        """The name as log lines show it."""
        return f"{self.name}/{self.name_tag}" if self.name_tag else self.name

    @property
    def client_count(self) -> int:
        """How many clients are in it now."""
        return len(self._clients)

    @property
    def leafnode_count(self) -> int:
        """How many leaf nodes are in it now."""
        return len(self._leafnodes)

    def clients(self) -> tuple[Member, ...]:
        """Return the clients of the account, the oldest first."""
        return tuple(self._clients)

    def enter(self, client: Member) -> bool:
        """Take a client in; False where the account is full."""
        return self._enter(self._clients, client, self.limits.max_connections)

    def enter_leafnode(self, leafnode: Member) -> bool:
        """Take a leaf node in; False where the account has as many as it may."""
        return self._enter(self._leafnodes, leafnode, self.limits.max_leafnodes)

    def _enter(self, members: dict[Member, Traffic], member: Member, count_max: int) -> bool:
        if member not in members:
            if 0 <= count_max <= len(members):
                return False
            members[member] = _done_by(member)
        return True

    def leave(self, member: Member) -> None:
        """Remove a member if it is in the account; its traffic stays counted."""
        for members in (self._clients, self._leafnodes):
            before = members.pop(member, None)
            if before is not None:
                self._past += _done_by(member) - before

    def traffic(self) -> Traffic:
        """Return the traffic of all members while they were in the account."""
        total = self._past
        for members in (self._clients, self._leafnodes):
            for member, before in members.items():
                total += _done_by(member) - before
        return total

    def leafnode_traffic(self) -> Traffic:
        """Return the traffic of the leaf nodes that are connected now."""
        total = Traffic()
        for member, before in self._leafnodes.items():
            total += _done_by(member) - before
        return total


class Accounts(Generic[SublistT, MappingsT]):
    """The accounts of one server, by name and in the order of their declaration.

    `system_name` is None where there shall be no system account.
    """

    def __init__(
        self, new_sublist: Callable[[], SublistT], *, system_name: str | None = SYSTEM_ACCOUNT
    ) -> None:
        self._new_sublist = new_sublist
        self._system_name = system_name
        self._accounts: dict[str, Account[SublistT, MappingsT]] = {}
        self.global_account = self.declare(GLOBAL_ACCOUNT)
        if system_name is not None:
            self.declare(system_name)

    def declare(
        self,
        name: str,
        *,
        limits: AccountLimits | None = None,
        mappings: MappingsT | None = None,
    ) -> Account[SublistT, MappingsT]:
        """Return the account of this name with these limits and mappings, created if need be."""
        account = self._accounts.get(name)
        if account is None:
            account = Account(name, self._new_sublist(), is_system=name == self._system_name)
            self._accounts[name] = account
        account.limits = limits or AccountLimits()
        account.mappings = mappings
        return account

    def snapshot(self) -> Callable[[], None]:
        """Return a function that brings back the accounts, limits and mappings of now.

        Members, subscriptions and counts are not part of it. The function does not fail.
        """
        accounts = dict(self._accounts)
        declared = [(each, each.declaration) for each in accounts.values()]

        def restore() -> None:
            self._accounts = accounts
            for account, declaration in declared:
                account.declaration = declaration

        return restore

    def remove(self, name: str) -> bool:
        """Remove an account; return False if it is absent or must always exist."""
        if name in (GLOBAL_ACCOUNT, self._system_name):
            return False
        return self._accounts.pop(name, None) is not None

    def find(self, name: str) -> Account[SublistT, MappingsT] | None:
        """Return the account of this name, or None."""
        return self._accounts.get(name)

    @property
    def system_account(self) -> Account[SublistT, MappingsT] | None:
        """The system account, or None if it was switched off."""
        return None if self._system_name is None else self._accounts[self._system_name]

    def has_others(self) -> bool:
        """Return True if there is any account besides `$G` and the system account."""
        return bool(self._accounts.keys() - {GLOBAL_ACCOUNT, self._system_name})

    def __iter__(self) -> Iterator[Account[SublistT, MappingsT]]:
        return iter(tuple(self._accounts.values()))

    def __len__(self) -> int:
        return len(self._accounts)


def tighter(one: int, other: int) -> int:
    """Return the lower of two limits; a negative limit is no limit."""
    if one < 0 or other < 0:
        return max(one, other, NO_LIMIT)
    return min(one, other)


def _done_by(member: Member) -> Traffic:
    return Traffic(member.in_msgs, member.in_bytes, member.out_msgs, member.out_bytes)
