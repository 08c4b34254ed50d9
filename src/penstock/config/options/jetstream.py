"""Options of JetStream: of the server, and what of it an account may use. Pure."""

from __future__ import annotations

import string
from typing import Any, ClassVar, Final

from penstock.config.language.parser import Value
from penstock.config.options.clusters import urls
from penstock.config.options.declare import Block, Key, Reader, option, options_block
from penstock.config.options.values import (
    Notes,
    block,
    boolean,
    duration,
    duration_text,
    integer,
    mapping,
    read_fields,
    storage_size,
    text,
)
from penstock.text.quoting import quoted
from penstock.text.times import MINUTE_NS

# The reference server's bounds.
_IO_MAX: Final = 8192
_IO_MIN: Final = 4
_LINK_NAME: Final = frozenset(string.ascii_letters + string.digits + "-_")
_ENABLED: Final = ("enabled", "enable")
_DISABLED: Final = ("disabled", "disable")


def _count(value: Value, key: Key, notes: Notes) -> int:
    inner = value.value
    if isinstance(inner, bool) or not isinstance(inner, int):
        expected = f"Expected a parseable size for {quoted(key.spelled)}"
        raise value.error(f"{expected}, got {value.type_name}")
    return inner


def _required(value: Value, key: Key, notes: Notes) -> bool:
    if not isinstance(value.value, bool):
        expected = f"Expected a parseable bool for {quoted(key.spelled)}"
        raise value.error(f"{expected}, got {value.type_name}")
    return value.value


def _not_negative(read: Reader) -> Reader:
    def read_checked(value: Value, key: Key, notes: Notes) -> int:
        number: int = read(value, key, notes)
        if number < 0:
            raise value.error(f"Expected an absolute size for {quoted(key.spelled)}, got {number}")
        return number

    return read_checked


def _concurrent_io(value: Value, key: Key, notes: Notes) -> int:
    inner = value.value
    if isinstance(inner, bool) or not isinstance(inner, int) or not _IO_MIN <= inner <= _IO_MAX:
        expected = f"Expected an absolute size for {quoted(key.spelled)} between 4 and 8192"
        raise value.error(f"{expected}, got {value.value}")
    return inner


def _cipher(value: Value, key: Key, notes: Notes) -> str:
    name = text(value, key, notes)
    found = {"chacha": "chacha", "chachapoly": "chacha", "aes": "aes"}.get(name.lower())
    if found is None:
        raise value.error(f"Unknown cipher type: {quoted(name)}")
    return found


def _sync(value: Value, key: Key, notes: Notes) -> dict[str, Any]:
    if isinstance(value.value, str) and value.value.lower() == "always":
        return {"sync_always": True, "sync_interval_ns": 2 * MINUTE_NS}
    return {"sync_always": False, "sync_interval_ns": duration(value, key, notes)}


@options_block(frozen=True)
class BatchLimitsOptions(Block):
    """Bounds of batches that are published as one; 0: the built-in bound."""

    # fmt: off
    max_inflight_per_stream: int = option(
        0, keys=("max_inflight_per_stream",), read=integer, doc="Open batches of a stream.",
    )
    max_inflight_total: int = option(
        0, keys=("max_inflight_total",), read=integer, doc="Open batches of the server.",
    )
    max_msgs: int = option(0, keys=("max_msgs",), read=integer, doc="Messages of a batch.")
    timeout_ns: int = option(
        0, keys=("timeout",), read=duration_text, doc="How long a batch may pause.",
    )
    # fmt: on


@options_block(frozen=True)
class JetStreamLimitsOptions(Block):
    """Bounds of what any client may ask for; 0: the built-in bound."""

    # fmt: off
    max_ack_pending: int = option(
        0, keys=("max_ack_pending",), read=integer, doc="Messages unacknowledged per consumer.",
    )
    max_ha_assets: int = option(
        0, keys=("max_ha_assets",), read=integer, doc="Replicated streams and consumers.",
    )
    max_request_batch: int = option(
        0, keys=("max_request_batch",), read=integer, doc="Messages of one pull request.",
    )
    default_max_consumers: int = option(
        1000, keys=("default_max_consumers",), read=integer,
        doc="Consumers of a stream that does not say how many.",
    )
    duplicate_window_ns: int = option(
        0, keys=("duplicate_window",), read=duration_text, doc="Longest window of duplicates.",
    )
    batch: BatchLimitsOptions = option(
        BatchLimitsOptions(), keys=("batch",), read=block(BatchLimitsOptions, "batch limits"),
        doc="Bounds of batches.",
    )
    # fmt: on


@options_block(frozen=True)
class TpmOptions(Block):
    """A key that is kept by the machine's security chip."""

    # fmt: off
    keys_file: str = option("", keys=("keys_file",), read=text, doc="File of the wrapped key.")
    encryption_password: str = option(
        "", keys=("encryption_password",), read=text, secret=True, doc="Password of the key.",
    )
    srk_password: str = option(
        "", keys=("srk_password",), read=text, secret=True, doc="Password of the root key.",
    )
    pcr: int = option(0, keys=("pcr",), read=integer, doc="Register that seals the key.")
    cipher: str = option("", keys=("cipher",), read=_cipher, doc="chacha or aes.")
    # fmt: on


