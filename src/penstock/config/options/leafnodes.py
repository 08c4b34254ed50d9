"""Options of leaf nodes: the listener for them, and the remotes to connect to. Pure."""

from __future__ import annotations

from typing import ClassVar

from penstock.config.language.parser import Value
from penstock.config.options.authorization import subjects
from penstock.config.options.clusters import CompressionOptions, compression, urls, write_timeout
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.tls import TlsOptions, tls_block
from penstock.config.options.values import (
    Notes,
    array,
    block,
    boolean,
    duration,
    integer,
    listen,
    mapping,
    read_fields,
    seconds,
    text,
)
from penstock.protocol.nkeys import Prefix, is_public_key
from penstock.text.quoting import quoted
from penstock.text.times import SECOND_NS


@options_block(frozen=True)
class LeafUserOptions(Block):
    """A leaf node that may connect."""

    # fmt: off
    user: str = option("", keys=("user", "username"), read=text, doc="Its name.")
    password: str = option(
        "", keys=("password", "pass"), read=text, secret=True, doc="Its password.",
    )
    account: str = option("", keys=("account",), read=text, doc="The account it is in.")
    proxy_required: bool = option(
        False, keys=("proxy_required",), read=boolean, doc="Only through a trusted proxy.",
    )
    # fmt: on


def _leaf_users(value: Value, key: Key, notes: Notes) -> tuple[LeafUserOptions, ...]:
    expected = "Expected user entry to be a map/struct, got"
    return tuple(
        LeafUserOptions(
            **read_fields(LeafUserOptions, mapping(one, f"{expected} {one.type_name}"), notes)
        )
        for one in array(value, f"Expected users field to be an array, got {value.type_name}")
    )


def _leaf_nkey(value: Value, key: Key, notes: Notes) -> str:
    found = text(value, key, notes)
    if not is_public_key(found, Prefix.USER):
        raise value.error("Not a valid public nkey for leafnode authorization")
    return found


@options_block(frozen=True)
class LeafAuthorizationOptions(Block):
    """Leaf nodes that may connect."""

    # fmt: off
    user: str = option("", keys=("user", "username"), read=text, doc="The one name they have.")
    password: str = option(
        "", keys=("password", "pass"), read=text, secret=True, doc="The password of that name.",
    )
    nkey: str = option("", keys=("nkey",), read=_leaf_nkey, doc="A public nkey instead.")
    account: str = option("", keys=("account",), read=text, doc="The account they are in.")
    users: tuple[LeafUserOptions, ...] = option(
        (), keys=("users",), read=_leaf_users, doc="Many of them.",
    )
    timeout_s: float = option(
        0.0, keys=("timeout",), read=seconds("leafnode authorization"),
        doc="Seconds that they have to say who they are.",
    )
    proxy_required: bool = option(
        False, keys=("proxy_required",), read=boolean, doc="Only through a trusted proxy.",
    )
    # fmt: on


def _leaf_authorization(value: Value, key: Key, notes: Notes) -> LeafAuthorizationOptions:
    found = block(LeafAuthorizationOptions, "authorization")(value, key, notes)
    if found.users and found.user:
        raise value.error("can not have a single user/pass and a users array")
    if found.users and found.nkey:
        raise value.error("can not have a single nkey and a users array")
    names = [user.user for user in found.users]
    for name in names:
        if names.count(name) > 1:
            reason = f"duplicate user {quoted(name)} detected in leafnode authorization"
            raise value.error(reason)
    return found


def _subjects(value: Value, key: Key, notes: Notes) -> tuple[str, ...]:
    return subjects(value, with_queues=False)


def _migrate(value: Value, key: Key, notes: Notes) -> int | None:
    if isinstance(value.value, bool):
        return 0 if value.value else None
    expected = "Expected boolean or map for jetstream_cluster_migrate, got"
    delay = mapping(value, f"{expected} {value.type_name}").get("leader_migrate_delay")
    if delay is None:
        return 0
    return duration(delay, Key("leader_migrate_delay", "leader_migrate_delay"), notes)


@options_block(frozen=True)
class LeafProxyOptions(Block):
    """A proxy on the way to a remote."""

    # fmt: off
    url: str = option("", keys=("url",), read=text, doc="Where it is: http or https.")
    username: str = option("", keys=("username",), read=text, doc="Name to give it.")
    password: str = option(
        "", keys=("password",), read=text, secret=True, doc="Password to give it.",
    )
    timeout_ns: int = option(0, keys=("timeout",), read=duration, doc="How long it may take.")
    # fmt: on


