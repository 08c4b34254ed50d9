"""Permissions against a model, and the corners that a model would not name."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.limits import PUBLISH_ANSWERS_MAX, RESPONSES_TRACKED_MAX
from penstock.security.permissions import Permissions
from penstock.security.publishing import ResponsePermissions
from tests.models import permissions as model
from tests.models.subjects import matches

words = st.sampled_from(["a", "b", "*", "*x"])
patterns = st.lists(words, min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens[:-1], ">"])])
)
queues = st.lists(st.sampled_from(["q", "r", "*"]), min_size=1, max_size=2).map(".".join)
queue_patterns = queues | queues.map(lambda queue: f"{queue}.>") | st.just(">")
entries = patterns | st.tuples(patterns, queue_patterns).map(" ".join)
publish_lists = st.lists(patterns, max_size=3)
subscribe_lists = st.lists(entries, max_size=4)
given_queues = st.just("") | queue_patterns | st.sampled_from(["q.", "q..r", ".q", "q.*x"])

# Each drawn set of lists is asked about all of these: tens of thousands of questions in all.
SUBJECTS = [
    ".".join(tokens)
    for count in (1, 2, 3)
    for tokens in itertools.product(("a", "b", "z", "*", ">", ""), repeat=count)
] + ["*x", "a.*x", "a.b.z.z", "a.b.*.>"]
LITERALS = [subject for subject in SUBJECTS if not {"*", ">", ""} & set(subject.split("."))]
QUEUES = ["", "q", "r", "q.r", "q.*", "q.>", "*", ">", "q.", "q..r", "q.*x", "z"]


def as_queue(text: str) -> bytes | None:
    return text.encode() or None


@given(st.none() | publish_lists, publish_lists)
def test_publishing_follows_the_model(allow: list[str] | None, deny: list[str]) -> None:
    permissions = Permissions(publish_allow=allow, publish_deny=deny)

    # Twice: the second answer comes from memory.
    for subject in SUBJECTS * 2:
        expected = model.may_publish(allow, deny, subject)
        assert permissions.may_publish(subject.encode()) == expected, subject


@given(subscribe_lists, subscribe_lists)
def test_subscribing_follows_the_model(allow: list[str], deny: list[str]) -> None:
    permissions = Permissions(subscribe_allow=allow, subscribe_deny=deny)

    for subject, queue in itertools.product(SUBJECTS, QUEUES):
        expected = model.may_subscribe(allow, deny, subject, queue)
        found = permissions.may_subscribe(subject.encode(), as_queue(queue))
        assert found == expected, (subject, queue)


@given(subscribe_lists, patterns)
def test_what_is_denied_at_delivery_follows_the_model(deny: list[str], subscribed: str) -> None:
    permissions = Permissions(subscribe_deny=deny)
    delivered = [each for each in LITERALS if matches(subscribed.encode(), each.encode())]

    for queue in QUEUES:
        denied = permissions.delivery_deny(subscribed.encode(), as_queue(queue))
        for subject in delivered:
            found = denied is not None and denied.matches(subject.encode())
            assert found == model.is_denied(deny, subject, queue), (subject, queue)


@given(patterns, given_queues)
def test_without_lists_everything_is_allowed_and_nothing_kept_back(
    subject: str, queue: str
) -> None:
    permissions = Permissions()

    assert permissions.may_publish(subject.encode())
    assert permissions.may_subscribe(subject.encode(), as_queue(queue))
    assert permissions.delivery_deny(subject.encode(), as_queue(queue)) is None
    assert not permissions.checks_publish
    assert permissions.new_responses() is None


def test_an_empty_publish_list_allows_nothing_and_an_empty_subscribe_list_everything() -> None:
    permissions = Permissions(publish_allow=(), subscribe_allow=())

    assert not permissions.may_publish(b"a")
    assert permissions.may_subscribe(b"a")


def test_a_subscription_wider_than_a_deny_is_taken_and_filtered() -> None:
    permissions = Permissions(subscribe_deny=("foo.secret", "foo.jobs workers.*", "bar"))

    assert permissions.may_subscribe(b"foo.*")
    plain = permissions.delivery_deny(b"foo.*")
    member = permissions.delivery_deny(b"foo.*", b"workers.1")
    assert plain is not None
    assert member is not None
    assert plain.patterns == (b"foo.secret",)
    assert member.patterns == (b"foo.secret", b"foo.jobs")


def test_where_groups_are_named_the_members_of_others_are_out() -> None:
    permissions = Permissions(subscribe_allow=("foo", "foo q1"))

    assert permissions.may_subscribe(b"foo")
    assert permissions.may_subscribe(b"foo", b"q1")
    assert not permissions.may_subscribe(b"foo", b"q2")


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        ({"publish_allow": ["a..b"]}, 'publish allow: subject "a..b" is not a valid subject'),
        ({"publish_deny": ["a q"]}, 'publish deny: subject "a q" is not a valid subject'),
        ({"subscribe_allow": [""]}, 'subscribe allow: subject "" is not a valid subject'),
        ({"subscribe_allow": [" a"]}, 'subscribe allow: subject " a" is not a valid subject'),
        ({"subscribe_deny": ["a b c"]}, 'subscribe deny: subject "a b c" is not a valid subject'),
        ({"subscribe_deny": ["a. q"]}, 'subscribe deny: subject "a." is not a valid subject'),
        ({"subscribe_deny": ["a q..r"]}, 'subscribe deny: queue "q..r" is not a valid queue'),
    ],
)
def test_an_entry_that_is_no_subject_is_refused(lists: dict[str, list[str]], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Permissions(**lists)  # type: ignore[arg-type]  # one of the lists, by its name

    assert str(caught.value) == text


def test_the_memory_of_answers_is_bounded() -> None:
    permissions = Permissions(publish_allow=("a.*",))

    # Many of them take the place of others, twice, and none gets the answer of another.
    for number in [*range(PUBLISH_ANSWERS_MAX * 2)] * 2:
        assert permissions.may_publish(b"a.%d" % number)
        assert not permissions.may_publish(b"b.%d" % number)

    assert PUBLISH_ANSWERS_MAX // 2 < permissions.publishing.remembered <= PUBLISH_ANSWERS_MAX


def test_permissions_are_equal_when_they_state_the_same() -> None:
    one = Permissions(publish_allow=("a",), responses=(0, 0))

    one.may_publish(b"a")

    assert one == Permissions(publish_allow=["a"], responses=(1, 120 * 10**9))
    assert hash(one) == hash(Permissions(publish_allow=["a"], responses=(1, 120 * 10**9)))
    assert one != Permissions(publish_allow=("a",))


def responses_of(permissions: Permissions) -> ResponsePermissions:
    responses = permissions.new_responses()
    assert responses is not None
    return responses


def test_with_responses_and_no_list_only_answers_may_be_published() -> None:
    permissions = Permissions(responses=(0, 0))
    responses = responses_of(permissions)

    responses.note(b"inbox.1", 0)

    assert not permissions.may_publish(b"inbox.1")
    assert not responses.allows(b"inbox.2", 1)
    assert responses.allows(b"inbox.1", 1)
    assert not responses.allows(b"inbox.1", 1)


def test_an_answer_is_allowed_as_often_as_stated() -> None:
    responses = responses_of(Permissions(responses=(3, 0)))

    responses.note(b"inbox", 0)

    assert [responses.allows(b"inbox", 1) for _ in range(5)] == [True] * 3 + [False] * 2
    assert len(responses) == 0


def test_negative_numbers_mean_no_bound() -> None:
    responses = responses_of(Permissions(responses=(-1, -1)))

    responses.note(b"inbox", 0)

    assert all(responses.allows(b"inbox", 10**18) for _ in range(100))


@pytest.mark.parametrize(("now_ns", "allowed"), [(1_100, True), (1_101, False)])
def test_an_answer_is_allowed_until_it_expires(now_ns: int, allowed: bool) -> None:
    responses = responses_of(Permissions(responses=(5, 100)))

    responses.note(b"inbox", 1_000)

    assert responses.allows(b"inbox", now_ns) == allowed


def test_a_second_request_with_the_same_reply_counts_as_an_answer() -> None:
    responses = responses_of(Permissions(responses=(1, 0)))

    responses.note(b"inbox", 0)
    responses.note(b"inbox", 1)
    assert not responses.allows(b"inbox", 2)

    responses.note(b"inbox", 3)
    assert responses.allows(b"inbox", 4)


def test_a_reply_that_may_be_published_to_anyway_is_not_noted() -> None:
    responses = responses_of(Permissions(publish_allow=("inbox.>",), responses=(1, 0)))

    responses.note(b"inbox.1", 0)

    assert len(responses) == 0


def test_an_explicit_deny_does_not_stand_against_an_answer() -> None:
    permissions = Permissions(publish_deny=("x.>",), responses=(1, 0))
    responses = responses_of(permissions)

    responses.note(b"x.y", 0)

    assert responses.allows(b"x.y", 0)


def test_the_oldest_reply_goes_when_there_are_too_many() -> None:
    responses = responses_of(Permissions(responses=(1, -1)))

    for number in range(RESPONSES_TRACKED_MAX + 1):
        responses.note(b"inbox.%d" % number, number)

    assert len(responses) == RESPONSES_TRACKED_MAX
    assert not responses.allows(b"inbox.0", RESPONSES_TRACKED_MAX)
    assert responses.allows(b"inbox.1", RESPONSES_TRACKED_MAX)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 40)), max_size=40))
def test_answers_follow_a_simple_account_of_time_and_number(
    steps: list[tuple[bool, int, int]],
) -> None:
    messages_max, expires_ns = 2, 50
    responses = responses_of(Permissions(responses=(messages_max, expires_ns)))
    noted: dict[int, tuple[int, int]] = {}
    times = itertools.accumulate(elapsed for _, _, elapsed in steps)

    for (is_note, number, _), now_ns in zip(steps, times, strict=True):
        count, since_ns = noted.get(number, (messages_max, 0))
        usable = count < messages_max and now_ns - since_ns <= expires_ns
        if usable:
            noted[number] = (count + 1, since_ns)
        elif is_note:
            noted[number] = (0, now_ns)
        if is_note:
            responses.note(b"inbox.%d" % number, now_ns)
        else:
            assert responses.allows(b"inbox.%d" % number, now_ns) == usable
