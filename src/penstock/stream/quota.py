"""How much a stream may reserve and store: what its account and the server have left.

`max_bytes` is reserved when a stream is created, whether it is used or not. An account has one set
of limits, or one for each number of replicas; with a single set, every replica counts.

`StorageQuota` is for each message: streams are not added up every time. A stream is granted some
bytes of what is left, and asks again when they are used up. Near the limit grants shrink to
nothing, and every message asks.

Pure. Numbers below zero mean no limit, as in the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from penstock import error_codes
from penstock.errors import ApiError
from penstock.limits import STORAGE_GRANT_BYTES_MAX
from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.config.known import KnownStreams

_INT64_MAX: Final = 2**63 - 1
_EXCEEDED: Final = {
    StorageType.MEMORY: error_codes.MEMORY_RESOURCES_EXCEEDED,
    StorageType.FILE: error_codes.STORAGE_RESOURCES_EXCEEDED,
}


class TierLimits(msgspec.Struct, frozen=True):
    """The limits of an account, for all streams or for those with one number of replicas."""

    max_memory: int = -1
    max_storage: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_ack_pending: int = -1
    memory_max_stream_bytes: int = -1
    storage_max_stream_bytes: int = -1
    max_bytes_required: bool = False

    def bytes_max(self, storage: StorageType) -> int:
        """Return what all streams of a kind of storage may reserve."""
        return self.max_memory if storage is StorageType.MEMORY else self.max_storage

    def stream_bytes_max(self, storage: StorageType) -> int:
        """Return what one stream may reserve."""
        is_memory = storage is StorageType.MEMORY
        return self.memory_max_stream_bytes if is_memory else self.storage_max_stream_bytes


class AccountLimits(msgspec.Struct, frozen=True):
    """The limits of an account: by tier ("R1", "R3"), or under "" for all streams."""

    tiers: Mapping[str, TierLimits] = msgspec.field(default_factory=lambda: {"": TierLimits()})

    def bytes_promised(self, storage: StorageType) -> int:
        """Return what the account may reserve of a kind of storage, over all its tiers."""
        return sum(max(tier.bytes_max(storage), 0) for tier in self.tiers.values())

    def find(self, replicas: int) -> tuple[str, TierLimits] | None:
        """Return name and limits of the tier for a number of replicas, or None."""
        for name in ("", f"R{replicas or 1}"):
            if name in self.tiers:
                return name, self.tiers[name]
        return None


class ServerLimits(msgspec.Struct, frozen=True):
    """What the server has for streams, and what streams of all accounts have reserved of it."""

    memory_bytes_max: int = _INT64_MAX
    storage_bytes_max: int = _INT64_MAX
    memory_bytes_reserved: int = 0
    storage_bytes_reserved: int = 0
    duplicate_window_ns_max: int = 0
    """The longest window of duplicates; 0: no limit."""
    ack_pending_max: int = 0
    """Unacknowledged messages of a consumer; 0: no limit."""
    request_batch_max: int = 0
    """Messages of one pull request; 0: no limit."""
    consumers_max: int = 0
    """Consumers of a stream if neither the stream nor its account says how many; 0: no limit."""
    is_clustered: bool = False

    def bytes_max(self, storage: StorageType) -> int:
        """Return what the server has of a kind of storage."""
        is_memory = storage is StorageType.MEMORY
        return self.memory_bytes_max if is_memory else self.storage_bytes_max

    def bytes_left(self, storage: StorageType) -> int:
        """Return what is not reserved of a kind of storage."""
        is_memory = storage is StorageType.MEMORY
        reserved = self.memory_bytes_reserved if is_memory else self.storage_bytes_reserved
        return self.bytes_max(storage) - reserved


def tier_of(account: AccountLimits, replicas: int) -> tuple[str, TierLimits]:
    """Return name and limits of the tier for a number of replicas; raise ApiError if none."""
    found = account.find(replicas)
    if found is None:
        raise ApiError(error_codes.NO_LIMITS)
    return found


def check_promise(
    account: AccountLimits,
    server: ServerLimits,
    others: Collection[AccountLimits],
    *,
    kept: AccountLimits | None = None,
) -> None:
    """Raise if the server cannot promise an account this much.

    Streams have reserved, and other accounts were promised, the rest. `kept` is what this account
    was promised before.
    """
    kinds = (StorageType.MEMORY, StorageType.FILE)
    added = {
        kind: max(account.bytes_promised(kind) - (kept.bytes_promised(kind) if kept else 0), 0)
        for kind in kinds
    }
    for kind in kinds:
        if added[kind] > server.bytes_left(kind):
            raise ApiError(_EXCEEDED[kind])
    for kind in kinds:
        promised = sum(each.bytes_promised(kind) for each in others)
        if promised + added[kind] > server.bytes_max(kind):
            raise ApiError(_EXCEEDED[kind])


def check_stream_count(
    config: StreamConfig, account: AccountLimits, existing: KnownStreams
) -> None:
    """Raise ApiError for one stream too many; one that exists already does not count."""
    tier, limits = tier_of(account, config.num_replicas)
    count = existing.count(replicas=max(config.num_replicas, 1) if tier else 0)
    old = existing.get(config.name)
    if old is not None and _shares(tier, old, config):
        count -= 1
    if 0 < limits.max_streams <= count:
        raise ApiError(error_codes.MAXIMUM_STREAMS_LIMIT)


def check_stream_bytes(config: StreamConfig, account: AccountLimits) -> None:
    """Raise ApiError for a stream without a bound, or a too high one, if the account says so."""
    found = account.find(config.num_replicas)
    if found is None:
        return
    limits = found[1]
    bytes_max = limits.stream_bytes_max(config.storage)
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise ApiError(error_codes.STREAM_MAX_BYTES_REQUIRED)
    if 0 < bytes_max < config.max_bytes:
        raise ApiError(error_codes.STREAM_MAX_STREAM_BYTES_EXCEEDED)


def check_reservation(
    config: StreamConfig,
    server: ServerLimits,
    tier: tuple[str, TierLimits],
    existing: KnownStreams,
    *,
    added_bytes: int,
    kept_bytes: int = 0,
) -> None:
    """Raise ApiError if the account or the server has too little left.

    The stream adds `added_bytes` to the `kept_bytes` that it has reserved before.
    """
    name, limits = tier
    if 0 < limits.max_consumers < config.max_consumers:
        raise ApiError(error_codes.MAXIMUM_CONSUMERS_LIMIT)
    # A stream without a bound still needs something left.
    added_bytes = 1 if added_bytes < 0 else added_bytes
    account_bytes = _counted(name, config, kept_bytes) + _counted(name, config, added_bytes)
    account_bytes += _reserved_by_others(name, config, existing)
    bytes_max = limits.bytes_max(config.storage)
    if 0 <= bytes_max < account_bytes or added_bytes > server.bytes_left(config.storage):
        raise ApiError(_EXCEEDED[config.storage])


def _reserved_by_others(tier: str, config: StreamConfig, existing: KnownStreams) -> int:
    own = max(config.num_replicas, 1)
    reserved = existing.reserved_by_replicas(config.storage)
    if tier:
        total = sum(each for replicas, each in reserved if replicas == own)
    else:
        total = sum(each * replicas for replicas, each in reserved)
    old = existing.get(config.name)
    if old is not None and old.storage is config.storage and _shares(tier, old, config):
        total -= _counted(tier, old, old.max_bytes)
    return total


def _shares(tier: str, one: StreamConfig, other: StreamConfig) -> bool:
    return not tier or max(one.num_replicas, 1) == max(other.num_replicas, 1)


def _counted(tier: str, config: StreamConfig, byte_count: int) -> int:
    replicas = 1 if tier else max(config.num_replicas, 1)
    return max(byte_count, 0) * replicas


UNBOUNDED: Final = 2**62


class StorageQuota(msgspec.Struct, frozen=True):
    """What is left, in bytes; below zero after a limit was lowered or slightly passed."""

    server_bytes: int = UNBOUNDED
    account_bytes: int = UNBOUNDED
    stream_count: int = 1
    """How many streams share it."""

    def grant_with(self, size: int) -> int:
        """Return the bytes that a stream may store now, a message of a size included.

        Raise ApiError if account or server have no room for that message.
        """
        if self.server_bytes < 0:
            raise ApiError(error_codes.INSUFFICIENT_RESOURCES)
        if self.account_bytes < size:
            raise ApiError(error_codes.ACCOUNT_RESOURCES_EXCEEDED)
        return self.grant(size) + size

    def grant(self, size: int) -> int:
        """Return the bytes that a stream may store unasked, after a message of a size."""
        left = min(self.server_bytes, self.account_bytes) - size
        if left >= UNBOUNDED // 2:
            return left
        # All streams together never get more than half of it.
        return min(max(left, 0) // (2 * self.stream_count), STORAGE_GRANT_BYTES_MAX)
