"""A stream's store by its configuration.

Pure but for `open_store`, which opens or makes the files.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.clock import Clock
from penstock.errors import WrongKey
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.sealed_document import DocumentKeys
from penstock.store.disk_threads import DoneJobs
from penstock.store.filestore import FileStore
from penstock.store.interface import CommitCallback, Discard, DurableCallback, StoreConfig
from penstock.store.memstore import MemoryStore
from penstock.store.vfs import FileSystem
from penstock.stream.config import (
    DiscardPolicy,
    PersistModeType,
    StorageType,
    StoreCompression,
    StreamConfig,
)

ASYNC_SYNC_INTERVAL_NS = 2 * 60 * 1_000_000_000
"""How often a stream is synced that asks for acknowledgements before the sync."""


class StoragePolicy(msgspec.Struct, frozen=True):
    """What the server decides for all its stores."""

    sync_interval_ns: int = 0
    """0: every acknowledgement waits for the disk."""

    cipher: Cipher = Cipher.NONE
    key: StoreKey | None = None
    on_commit: CommitCallback | None = None
    """Told of each commit to the disk."""

    done_jobs: DoneJobs | None = None
    """Where commits are left that are done; the event loop's, or that of a thread."""

    previous_key: StoreKey | None = None
    """What streams may still be encrypted with; such a stream stays with it."""

    @property
    def document_keys(self) -> DocumentKeys:
        """What configurations are sealed with."""
        return DocumentKeys(self.cipher, self.key, self.previous_key)


def store_config(config: StreamConfig, policy: StoragePolicy) -> StoreConfig:
    """Give the configuration of a stream's store."""
    interval_ns = policy.sync_interval_ns
    if config.persist_mode is PersistModeType.ASYNC:
        interval_ns = interval_ns or ASYNC_SYNC_INTERVAL_NS
    is_file = config.storage is StorageType.FILE
    return StoreConfig(
        name=config.name,
        max_msgs=max(config.max_msgs, 0),
        max_bytes=max(config.max_bytes, 0),
        max_age_ns=config.max_age,
        max_msgs_per_subject=max(config.max_msgs_per_subject, 0),
        max_msg_bytes=max(config.max_msg_size, 0),
        discard=Discard.NEW if config.discard is DiscardPolicy.NEW else Discard.OLD,
        discard_new_per_subject=config.discard_new_per_subject,
        hands_over_expired=config.subject_delete_marker_ttl > 0,
        sync_interval_ns=interval_ns if is_file else 0,
        compression=(
            Compression.SNAPPY
            if is_file and config.compression is StoreCompression.S2
            else Compression.NONE
        ),
        cipher=policy.cipher if is_file else Cipher.NONE,
    )


def open_store(
    config: StreamConfig,
    path: str,
    policy: StoragePolicy,
    *,
    files: FileSystem,
    clock: Clock,
    on_durable: DurableCallback,
    on_damage: Callable[[Damage], None],
) -> FileStore:
    """Open or make a stream's store; raises what `FileStore.open` raises."""
    settings = store_config(config, policy)
    if config.storage is StorageType.MEMORY:
        return MemoryStore.create(settings, clock=clock, on_durable=on_durable)

    def opened(key: StoreKey | None) -> FileStore:
        return FileStore.open(
            path,
            settings,
            files=files,
            clock=clock,
            key=key,
            on_durable=on_durable,
            on_damage=on_damage,
            on_commit=policy.on_commit,
            done_jobs=policy.done_jobs,
        )

    try:
        return opened(policy.key)
    except WrongKey:
        if policy.previous_key is None:
            raise
        return opened(policy.previous_key)
