"""Subjects, patterns and filters against a token-by-token model."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.subjects import (
    SubjectFilter,
    is_literal,
    is_subset,
    is_valid_subject,
    matches,
    patterns_overlap,
)
from tests.models import subjects as model

WORDS = [b"a", b"b", b"ab", b"*", b">", b"*x", b">x", b"a>", b"\xc3\xa9"]
subjects = st.lists(st.sampled_from([*WORDS, b""]), min_size=1, max_size=6).map(b".".join)
patterns = subjects.filter(model.is_valid)
raw_bytes = st.lists(st.sampled_from([*b"a.*> \t\x00\x7f\x1f!\xff"]), max_size=8).map(bytes)

# For overlap and subset, patterns of at most three tokens over `a` and `b` cannot tell apart any
# subjects that these do not: `z` is the token that no pattern names, and four is one more token.
small_words = st.sampled_from([b"a", b"b", b"*"])
small_patterns = st.lists(small_words, min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([b".".join(tokens), b".".join([*tokens[:-1], b">"])])
)
UNIVERSE = model.every_subject((b"a", b"b", b"z"), 4)


@given(raw_bytes | subjects)
def test_validity_follows_the_rules(subject: bytes) -> None:
    assert is_valid_subject(subject) == model.is_valid(subject)


@pytest.mark.parametrize("subject", [b"a", b"a.b", b"*", b">", b"a.*.b", b"a.>", b"*x", b"a.>x.b"])
def test_these_subjects_are_valid(subject: bytes) -> None:
    assert is_valid_subject(subject)


@pytest.mark.parametrize(
    "subject",
    [b"", b".", b"a.", b".a", b"a..b", b">.a", b"a.>.b", b"a b", b"a\r\n", b"\x00", b"a\x7f"],
)
def test_these_subjects_are_not_valid(subject: bytes) -> None:
    assert not is_valid_subject(subject)


@given(subjects)
def test_only_a_wildcard_that_is_a_whole_token_makes_a_subject_not_literal(subject: bytes) -> None:
    tokens = subject.split(b".")

    assert is_literal(subject) == (b"*" not in tokens and b">" not in tokens)


@given(subjects, subjects)
@example(b"a.>", b"a")
@example(b"a.*", b"a.*")
@example(b"a.>.b", b"a.c.b")
@example(b">", b"")
def test_a_pattern_matches_token_by_token(pattern: bytes, subject: bytes) -> None:
    assert matches(pattern, subject) == model.matches(pattern, subject)


@given(subjects)
def test_a_literal_subject_matches_itself_and_none_of_its_prefixes(subject: bytes) -> None:
    assert matches(subject, subject)
    if is_literal(subject):
        assert not any(matches(subject, subject[:size]) for size in range(len(subject)))


@given(small_patterns, small_patterns)
@settings(max_examples=300)
def test_patterns_overlap_when_one_subject_matches_both(one: bytes, other: bytes) -> None:
    both = any(model.matches(one, each) and model.matches(other, each) for each in UNIVERSE)

    assert patterns_overlap(one, other) == both


@given(small_patterns, small_patterns)
@settings(max_examples=300)
def test_a_subset_matches_nothing_that_the_other_does_not(inner: bytes, outer: bytes) -> None:
    covered = all(model.matches(outer, each) for each in UNIVERSE if model.matches(inner, each))

    assert is_subset(inner, outer) == covered


@pytest.mark.parametrize(
    ("one", "other"), [(b"a.>", b"a"), (b"a.*", b"a.*.b"), (b"a", b"b"), (b"*x", b"y")]
)
def test_these_patterns_do_not_overlap(one: bytes, other: bytes) -> None:
    assert not patterns_overlap(one, other)
    assert not patterns_overlap(other, one)


@given(st.lists(patterns, max_size=5), subjects)
@example([b"a.*"], b"")
@example([b"a.*.>", b"b"], b".b")
def test_a_filter_matches_when_any_pattern_does(wanted: list[bytes], subject: bytes) -> None:
    expected = not wanted or any(model.matches(each, subject) for each in wanted)

    assert SubjectFilter(wanted).matches(subject) == expected


@given(patterns, st.lists(st.sampled_from(WORDS), min_size=6, max_size=6), st.integers(0, 9))
def test_a_filter_matches_what_its_own_pattern_was_filled_in_to(
    pattern: bytes, words: list[bytes], extra: int
) -> None:
    # Random pairs seldom match; here the wildcards of a pattern are replaced by words.
    tokens = pattern.split(b".")
    filled = [
        word if token in (b"*", b">") else token for token, word in zip(tokens, words, strict=False)
    ]
    subject = b".".join(filled + words[:extra])
    expected = tokens[-1] == b">" or extra == 0

    assert SubjectFilter([b"no.such", pattern]).matches(subject) == expected
    assert matches(pattern, subject) == expected


@given(st.lists(patterns, max_size=4), subjects)
def test_what_a_filter_matches_starts_with_one_of_its_prefixes(
    wanted: list[bytes], subject: bytes
) -> None:
    chosen = SubjectFilter(wanted)

    if chosen.matches(subject):
        assert subject.startswith(chosen.prefixes)


def test_a_prefix_ends_before_the_first_wildcard_token() -> None:
    chosen = SubjectFilter([b"a.b.*", b"*", b"a.*.c.>", b"a.*x", b"a.>"])

    assert chosen.prefixes == (b"a.b.", b"", b"a.", b"a.*x", b"a.")


def test_literals_are_given_only_when_nothing_else_can_match() -> None:
    assert SubjectFilter([b"a", b"b.*x"]).literals == (b"a", b"b.*x")
    assert SubjectFilter([b"a", b"b.*"]).literals is None
    assert SubjectFilter([]).literals is None


def test_a_filter_without_patterns_or_with_all_tokens_matches_everything() -> None:
    for chosen in (SubjectFilter(), SubjectFilter([]), SubjectFilter([b"a", b">"])):
        assert chosen.everything
        assert b"" in chosen.prefixes
        assert all(chosen.matches(subject) for subject in (b"a", b"b.c", b"", b"a..b"))
    assert not SubjectFilter([b"a.>"]).everything


def test_filters_are_equal_and_hash_alike_when_their_patterns_are() -> None:
    one = SubjectFilter(iter([b"a.*", b"b"]))

    assert one.patterns == (b"a.*", b"b")
    assert one == SubjectFilter([b"a.*", b"b"])
    assert hash(one) == hash(SubjectFilter([b"a.*", b"b"]))
    assert one != SubjectFilter([b"a.*"])
    assert one != (b"a.*", b"b")


@given(raw_bytes.filter(lambda pattern: not model.is_valid(pattern)))
def test_an_invalid_pattern_is_refused_by_name(pattern: bytes) -> None:
    with pytest.raises(UsageError) as refusal:
        SubjectFilter([b"fine", pattern])

    assert repr(pattern) in str(refusal.value)


@pytest.mark.parametrize("given_patterns", [b"abc", [None], ["text"]])
def test_a_pattern_must_be_bytes(given_patterns: object) -> None:
    with pytest.raises((TypeError, UsageError)):
        SubjectFilter(given_patterns)  # type: ignore[arg-type]  # the point of the test


def test_a_filter_keeps_its_patterns_alive() -> None:
    # The compiled form points into the bytes of the patterns.
    chosen = SubjectFilter(bytes(bytearray(b"orders.%d.*" % number)) for number in range(100))
    churn = [b"orders.%d.*" % number for number in range(10_000)]

    assert all(chosen.matches(b"orders.%d.new" % number) for number in range(100))
    assert not chosen.matches(b"orders.100.new")
    assert len(churn) == 10_000
