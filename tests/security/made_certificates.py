"""Certificates for tests, made on the spot: an authority, servers and clients."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

TYPES = {
    "CN": NameOID.COMMON_NAME,
    "SERIALNUMBER": NameOID.SERIAL_NUMBER,
    "C": NameOID.COUNTRY_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "STREET": NameOID.STREET_ADDRESS,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "POSTALCODE": NameOID.POSTAL_CODE,
    "DC": NameOID.DOMAIN_COMPONENT,
    "EMAIL": NameOID.EMAIL_ADDRESS,
}


def rdns(*names: str) -> x509.Name:
    """Make a name in the order of the certificate: `rdns("O=Acme", "CN=app+OU=x")`."""
    made = []
    for name in names:
        attributes = []
        for attribute in name.split("+"):
            kind, _, value = attribute.partition("=")
            oid = TYPES.get(kind) or ObjectIdentifier(kind)
            attributes.append(x509.NameAttribute(oid, value))
        made.append(x509.RelativeDistinguishedName(attributes))
    return x509.Name(made)


@dataclass(frozen=True, slots=True)
class Made:
    """A certificate with its key; `cert_file` and `key_file` are where they lie as PEM."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    cert_file: Path
    key_file: Path

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_sha256(self) -> str:
        """The digest of the public key, as `pinned_certs` has it."""
        encoded = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(encoded).hexdigest()


class Authority:
    """Vouches for others; `ca_file` is its own certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._root = self._make(rdns("O=Authority"), (), issuer=None)
        self.ca_file = self._root.cert_file

    def make(self, subject: x509.Name, alternatives: Sequence[x509.GeneralName] = ()) -> Made:
        """Make a certificate for a server or a client."""
        return self._make(subject, alternatives, issuer=self._root)

    def _make(
        self, subject: x509.Name, alternatives: Sequence[x509.GeneralName], issuer: Made | None
    ) -> Made:
        self._count += 1
        key = ec.generate_private_key(ec.SECP256R1())
        start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject if issuer is None else issuer.certificate.subject)
            .public_key(key.public_key())
            .serial_number(self._count)
            .not_valid_before(start)
            .not_valid_after(start + datetime.timedelta(days=36_500))
            .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        if issuer is not None:
            usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), False)
        certificate = builder.sign(key if issuer is None else issuer.key, hashes.SHA256())
        made = Made(
            certificate,
            key,
            self._folder / f"{self._count}.cert.pem",
            self._folder / f"{self._count}.key.pem",
        )
        made.cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        made.key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made
