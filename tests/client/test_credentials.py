"""Credentials: files are read, signatures are right, and nothing secret shows."""

from __future__ import annotations

from pathlib import Path

import nkeys  # type: ignore[import-untyped]  # it has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.credentials import NOBODY, Credentials
from penstock.errors import UsageError
from penstock.limits import CREDENTIALS_FILE_BYTES_MAX
from penstock.protocol.nkeys import is_signed

SEED = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode()
JWT = "eyJ0-eXAi_.eyJzdWIi.c2ln"
CREDS = f"""-----BEGIN NATS USER JWT-----
{JWT}
------END NATS USER JWT------

************************* IMPORTANT *************************
NKEY Seed printed below can be used to sign and prove identity.

-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------
"""


@given(st.text(max_size=30))
def test_a_seed_signs_what_the_server_asks_for(nonce: str) -> None:
    fields = Credentials(seed=bytes(range(32))).connect_fields(nonce)

    assert set(fields) == {"nkey", "sig"}
    assert is_signed(fields["nkey"], nonce.encode(), fields["sig"])


@pytest.mark.parametrize("text", [SEED, f"# alice\n{SEED}\n", CREDS])
def test_a_seed_is_found_in_its_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "alice.nk"
    file.write_text(text)

    assert Credentials.from_seed_file(file) == Credentials(seed=bytes(range(32)))


def test_a_creds_file_has_a_jwt_and_what_signs_for_it(tmp_path: Path) -> None:
    file = tmp_path / "alice.creds"
    file.write_text(CREDS)

    known = Credentials.from_creds_file(file)

    assert (known.jwt, known.seed) == (JWT, bytes(range(32)))
    assert set(known.connect_fields("nonce")) == {"jwt", "sig"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no user"),
        (SEED[:-1], "no user"),
        (SEED.replace("SU", "SA", 1), "no user"),
        (CREDS.replace(SEED, SEED[::-1]), "no user's seed"),
        ("x" * (CREDENTIALS_FILE_BYTES_MAX + 1), "too large"),
    ],
    ids=["empty", "cut", "an account's", "a wrong seed", "large"],
)
def test_a_file_without_what_it_should_hold_is_refused_by_name(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "alice"
    file.write_text(text)

    for read in (Credentials.from_seed_file, Credentials.from_creds_file):
        with pytest.raises(UsageError, match=told) as refused:
            read(file)
        assert str(file) in str(refused.value)
        assert SEED[::-1] not in str(refused.value)


def test_what_is_shown_tells_the_kind_and_no_secret() -> None:
    every = [
        Credentials("alice", "s3cret"),
        Credentials(token="s3cret"),
        Credentials(seed=b"s3cret"),
        Credentials(jwt="s3cret", seed=b"s3cret"),
    ]

    assert [each.kind for each in (NOBODY, *every)] == [
        "none", "user", "token", "nkey", "creds file",
    ]  # fmt: skip
    assert "s3cret" not in repr(every)
    assert [bool(each) for each in (NOBODY, *every)] == [False, True, True, True, True]