@options_block(frozen=True)
class LeafRemoteOptions(Block):
    """A server that this one is a leaf of."""

    # fmt: off
    urls: tuple[str, ...] = option(
        (), keys=("urls", "url"), read=urls("leafnode"), secret=True, doc="Where it is.",
    )
    account: str = option("", keys=("account", "local"), read=text, doc="The account it joins.")
    credentials: str = option(
        "", keys=("credentials", "creds"), read=text, doc="File with what proves who we are.",
    )
    nkey: str = option("", keys=("nkey", "seed"), read=text, secret=True, doc="A seed instead.")
    tls: TlsOptions | None = option(None, keys=("tls",), read=tls_block(), doc="TLS to it.")
    hub: bool = option(False, keys=("hub",), read=boolean, doc="Be the hub, not the leaf.")
    no_randomize: bool = option(
        False, keys=("no_randomize", "dont_randomize"), read=boolean, doc="Try URLs in order.",
    )
    deny_imports: tuple[str, ...] = option(
        (), keys=("deny_imports", "deny_import"), read=_subjects, doc="Subjects not to take.",
    )
    deny_exports: tuple[str, ...] = option(
        (), keys=("deny_exports", "deny_export"), read=_subjects, doc="Subjects not to give.",
    )
    websocket_compression: bool = option(
        False, read=boolean, doc="Ask for compression.",
        keys=("ws_compression", "ws_compress", "websocket_compress", "websocket_compression"),
    )
    websocket_no_masking: bool = option(
        False, keys=("ws_no_masking", "websocket_no_masking"), read=boolean, doc="Do not mask.",
    )
    migrate_delay_ns: int | None = option(
        None, keys=("jetstream_cluster_migrate", "js_cluster_migrate"), read=_migrate,
        doc="Move stream leaders away when the remote is lost, after so long; None: do not.",
    )
    isolate: bool = option(
        False, keys=("isolate_leafnode_interest", "isolate"), read=boolean, doc="Keep interest in.",
    )
    request_isolation: bool = option(
        False, keys=("request_isolation",), read=boolean, doc="Ask the remote to do so.",
    )
    compression: CompressionOptions = option(
        CompressionOptions("s2_auto"), keys=("compression",), read=compression("s2_auto"),
        doc="How what goes to it is packed.",
    )
    first_info_timeout_ns: int = option(
        0, keys=("first_info_timeout",), read=duration, doc="How long it may be silent.",
    )
    dial_timeout_ns: int = option(
        0, keys=("dial_timeout",), read=duration, doc="How long connecting may take.",
    )
    disabled: bool = option(False, keys=("disabled",), read=boolean, doc="Not for now.")
    proxy: LeafProxyOptions | None = option(
        None, keys=("proxy",), read=block(LeafProxyOptions, "proxy"), doc="A proxy on the way.",
    )
    ignore_discovered_servers: bool = option(
        False, keys=("ignore_discovered_servers",), read=boolean, doc="Only the URLs given.",
    )
    # fmt: on


def _remotes(value: Value, key: Key, notes: Notes) -> tuple[LeafRemoteOptions, ...]:
    found = []
    for entry in array(value, f"Expected remotes field to be an array, got {value.type_name}"):
        expected = "Expected remote leafnode entry to be a map/struct, got"
        entries = mapping(entry, f"{expected} {entry.type_name}")
        remote = LeafRemoteOptions(**read_fields(LeafRemoteOptions, entries, notes))
        if remote.credentials and remote.nkey:
            raise entry.error("Remote leafnode can not have both creds and nkey defined")
        if remote in found:
            raise entry.error("duplicate remote")
        found.append(remote)
    return tuple(found)


def _min_version(value: Value, key: Key, notes: Notes) -> str:
    version = text(value, key, notes)
    try:
        numbers = [int(part) for part in version.removeprefix("v").split("-")[0].split(".")]
    except ValueError:
        reason = f"invalid leafnode's minimum version: {quoted(version)}"
        raise value.error(reason) from None
    if len(numbers) != 3 or numbers < [2, 8, 0]:
        raise value.error("the minimum version should be at least 2.8.0")
    return version


@options_block(frozen=True)
class LeafnodesOptions(Block):
    """Servers at the edge: those that may connect here, and those that this one connects to."""

    shared_keys: ClassVar[dict[str, Reader]] = {"listen": listen("host", "port")}

    # fmt: off
    host: str = option(
        "0.0.0.0", keys=("host", "net"), read=text, zero_is_default=True,
        doc="Address to listen on.",
    )
    port: int = option(0, keys=("port",), read=integer, doc="Port; 0: none, -1: any free one.")
    authorization: LeafAuthorizationOptions = option(
        LeafAuthorizationOptions(), keys=("authorization",), read=_leaf_authorization,
        doc="Who may connect.",
    )
    remotes: tuple[LeafRemoteOptions, ...] = option(
        (), keys=("remotes",), read=_remotes, doc="Servers to connect to.",
    )
    reconnect_ns: int = option(
        SECOND_NS, keys=("reconnect", "reconnect_delay", "reconnect_interval"), read=duration,
        zero_is_default=True, doc="How long to wait before connecting again.",
    )
    dial_timeout_ns: int = option(
        0, keys=("dial_timeout",), read=duration, doc="How long connecting may take.",
    )
    tls: TlsOptions | None = option(None, keys=("tls",), read=tls_block(), doc="TLS of the port.")
    advertise: str = option(
        "", keys=("leafnode_advertise", "advertise"), read=text, doc="Address that is told.",
    )
    no_advertise: bool = option(
        False, keys=("no_advertise",), read=boolean, doc="Do not tell of other servers.",
    )
    min_version: str = option(
        "", keys=("min_version", "minimum_version"), read=_min_version, doc="Oldest leaf node.",
    )
    compression: CompressionOptions = option(
        CompressionOptions("s2_auto"), keys=("compression",), read=compression("s2_auto"),
        doc="How what goes to leaf nodes is packed.",
    )
    isolate: bool = option(
        False, keys=("isolate_leafnode_interest", "isolate"), read=boolean,
        doc="Do not tell a leaf node what other leaf nodes want.",
    )
    write_deadline_ns: int = option(
        0, keys=("write_deadline",), read=duration, doc="How long a write may take.",
    )
    write_timeout: str = option(
        "default", keys=("write_timeout",), read=write_timeout, doc="What then.",
    )
    # fmt: on
