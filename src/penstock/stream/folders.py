"""A stream's folder: its configuration as a document, and where its messages are.

    stream.json    the configuration and when the stream was made
    msgs/          the store
    consumers/     their configurations and states

What always holds: the document is replaced as a whole and is on stable storage before anybody is
told of it. One that cannot be read is never overwritten or removed: the stream stays offline, with
the reason.

Called by the account, on the event loop's thread or while a server starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from penstock.documents.decoding import decode
from penstock.documents.encoding import encode
from penstock.documents.shapes import Int
from penstock.documents.times import Instant
from penstock.errors import InvalidDocument, StreamOffline
from penstock.store.vfs import FileSystem, remove_tree, write_atomically
from penstock.stream.config import StreamConfig
from penstock.stream.versioning import is_supported

DOCUMENT_NAME = "stream.json"
MESSAGES_NAME = "msgs"
DOCUMENT_VERSION = 1
DOCUMENT_BYTES_MAX = 16 * 1024 * 1024


class StreamDocument(msgspec.Struct, frozen=True):
    """What `stream.json` says."""

    version: Int = 0
    created: Instant | None = None
    config: StreamConfig = StreamConfig()


@dataclass(frozen=True, slots=True)
class StreamFolder:
    """One stream's folder."""

    files: FileSystem
    path: str
    unique: Callable[[], str]

    @property
    def messages_path(self) -> str:
        """Where the store is."""
        return os.path.join(self.path, MESSAGES_NAME)

    def write(self, config: StreamConfig, created: Instant) -> None:
        """Keep the configuration; it is on stable storage when this returns."""
        self.files.make_dirs(self.path)
        document = StreamDocument(DOCUMENT_VERSION, created, config)
        path = os.path.join(self.path, DOCUMENT_NAME)
        write_atomically(self.files, path, encode(document), unique=self.unique())
        self.files.sync_dir(os.path.dirname(self.path))

    def read(self) -> StreamDocument:
        """Give what was kept; raises StreamOffline where it cannot be served, and OSError."""
        path = os.path.join(self.path, DOCUMENT_NAME)
        file = self.files.open(path, "read")
        try:
            data = file.read_at(0, min(file.size(), DOCUMENT_BYTES_MAX))
        finally:
            file.close()
        try:
            document = decode(StreamDocument, data, strict=False)
        except InvalidDocument as error:
            raise StreamOffline(path, f"not a stream's document: {error.reason}") from error
        if document.version != DOCUMENT_VERSION:
            raise StreamOffline(path, f"version {document.version} is not known")
        if not is_supported(document.config.metadata):
            raise StreamOffline(path, "it needs a newer server")
        return document

    def remove(self) -> None:
        """Remove the stream and all that it has."""
        remove_tree(self.files, self.path)
