"""Accounts: who is in them, what they may have, what was done in them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.accounts import Account, AccountLimits, Accounts, Traffic, tighter


@dataclass(eq=False)
class Link:
    """Counts, as a connection does."""

    in_msgs: int = 0
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0

    def work(self, messages: int) -> None:
        self.in_msgs += messages
        self.in_bytes += messages * 10
        self.out_msgs += messages * 100
        self.out_bytes += messages * 1000


def worked(messages: int) -> Traffic:
    return Traffic(messages, messages * 10, messages * 100, messages * 1000)


def new_accounts(system_name: str | None = "$SYS") -> Accounts[list[str], str]:
    return Accounts(list, system_name=system_name)


def test_the_global_and_the_system_account_always_exist() -> None:
    accounts = new_accounts("OPS")

    assert [account.name for account in accounts] == ["$G", "OPS"]
    assert accounts.system_account is accounts.find("OPS")
    assert accounts.global_account is accounts.find("$G")
    assert [account.is_system for account in accounts] == [False, True]
    assert not accounts.has_others()
    assert not accounts.remove("$G")
    assert not accounts.remove("OPS")


def test_the_system_account_can_be_switched_off() -> None:
    accounts = new_accounts(None)

    assert accounts.system_account is None
    assert len(accounts) == 1


def test_each_account_has_its_own_subscriptions() -> None:
    accounts = new_accounts()

    one, other = accounts.declare("A"), accounts.declare("B")

    assert one.sublist is not other.sublist
    assert accounts.has_others()


def test_an_account_that_is_declared_again_keeps_subscriptions_and_members() -> None:
    accounts = new_accounts()
    first = accounts.declare("A", limits=AccountLimits(max_connections=1), mappings="old")
    client = Link()
    first.enter(client)

    again = accounts.declare("A", limits=AccountLimits(max_connections=2), mappings="new")

    assert again is first
    assert again.clients() == (client,)
    assert again.mappings == "new"
    assert again.enter(Link())
    assert accounts.declare("A").limits == AccountLimits()


def test_a_removed_account_is_gone() -> None:
    accounts = new_accounts()
    accounts.declare("A")

    assert accounts.remove("A")
    assert not accounts.remove("A")
    assert accounts.find("A") is None


@pytest.mark.parametrize(("limit", "taken"), [(-1, 3), (0, 0), (2, 2)])
def test_an_account_takes_as_many_as_it_may(limit: int, taken: int) -> None:
    account: Account[None, None] = Account(
        "A", None, limits=AccountLimits(max_connections=limit, max_leafnodes=limit)
    )

    assert [account.enter(Link()) for _ in range(3)].count(True) == taken
    assert [account.enter_leafnode(Link()) for _ in range(3)].count(True) == taken
    assert account.client_count == account.leafnode_count == taken


def test_who_leaves_makes_room_and_who_enters_twice_counts_once() -> None:
    account: Account[None, None] = Account("A", None, limits=AccountLimits(max_connections=1))
    client = Link()

    assert account.enter(client)
    assert account.enter(client)
    assert not account.enter(Link())
    account.leave(client)
    account.leave(client)
    assert account.enter(Link())


def test_traffic_belongs_to_the_account_in_which_it_happened() -> None:
    one: Account[None, None] = Account("A", None)
    other: Account[None, None] = Account("B", None)
    client = Link()
    one.enter(client)
    client.work(5)
    one.leave(client)
    client.work(100)
    other.enter(client)
    client.work(3)

    assert one.traffic() == worked(5)
    assert other.traffic() == worked(3)


def test_leaf_nodes_are_told_apart() -> None:
    account: Account[None, None] = Account("A", None)
    client, leafnode = Link(), Link()
    account.enter(client)
    account.enter_leafnode(leafnode)
    client.work(1)
    leafnode.work(2)

    assert account.traffic() == worked(3)
    assert account.leafnode_traffic() == worked(2)


@given(st.integers(-1, 5), st.integers(-1, 5))
def test_the_tighter_limit_counts_and_a_negative_one_is_none(one: int, other: int) -> None:
    limits = [limit for limit in (one, other) if limit >= 0]

    assert tighter(one, other) == min(limits, default=-1)
