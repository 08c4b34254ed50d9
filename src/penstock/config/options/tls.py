"""Options of TLS, the same for every listener and remote.

The files that they name are opened only to see that they can be read, so that a missing file is
reported with its location in the configuration. Their content is read by `security`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from penstock.config.language.parser import Value, describe_open_error
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.values import (
    Notes,
    array,
    boolean,
    changed,
    mapping,
    read_fields,
    seconds,
    text,
    texts,
    with_defaults,
)
from penstock.text.quoting import quoted
from penstock.text.times import parse_duration

HANDSHAKE_FIRST_AUTO_NS: Final = 50_000_000
"""How long "auto" waits for a client that starts the handshake before it sends INFO."""

CIPHER_SUITES: Final = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
)
"""What may be configured, by the names of the registry."""

INSECURE_CIPHER_SUITES: Final = (
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
)
"""What may be configured only with allow_insecure_cipher_suites."""

CURVES: Final = (
    "X25519MLKEM768",
    "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024",
    "X25519",
    "CurveP256",
    "CurveP384",
    "CurveP521",
)
"""What curve_preferences may name."""

_KNOWN_URLS: Final = "verify_cert_and_check_known_urls"
_FINGERPRINT: Final = re.compile("[0-9a-f]{64}")


def _filename(value: Value, key: Key, notes: Notes) -> str:
    if not isinstance(value.value, str):
        raise value.error(f"error parsing tls config, expected '{key.name}' to be filename")
    return value.value


def _flag(value: Value, key: Key, notes: Notes) -> bool:
    if not isinstance(value.value, bool):
        raise value.error(f"error parsing tls config, expected '{key.name}' to be a boolean")
    return value.value


def _names(allowed: tuple[str, ...], what: str) -> Reader:
    def read(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
        names = array(value, f"expected an array for {quoted(key.spelled)}, got {value.type_name}")
        if not names:
            raise value.error(f"error parsing tls config, '{key.name}' cannot be empty")
        found = tuple(text(name, key, notes) for name in names)
        for name in names:
            if name.value not in allowed:
                raise name.error(f"unrecognized {what} {name.value}")
        return found

    return read


def _min_version(value: Value, key: Key, notes: Notes) -> str:
    if not isinstance(value.value, str):
        raise value.error(f"error parsing tls config: 'min_version' wrong type: {value.value}")
    if value.value in ("1.0", "1.1"):
        raise value.error(f"error parsing tls config: unsupported TLS version: TLS {value.value}")
    if value.value not in ("1.2", "1.3"):
        raise value.error(f"error parsing tls config: unknown version: {value.value}")
    return value.value


def _pinned_certs(value: Value, key: Key, notes: Notes) -> frozenset[str]:
    form = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
    prefix = "error parsing tls config,"
    entries = array(value, f"{prefix} expected 'pinned_certs' to be a list of {form}")
    found = set()
    for entry in entries:
        fingerprint = text(entry, key, notes).lower()
        if _FINGERPRINT.fullmatch(fingerprint) is None:
            raise entry.error(
                f"{prefix} 'pinned_certs' key {fingerprint} does not look like {form}"
            )
        found.add(fingerprint)
    return frozenset(found)


def _rate_limit(value: Value, key: Key, notes: Notes) -> int:
    if isinstance(value.value, bool) or not isinstance(value.value, int):
        raise value.error("error parsing tls config, 'connection_rate_limit' wrong type")
    return value.value


def _handshake_first(value: Value, key: Key, notes: Notes) -> int | None:
    inner = value.value
    if isinstance(inner, bool):
        return 0 if inner else None
    field = f"field {quoted(key.spelled)}"
    if not isinstance(inner, str):
        raise value.error(f"{field} should be a boolean or a string, got {value.type_name}")
    word = inner.lower()
    if word in ("true", "on"):
        return 0
    if word in ("false", "off"):
        return None
    if word in ("auto", "auto_fallback"):
        return HANDSHAKE_FIRST_AUTO_NS
    try:
        return parse_duration(inner)
    except ValueError:
        raise value.error(f"{field}'s value {quoted(inner)} is invalid") from None


def _certificate_pairs(value: Value, key: Key, notes: Notes) -> tuple[tuple[str, str], ...]:
    prefix = "error parsing certificates config:"
    pairs = []
    for entry in array(value, f"{prefix} unsupported type {value.type_name}"):
        found = {"cert_file": "", "key_file": ""}
        pair = mapping(entry, f"{prefix} unsupported type {entry.type_name}")
        for name, file in pair.items():
            if not isinstance(file.value, str):
                raise file.error(f"{prefix} unsupported type {file.type_name}")
            if name not in found:
                raise file.error(f"error parsing tls certs config, unknown field {quoted(name)}")
            found[name] = file.value
        if not all(found.values()):
            reason = f"{prefix} both 'cert_file' and 'cert_key' options are required"
            raise entry.error(reason)
        pairs.append((found["cert_file"], found["key_file"]))
    return tuple(pairs)


def _ocsp_peer(value: Value, key: Key, notes: Notes) -> bool:
    if isinstance(value.value, dict):
        verify = value.value.get("verify")
        return verify is not None and boolean(verify, key, notes)
    if not isinstance(value.value, bool):
        raise value.error(f"error parsing ocsp peer config: unsupported type {value.type_name}")
    return value.value


def _windows_only(value: Value, key: Key, notes: Notes) -> str:
    raise value.error("certificate stores are only there on Windows")


@options_block(frozen=True)
class TlsOptions(Block):
    """How a listener proves who it is and whom it lets in."""

    unknown_text: ClassVar[str] = "error parsing tls config, unknown field {}"
    ignores_variables: ClassVar[bool] = False

    # fmt: off
    cert_file: str = option(
        "", keys=("cert_file",), flags=("--tlscert",), placeholder="file", read=_filename,
        doc="Certificate of the server, with its chain, in PEM.",
    )
    key_file: str = option(
        "", keys=("key_file",), flags=("--tlskey",), placeholder="file", read=_filename,
        doc="Private key of that certificate, in PEM.",
    )
    ca_file: str = option(
        "", keys=("ca_file",), flags=("--tlscacert",), placeholder="file", read=_filename,
        doc="Certificates of those who may sign clients' certificates, in PEM.",
    )
    verify: bool = option(
        False, keys=("verify",), flags=("--tlsverify",), read=_flag,
        doc="Ask clients for a certificate and let in only those with a good one.",
    )
    verify_and_map: bool = option(
        False, keys=("verify_and_map",), read=_flag,
        doc="Verify, and take the user's name from the client's certificate.",
    )
    verify_cert_and_check_known_urls: bool = option(
        False, keys=(_KNOWN_URLS,), read=_flag,
        doc="Verify, and let in only servers whose certificate names a configured URL.",
    )
    insecure: bool = option(
        False, keys=("insecure",), read=_flag,
        doc="As a client of other servers, take any certificate. For tests.",
    )
    timeout_s: float = option(
        2.0, keys=("timeout",), read=seconds("tls"), zero_is_default=True,
        doc="Seconds that a handshake may take.",
    )
    handshake_first_ns: int | None = option(
        None, keys=("handshake_first", "first", "immediate"), read=_handshake_first,
        doc="Do the handshake before INFO. None: off; 0: always; else how long to wait for a "
        "client that starts one before INFO is sent after all.",
    )
    cipher_suites: tuple[str, ...] = option(
        (), keys=("cipher_suites",), read=_names(CIPHER_SUITES + INSECURE_CIPHER_SUITES, "cipher"),
        doc="Cipher suites to offer, by their registered names; all good ones if none is named.",
    )
    allow_insecure_cipher_suites: bool = option(
        False, keys=("allow_insecure_cipher_suites",), read=_flag,
        doc="Let cipher_suites name broken ones.",
    )
    curve_preferences: tuple[str, ...] = option(
        (), keys=("curve_preferences",), read=_names(CURVES, "curve preference"),
        doc="Curves to offer, best first.",
    )
    min_version: str = option(
        "1.2", keys=("min_version",), read=_min_version, doc="Oldest version of TLS: 1.2 or 1.3.",
    )
    pinned_certs: frozenset[str] = option(
        frozenset(), keys=("pinned_certs",), read=_pinned_certs,
        doc="SHA-256 of the public keys that may connect, as 64 hexadecimal digits each.",
    )
    connection_rate_limit: int = option(
        0, keys=("connection_rate_limit",), read=_rate_limit,
        doc="Handshakes that may start in a second; 0: any number.",
    )
    certs: tuple[tuple[str, str], ...] = option(
        (), keys=("certs", "certificates"), read=_certificate_pairs,
        doc="Several certificates, as maps of cert_file and key_file.",
    )
    ocsp_peer: bool = option(
        False, keys=("ocsp_peer",), read=_ocsp_peer,
        doc="Ask a responder whether a peer's certificate was revoked.",
    )
    cert_store: str = option(
        "", keys=("cert_store", "cert_match_by", "cert_match"), read=_windows_only,
        doc="Certificate store of Windows.",
    )
    ca_certs_match: tuple[str, ...] = option(
        (), keys=("ca_certs_match",), read=texts, doc="Names in the certificate store of Windows.",
    )
    cert_match_skip_invalid: bool = option(
        False, keys=("cert_match_skip_invalid",), read=_flag, doc="Part of Windows' store.",
    )
    # fmt: on


def tls_block(*, of_servers: bool = False) -> Callable[[Value, Key, Notes], TlsOptions | None]:
    """Make a reader of TLS options; `of_servers` where only servers connect.

    The value is None only if the notes say why.
    """

    def read(value: Value, key: Key, notes: Notes) -> TlsOptions | None:
        entries = mapping(value, f"expected a map for {quoted(key.spelled)}, got {value.type_name}")
        errors_before = len(notes.errors)
        for name, one in entries.items():
            if name.lower() == _KNOWN_URLS and one.value is True and not of_servers:
                raise one.error(f"{_KNOWN_URLS} not supported in this context")
        options = TlsOptions(**read_fields(TlsOptions, entries, notes))
        if len(notes.errors) > errors_before:
            return None
        _check(value, options)
        if options.verify_and_map or options.verify_cert_and_check_known_urls:
            options = changed(options, verify=True)
        return with_defaults(options)

    return read


def _check(value: Value, options: TlsOptions) -> None:
    if options.certs and options.cert_file:
        prefix = "error parsing tls config, cannot combine"
        raise value.error(f"{prefix} 'cert_file' option with 'certs' option")
    insecure = [name for name in options.cipher_suites if name in INSECURE_CIPHER_SUITES]
    if insecure and not options.allow_insecure_cipher_suites:
        prefix = "insecure cipher suites configured without 'allow_insecure_cipher_suites' option"
        raise value.error(f"{prefix} set: {', '.join(insecure)}")
    if reason := unreadable_file(options):
        raise value.error(reason)


def unreadable_file(options: TlsOptions) -> str:
    """Say which file is missing or cannot be read; "" if all is well."""
    if bool(options.cert_file) != bool(options.key_file):
        missing = "key_file" if options.cert_file else "cert_file"
        return f"missing '{missing}' in TLS configuration"
    pairs = options.certs or ((options.cert_file, options.key_file),)
    for number, pair in enumerate(pairs, start=1):
        which = f" {number}/{len(pairs)}" if options.certs else ""
        for file in filter(None, pair):
            if reason := _open_error(file):
                return f"error parsing X509 certificate/key pair{which}: {reason}"
    return _open_error(options.ca_file) if options.ca_file else ""


def _open_error(file: str) -> str:
    try:
        with Path(file).open("rb"):
            return ""
    except (OSError, ValueError) as error:
        return describe_open_error(file, error)
