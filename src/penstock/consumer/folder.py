"""A consumer on disk: its folder, and its entry in a stream's archive.

    consumer.json    the configuration, the name, when the consumer was created, where it began;
                     encrypted if the store has a key
    state            delivered, acknowledged, pending: see `format.state.consumer`

Invariants: both files are replaced as a whole. The document is on stable storage before a state is
written; before that the account's journal has it (`consumer.journal`). A folder belongs to one
consumer for life: that of an earlier one of the same name is removed as a whole before a new one is
made. A file that cannot be read is never overwritten.

An archive entry has the configuration and how far the consumer is, with the names and the order of
the reference server's fields:

    {"config": {…},
     "state": {"delivered": {…}, "ack_floor": {…}, "pending": {…}, "redelivered": {…}}}

What is read from an archive is not trusted: the caller checks the configuration; a state that could
not be is refused.

Thread: any, one at a time for each folder: that of `state_writer`, and the loop's while starting.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec

from penstock.consumer.config.config import ConsumerConfig
from penstock.errors import (
    FormatError,
    InvalidDocument,
    StreamOffline,
    UnsupportedVersion,
    WrongKey,
)
from penstock.format.golang.archive import CONSUMERS_PREFIX, ArchiveEntry
from penstock.format.state.checked_document import (
    CHECKED_VERSION,
    check_version,
    with_checksum,
    without_checksum,
)
from penstock.format.state.consumer import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    decode_consumer_state,
    encode_consumer_state,
)
from penstock.format.state.sealed_document import DocumentKeys
from penstock.limits import CONSUMER_STATE_BYTES_MAX, STREAM_DOCUMENT_BYTES_MAX
from penstock.store.vfs import (
    TEMPORARY_SUFFIX,
    FileSystem,
    remove_tree,
    write_atomically,
)
from penstock.text.json.codec import decode, encode
from penstock.text.json.shapes import OMIT_EMPTY, Int, Int64, Uint64
from penstock.text.times import Instant

CONSUMERS_NAME = "consumers"
DOCUMENT_NAME = "consumer.json"
STATE_NAME = "state"
DOCUMENT_VERSION = CHECKED_VERSION
DOCUMENT_VERSIONS = (1, DOCUMENT_VERSION)


class ConsumerDocument(msgspec.Struct, frozen=True):
    """The content of `consumer.json`."""

    version: Int = 0
    name: str = ""
    created: Instant | None = None
    start_seq: Uint64 = 0
    config: ConsumerConfig = ConsumerConfig()


class ConsumerFolder(msgspec.Struct):
    """One consumer's folder."""

    files: FileSystem
    path: str
    unique: Callable[[], str]
    stream: str = ""
    """The name of the stream; an encrypted document is bound to it."""

    keys: DocumentKeys = DocumentKeys()
    is_placed: bool = False
    """Whether it has the consumer's document, an earlier or the last one."""

    is_kept: bool = False
    """Whether that is on stable storage."""

    @property
    def _which(self) -> bytes:
        return f"{DOCUMENT_NAME}/{os.path.basename(self.path)}".encode()

    def _sealed(self, document: ConsumerDocument) -> bytes:
        return self.keys.seal(
            with_checksum(encode(document)),
            stream=self.stream.encode(),
            which=self._which,
            random_bytes=os.urandom,
        )

    def document(
        self, name: str, config: ConsumerConfig, created: Instant, *, start_seq: int
    ) -> bytes:
        """Return the content of the document.

        `start_seq` is where the consumer began; it is used until a state is written.
        """
        return self._sealed(ConsumerDocument(DOCUMENT_VERSION, name, created, start_seq, config))

    def place(self, document: bytes, created: Instant, *, durable: bool = False) -> None:
        """Write the document of the consumer that was created then.

        A power cut may take it, unless `durable`, or until `sync`.
        """
        if not self.is_placed:
            self.remove_other(created)
            stream_path = os.path.dirname(os.path.dirname(self.path))
            if not self.files.is_dir(stream_path):
                # A stream that was removed must not come back.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), stream_path)
            self.files.make_dirs(self.path)
        path = os.path.join(self.path, DOCUMENT_NAME)
        write_atomically(self.files, path, document, unique=self.unique(), durable=durable)
        self.is_placed = True

    def sync(self) -> None:
        """Put the document and the folder on stable storage; the folders above are the caller's."""
        file = self.files.open(os.path.join(self.path, DOCUMENT_NAME), "read")
        try:
            file.sync_data()
        finally:
            file.close()
        self.files.sync_dir(self.path)
        self.is_kept = True

    def write(self, document: bytes, created: Instant) -> None:
        """Write the document as `place` does; all is on stable storage when this returns."""
        self.place(document, created, durable=True)
        parent = os.path.dirname(self.path)
        self.files.sync_dir(parent)
        self.files.sync_dir(os.path.dirname(parent))
        self.is_kept = True

    def write_state(self, state: ConsumerState) -> None:
        """Write the consumer's state; it is on stable storage when this returns."""
        path = os.path.join(self.path, STATE_NAME)
        write_atomically(self.files, path, encode_consumer_state(state), unique=self.unique())

    def read(self) -> ConsumerDocument:
        """Return the document; raise StreamOffline if it cannot be read, and OSError."""
        path = os.path.join(self.path, DOCUMENT_NAME)
        return self.decoded(self._read(path, STREAM_DOCUMENT_BYTES_MAX))

    def decoded(self, data: bytes) -> ConsumerDocument:
        """Return the document of its content; raise StreamOffline if it cannot be read."""
        path = os.path.join(self.path, DOCUMENT_NAME)
        try:
            plain = self.keys.open(data, stream=self.stream.encode(), which=self._which, path=path)
        except (FormatError, WrongKey) as error:
            raise StreamOffline(path, str(error)) from error
        try:
            plain, has_checksum = without_checksum(plain)
            document = decode(ConsumerDocument, plain, strict=False)
            check_version(document.version, has_checksum=has_checksum)
        except FormatError as error:
            raise StreamOffline(path, f"{DOCUMENT_NAME} is damaged: {error.reason}") from error
        except InvalidDocument as error:
            raise StreamOffline(path, f"not a consumer's document: {error.reason}") from error
        if document.version not in DOCUMENT_VERSIONS:
            raise StreamOffline(path, f"version {document.version} is not known")
        return document

    def read_state(self) -> ConsumerState | None:
        """Return the consumer's state, None if none was written.

        Raise StreamOffline if it cannot be read, and OSError.
        """
        path = os.path.join(self.path, STATE_NAME)
        if not self.files.exists(path):
            return None
        try:
            return decode_consumer_state(self._read(path, CONSUMER_STATE_BYTES_MAX), path=path)
        except (FormatError, UnsupportedVersion) as error:
            raise StreamOffline(path, f"not a consumer's state: {error}") from error

    def _read(self, path: str, bytes_max: int) -> bytes:
        file = self.files.open(path, "read")
        try:
            return file.read_at(0, min(file.size(), bytes_max))
        finally:
            file.close()

    def undo_half(self) -> bool:
        """Remove what is left of a creation or removal that a crash has cut short.

        Return True if nothing is left of the consumer.
        """
        names = self.files.list_names(self.path)
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                self.files.unlink(os.path.join(self.path, name))
        left = {name for name in names if not name.endswith(TEMPORARY_SUFFIX)}
        # The document comes first and goes first.
        is_half = left <= {STATE_NAME}
        if is_half:
            remove_tree(self.files, self.path)
        return is_half

    def belongs_to(self, created: Instant) -> bool:
        """Return True if the folder is that of the consumer which was created then.

        A document that cannot be read is taken for that consumer's own.
        """
        if not self.files.exists(os.path.join(self.path, DOCUMENT_NAME)):
            return False
        try:
            found = self.read().created
        except StreamOffline:
            return True
        return found is not None and found.time_ns == created.time_ns

    def remove(self) -> None:
        """Remove the folder, whoever's it is."""
        if self.files.is_dir(self.path):
            remove_tree(self.files, self.path)

    def remove_other(self, created: Instant) -> None:
        """Remove the folder of an earlier consumer; leave that of the one created then."""
        if self.files.is_dir(self.path) and not self.belongs_to(created):
            remove_tree(self.files, self.path)

    def remove_own(self, created: Instant) -> None:
        """Remove the folder of the consumer created then; leave that of a later one."""
        if self.files.is_dir(self.path) and self.belongs_to(created):
            remove_tree(self.files, self.path)


