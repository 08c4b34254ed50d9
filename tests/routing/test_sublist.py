"""Subscriptions by subject, against a list of patterns that is searched from end to end."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from penstock.errors import UsageError
from penstock.routing.sublist import Matches, Receiver, Sublist, Subscription
from tests.models import subjects as model

WORDS = [b"a", b"b", b"c", b"*", b">", b"*x", b">x"]
patterns = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(b".".join)
valid_patterns = patterns.filter(model.is_valid)
subjects = st.lists(st.sampled_from([*WORDS, b""]), min_size=1, max_size=4).map(b".".join)
queues = st.sampled_from([None, None, b"q", b"r"])

RECEIVER = Receiver()


def subscription(subject: bytes, queue: bytes | None = None) -> Subscription:
    return Subscription(RECEIVER, subject, b"1", queue)


def expected(subject: bytes, held: list[Subscription]) -> tuple[set[int], dict[bytes, set[int]]]:
    """Return the plain ones and the members of each group, by looking at every subscription."""
    plain: set[int] = set()
    groups: dict[bytes, set[int]] = {}
    for each in held:
        # An empty token is never published to, not even as seen by `>`.
        if b"" in subject.split(b".") or not model.matches(each.subject, subject):
            continue
        if each.queue is None:
            plain.add(id(each))
        else:
            groups.setdefault(each.queue, set()).add(id(each))
    return plain, groups


def found(matches: Matches) -> tuple[set[int], dict[bytes, set[int]]]:
    groups: dict[bytes, set[int]] = {}
    for members in matches.queues:
        assert members, "an empty group has no place"
        assert members[0].queue is not None
        assert members[0].queue not in groups, "a group comes once"
        groups[members[0].queue] = {id(each) for each in members}
    assert len({id(each) for each in matches.plain}) == len(matches.plain), "each comes once"
    return {id(each) for each in matches.plain}, groups


class SublistMachine(RuleBasedStateMachine):
    """Inserts, removes and matches in any order: the cache must never show."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.sublist = Sublist()
        self.model: list[Subscription] = []

    @rule(target=held, subject=valid_patterns, queue=queues)
    def insert(self, subject: bytes, queue: bytes | None) -> Subscription:
        added = subscription(subject, queue)
        self.sublist.insert(added)
        self.model.append(added)
        return added

    @rule(gone=consumes(held))
    def remove(self, gone: Subscription) -> None:
        assert self.sublist.remove(gone)
        assert not self.sublist.remove(gone)
        assert gone.closed
        self.model.remove(gone)

    @rule(subject=subjects)
    def match(self, subject: bytes) -> None:
        assert found(self.sublist.matches(subject)) == expected(subject, self.model)

    @invariant()
    def holds_what_was_inserted(self) -> None:
        assert self.sublist.count == len(self.model)
        assert {id(each) for each in self.sublist.subscriptions()} == {id(e) for e in self.model}


SublistMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestSublist = SublistMachine.TestCase


@given(patterns.filter(lambda pattern: not model.is_valid(pattern)))
def test_a_pattern_that_is_not_one_is_refused(pattern: bytes) -> None:
    sublist = Sublist()

    with pytest.raises(UsageError):
        sublist.insert(subscription(pattern))
    assert sublist.count == 0


@pytest.mark.parametrize("subject", [b"a\x01", b"\x7f", b"\xff.\x00"])
def test_any_byte_may_stand_in_a_token(subject: bytes) -> None:
    sublist = Sublist()
    sublist.insert(subscription(subject))

    assert len(sublist.matches(subject).plain) == 1


def test_matches_are_remembered_until_anything_changes() -> None:
    sublist = Sublist()
    sublist.insert(subscription(b"a.*"))

    first = sublist.matches(b"a.b")

    assert sublist.matches(b"a.b") is first
    assert sublist.cached == 1
    sublist.insert(subscription(b"other"))
    assert sublist.cached == 0
    assert sublist.matches(b"a.b") is not first


def test_one_answer_serves_all_subjects_whose_difference_nobody_looks_at() -> None:
    sublist = Sublist()
    sublist.insert(subscription(b"a.b.>"))
    sublist.insert(subscription(b"a.c.*.d"))

    first = sublist.matches(b"a.b.1.2.3")

    assert sublist.matches(b"a.b.4") is first
    assert sublist.matches(b"a.b.5.6") is first
    assert not sublist.matches(b"a.b").plain
    assert not sublist.matches(b"a.b..5").plain
    assert sublist.matches(b"a.c.1.d") is not sublist.matches(b"a.c.1.e")