@options_block(frozen=True)
class LinkOptions(Block):
    """Another NATS server whose streams can be mirrored and sourced from here."""

    # fmt: off
    name: str = option("", doc="Its name: that of its domain here.")
    urls: tuple[str, ...] = option(
        (), keys=("urls", "url"), read=urls("link"), secret=True, doc="Where it is.",
    )
    credentials: str = option(
        "", keys=("credentials", "creds"), read=text, doc="File with a JWT and its seed.",
    )
    account: str = option(
        "$G", keys=("account",), read=text, doc="The account whose streams may use it.",
    )
    # fmt: on


def _links(value: Value, key: Key, notes: Notes) -> tuple[LinkOptions, ...]:
    entries = mapping(value, f"Expected links to be a map, got {value.type_name}")
    return tuple(_link(name, entry, notes) for name, entry in entries.items())


def _link(name: str, value: Value, notes: Notes) -> LinkOptions:
    if not name or not _LINK_NAME.issuperset(name):
        raise value.error(f"Link name {quoted(name)} has other than letters, digits, - and _")
    expected = f"Expected link {quoted(name)} to be a map, got {value.type_name}"
    fields = read_fields(LinkOptions, mapping(value, expected), notes)
    if not fields.get("urls"):
        raise value.error(f"Link {quoted(name)} has no url")
    return LinkOptions(name=name, **fields)


@options_block(frozen=True)
class JetStreamOptions(Block):
    """Streams: where they are kept and how much they may take."""

    shared_keys: ClassVar[dict[str, Reader]] = dict.fromkeys(("sync", "sync_interval"), _sync)

    # fmt: off
    enabled: bool = option(
        True, keys=("enabled", "enable"), flags=("-js", "--jetstream"), read=boolean,
        reloadable=True, go_name="JetStream", doc="Keep streams.",
    )
    store_dir: str = option(
        "", keys=("store_dir", "storedir", "store"), flags=("-sd", "--store_dir"),
        placeholder="dir", read=text, go_name="StoreDir",
        doc="Folder of the streams; a folder `jetstream` is made in it.",
    )
    max_memory: int = option(
        -1, keys=("max_mem_store", "max_memory_store", "max_mem"), read=storage_size,
        reloadable=True, go_name="JetStreamMaxMemory",
        doc="Bytes that memory streams may take; -1: three quarters of the memory.",
    )
    max_file: int = option(
        -1, keys=("max_file_store", "max_file"), read=storage_size, reloadable=True,
        go_name="JetStreamMaxStore",
        doc="Bytes that file streams may take; -1: three quarters of the free disk.",
    )
    domain: str = option(
        "", keys=("domain",), read=text, go_name="JetStreamDomain", doc="Name of the domain.",
    )
    sync_interval_ns: int | None = option(
        None, go_name="SyncInterval",
        doc="How often what was written is forced to disk; None if not said.",
    )
    sync_always: bool | None = option(
        None, go_name="SyncAlways",
        doc="Force every write to disk before it is acknowledged; None if not said.",
    )
    strict: bool = option(
        True, keys=("strict",), read=boolean, go_name="NoJetStreamStrict",
        doc="Refuse requests with fields that are not known.",
    )
    key: str = option(
        "", keys=("key", "ek", "encryption_key"), read=text, secret=True, go_name="JetStreamKey",
        doc="Key that streams are encrypted with on disk.",
    )
    previous_key: str = option(
        "", keys=("prev_key", "prev_ek", "prev_encryption_key"), read=text, secret=True,
        go_name="JetStreamOldKey", doc="Key that they were encrypted with before.",
    )
    cipher: str = option(
        "chacha", keys=("cipher",), read=_cipher, go_name="JetStreamCipher",
        doc="chacha or aes.",
    )
    extension_hint: str = option(
        "", keys=("extension_hint",), read=text, go_name="JetStreamExtHint",
        doc="will_extend or no_extend: whether leaf nodes extend the domain.",
    )
    unique_tag: str = option(
        "", keys=("unique_tag",), go_name="JetStreamUniqueTag",
        read=lambda value, key, notes: text(value, key, notes).strip().lower(),
        doc="Prefix of a server tag that must differ between replicas.",
    )
    max_outstanding_catchup: int = option(
        0, keys=("max_outstanding_catchup",), read=storage_size, go_name="JetStreamMaxCatchup",
        doc="Bytes on their way to replicas that catch up.",
    )
    max_buffered_size: int = option(
        0, keys=("max_buffered_size",), read=storage_size, go_name="StreamMaxBufferedSize",
        doc="Bytes waiting to be stored, per stream.",
    )
    max_buffered_msgs: int = option(
        0, keys=("max_buffered_msgs",), read=_count, go_name="StreamMaxBufferedMsgs",
        doc="Messages waiting to be stored, per stream.",
    )
    request_queue_limit: int = option(
        10_000, keys=("request_queue_limit",), read=_count, zero_is_default=True,
        go_name="JetStreamRequestQueueLimit", doc="API requests that may wait.",
    )
    info_queue_limit: int = option(
        10_000, keys=("info_queue_limit",), read=_count, zero_is_default=True,
        go_name="JetStreamInfoQueueLimit", doc="Requests for information that may wait.",
    )
    meta_compact: int = option(
        0, keys=("meta_compact",), read=_not_negative(_count), reloadable=True,
        go_name="JetStreamMetaCompact", doc="Entries after which the meta log is compacted.",
    )
    meta_compact_size: int = option(
        0, keys=("meta_compact_size",), read=_not_negative(storage_size), reloadable=True,
        go_name="JetStreamMetaCompactSize", doc="Bytes after which the meta log is compacted.",
    )
    meta_compact_sync: bool = option(
        False, keys=("meta_compact_sync",), read=boolean, reloadable=True,
        go_name="JetStreamMetaCompactSync", doc="Compact the meta log while it stands still.",
    )
    max_concurrent_io: int = option(
        4096, keys=("max_concurrent_io",), read=_concurrent_io, go_name="JetStreamConcurrentIOs",
        doc="Disk operations at a time.",
    )
    limits: JetStreamLimitsOptions = option(
        JetStreamLimitsOptions(), keys=("limits",), go_name="JetStreamLimits",
        read=block(JetStreamLimitsOptions, "jetstream limits"), doc="Bounds of requests.",
    )
    tpm: TpmOptions | None = option(
        None, keys=("tpm",), read=block(TpmOptions, "tpm"), go_name="JetStreamTpm",
        doc="A key in the machine's security chip.",
    )
    links: tuple[LinkOptions, ...] = option(
        (), keys=("links",), read=_links, go_name="JetStreamLinks",
        doc="Other servers whose streams can be mirrored and sourced.",
    )
    # fmt: on


