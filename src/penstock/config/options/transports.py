"""Options of the other protocols for clients: WebSocket and MQTT. Pure."""

from __future__ import annotations

from typing import ClassVar

from penstock.config.language.parser import Value
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.tls import TlsOptions, tls_block
from penstock.config.options.values import (
    Notes,
    block,
    boolean,
    duration,
    integer,
    integer_within,
    listen,
    mapping,
    text,
    texts,
)
from penstock.text.times import SECOND_NS

_acks_pending = integer_within(0, 0xFFFF, "invalid value {value}, should in [0..65535] range")


def _seconds(value: Value, key: Key, notes: Notes) -> float:
    inner = value.value
    # Anything else counts as a second, as in the reference server.
    return float(inner) if isinstance(inner, int | float) and not isinstance(inner, bool) else 1.0


@options_block(frozen=True)
class SimpleAuthorizationOptions(Block):
    """One user or a token for clients of one transport, in place of the server's."""

    # fmt: off
    user: str = option("", keys=("user", "username"), read=text, doc="The one user.")
    password: str = option(
        "", keys=("password", "pass"), read=text, secret=True, doc="The user's password.",
    )
    token: str = option("", keys=("token",), read=text, secret=True, doc="A token instead.")
    timeout_s: float = option(
        0.0, keys=("timeout",), read=_seconds, doc="Seconds to say who one is; 0: as others have.",
    )
    # fmt: on


_authorization = block(SimpleAuthorizationOptions, "authorization")


def _handshake_timeout(value: Value, key: Key, notes: Notes) -> int:
    if isinstance(value.value, int) and not isinstance(value.value, bool):
        return value.value * SECOND_NS
    if not isinstance(value.value, str):
        reason = f"error parsing handshake timeout: unsupported type {value.type_name}"
        raise value.error(reason)
    return duration(value, key, notes)


def _headers(value: Value, key: Key, notes: Notes) -> dict[str, str]:
    found = {}
    expected = f"error parsing headers: unsupported type {value.type_name}"
    for name, one in mapping(value, expected).items():
        if not isinstance(one.value, str):
            reason = f"error parsing header key {name}: unsupported type {one.type_name}"
            raise one.error(reason)
        found[name] = one.value
    return found


@options_block(frozen=True)
class WebsocketOptions(Block):
    """A listener for clients that speak WebSocket, browsers above all."""

    shared_keys: ClassVar[dict[str, Reader]] = {"listen": listen("host", "port")}

    # fmt: off
    host: str = option(
        "0.0.0.0", keys=("host", "net"), read=text, zero_is_default=True,
        doc="Address to listen on.",
    )
    port: int = option(0, keys=("port",), read=integer, doc="Port; 0: none, -1: any free one.")
    advertise: str = option("", keys=("advertise",), read=text, doc="Address clients are told.")
    no_tls: bool = option(
        False, keys=("no_tls",), read=boolean, doc="Do without TLS, behind a proxy or in tests.",
    )
    tls: TlsOptions | None = option(
        None, keys=("tls",), read=tls_block(), reloadable=True, doc="TLS of the listener.",
    )
    same_origin: bool = option(
        False, keys=("same_origin",), read=boolean, doc="Only pages from this very host.",
    )
    allowed_origins: tuple[str, ...] = option(
        (), read=texts, doc="Only pages from these origins.",
        keys=("allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins",
              "origin"),
    )
    handshake_timeout_ns: int = option(
        0, keys=("handshake_timeout",), read=_handshake_timeout,
        doc="How long a client may take to upgrade; 0: ten seconds.",
    )
    compression: bool = option(
        False, keys=("compression", "compress"), read=boolean, doc="Compress if a client asks.",
    )
    authorization: SimpleAuthorizationOptions = option(
        SimpleAuthorizationOptions(), keys=("authorization", "authentication"),
        read=_authorization, doc="Who may connect here, if not as elsewhere.",
    )
    jwt_cookie: str = option("", keys=("jwt_cookie",), read=text, doc="Cookie with a user JWT.")
    user_cookie: str = option("", keys=("user_cookie",), read=text, doc="Cookie with a name.")
    pass_cookie: str = option("", keys=("pass_cookie",), read=text, doc="Cookie with a password.")
    token_cookie: str = option("", keys=("token_cookie",), read=text, doc="Cookie with a token.")
    no_auth_user: str = option(
        "", keys=("no_auth_user",), read=text, doc="The user of those who say nothing.",
    )
    headers: dict[str, str] = option(
        {}, keys=("headers",), read=_headers, doc="Headers to answer an upgrade with.",
    )
    ping_interval_ns: int = option(
        0, keys=("ping_interval",), read=duration, doc="How often to ping; 0: as elsewhere.",
    )
    # fmt: on


def _ignored_replicas(value: Value, key: Key, notes: Notes) -> int:
    notes.warn(value, key, "consumer replicas setting ignored in this server version")
    return 0


@options_block(frozen=True)
class MqttOptions(Block):
    """A listener for clients that speak MQTT."""

    shared_keys: ClassVar[dict[str, Reader]] = {"listen": listen("host", "port")}

    # fmt: off
    host: str = option(
        "0.0.0.0", keys=("host", "net"), read=text, zero_is_default=True,
        doc="Address to listen on.",
    )
    port: int = option(0, keys=("port",), read=integer, doc="Port; 0: none, -1: any free one.")
    tls: TlsOptions | None = option(None, keys=("tls",), read=tls_block(), doc="TLS of it.")
    authorization: SimpleAuthorizationOptions = option(
        SimpleAuthorizationOptions(), keys=("authorization", "authentication"),
        read=_authorization, doc="Who may connect here, if not as elsewhere.",
    )
    no_auth_user: str = option(
        "", keys=("no_auth_user",), read=text, doc="The user of those who say nothing.",
    )
    ack_wait_ns: int = option(
        0, keys=("ack_wait", "ackwait"), read=duration, doc="How long an ack may take.",
    )
    js_api_timeout_ns: int = option(
        0, keys=("js_api_timeout", "api_timeout"), read=duration, doc="How long JetStream may.",
    )
    max_ack_pending: int = option(
        0, keys=("max_ack_pending", "max_pending", "max_inflight"), doc="Acks outstanding.",
        read=_acks_pending,
    )
    js_domain: str = option("", keys=("js_domain",), read=text, doc="Domain of its streams.")
    stream_replicas: int = option(
        0, keys=("stream_replicas",), read=integer, doc="Replicas of its streams.",
    )
    consumer_replicas: int = option(
        0, keys=("consumer_replicas",), read=_ignored_replicas, doc="Ignored.",
    )
    consumer_memory_storage: bool = option(
        False, keys=("consumer_memory_storage",), read=boolean, doc="Consumers in memory.",
    )
    consumer_inactive_threshold_ns: int = option(
        0, keys=("consumer_inactive_threshold", "consumer_auto_cleanup"), read=duration,
        doc="How long an unused consumer lives.",
    )
    reject_qos2_publish: bool = option(
        False, keys=("reject_qos2_publish",), read=boolean, doc="Refuse QoS 2 from publishers.",
    )
    downgrade_qos2_subscribe: bool = option(
        False, keys=("downgrade_qos2_subscribe",), read=boolean, doc="Give QoS 1 for QoS 2.",
    )
    # fmt: on