def test_no_more_subjects_are_remembered_than_there_is_room() -> None:
    sublist = Sublist()

    for number in range(50_000):
        sublist.matches(b"subject.%d" % number)

    assert 0 < sublist.cached <= 8192


def test_literals_come_before_wildcards_of_the_last_token() -> None:
    sublist = Sublist()
    wild, literal = subscription(b"a.*"), subscription(b"a.b")
    sublist.insert(wild)
    sublist.insert(literal)

    assert sublist.matches(b"a.b").plain == [literal, wild]


def test_members_of_a_group_meet_across_patterns() -> None:
    sublist = Sublist()
    for pattern in (b"a.b", b"a.*", b">"):
        sublist.insert(subscription(pattern, b"q"))

    groups = sublist.matches(b"a.b").queues

    assert [len(members) for members in groups] == [3]


def test_memory_comes_back_when_subscriptions_go() -> None:
    def fill_and_empty(sublist: Sublist) -> None:
        held = [
            subscription(b"a.%d.%d.*" % (number % 100, number), b"q" if number % 2 else None)
            for number in range(20_000)
        ]
        for each in held:
            sublist.insert(each)
        for each in held:
            assert sublist.remove(each)

    sublist = Sublist()
    fill_and_empty(sublist)
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        fill_and_empty(sublist)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

    # One node left behind for each would be many megabytes.
    assert after - before < 100_000
    assert sublist.count == 0
    assert list(sublist.subscriptions()) == []


@pytest.mark.slow
def test_a_subject_of_many_tokens_does_not_exhaust_the_stack() -> None:
    sublist = Sublist()
    tokens = 1_000_000
    wild = subscription(b".".join([b"*"] * tokens))
    literal = subscription(b".".join([b"a"] * tokens))
    sublist.insert(wild)
    sublist.insert(literal)

    assert sublist.matches(literal.subject).plain == [wild, literal]
    assert sublist.remove(wild)
    # The other goes with all that it is in.
    del sublist


def test_listeners_to_everything_do_not_fill_the_memory_of_every_subject() -> None:
    sublist = Sublist()
    for _ in range(2_000):
        sublist.insert(subscription(b">"))
        sublist.insert(subscription(b">", b"q"))

    tracemalloc.start()
    try:
        for number in range(3_000):
            assert len(sublist.matches(b"subject.%d" % number).plain) == 2_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Twelve million references, were all of them kept.
    assert peak < 20_000_000


class Witness(Receiver):
    """A receiver whose end can be noticed."""

    sublist: Sublist | None = None


def test_nobody_is_remembered_who_has_gone() -> None:
    sublist = Sublist()
    witness = Witness()
    gone = weakref.ref(witness)
    held = Subscription(witness, b"a.*", b"1")
    sublist.insert(held)
    sublist.matches(b"a.b")

    sublist.remove(held)
    del held, witness

    assert gone() is None


def test_a_sublist_that_nobody_holds_takes_its_receivers_along() -> None:
    sublist = Sublist()
    witness = Witness()
    witness.sublist = sublist
    gone = weakref.ref(witness)
    sublist.insert(Subscription(witness, b"a.*", b"1"))
    sublist.matches(b"a.b")

    del sublist, witness
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize("shape", [b"a.b.%d", b"orders.eu.%d.>", b"devices.%d.state"])
def test_a_subscription_takes_little_memory(shape: bytes) -> None:
    sublist = Sublist()
    count = 20_000
    tracemalloc.start()
    try:
        for number in range(count):
            sublist.insert(subscription(shape % number))
        total, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The subscription itself takes some 170 bytes of it, with its subject.
    assert total / count < 500


@given(
    held=st.lists(valid_patterns, min_size=1, max_size=6),
    asked=st.lists(subjects, min_size=2, max_size=12),
)
def test_what_is_remembered_of_one_subject_is_right_for_its_neighbours(
    held: list[bytes], asked: list[bytes]
) -> None:
    sublist = Sublist()
    subscriptions = [subscription(subject) for subject in held]
    for each in subscriptions:
        sublist.insert(each)

    # Neighbours differ in their last token alone, and share what is remembered where they may.
    neighbours = [
        b".".join([*subject.split(b".")[:-1], last])
        for subject in asked
        for last in (b"z", b"a", b"", b"b", b"z")
    ]
    for subject in neighbours:
        assert found(sublist.matches(subject)) == expected(subject, subscriptions), subject


def test_replies_that_differ_in_their_last_token_are_remembered_as_one() -> None:
    sublist = Sublist()
    sublist.insert(subscription(b"_INBOX.me.*"))

    for number in range(1000):
        assert len(sublist.matches(b"_INBOX.me.%d" % number).plain) == 1

    assert sublist.cached == 1
