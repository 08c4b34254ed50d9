"""TLS contexts: what they accept, what they refuse, what is told of a connection."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.errors import UsageError
from penstock.security.tls import (
    TlsDescription,
    check_certificate_files,
    describe,
    has_expired,
    peer_certificate,
    server_context,
)
from tests.security.made_certificates import Authority, Made, rdns


@pytest.fixture(name="authority")
def made_authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(made: Made) -> tuple[str, str]:
    return (str(made.cert_file), str(made.key_file))


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Let both sides talk until both are done; raises what either side raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        server.wrap_bio(to_server, to_client, server_side=True),
        client.wrap_bio(to_client, to_server, server_hostname="localhost", session=session),
    ]
    waiting = list(sides)
    for _ in range(10):
        for side in tuple(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
    # A server that refuses the client's certificate says so only now.
    sides[1].write(b"x")
    assert sides[0].read(1) == b"x"
    # And the newest version hands out sessions only now.
    sides[0].write(b"y")
    assert sides[1].read(1) == b"y"
    return sides[0], sides[1]


def client_context(authority: Authority, made: Made | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    context.check_hostname = False
    if made is not None:
        context.load_cert_chain(made.cert_file, made.key_file)
    return context


def test_the_newest_version_is_spoken_and_told(authority: Authority) -> None:
    context = server_context(certificates=[files(authority.make(rdns("CN=server")))])

    server, _ = shake_hands(context, client_context(authority))

    told = describe(server)
    assert told is not None
    assert told.version == "1.3"
    assert told.cipher_suite in {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"}
    assert peer_certificate(server) is None


def test_a_suite_of_the_older_version_has_its_long_name(authority: Authority) -> None:
    name = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = server_context(
        certificates=[files(authority.make(rdns("CN=server")))], cipher_suites=[name]
    )
    client = client_context(authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    server, _ = shake_hands(context, client)

    assert describe(server) == TlsDescription("1.2", name)


def test_nothing_is_told_before_the_hand_shake(authority: Authority) -> None:
    context = server_context(certificates=[files(authority.make(rdns("CN=server")))])

    assert describe(context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)) is None


def test_a_verified_certificate_is_given(authority: Authority) -> None:
    context = server_context(
        certificates=[files(authority.make(rdns("CN=server")))],
        ca_file=str(authority.ca_file),
        verify=True,
    )

    server, _ = shake_hands(context, client_context(authority, authority.make(rdns("CN=client"))))

    found = peer_certificate(server)
    assert found is not None
    assert found.subject_text == "CN=client"


@pytest.fixture(name="verifying")
def made_verifying_context(authority: Authority) -> ssl.SSLContext:
    return server_context(
        certificates=[files(authority.make(rdns("CN=server")))],
        ca_file=str(authority.ca_file),
        verify=True,
    )


def test_a_resumed_session_ends_with_its_certificate(
    verifying: ssl.SSLContext, authority: Authority
) -> None:
    made = authority.make(rdns("CN=client"))
    client = client_context(authority, made)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    end_ns = int(made.certificate.not_valid_after_utc.timestamp()) * 10**9

    first, first_client = shake_hands(verifying, client)
    resumed, _ = shake_hands(verifying, client, first_client.session)

    assert resumed.session_reused
    assert not has_expired(resumed, end_ns)
    assert has_expired(resumed, end_ns + 1)
    # A certificate that was shown just now was verified just now.
    assert not has_expired(first, end_ns + 1)


def test_no_tickets_are_given_for_certificates(
    verifying: ssl.SSLContext, authority: Authority
) -> None:
    client = client_context(authority, authority.make(rdns("CN=client")))

    _, first_client = shake_hands(verifying, client)
    again, _ = shake_hands(verifying, client, first_client.session)

    assert not again.session_reused


def test_a_resumed_session_without_a_certificate_does_not_end(authority: Authority) -> None:
    context = server_context(certificates=[files(authority.make(rdns("CN=server")))])
    client = client_context(authority)

    _, first_client = shake_hands(context, client)
    resumed, _ = shake_hands(context, client, first_client.session)

    assert resumed.session_reused
    assert not has_expired(resumed, 2**63)


def test_a_client_without_a_certificate_is_refused(authority: Authority) -> None:
    context = server_context(
        certificates=[files(authority.make(rdns("CN=server")))],
        ca_file=str(authority.ca_file),
        verify=True,
    )

    with pytest.raises(ssl.SSLError):
        shake_hands(context, client_context(authority))


def test_a_certificate_of_another_authority_is_refused(
    authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").make(rdns("CN=client"))
    context = server_context(
        certificates=[files(authority.make(rdns("CN=server")))],
        ca_file=str(authority.ca_file),
        verify=True,
    )

    with pytest.raises(ssl.SSLError):
        shake_hands(context, client_context(authority, stranger))


def test_old_versions_are_refused_even_when_openssl_would_speak_them(authority: Authority) -> None:
    context = server_context(certificates=[files(authority.make(rdns("CN=server")))])

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert (
        server_context(certificates=[], min_version="1.3").minimum_version == ssl.TLSVersion.TLSv1_3
    )


def test_a_list_of_newest_suites_only_rules_the_older_version_out() -> None:
    context = server_context(certificates=[], cipher_suites=["TLS_AES_128_GCM_SHA256"])

    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_an_insecure_suite_can_be_asked_for() -> None:
    context = server_context(
        certificates=[],
        cipher_suites=["TLS_RSA_WITH_AES_128_GCM_SHA256"],
        allow_insecure_cipher_suites=True,
    )

    assert "AES128-GCM-SHA256" in {cipher["name"] for cipher in context.get_ciphers()}


def test_one_curve_can_be_asked_for(authority: Authority) -> None:
    context = server_context(
        certificates=[files(authority.make(rdns("CN=server")))], curve_preferences=["CurveP384"]
    )

    shake_hands(context, client_context(authority))
    client = client_context(authority)
    client.set_ecdh_curve("prime256v1")
    with pytest.raises(ssl.SSLError):
        shake_hands(context, client)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"min_version": "1.1"}, "unsupported TLS version: TLS 1.1"),
        ({"min_version": "1.9"}, "unknown version: 1.9"),
        ({"cipher_suites": ["FOO"]}, "unrecognized cipher FOO"),
        ({"curve_preferences": ["FOO"]}, "unrecognized curve preference FOO"),
        (
            {"cipher_suites": ["TLS_RSA_WITH_RC4_128_SHA", "TLS_AES_128_GCM_SHA256"]},
            "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
            "TLS_RSA_WITH_RC4_128_SHA",
        ),
        ({"ca_file": "nope"}, "open nope: no such file or directory"),
        ({"ca_file": "a\0b"}, "open a\0b: invalid argument"),
    ],
)
def test_bad_values_are_refused_in_the_words_of_the_real_server(
    values: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        server_context(certificates=[], **values)  # type: ignore[arg-type]  # one of the options

    assert str(caught.value) == text


PAIR = "error parsing X509 certificate/key pair"


def test_bad_files_are_refused_in_the_words_of_the_real_server(
    authority: Authority, tmp_path: Path
) -> None:
    one, other = authority.make(rdns("CN=one")), authority.make(rdns("CN=other"))
    garbage = tmp_path / "garbage"
    garbage.write_text("tls {}")
    cases = {
        (
            str(tmp_path / "no"),
            str(one.key_file),
        ): f"{PAIR}: open {tmp_path}/no: no such file or directory",
        (
            str(one.cert_file),
            str(other.key_file),
        ): f"{PAIR}: tls: private key does not match public key",
        (
            str(garbage),
            str(garbage),
        ): f"{PAIR}: tls: failed to find any PEM data in certificate input",
        (str(one.cert_file), ""): "missing 'key_file' in TLS configuration",
        ("", str(one.key_file)): "missing 'cert_file' in TLS configuration",
    }

    for (cert_file, key_file), text in cases.items():
        with pytest.raises(UsageError) as caught:
            server_context(certificates=[(cert_file, key_file)])
        assert str(caught.value) == text
    with pytest.raises(UsageError, match="failed to parse root ca certificate"):
        server_context(certificates=[], ca_file=str(garbage))
    with pytest.raises(UsageError, match=f"{PAIR} 2/2: open"):
        server_context(certificates=[files(one), ("no", "no")])


def test_neither_file_is_fine_and_both_are_fine() -> None:
    check_certificate_files("", "")
    check_certificate_files("a", "b")


def test_an_encrypted_key_is_an_error_and_never_a_question(
    authority: Authority, tmp_path: Path
) -> None:
    made = authority.make(rdns("CN=one"))
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        made.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
    )

    with pytest.raises(UsageError, match=PAIR):
        server_context(certificates=[(str(made.cert_file), str(locked))])