def jetstream(value: Value, key: Key, notes: Notes) -> JetStreamOptions:
    """Read JetStream's options: a map, a boolean, or the word "enabled" or "disabled"."""
    enabled = _switch(value)
    if enabled is not None:
        return JetStreamOptions(enabled=enabled)
    entries = mapping(value, _expected_switch(value))
    return JetStreamOptions(**read_fields(JetStreamOptions, entries, notes))


def _switch(value: Value) -> bool | None:
    inner = value.value
    if isinstance(inner, bool):
        return inner
    if not isinstance(inner, str):
        return None
    if inner.lower() not in _ENABLED + _DISABLED:
        expected = "Expected 'enabled' or 'disabled' for string value"
        raise value.error(f"{expected}, got '{inner}'")
    return inner.lower() in _ENABLED


def _expected_switch(value: Value) -> str:
    return f"Expected map, bool or string to define JetStream, got {value.type_name}"


def _traffic(value: Value, key: Key, notes: Notes) -> str:
    expected = f"Expected 'system' or 'owner' string value for {quoted(key.spelled)}"
    if value.value not in ("system", "owner", ""):
        raise value.error(f"{expected}, got {value.value}")
    return "owner" if value.value == "owner" else "system"


@options_block(frozen=True)
class AccountJetStreamOptions(Block):
    """What an account may take of JetStream; -1: as much as the server has."""

    # fmt: off
    max_memory: int = option(
        -1, keys=("max_memory", "max_mem", "mem", "memory"), read=_count,
        doc="Bytes in memory streams.",
    )
    max_file: int = option(
        -1, keys=("max_file", "max_store", "max_disk", "store", "disk"), read=_count,
        doc="Bytes in file streams.",
    )
    max_streams: int = option(
        -1, keys=("max_streams", "streams"), read=_count, doc="Number of streams.",
    )
    max_consumers: int = option(
        -1, keys=("max_consumers", "consumers"), read=_count, doc="Number of consumers.",
    )
    max_ack_pending: int = option(
        -1, keys=("max_ack_pending",), read=_count, doc="Messages unacknowledged per consumer.",
    )
    memory_max_stream_bytes: int = option(
        -1, keys=("memory_max_stream_bytes", "mem_max_stream_bytes"), read=_count,
        doc="Bytes of one memory stream.",
    )
    file_max_stream_bytes: int = option(
        -1, keys=("store_max_stream_bytes", "disk_max_stream_bytes"), read=_count,
        doc="Bytes of one file stream.",
    )
    max_bytes_required: bool = option(
        False, keys=("max_bytes_required", "max_stream_bytes", "max_bytes"), read=_required,
        doc="Streams must say how many bytes they may take.",
    )
    cluster_traffic: str = option(
        "system", keys=("cluster_traffic",), read=_traffic,
        doc="Whose account replication runs in: system or owner.",
    )
    # fmt: on


def account_jetstream(value: Value, key: Key, notes: Notes) -> AccountJetStreamOptions | None:
    """Read what an account may take; None if it has no JetStream."""
    enabled = _switch(value)
    if enabled is not None:
        return AccountJetStreamOptions() if enabled else None
    entries = mapping(value, _expected_switch(value))
    return AccountJetStreamOptions(**read_fields(AccountJetStreamOptions, entries, notes))
