"""A stream on disk: its folder with the configuration, and its store.

    stream.json       configuration and time of creation; sealed if there is a key
    stream.removed    the same of a stream whose removal has begun
    stream.creating   the same of a new stream that is not on stable storage yet
    sources.json      positions in its sources, if it has any
    msgs/             the store
    consumers/        configurations and states of its consumers

Invariants: a new stream's folder appears as a whole, and a restart removes it until it was settled;
a name that ends in `.tmp`, with nothing of others in it, never was a stream. The document is
replaced as a whole and durable before a client is answered. A document that cannot be read is never
overwritten or removed: the stream stays offline, with the reason. A removal that has begun is
finished, now or at the next start.

Thread: any, one at a time for each folder. The account calls it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable

import msgspec

from penstock.clock import Clock
from penstock.errors import FormatError, InvalidDocument, StreamOffline, WrongKey
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import LOCK_NAME
from penstock.format.state.checked_document import (
    CHECKED_VERSION,
    check_version,
    with_checksum,
    without_checksum,
)
from penstock.format.state.sealed_document import DocumentKeys
from penstock.limits import STREAM_DOCUMENT_BYTES_MAX
from penstock.store.commit.disk_threads import DoneJobs
from penstock.store.filestore import FileStore
from penstock.store.interface import (
    CommitCallback,
    Discard,
    DurableCallback,
    FailureCallback,
    StoreConfig,
)
from penstock.store.memstore import MemoryStore
from penstock.store.vfs import (
    TEMPORARY_SUFFIX,
    FileSystem,
    remove_tree,
    write_all,
    write_atomically,
)
from penstock.stream.config.config import (
    API_LEVEL,
    REQUIRED_LEVEL_KEY,
    DiscardPolicy,
    PersistModeType,
    StorageType,
    StoreCompression,
    StreamConfig,
    is_supported,
)
from penstock.text.json.codec import decode, encode
from penstock.text.json.shapes import Int
from penstock.text.times import Instant

DOCUMENT_NAME = "stream.json"
REMOVED_NAME = "stream.removed"
CREATING_NAME = "stream.creating"
_OWN_NAME = re.compile(r"[0-9a-f]{16}\.tmp")
MESSAGES_NAME = "msgs"
DOCUMENT_VERSION = CHECKED_VERSION
DOCUMENT_VERSIONS = (1, DOCUMENT_VERSION)


class StreamDocument(msgspec.Struct, frozen=True):
    """The content of `stream.json`."""

    version: Int = 0
    created: Instant | None = None
    config: StreamConfig = StreamConfig()


class StreamFolder(msgspec.Struct, frozen=True):
    """One stream's folder."""

    files: FileSystem
    path: str
    unique: Callable[[], str]
    keys: DocumentKeys = DocumentKeys()

    @property
    def _name(self) -> bytes:
        return os.path.basename(self.path).encode()

    def _sealed(self, config: StreamConfig, created: Instant) -> bytes:
        plain = with_checksum(encode(StreamDocument(DOCUMENT_VERSION, created, config)))
        which = DOCUMENT_NAME.encode()
        return self.keys.seal(plain, stream=self._name, which=which, random_bytes=os.urandom)

    @property
    def messages_path(self) -> str:
        """The store's folder."""
        return os.path.join(self.path, MESSAGES_NAME)

    def make(self, config: StreamConfig, created: Instant) -> None:
        """Create the folder of a new stream; a restart removes it, until `settle` has returned."""
        # The name may be as long as the system takes, so the temporary one is not made of it.
        temporary = os.path.join(os.path.dirname(self.path), f"{self.unique()}{TEMPORARY_SUFFIX}")
        try:
            self._fill(temporary, self._sealed(config, created))
            self.files.rename(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                remove_tree(self.files, temporary)
            raise

    def settle(self) -> None:
        """Put a new folder on stable storage; the folder above it is the caller's to sync."""
        creating = os.path.join(self.path, CREATING_NAME)
        file = self.files.open(creating, "read")
        try:
            file.sync_data()
        finally:
            file.close()
        self.files.rename(creating, os.path.join(self.path, DOCUMENT_NAME))
        self.files.sync_dir(self.path)

    def _fill(self, path: str, document: bytes) -> None:
        messages_path = os.path.join(path, MESSAGES_NAME)
        self.files.make_dirs(path)
        # First: what else arrives on stable storage until `settle` is known to be unfinished.
        file = self.files.open(os.path.join(path, CREATING_NAME), "create")
        try:
            write_all(file, 0, document)
        finally:
            file.close()
        self.files.make_dirs(messages_path)
        # A lock file tells the store that its creator syncs the folder.
        self.files.lock(os.path.join(messages_path, LOCK_NAME)).release()

    def write(self, config: StreamConfig, created: Instant) -> None:
        """Replace the configuration; it is durable when this returns."""
        self.files.make_dirs(self.path)
        path = os.path.join(self.path, DOCUMENT_NAME)
        is_new = not self.files.exists(path)
        write_atomically(self.files, path, self._sealed(config, created), unique=self.unique())
        if is_new:
            self.files.sync_dir(os.path.dirname(self.path))

    def read(self) -> StreamDocument:
        """Return the document; raise StreamOffline if the stream cannot be served, and OSError."""
        path = os.path.join(self.path, DOCUMENT_NAME)
        plain, has_checksum = self._opened(path)
        document = self._decoded(path, plain)
        if document.version not in DOCUMENT_VERSIONS:
            raise StreamOffline(path, f"unsupported - document version {document.version}")
        try:
            check_version(document.version, has_checksum=has_checksum)
        except FormatError as error:
            raise StreamOffline(path, f"{DOCUMENT_NAME} is damaged: {error.reason}") from error
        if not is_supported(document.config.metadata):
            level = document.config.metadata[REQUIRED_LEVEL_KEY]
            needed = f"required API level: {level}, current API level: {API_LEVEL}"
            raise StreamOffline(path, f"unsupported - {needed}")
        if document.config.name != os.path.basename(self.path):
            raise StreamOffline(path, f"the name in it is {document.config.name!r}")
        return document

    def _opened(self, path: str) -> tuple[bytes, bool]:
        """Return the document and whether it had a checksum, which is right then."""
        which = DOCUMENT_NAME.encode()
        data = self._read_bytes(path)
        try:
            plain = self.keys.open(data, stream=self._name, which=which, path=path)
        except (FormatError, WrongKey) as error:
            raise StreamOffline(path, str(error)) from error
        try:
            return without_checksum(plain)
        except FormatError as error:
            raise StreamOffline(path, f"{DOCUMENT_NAME} is damaged: {error.reason}") from error

    def _read_bytes(self, path: str) -> bytes:
        if not self.files.exists(path):
            raise StreamOffline(path, f"there is no {DOCUMENT_NAME}")
        file = self.files.open(path, "read")
        try:
            return file.read_at(0, min(file.size(), STREAM_DOCUMENT_BYTES_MAX))
        finally:
            file.close()

    def _decoded(self, path: str, data: bytes) -> StreamDocument:
        try:
            return decode(StreamDocument, data)
        except InvalidDocument as error:
            unknown = error.reason
        try:
            lenient = decode(StreamDocument, data, strict=False)
        except InvalidDocument as error:
            raise StreamOffline(path, f"decoding error: {error.reason}") from error
        if not is_supported(lenient.config.metadata):
            reason = unknown.removeprefix("json: ")
            raise StreamOffline(path, f"unsupported - config error: {reason}")
        raise StreamOffline(path, f"decoding error: {unknown}")

    def reserve(self) -> None:
        """Create a folder that a restart removes, until the configuration is written."""
        self.files.make_dirs(self.path)
        path = os.path.join(self.path, REMOVED_NAME)
        # The store syncs the folder when it is created, and makes this durable with it.
        write_atomically(self.files, path, b"{}", unique=self.unique(), durable=False)

    def end_reservation(self) -> None:
        """Have a restart find the stream, after its configuration was written."""
        self.files.unlink(os.path.join(self.path, REMOVED_NAME))

    def begin_removal(self) -> None:
        """Make a removal durable, so that a restart finishes it."""
        document = os.path.join(self.path, DOCUMENT_NAME)
        if self.files.exists(document):
            self.files.rename(document, os.path.join(self.path, REMOVED_NAME))
            self.files.sync_dir(self.path)

    def finish_removal(self) -> bool:
        """Remove a folder that is not a stream; return True if it was none."""
        names = self.files.list_names(self.path)
        if self.path.endswith(TEMPORARY_SUFFIX):
            # Messages of a new stream may be in it, that were never acknowledged.
            name = os.path.basename(self.path)
            is_none = _OWN_NAME.fullmatch(name) is not None or self._is_ours_alone(names)
        else:
            is_none = DOCUMENT_NAME not in names and (
                CREATING_NAME in names
                or REMOVED_NAME in names
                or all(_is_temporary(name) for name in names)
            )
        if is_none:
            self.remove()
        return is_none

    def _is_ours_alone(self, names: list[str]) -> bool:
        """Return True if a folder holds nothing but what a creation that was cut short left."""
        if not set(names) <= {MESSAGES_NAME, CREATING_NAME, DOCUMENT_NAME}:
            return False
        messages = os.path.join(self.path, MESSAGES_NAME)
        return not self.files.is_dir(messages) or self.files.list_names(messages) in (
            [],
            [LOCK_NAME],
        )

    def remove(self) -> None:
        """Remove the stream and all that it has."""
        if not self.files.is_dir(self.path):
            return
        # The file that says so is removed last.
        for name in self.files.list_names(self.path):
            inner = os.path.join(self.path, name)
            if self.files.is_dir(inner):
                remove_tree(self.files, inner)
            elif name not in (REMOVED_NAME, CREATING_NAME):
                self.files.unlink(inner)
        remove_tree(self.files, self.path)


def _is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY_SUFFIX)


