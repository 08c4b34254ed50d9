"""A stream's folder: its configuration as a document, and where its messages are.

    stream.json       the configuration and when the stream was made; sealed where there is a key
    stream.removed    the same of a stream whose removal has begun
    sources.json      how far it has come in its sources, where it has any
    msgs/             the store
    consumers/        their configurations and states

What always holds: a new stream's folder appears as a whole: what ends in `.tmp` never was a stream.
The document is replaced as a whole and is on stable storage before anybody is told of it. One that
cannot be read is never overwritten or removed: the stream stays offline, with the reason. A removal
that has begun is finished, now or when the server starts again.

Called by the account, in any thread; one at a time for each folder.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import msgspec

from penstock.documents.decoding import decode
from penstock.documents.encoding import encode
from penstock.documents.shapes import Int
from penstock.documents.times import Instant
from penstock.errors import FormatError, InvalidDocument, StreamOffline, WrongKey
from penstock.format.layout import LOCK_NAME
from penstock.format.sealed_document import DocumentKeys
from penstock.store.vfs import (
    TEMPORARY_SUFFIX,
    FileSystem,
    remove_tree,
    write_all,
    write_atomically,
)
from penstock.stream.config import StreamConfig
from penstock.stream.versioning import API_LEVEL, REQUIRED_LEVEL_KEY, is_supported

DOCUMENT_NAME = "stream.json"
REMOVED_NAME = "stream.removed"
MESSAGES_NAME = "msgs"
DOCUMENT_VERSION = 1
DOCUMENT_BYTES_MAX = 16 * 1024 * 1024


class StreamDocument(msgspec.Struct, frozen=True):
    """What `stream.json` says."""

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
        plain = encode(StreamDocument(DOCUMENT_VERSION, created, config))
        which = DOCUMENT_NAME.encode()
        return self.keys.seal(plain, stream=self._name, which=which, random_bytes=os.urandom)

    @property
    def messages_path(self) -> str:
        """Where the store is."""
        return os.path.join(self.path, MESSAGES_NAME)

    def establish(self, config: StreamConfig, created: Instant) -> None:
        """Make the folder of a new stream; it is on stable storage when this returns."""
        temporary = f"{self.path}.{self.unique()}{TEMPORARY_SUFFIX}"
        try:
            self._fill(temporary, self._sealed(config, created))
            self.files.rename(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                remove_tree(self.files, temporary)
            raise
        self.files.sync_dir(os.path.dirname(self.path))

    def _fill(self, path: str, document: bytes) -> None:
        messages_path = os.path.join(path, MESSAGES_NAME)
        self.files.make_dirs(messages_path)
        # By its lock file the store knows a folder that somebody else has synced.
        self.files.lock(os.path.join(messages_path, LOCK_NAME)).release()
        file = self.files.open(os.path.join(path, DOCUMENT_NAME), "create")
        try:
            write_all(file, 0, document)
            file.sync_data()
        finally:
            file.close()
        self.files.sync_dir(path)

    def write(self, config: StreamConfig, created: Instant) -> None:
        """Keep the configuration; it is on stable storage when this returns."""
        self.files.make_dirs(self.path)
        path = os.path.join(self.path, DOCUMENT_NAME)
        is_new = not self.files.exists(path)
        write_atomically(self.files, path, self._sealed(config, created), unique=self.unique())
        if is_new:
            self.files.sync_dir(os.path.dirname(self.path))

    def read(self) -> StreamDocument:
        """Give what was kept; raises StreamOffline where it cannot be served, and OSError."""
        path = os.path.join(self.path, DOCUMENT_NAME)
        document = self._decoded(path, self._opened(path))
        if document.version != DOCUMENT_VERSION:
            raise StreamOffline(path, f"unsupported - document version {document.version}")
        if not is_supported(document.config.metadata):
            level = document.config.metadata[REQUIRED_LEVEL_KEY]
            needed = f"required API level: {level}, current API level: {API_LEVEL}"
            raise StreamOffline(path, f"unsupported - {needed}")
        if document.config.name != os.path.basename(self.path):
            raise StreamOffline(path, f"the name in it is {document.config.name!r}")
        return document

    def _opened(self, path: str) -> bytes:
        which = DOCUMENT_NAME.encode()
        data = self._read_bytes(path)
        try:
            return self.keys.open(data, stream=self._name, which=which, path=path)
        except (FormatError, WrongKey) as error:
            raise StreamOffline(path, str(error)) from error

    def _read_bytes(self, path: str) -> bytes:
        if not self.files.exists(path):
            raise StreamOffline(path, f"there is no {DOCUMENT_NAME}")
        file = self.files.open(path, "read")
        try:
            return file.read_at(0, min(file.size(), DOCUMENT_BYTES_MAX))
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
        """Make the folder of a stream that is still to come: until it is written, it is none."""
        self.files.make_dirs(self.path)
        path = os.path.join(self.path, REMOVED_NAME)
        # The store, when it is made, syncs the folder: what is durable of it, this is too.
        write_atomically(self.files, path, b"{}", unique=self.unique(), durable=False)

    def end_reservation(self) -> None:
        """The stream was written; what said that it is none goes."""
        self.files.unlink(os.path.join(self.path, REMOVED_NAME))

    def begin_removal(self) -> None:
        """Make sure that the stream is gone even if the server ends before it is removed."""
        document = os.path.join(self.path, DOCUMENT_NAME)
        if self.files.exists(document):
            self.files.rename(document, os.path.join(self.path, REMOVED_NAME))
            self.files.sync_dir(self.path)

    def finish_removal(self) -> bool:
        """Remove what is left of a stream that is none; tell whether it was so."""
        names = self.files.list_names(self.path)
        is_none = DOCUMENT_NAME not in names and (
            REMOVED_NAME in names or all(name.endswith(TEMPORARY_SUFFIX) for name in names)
        )
        is_none = is_none or self.path.endswith(TEMPORARY_SUFFIX)
        if is_none:
            self.remove()
        return is_none

    def remove(self) -> None:
        """Remove the stream and all that it has."""
        if not self.files.is_dir(self.path):
            return
        # What says that it is removed goes last.
        for name in self.files.list_names(self.path):
            inner = os.path.join(self.path, name)
            if self.files.is_dir(inner):
                remove_tree(self.files, inner)
            elif name != REMOVED_NAME:
                self.files.unlink(inner)
        remove_tree(self.files, self.path)
