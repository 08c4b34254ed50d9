"""What a certificate says of its holder, and names written as text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.distinguished_names import find_name, subject_text
from penstock.security.tls import find_peer_certificate
from tests.security.made_certificates import Authority, rdns

values = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


def same(one: str, other: str) -> bool:
    first, second = find_name(one), find_name(other)
    assert first is not None
    assert second is not None
    return first.equals(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CN=a,O=b", "cn=a, o=b"),
        ("CN=a,O=b", " CN = a , O = b "),
        ("CN=a+OU=x,O=b", "OU=x+CN=a,O=b"),
        ("CN=a\\,b", "CN=a\\2cb"),
        ("CN=\\c3\\a9", "CN=é"),
        ("CN=a\\ ", "CN=a\\20  "),
        ("CN=a\\\\", "CN=a\\5c"),
        ("CN=\\#a", "CN=\\23a"),
    ],
)
def test_these_names_are_the_same(one: str, other: str) -> None:
    assert same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("CN=a", "CN=A"),
        ("CN=a", "O=a"),
        ("CN=a,O=b", "O=b,CN=a"),
        ("CN=a,O=b", "CN=a"),
        ("CN=a+O=b", "CN=a,O=b"),
        ("CN=a\\ ", "CN=a "),
    ],
)
def test_these_names_differ(one: str, other: str) -> None:
    assert not same(one, other)


def test_the_order_can_be_left_aside() -> None:
    one, other = find_name("CN=a,DC=x,DC=y,O=b"), find_name("O=b,DC=y,CN=a,DC=x")
    third = find_name("CN=a,DC=x,DC=x,O=b")

    assert one is not None
    assert other is not None
    assert third is not None
    assert one.equals_in_any_order(other)
    assert not one.equals_in_any_order(third)


@pytest.mark.parametrize(
    "text", ["", "app", "CN", "=x", "CN=a,", "CN=a,b", "CN=a+", "CN=#04024869", "a=b\\", "a=b\\zz"]
)
def test_this_is_no_name(text: str) -> None:
    assert find_name(text) is None


@given(st.text(max_size=40) | st.text(alphabet='CN=a,+\\ #"2', max_size=20))
def test_reading_a_name_never_raises(text: str) -> None:
    find_name(text)


@given(
    st.lists(
        st.tuples(st.sampled_from(["C", "O", "CN"]), values),
        min_size=1,
        unique_by=lambda each: each[0],
    )
)
def test_a_subject_that_was_written_can_be_read(attributes: list[tuple[str, str]]) -> None:
    order = ["C", "O", "CN"]
    names = [[each] for each in sorted(attributes, key=lambda each: order.index(each[0]))]

    read = find_name(subject_text(names))

    expected = find_name(
        ",".join(
            f"{kind}=" + "".join(f"\\{byte:02x}" for byte in value.encode())
            for ((kind, value),) in reversed(names)
        )
    )
    assert read is not None
    assert expected is not None
    assert read.equals(expected)


def test_a_subject_is_written_as_the_reference_server_writes_it() -> None:
    names = [
        [("DC", "com")],
        [("O", "b"), ("OU", "y")],
        [("OU", "x, z")],
        [("CN", "first")],
        [("CN", "#last ")],
        [("", "unnamed")],
    ]

    assert subject_text(names) == "CN=\\#last\\ ,OU=y+OU=x\\, z,O=b"


def test_all_names_of_a_certificate_are_found(tmp_path: Path) -> None:
    made = Authority(tmp_path).make(
        rdns("DC=com", "DC=acme", "O=Acme", "CN=app"),
        [
            x509.UniformResourceIdentifier("spiffe://acme/app"),
            x509.DNSName("app.acme.com"),
            x509.RFC822Name("app@acme.com"),
        ],
    )

    found = find_peer_certificate(made.der)

    assert found is not None
    assert found.alternative_names() == ("app@acme.com", "app.acme.com", "spiffe://acme/app")
    assert found.subject_texts() == ("CN=app,O=Acme,DC=com,DC=acme", "CN=app,O=Acme")
    name = find_name("CN=app,O=Acme,DC=acme,DC=com")
    assert name is not None
    assert found.subject is not None
    assert found.subject.equals(name)


def test_the_fingerprint_is_of_the_public_key(tmp_path: Path) -> None:
    made = Authority(tmp_path).make(rdns("CN=app"))
    encoded = made.key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    found = find_peer_certificate(made.der)

    assert found is not None
    assert found.key_fingerprint == hashlib.sha256(encoded).hexdigest()


def test_a_subject_with_an_attribute_that_has_no_short_name_is_text_only(tmp_path: Path) -> None:
    made = Authority(tmp_path).make(rdns("O=Acme", "EMAIL=app@acme.com", "CN=app"))

    found = find_peer_certificate(made.der)

    assert found is not None
    assert found.subject is None
    assert found.subject_texts() == ("CN=app,O=Acme",)


@given(st.none() | st.binary(max_size=100))
def test_bytes_that_are_no_certificate_are_none(der: bytes | None) -> None:
    assert find_peer_certificate(der) is None


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_a_certificate_with_any_byte_changed_never_raises(tmp_path: Path) -> None:
    der = Authority(tmp_path).make(rdns("CN=app"), [x509.DNSName("app.acme.com")]).der

    for place in range(len(der)):
        find_peer_certificate(der[:place] + bytes((der[place] ^ 0x81,)) + der[place + 1 :])