ASYNC_SYNC_INTERVAL_NS = 2 * 60 * 1_000_000_000
"""How often a stream is synced that is acknowledged before the sync (`persist_mode: async`)."""


class StoragePolicy(msgspec.Struct, frozen=True):
    """What the server decides for all its stores."""

    sync_interval_ns: int = 0
    """0: every acknowledgement waits for the disk."""

    cipher: Cipher = Cipher.NONE
    key: StoreKey | None = None
    on_commit: CommitCallback | None = None
    """Called for each commit to the disk."""

    done_jobs: DoneJobs | None = None
    """Where finished commits are queued, for the event loop's thread or another."""

    previous_key: StoreKey | None = None
    """A former key; a stream that is encrypted with it stays so."""

    @property
    def document_keys(self) -> DocumentKeys:
        """The keys that configurations are sealed with."""
        return DocumentKeys(self.cipher, self.key, self.previous_key)


def store_config(config: StreamConfig, policy: StoragePolicy) -> StoreConfig:
    """Return the store's configuration for a stream's."""
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
    on_failure: FailureCallback | None = None,
) -> FileStore:
    """Open or create a stream's store; raise what `FileStore.open` raises."""
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
            on_failure=on_failure,
            done_jobs=policy.done_jobs,
        )

    try:
        return opened(policy.key)
    except WrongKey:
        if policy.previous_key is None:
            raise
        return opened(policy.previous_key)