class ArchivedPosition(msgspec.Struct, frozen=True):
    """A sequence of the consumer's own count, and one of the stream."""

    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0


class ArchivedPending(msgspec.Struct, frozen=True):
    """A delivery that was not acknowledged."""

    Sequence: Uint64 = 0
    Timestamp: Int64 = 0


class ArchivedState(msgspec.Struct, frozen=True):
    """How far a consumer is; the keys are sequences of the stream."""

    delivered: ArchivedPosition = ArchivedPosition()
    ack_floor: ArchivedPosition = ArchivedPosition()
    pending: Annotated[dict[str, ArchivedPending], OMIT_EMPTY] = msgspec.field(default_factory=dict)
    redelivered: Annotated[dict[str, Uint64], OMIT_EMPTY] = msgspec.field(default_factory=dict)


class ArchivedDocument(msgspec.Struct, frozen=True):
    """The document of an entry; a field is None if it is missing."""

    config: ConsumerConfig | None = None
    state: ArchivedState | None = None


class ArchivedConsumer(NamedTuple):
    """A consumer as it was read from an archive."""

    name: str
    config: ConsumerConfig
    state: ConsumerState


def entry_of(
    name: str, config: ConsumerConfig, state: ConsumerState, *, last_seq: int, now_ns: int
) -> ArchiveEntry:
    """Return the archive entry of a consumer of a stream that ends at `last_seq`.

    An archive cannot say that a message is held while later ones were delivered: all from the first
    held message on counts as not delivered, and will be delivered again.
    """
    last_seq = min(last_seq, min(state.held, default=last_seq + 1) - 1)
    delivered, floor = state.delivered, state.ack_floor
    archived = ArchivedState(
        ArchivedPosition(delivered.consumer_seq, min(delivered.stream_seq, last_seq)),
        ArchivedPosition(floor.consumer_seq, min(floor.stream_seq, last_seq)),
        {
            str(seq): ArchivedPending(each.consumer_seq, each.timestamp_ns)
            for seq, each in state.pending.items()
            if seq <= last_seq
        },
        {str(seq): count for seq, count in state.redelivered.items() if seq <= last_seq},
    )
    payload = encode(ArchivedDocument(config, archived))
    return ArchiveEntry(CONSUMERS_PREFIX + name.encode(), now_ns, payload=payload)


