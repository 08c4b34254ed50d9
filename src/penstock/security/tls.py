"""TLS contexts for listeners, cipher suites by their names, and clients' certificates.

A context is built from plain values. A reload builds a new one; open connections keep theirs.

Invariants: nothing below TLS 1.2 is spoken. A client's certificate is read only after TLS verified
it; still nothing in it is trusted to be well-formed, and a certificate that cannot be read is None,
not an exception. An encrypted key is an error, never a question at the terminal. Errors are
UsageError in the reference server's words. The suites of TLS 1.3 have one name everywhere and are
always on; a list in a configuration is about TLS 1.2.

Contexts read files, at start and on a reload only. The rest is pure; any thread.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.errors import UsageError
from penstock.security.distinguished_names import (
    ATTRIBUTE_NAMES,
    Attribute,
    DistinguishedName,
    subject_text,
)

MODERN = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""The suites of TLS 1.3."""

SECURE = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""Suites of TLS 1.2 that are secure, the preferred ones first."""

INSECURE = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
"""Suites that must be asked for with `allow_insecure_cipher_suites`; OpenSSL may lack some."""

CURVES = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519MLKEM768": "X25519MLKEM768",
    "SecP256r1MLKEM768": "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024": "SecP384r1MLKEM1024",
}
"""Curves and key exchanges by name, with OpenSSL's."""

_SHOWN = {openssl: name for name, openssl in (SECURE | INSECURE).items()}


def shown_name(openssl: str) -> str:
    """Return the name that connz shows for a suite that OpenSSL chose."""
    return _SHOWN.get(openssl, openssl)


_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("1.0", "1.1")

# What Python can confine a context to; of the others OpenSSL's own order stays.
_CURVES_THAT_CAN_BE_SET = ("CurveP256", "CurveP384", "CurveP521")


CertificateFiles = tuple[str, str]
"""Where a certificate chain and its private key lie, both as PEM."""


def certificate_end_ns(cert_file: str) -> int:
    """Return when a certificate ends, in Unix nanoseconds; raise OSError or ValueError."""
    certificate = x509.load_pem_x509_certificate(Path(cert_file).read_bytes())
    return int(certificate.not_valid_after_utc.timestamp()) * 10**9


