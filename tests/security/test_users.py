"""Configured secrets: comparison, hashes, and that they never show."""

from __future__ import annotations

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.limits import BCRYPT_COST_MAX, PASSWORD_BYTES_MAX
from penstock.security.users import Secret, is_bcrypt

any_text = st.text(st.characters(codec=None), max_size=20)


def hashed(password: bytes, letter: str = "b") -> str:
    text = bcrypt.hashpw(password, bcrypt.gensalt(4)).decode()
    return f"$2{letter}{text[3:]}"


@given(any_text, any_text)
def test_a_plain_secret_is_verified_by_its_own_text_only(secret: str, candidate: str) -> None:
    assert Secret(secret).verify(secret)
    assert Secret(secret).verify(candidate) == (secret == candidate)


@pytest.mark.parametrize("letter", ["a", "b", "x", "y"])
def test_a_hash_is_verified_by_its_password_whatever_its_letter(letter: str) -> None:
    secret = Secret(hashed(b"s3cr\xc3\xa9t", letter))

    assert secret.is_slow
    assert secret.verify("s3crét")
    assert not secret.verify("s3cret")
    assert not secret.verify("")


def test_a_hash_is_not_its_own_password() -> None:
    text = hashed(b"pw")

    assert not Secret(text).verify(text)
    assert not Secret(text).verify_itself()
    assert Secret("pw").verify_itself()


def test_a_password_counts_up_to_what_bcrypt_looks_at() -> None:
    secret = Secret(hashed(b"a" * 72))

    assert secret.verify("a" * 100)
    assert not secret.verify("a" * 71)


def test_a_zero_byte_does_not_end_a_password() -> None:
    secret = Secret(hashed(b"pw\0x"))

    assert secret.verify("pw\0x")
    assert not secret.verify("pw")


@pytest.mark.parametrize("text", ["$2a$04$short", "$2b$04$" + "!" * 53, "$2a$03$" + "a" * 53])
def test_a_hash_that_is_none_verifies_nothing_and_does_not_raise(text: str) -> None:
    assert is_bcrypt(text)
    assert not Secret(text).verify("x")
    assert not Secret(text).verify(text)


@pytest.mark.parametrize("text", ["", "$", "$2a", "$2c$10$x", "$2a$1$x", "2a$10$x", "$2a$1x$"])
def test_other_text_is_a_plain_password(text: str) -> None:
    assert not is_bcrypt(text)
    assert Secret(text).verify(text)


def test_a_cost_beyond_the_limit_is_refused_before_any_client_comes() -> None:
    Secret(f"$2a${BCRYPT_COST_MAX}$" + "a" * 53)
    with pytest.raises(UsageError):
        Secret(f"$2a${BCRYPT_COST_MAX + 1}$" + "a" * 53)


def test_a_candidate_that_is_too_long_is_refused() -> None:
    text = "a" * (PASSWORD_BYTES_MAX + 1)

    assert not Secret(text).verify(text)
    assert Secret(text[1:]).verify(text[1:])


def test_a_secret_does_not_show() -> None:
    secret = Secret("hunter2")

    assert "hunter2" not in f"{secret!r} {secret} {[secret]}"


def test_secrets_are_equal_when_their_text_is() -> None:
    assert Secret("a") == Secret("a")
    assert hash(Secret("a")) == hash(Secret("a"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
