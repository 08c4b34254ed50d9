"""The terms under which a listener speaks TLS, built from the options.

Reads the files that the options name: at start, and again on each reload, so that a certificate
that was renewed in place is taken for new connections. Raises UsageError.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.config.options import TlsOptions
from penstock.net.opening import HandshakeRate, TlsTerms

if TYPE_CHECKING:
    from penstock.net.connection import Connection


def tls_terms(tls: TlsOptions | None, clock: Clock, *, is_optional: bool) -> TlsTerms | None:
    """Build a listener's terms; None where it does without TLS."""
    if tls is None:
        return None
    # Here and below: a server without TLS starts without loading what only TLS needs.
    from penstock.security.tls import certificate_end_ns, server_context

    certificates = tls.certs or (((tls.cert_file, tls.key_file),) if tls.cert_file else ())
    context = server_context(
        certificates=certificates,
        ca_file=tls.ca_file,
        verify=tls.verify or tls.verify_and_map,
        min_version=tls.min_version,
        cipher_suites=tls.cipher_suites,
        allow_insecure_cipher_suites=tls.allow_insecure_cipher_suites,
        curve_preferences=tls.curve_preferences,
    )
    first_ns = tls.handshake_first_ns
    return TlsTerms(
        context,
        timeout_s=tls.timeout_s,
        first_delay_s=None if first_ns is None else first_ns / 1e9,
        is_optional=is_optional,
        pinned_keys=tls.pinned_certs,
        certificate_end_ns=certificate_end_ns(certificates[0][0]) if certificates else 0,
        rate=HandshakeRate(limit, clock) if (limit := tls.connection_rate_limit) > 0 else None,
    )


def note_encryption(connection: Connection, tls: ssl.SSLObject, terms: TlsTerms | None) -> str:
    """Keep what monitoring and authentication need of a handshake; a reason to refuse, or ""."""
    from penstock.security.tls import describe, has_expired, peer_certificate

    described = describe(tls)
    if described is not None:
        connection.tls_version = described.version
        connection.tls_cipher = described.cipher_suite
    connection.peer_certificate = peer_certificate(tls)
    if has_expired(tls, connection.host.clock.now_ns()):
        return "tls: failed to verify certificate: certificate has expired"
    return "" if is_pinned(connection, terms) else "certificate not pinned"


def is_pinned(connection: Connection, terms: TlsTerms | None) -> bool:
    """Tell whether a client's certificate is one of those listed, where any are."""
    if terms is None or not terms.pinned_keys:
        return True
    shown = connection.peer_certificate
    return shown is not None and shown.key_fingerprint in terms.pinned_keys