def server_context(
    *,
    certificates: Sequence[CertificateFiles],
    ca_file: str = "",
    verify: bool = False,
    min_version: str = "",
    cipher_suites: Sequence[str] = (),
    allow_insecure_cipher_suites: bool = False,
    curve_preferences: Sequence[str] = (),
) -> ssl.SSLContext:
    """Build a listener's context.

    With `verify`, clients must show a certificate that one in `ca_file` vouches for, or without
    such a file one that the system trusts.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.minimum_version = tls_version(min_version) if min_version else ssl.TLSVersion.TLSv1_2
    _set_cipher_suites(context, cipher_suites, allow_insecure=allow_insecure_cipher_suites)
    _set_curves(context, curve_preferences)
    for place, files in enumerate(certificates, 1):
        which = f" {place}/{len(certificates)}" if len(certificates) > 1 else ""
        _load_certificate(context, files, f"error parsing X509 certificate/key pair{which}: ")
    if ca_file:
        _load_authorities(context, ca_file)
    if verify:
        context.verify_mode = ssl.CERT_REQUIRED
        # A ticket would let a client in whose certificate has ended since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if not ca_file:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def tls_version(text: str) -> ssl.TLSVersion:
    """Read a version as `min_version` has it."""
    if text in _OLD_VERSIONS:
        raise UsageError(f"unsupported TLS version: TLS {text}")
    if text not in _VERSIONS:
        raise UsageError(f"unknown version: {text}")
    return _VERSIONS[text]


def _set_cipher_suites(
    context: ssl.SSLContext, names: Sequence[str], *, allow_insecure: bool
) -> None:
    known = SECURE | INSECURE
    for name in names:
        if name not in known and name not in MODERN:
            raise UsageError(f"unrecognized cipher {name}")
    insecure = [name for name in names if name in INSECURE]
    if insecure and not allow_insecure:
        raise UsageError(
            "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
            + ", ".join(insecure)
        )
    wanted = [known[name] for name in names if name in known] if names else list(SECURE.values())
    if not wanted:
        # All of them are of TLS 1.3, so nothing older can be spoken.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError:
        raise UsageError(f"no cipher suite of these is available: {', '.join(names)}") from None


def _set_curves(context: ssl.SSLContext, names: Sequence[str]) -> None:
    for name in names:
        if name not in CURVES:
            raise UsageError(f"unrecognized curve preference {name}")
    if len(names) == 1 and names[0] in _CURVES_THAT_CAN_BE_SET:
        context.set_ecdh_curve(CURVES[names[0]])


def check_certificate_files(cert_file: str, key_file: str) -> None:
    """Refuse one without the other."""
    if cert_file and not key_file:
        raise UsageError("missing 'key_file' in TLS configuration")
    if key_file and not cert_file:
        raise UsageError("missing 'cert_file' in TLS configuration")


def _load_certificate(context: ssl.SSLContext, files: CertificateFiles, prefix: str) -> None:
    cert_file, key_file = files
    check_certificate_files(cert_file, key_file)
    _check_readable(cert_file, prefix)
    _check_readable(key_file, prefix)
    try:
        # With no password at hand OpenSSL would ask for it at the terminal.
        context.load_cert_chain(cert_file, key_file, password="")
    except ssl.SSLError as error:
        raise UsageError(prefix + _told(error)) from None
    except OSError as error:
        raise UsageError(prefix + (error.strerror or "cannot be read")) from None


def _told(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return "tls: private key does not match public key"
    if reason in ("NO_START_LINE", "") or "PEM" in (error.library or ""):
        return "tls: failed to find any PEM data in certificate input"
    return reason.replace("_", " ").lower()


def _load_authorities(context: ssl.SSLContext, ca_file: str) -> None:
    _check_readable(ca_file, "")
    try:
        context.load_verify_locations(ca_file)
    except (ssl.SSLError, OSError):
        raise UsageError("failed to parse root ca certificate") from None
    # Any certificate in the file may vouch, also one that another one signed.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _check_readable(path: str, prefix: str) -> None:
    try:
        os.stat(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "invalid argument"
        raise UsageError(f"{prefix}open {path}: {reason[:1].lower()}{reason[1:]}") from None


@dataclass(frozen=True, slots=True)
class TlsDescription:
    """What connz says of a connection: `1.3` and `TLS_AES_128_GCM_SHA256`."""

    version: str
    cipher_suite: str


def describe(connection: ssl.SSLObject) -> TlsDescription | None:
    """Describe a connection; None before its hand-shake is done."""
    version, cipher = connection.version(), connection.cipher()
    if version is None or cipher is None:
        return None
    return TlsDescription(version.removeprefix("TLSv"), shown_name(cipher[0]))


def peer_certificate(connection: ssl.SSLObject) -> PeerCertificate | None:
    """Return the certificate of a client that TLS verified, or None."""
    return find_peer_certificate(connection.getpeercert(binary_form=True))


def has_expired(connection: ssl.SSLObject, now_ns: int) -> bool:
    """Return True if a client resumed a session whose certificate has ended since.

    TLS verifies a certificate when a session begins, and not again when it is resumed. TLS 1.2
    resumes sessions without tickets too, and Python cannot forbid it.
    """
    shown = connection.getpeercert()
    if not connection.session_reused or not shown:
        return False
    return ssl.cert_time_to_seconds(str(shown["notAfter"])) * 10**9 < now_ns


_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The parts of a certificate that can name a user."""

    emails: tuple[str, ...]
    dns_names: tuple[str, ...]
    uris: tuple[str, ...]
    # None where an attribute is of a type that has no short name.
    subject: DistinguishedName | None
    # Without domain components.
    subject_text: str
    domain_components_text: str
    # SHA-256 of the public key's own encoding, in hex: what `pinned_certs` lists.
    key_fingerprint: str

    def alternative_names(self) -> tuple[str, ...]:
        """Return the names beside the subject, in the order in which they are tried."""
        return self.emails + self.dns_names + self.uris

    def subject_texts(self) -> tuple[str, ...]:
        """Return the subject as text, in the order in which the spellings are tried."""
        if not self.domain_components_text:
            return (self.subject_text,)
        return (f"{self.subject_text},{self.domain_components_text}", self.subject_text)


def find_peer_certificate(der: bytes | None) -> PeerCertificate | None:
    """Read a certificate as `SSLObject.getpeercert(binary_form=True)` gives it."""
    if not der:
        return None
    try:
        certificate = x509.load_der_x509_certificate(der)
        emails, dns_names, uris = _alternative_names(certificate)
        names = _subject(certificate)
        key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except _UNREADABLE:
        return None
    return PeerCertificate(
        emails=emails,
        dns_names=dns_names,
        uris=uris,
        subject=_distinguished(names),
        subject_text=subject_text(names),
        domain_components_text=",".join(
            f"DC={value}" for name in names for kind, value in name if kind == "DC"
        ),
        key_fingerprint=hashlib.sha256(key).hexdigest(),
    )


def _alternative_names(
    certificate: x509.Certificate,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), (), ()
    return (
        tuple(found.get_values_for_type(x509.RFC822Name)),
        tuple(found.get_values_for_type(x509.DNSName)),
        tuple(found.get_values_for_type(x509.UniformResourceIdentifier)),
    )


def _subject(certificate: x509.Certificate) -> list[list[Attribute]]:
    """Return the subject in the certificate's order; a type without a short name is ""."""
    return [
        [
            (ATTRIBUTE_NAMES.get(attribute.oid.dotted_string, ""), attribute.value)
            if isinstance(attribute.value, str)
            else ("", "")
            for attribute in name
        ]
        for name in certificate.subject.rdns
    ]


def _distinguished(names: Sequence[Sequence[Attribute]]) -> DistinguishedName | None:
    if any(not kind for name in names for kind, _ in name):
        return None
    return DistinguishedName([frozenset(name) for name in reversed(names) if name])
