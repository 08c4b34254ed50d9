"""A consumer's folder: its configuration as a document, and what it must remember.

    consumer.json    the configuration, the name, when the consumer was made, where it began;
                     sealed where the store has a key
    state            delivered, acknowledged, pending: see `format.consumer_state`

What always holds: both are replaced as a whole. The document is on stable storage before anybody is
told of the consumer. What cannot be read is never overwritten.

Called on the event loop's thread, but for `write_state`, which any thread may call.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from penstock.consumer.config import ConsumerConfig
from penstock.documents.decoding import decode
from penstock.documents.encoding import encode
from penstock.documents.shapes import Int, Uint64
from penstock.documents.times import Instant
from penstock.errors import (
    FormatError,
    InvalidDocument,
    StreamOffline,
    UnsupportedVersion,
    WrongKey,
)
from penstock.format.consumer_state import (
    ConsumerState,
    decode_consumer_state,
    encode_consumer_state,
)
from penstock.format.sealed_document import DocumentKeys
from penstock.limits import CONSUMER_STATE_BYTES_MAX
from penstock.store.vfs import FileSystem, remove_tree, write_atomically
from penstock.stream.folders import DOCUMENT_BYTES_MAX

CONSUMERS_NAME = "consumers"
DOCUMENT_NAME = "consumer.json"
STATE_NAME = "state"
DOCUMENT_VERSION = 1


class ConsumerDocument(msgspec.Struct, frozen=True):
    """What `consumer.json` says."""

    version: Int = 0
    name: str = ""
    created: Instant | None = None
    start_seq: Uint64 = 0
    config: ConsumerConfig = ConsumerConfig()


class ConsumerFolder(msgspec.Struct, frozen=True):
    """One consumer's folder."""

    files: FileSystem
    path: str
    unique: Callable[[], str]
    stream: str = ""
    """The name of the stream, to which a sealed document is bound."""

    keys: DocumentKeys = DocumentKeys()

    @property
    def _which(self) -> bytes:
        return f"{DOCUMENT_NAME}/{os.path.basename(self.path)}".encode()

    def _sealed(self, document: ConsumerDocument) -> bytes:
        return self.keys.seal(
            encode(document),
            stream=self.stream.encode(),
            which=self._which,
            random_bytes=os.urandom,
        )

    def _opened(self, path: str) -> bytes:
        data = self._read(path, DOCUMENT_BYTES_MAX)
        try:
            return self.keys.open(data, stream=self.stream.encode(), which=self._which, path=path)
        except (FormatError, WrongKey) as error:
            raise StreamOffline(path, str(error)) from error

    def write(self, name: str, config: ConsumerConfig, created: Instant, *, start_seq: int) -> None:
        """Keep the configuration; it is on stable storage when this returns.

        `start_seq` is where the consumer began: it stands for its state until there is one.
        """
        parent = os.path.dirname(self.path)
        is_first, is_new = not self.files.is_dir(parent), not self.files.is_dir(self.path)
        self.files.make_dirs(self.path)
        document = ConsumerDocument(DOCUMENT_VERSION, name, created, start_seq, config)
        path = os.path.join(self.path, DOCUMENT_NAME)
        write_atomically(self.files, path, self._sealed(document), unique=self.unique())
        if is_new:
            self.files.sync_dir(parent)
        if is_first:
            self.files.sync_dir(os.path.dirname(parent))

    def write_state(self, state: ConsumerState) -> None:
        """Keep what the consumer must remember; it is on stable storage when this returns."""
        path = os.path.join(self.path, STATE_NAME)
        write_atomically(self.files, path, encode_consumer_state(state), unique=self.unique())

    def read(self) -> ConsumerDocument:
        """Give what was kept; raises StreamOffline where it cannot be served, and OSError."""
        path = os.path.join(self.path, DOCUMENT_NAME)
        try:
            document = decode(ConsumerDocument, self._opened(path), strict=False)
        except InvalidDocument as error:
            raise StreamOffline(path, f"not a consumer's document: {error.reason}") from error
        if document.version != DOCUMENT_VERSION:
            raise StreamOffline(path, f"version {document.version} is not known")
        return document

    def read_state(self) -> ConsumerState | None:
        """Give what the consumer must remember, None where nothing was kept.

        Raises StreamOffline where it cannot be read, and OSError.
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

    def remove(self) -> None:
        """Remove all that was kept."""
        if self.files.is_dir(self.path):
            remove_tree(self.files, self.path)