def read_entry(entry: ArchiveEntry) -> ArchivedConsumer:
    """Return the consumer of an archive entry; raise FormatError if it is not one."""
    if not entry.name.startswith(CONSUMERS_PREFIX):
        raise FormatError("expected a consumer")
    try:
        name = entry.name.removeprefix(CONSUMERS_PREFIX).decode()
        document = decode(ArchivedDocument, entry.payload, strict=False)
    except (InvalidDocument, UnicodeDecodeError) as error:
        raise FormatError(f"failed to decode a consumer: {error}") from None
    if document.config is None or document.state is None:
        raise FormatError(f"consumer {name!r} is missing config or state")
    return ArchivedConsumer(name, document.config, _state(name, document.state))


def _state(name: str, archived: ArchivedState) -> ConsumerState:
    delivered = SequencePair(archived.delivered.consumer_seq, archived.delivered.stream_seq)
    floor = SequencePair(archived.ack_floor.consumer_seq, archived.ack_floor.stream_seq)
    if floor.consumer_seq > delivered.consumer_seq or floor.stream_seq > delivered.stream_seq:
        raise FormatError(f"consumer {name!r} has acknowledged more than was delivered")
    try:
        pending = {
            int(seq): PendingDelivery(each.Sequence, each.Timestamp)
            for seq, each in archived.pending.items()
        }
        redelivered = {int(seq): count for seq, count in archived.redelivered.items() if count}
    except ValueError:
        raise FormatError(f"consumer {name!r} has a sequence that is no number") from None
    # Entries outside of the floor and the last delivery would never be acknowledged.
    return ConsumerState(
        delivered,
        floor,
        {
            seq: each
            for seq, each in pending.items()
            if floor.stream_seq < seq <= delivered.stream_seq
            and floor.consumer_seq < each.consumer_seq <= delivered.consumer_seq
        },
        {seq: count for seq, count in redelivered.items() if 0 < seq <= delivered.stream_seq},
    )
