"""What a client's certificate says of its holder, for mapping it to a user.

What always holds: the certificate was verified by TLS before it comes here; still nothing in it is
trusted to be well-formed, and one that cannot be read is None, not an exception.

Pure; any thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from penstock.security.distinguished_names import (
    ATTRIBUTE_NAMES,
    Attribute,
    DistinguishedName,
    subject_text,
)

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
        """Give the names beside the subject, in the order in which they are tried."""
        return self.emails + self.dns_names + self.uris

    def subject_texts(self) -> tuple[str, ...]:
        """Give the subject as text, in the order in which the spellings are tried."""
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
    """Give the subject as it lies in the certificate; a type without a short name is ""."""
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
