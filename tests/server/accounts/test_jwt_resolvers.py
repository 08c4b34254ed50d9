"""A folder of account JWTs: what is kept, for how long, and what a crash leaves."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.server.accounts.jwt_resolvers import AccountFolder
from penstock.testing.clock import FakeClock
from penstock.testing.filesystem import MemoryFileSystem
from tests.support.tokens import Operator, now

OPERATOR = Operator()
PATH = "/jwt"


def folder_in(files: MemoryFileSystem, clock: FakeClock | None = None, **own: Any) -> AccountFolder:
    return AccountFolder(PATH, files=files, clock=clock or FakeClock(), **own)


def test_what_is_saved_is_found_again_by_the_next_server() -> None:
    files, account = MemoryFileSystem(), OPERATOR.account()
    folder = folder_in(files)

    assert folder.save(account.key.public, account.token)
    assert not folder.save(account.key.public, account.token)

    again = folder_in(files)
    assert again.find(account.key.public) == account.token
    assert list(again.packed()) == [(account.key.public, account.token)]
    assert again.digest == folder.digest


def test_the_digest_is_of_all_tokens_in_any_order() -> None:
    accounts = [OPERATOR.account() for _ in range(3)]
    digests = set()
    for order in (accounts, accounts[::-1]):
        folder = folder_in(MemoryFileSystem())
        for each in order:
            folder.save(each.key.public, each.token)
        digests.add(folder.digest)

    wanted = 0
    for each in accounts:
        wanted ^= int.from_bytes(hashlib.sha256(each.token.encode()).digest(), "big")
    assert digests == {wanted.to_bytes(32, "big")}
    assert folder_in(MemoryFileSystem()).digest == bytes(32)


@pytest.mark.parametrize(
    "name",
    ["", "x", "../../etc/passwd", OPERATOR.key.public],
    ids=["nothing", "a word", "a path", "an operator"],
)
def test_a_name_that_is_no_account_is_never_a_path(name: str) -> None:
    files = MemoryFileSystem()
    folder = folder_in(files)
    before = files.snapshot()

    with pytest.raises(UsageError):
        folder.save(name, "token")
    assert folder.find(name) == ""
    assert not folder.delete(name)
    assert files.snapshot() == before


def test_a_full_folder_takes_no_more() -> None:
    first, second = OPERATOR.account(), OPERATOR.account()
    folder = folder_in(MemoryFileSystem(), count_max=1)
    folder.save(first.key.public, first.token)

    with pytest.raises(UsageError):
        folder.save(second.key.public, second.token)

    assert folder.save(first.key.public, first.change(description="x"))


def test_a_cache_drops_the_account_that_nobody_asked_for_longest() -> None:
    accounts = [OPERATOR.account() for _ in range(3)]
    one, two, three = (each.key.public for each in accounts)
    folder = folder_in(MemoryFileSystem(), count_max=2, is_cache=True)
    for each in accounts[:2]:
        folder.save(each.key.public, each.token)

    folder.find(one)
    folder.save(three, accounts[2].token)

    assert [bool(folder.find(name)) for name in (one, two, three)] == [True, False, True]


def test_a_cache_keeps_an_account_for_a_time() -> None:
    clock, account = FakeClock(), OPERATOR.account()
    folder = folder_in(MemoryFileSystem(), clock, ttl_ns=10 * 10**9, is_cache=True)
    folder.save(account.key.public, account.token)

    clock.advance_seconds(9)
    assert folder.find(account.key.public)
    clock.advance_seconds(9)
    # Being asked for made it young again.
    assert folder.find(account.key.public)
    clock.advance_seconds(10)
    assert folder.find(account.key.public) == ""


def test_an_account_is_kept_until_its_claims_end() -> None:
    clock, account = FakeClock(now() * 10**9), OPERATOR.account()
    account.change(data={"exp": now() + 60})
    folder = folder_in(MemoryFileSystem(), clock)
    folder.save(account.key.public, account.token)

    assert list(folder.packed())
    clock.advance_seconds(120)
    assert list(folder.packed()) == []


def test_an_older_token_does_not_take_the_place_of_a_newer_one() -> None:
    account = OPERATOR.account()
    older = account.change(data={"iat": now() - 60})
    newer = account.change()
    folder = folder_in(MemoryFileSystem())

    assert folder.save_if_newer(account.key.public, newer)
    assert not folder.save_if_newer(account.key.public, older)
    assert folder.find(account.key.public) == newer


@pytest.mark.parametrize("renames", [False, True])
def test_a_deleted_account_is_gone_or_set_aside(renames: bool) -> None:
    files, account = MemoryFileSystem(), OPERATOR.account()
    folder = folder_in(files, renames_deleted=renames)
    folder.save(account.key.public, account.token)

    assert folder.delete(account.key.public)

    assert folder.find(account.key.public) == ""
    assert folder.digest == bytes(32)
    left = [f"{account.key.public}.jwt.deleted"] if renames else []
    assert files.list_names(PATH) == left


def test_files_that_others_changed_are_seen_when_they_are_read_again() -> None:
    files, account = MemoryFileSystem(), OPERATOR.account()
    folder, other = folder_in(files), folder_in(files)
    assert folder.read_again() == []

    other.save(account.key.public, account.token)

    assert folder.read_again() == [account.key.public]
    assert folder.read_again() == []


@pytest.mark.parametrize("seed", range(20))
def test_what_was_saved_outlives_a_crash(seed: int) -> None:
    files, account = MemoryFileSystem(), OPERATOR.account()
    folder_in(files).save(account.key.public, account.token)
    after = account.change(description="new")

    folder_in(files).save(account.key.public, after)
    left = files.crash(Random(seed))

    # What was saved is durable, and nothing else is left over of it.
    assert folder_in(left).find(account.key.public) == after
    assert left.list_names(PATH) == [f"{account.key.public}.jwt"]
