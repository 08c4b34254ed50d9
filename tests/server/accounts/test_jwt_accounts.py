"""Accounts of operators as a server keeps them: loaded with what they need, and ended in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.config.load import load_for_program
from penstock.config.options.server import ServerOptions
from penstock.server.accounts.jwt_accounts import JwtAccount, JwtAccounts
from penstock.testing.clock import FakeClock
from tests.support.tokens import Account, Key, Operator, now


def accounts_of(
    *accounts: Account,
    clock: FakeClock | None = None,
    declare: Callable[[JwtAccount], None] = lambda account: None,
    log: Callable[[str, str], None] = lambda level, text: None,
) -> JwtAccounts:
    text = accounts[0].operator.settings(*accounts)
    options = load_for_program({}, {}, base=ServerOptions(), text=text).options
    return JwtAccounts(
        options,
        clock=clock or FakeClock(now() * 10**9),
        log=log,
        declare=declare,
        announce=lambda account: None,
        expire=lambda account: None,
    )


def taken(subject: str, of: Account, kind: str = "stream", **more: str) -> dict[str, str]:
    return {"subject": subject, "type": kind, "account": of.key.public} | more


def test_an_account_brings_those_that_it_imports_from() -> None:
    operator = Operator()
    first = operator.account("1", exports=[{"subject": "a", "type": "stream"}])
    second = operator.account("2", imports=[taken("a", first)])
    third = operator.account("3", imports=[taken("b", second)])
    known = accounts_of(first, second, third)

    assert known.find(third.key.public) is not None

    assert all(each.key.public in known for each in (first, second, third))
    assert [each.subject for each in known.declared[second.key.public].imports] == ["a"]
    # What nobody exports is not imported, and makes the account incomplete.
    assert known.declared[third.key.public].imports == ()
    found = known.known(third.key.public)
    assert found is not None
    assert not found.is_complete


def test_accounts_that_import_from_each_other_are_both_there() -> None:
    operator = Operator()
    one, other = operator.account("1"), operator.account("2")
    one.change(exports=[{"subject": "a", "type": "stream"}], imports=[taken("b", other)])
    other.change(exports=[{"subject": "b", "type": "stream"}], imports=[taken("a", one)])
    known = accounts_of(one, other)

    known.find(one.key.public)

    for each, subject in ((one, "b"), (other, "a")):
        assert [found.subject for found in known.declared[each.key.public].imports] == [subject]


def test_what_would_come_back_to_where_it_started_is_not_imported() -> None:
    operator = Operator()
    one, other = operator.account("1"), operator.account("2")
    one.change(
        exports=[{"subject": "a", "type": "service"}], imports=[taken("a", other, "service")]
    )
    other.change(
        exports=[{"subject": "a", "type": "service"}], imports=[taken("a", one, "service")]
    )
    known = accounts_of(one, other)

    known.find(one.key.public)

    imports = [known.declared[each.key.public].imports for each in (one, other)]
    assert sum(map(len, imports)) == 1


def test_an_import_waits_for_an_account_that_is_not_there_yet() -> None:
    operator = Operator()
    late = operator.account("L", exports=[{"subject": "a", "type": "stream"}])
    early = operator.account("E", imports=[taken("a", late)])
    told: list[str] = []
    known = accounts_of(early, log=lambda level, text: told.append(text))
    known.find(early.key.public)
    assert known.declared[early.key.public].imports == ()
    assert any(text.startswith(f"Can't locate account [{late.key.public}]") for text in told)

    known.take({late.key.public: late.token})

    assert [each.subject for each in known.declared[early.key.public].imports] == ["a"]


def test_an_account_that_is_removed_takes_its_exports_along() -> None:
    operator = Operator()
    seller = operator.account("S", exports=[{"subject": "a", "type": "stream"}])
    buyer = operator.account("B", imports=[taken("a", seller)])
    known = accounts_of(seller, buyer)
    known.find(buyer.key.public)

    known.remove(seller.key.public)

    assert seller.key.public not in known
    assert known.declared[buyer.key.public].imports == ()


def test_only_the_exporter_and_its_signing_keys_can_activate_an_import() -> None:
    operator, key, start_s = Operator(), Key("A"), now()
    export = {"subject": "a.*", "type": "stream", "token_req": True}
    seller = operator.account("S", exports=[export], signing_keys=[key.public])
    thief, buyer = operator.account("T"), operator.account("B")

    def is_let_in(token: str) -> bool:
        buyer.change(imports=[taken("a.1", seller, token=token)])
        known = accounts_of(seller, buyer, thief, clock=FakeClock(start_s * 10**9))
        # Claims with a token that is not meant for them do not count at all.
        found = known.find(buyer.key.public)
        return found is not None and len(known.declared[buyer.key.public].imports) == 1

    assert is_let_in(seller.activation(buyer, "a.*", "stream"))
    assert is_let_in(seller.activation(buyer, "a.1", "stream", by=key))
    assert not is_let_in("")
    assert not is_let_in(seller.activation(buyer, "a.1", "stream", by=thief.key))
    assert not is_let_in(thief.activation(buyer, "a.*", "stream"))
    assert not is_let_in(seller.activation(thief, "a.*", "stream"))
    assert not is_let_in(seller.activation(buyer, "a.2", "stream"))
    assert not is_let_in(seller.activation(buyer, "a.*", "service"))
    assert not is_let_in(seller.activation(buyer, "a.*", "stream", exp=start_s))
    assert is_let_in(seller.activation(buyer, "a.*", "stream", exp=start_s + 1))


def test_an_activation_that_is_revoked_counts_no_more() -> None:
    operator = Operator()
    export = {"subject": "a", "type": "stream", "token_req": True}
    seller, buyer = operator.account("S", exports=[export]), operator.account("B")
    token = seller.activation(buyer, "a", "stream")
    buyer.change(imports=[taken("a", seller, token=token)])
    known = accounts_of(seller, buyer)
    known.find(buyer.key.public)
    assert len(known.declared[buyer.key.public].imports) == 1

    seller.change(exports=[export | {"revocations": {buyer.key.public: now() + 60}}])
    known.update(seller.key.public, seller.token)

    assert known.declared[buyer.key.public].imports == ()


def test_an_import_ends_with_its_activation() -> None:
    operator = Operator()
    export = {"subject": "ask", "type": "service", "token_req": True}
    seller, buyer = operator.account("S", exports=[export]), operator.account("B")
    start_s = now()
    token = seller.activation(buyer, "ask", "service", exp=start_s + 1)
    buyer.change(imports=[taken("ask", seller, "service", token=token)])

    async def story() -> None:
        ended, clock = asyncio.Event(), FakeClock(start_s * 10**9)
        known: JwtAccounts

        def declared(account: JwtAccount) -> None:
            if account.name == buyer.key.public and not known.declared[account.name].imports:
                ended.set()

        known = accounts_of(seller, buyer, clock=clock, declare=declared)
        known.start(asyncio.get_running_loop())
        known.find(buyer.key.public)
        assert len(known.declared[buyer.key.public].imports) == 1
        # Timers go by the event loop, what counts by the clock.
        clock.advance_seconds(2)

        await ended.wait()
        known.stop()

    asyncio.run(story())
