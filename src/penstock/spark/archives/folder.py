"""The folder of an archive: whole files, and the numbered manifests that say which of them count.

    data/<first>-<last>.parquet     messages
    manifests/<number>.json         which of them count

On any pyarrow file system. A file is written beside its place and moved there when it is whole. If
a move is a copy (object stores), it is written in place instead, because there a file is not
visible before it is closed. On the local disk a manifest is written only if there is none of its
number; other file systems offer no such operation through pyarrow, so there only one job at a time
may write to an archive.

    {"checksum": "…", "manifest": {"format": "penstock-archive", "version": 1, "number": 3, …}}

A manifest names the files that it adds, with the sequences that each answers for; every
`WHOLE_EVERY`th names them all, so that few documents are read however many there are. The checksum
is the XXH64 of the inner document's bytes. Nothing in it depends on when, where or by whom it was
written: the same messages make the same bytes.

Invariant: a manifest names only files that are whole and were hashed. Its number is taken by one
writer. Files answer for rising sequences, and no two for the same. Sequences between two files were
removed from the stream before they could be archived.

A path means the same in the driver and in tasks. One thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyarrow import fs

from penstock.errors import CorruptStore, UnsupportedVersion, UsageError
from penstock.format.hashing import xxh64
from penstock.limits import ARCHIVE_MANIFEST_BYTES_MAX

# Files

TEMPORARY_SUFFIX = ".unfinished"

HASHED_BYTES = 1024 * 1024
"""A file's hash is a chain over pieces of this size, so that a long file needs little memory."""

BEGUN_BYTES = 8 * 1024 * 1024
"""The kernel is asked to write a file whenever it has grown by this: enough for a disk at a
time."""


class AlreadyThere(UsageError):
    """Another job has written this file already."""


class HashingFile:
    """A file that is being written and hashed; it has the methods that Parquet's writer calls."""

    def __init__(self, inner: pa.NativeFile, grown: Callable[[int], None] | None = None) -> None:
        """Begin a file; `grown` is called with its length after each write."""
        self._inner = inner
        self._grown = grown
        self._waiting = bytearray()
        self._position = 0
        self.hash = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write data, and hash the pieces that are complete."""
        view = memoryview(data).cast("B")
        self._inner.write(view)
        self._position += len(view)
        if self._grown is not None:
            self._grown(self._position)
        at = 0
        if self._waiting:
            at = min(HASHED_BYTES - len(self._waiting), len(view))
            self._waiting += view[:at]
            if len(self._waiting) == HASHED_BYTES:
                self.hash = xxh64(self._waiting, self.hash)
                self._waiting.clear()
        while len(view) - at >= HASHED_BYTES:
            self.hash = xxh64(view[at : at + HASHED_BYTES], self.hash)
            at += HASHED_BYTES
        self._waiting += view[at:]
        return len(view)

    def tell(self) -> int:
        """Return how much was written."""
        return self._position

    def flush(self) -> None:
        """Do nothing: `ArchiveFolder.write` closes the file itself."""

    def close(self) -> None:
        """Hash the last piece, which may be shorter."""
        if not self.closed:
            self.closed = True
            if self._waiting:
                self.hash = xxh64(self._waiting, self.hash)

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False


class ArchiveFolder:
    """One archive's files; see the module."""

    def __init__(self, place: str) -> None:
        """Find the file system of a path or URI; raise UsageError."""
        self.place = place.rstrip("/") or "/"
        if "://" in place:
            try:
                self.files, self.path = fs.FileSystem.from_uri(self.place)
            except (ValueError, OSError) as error:
                raise UsageError(f"{place}: {error}") from None
        else:
            self.files, self.path = fs.LocalFileSystem(), os.path.abspath(self.place)
        self._is_local = isinstance(self.files, fs.LocalFileSystem)
        self._moves = self._is_local or isinstance(self.files, fs.HadoopFileSystem)

    def full(self, name: str) -> str:
        """Return a file's path in its file system."""
        return f"{self.path}/{name}"

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder below; none if it does not exist."""
        try:
            found = self.files.get_file_info(fs.FileSelector(self.full(folder)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self.place}: {error}") from None
        return sorted(each.base_name for each in found)

    def size(self, name: str) -> int:
        """Return a file's length; -1 if there is none."""
        info = self.files.get_file_info(self.full(name))
        return info.size if info.type is fs.FileType.File else -1

    def open(self, name: str) -> pa.NativeFile:
        """Return a file open for reading; raise FileNotFoundError."""
        return self.files.open_input_file(self.full(name))

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return a file's contents; raise UsageError for more than `bytes_max`."""
        with self.open(name) as file:
            if file.size() > bytes_max:
                raise UsageError(f"{self.full(name)}: {file.size()} bytes, too many")
            data: bytes = file.read()
            return data

    def hash_of(self, name: str) -> int:
        """Return a file's hash, as `write` returned it."""
        found = 0
        with self.open(name) as file:
            while piece := file.read(HASHED_BYTES):
                found = xxh64(piece, found)
        return found

    def write(self, name: str, fill: Callable[[HashingFile], object]) -> int:
        """Write a whole file, over one of that name; return its hash."""
        with self._written(name, fill) as (target, found):
            if target != self.full(name):
                self.files.move(target, self.full(name))
                self._sync_folder(name)
        return found

    def put_if_absent(self, name: str, data: bytes) -> None:
        """Write a file that must not exist yet; raise AlreadyThere if it does."""
        if self.size(name) >= 0:
            raise AlreadyThere(f"{self.full(name)} is there already")
        if not self._is_local:
            self.write(name, lambda file: file.write(data))
            return
        with self._written(name, lambda file: file.write(data)) as (target, _):
            try:
                os.link(target, self.full(name))
            except FileExistsError:
                raise AlreadyThere(f"{self.full(name)} is there already") from None
            self.files.delete_file(target)
            self._sync_folder(name)

    @contextlib.contextmanager
    def _written(
        self, name: str, fill: Callable[[HashingFile], object]
    ) -> Iterator[tuple[str, int]]:
        # Two attempts at a task may write at a time: each has a file of its own.
        target = self.full(name)
        if self._moves:
            target = f"{target}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        self._make_folder(os.path.dirname(target))
        try:
            syncing = _synced(target) if self._is_local else contextlib.nullcontext()
            with syncing as grown, self.files.open_output_stream(target) as inner:
                file = HashingFile(inner, grown)
                fill(file)
                file.close()
            yield target, file.hash
        except BaseException:
            # Closing it made an object store keep the unfinished file.
            with contextlib.suppress(OSError):
                self.files.delete_file(target)
            raise

    def _make_folder(self, path: str) -> None:
        is_new = self._is_local and not os.path.isdir(path)
        self.files.create_dir(path, recursive=True)
        if is_new:
            # A power cut must not lose the folders of files that were synced.
            for above in (self.path, os.path.dirname(self.path)):
                _sync(above)

    def _sync_folder(self, name: str) -> None:
        if self._is_local:
            _sync(os.path.dirname(self.full(name)))

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.files.delete_file(self.full(name))


@contextlib.contextmanager
def _synced(path: str) -> Iterator[Callable[[int], None]]:
    """Sync a local file at the end; yield a function to call with its length as it grows.

    The kernel then begins to write while the file still grows. Otherwise the disk would idle until
    the file is closed, and the task would wait until it is synced.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    begun = 0

    def grown(size: int) -> None:
        nonlocal begun
        if size - begun >= BEGUN_BYTES:
            # Only written pages are dropped, so these new ones are written and stay.
            os.posix_fadvise(descriptor, begun, size - begun, os.POSIX_FADV_DONTNEED)
            begun = size

    try:
        yield grown
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Manifests

FORMAT = "penstock-archive"
VERSION = 1
MANIFESTS = "manifests"
WHOLE_EVERY = 32
_DIGITS = 20


class FileEntry(msgspec.Struct, frozen=True):
    """One file: the sequences that it answers for, and its contents."""

    name: str
    first: int
    last: int
    messages: int
    bytes: int
    """Of headers and payloads, as the column `size` counts them."""

    first_ns: int
    last_ns: int
    rows_hash: str
    file_bytes: int
    file_hash: str


class Manifest(msgspec.Struct, frozen=True):
    """An archive as one of its manifests leaves it."""

    stream: str
    created: str
    """When the stream was created: it tells the stream from others of its name."""

    config: dict[str, Any]
    first: int
    """The first sequence that the archive answers for."""

    end: int
    """The first sequence that it does not answer for any more: the next run goes on there."""

    files: tuple[FileEntry, ...] = ()
    number: int = 0

    @property
    def messages(self) -> int:
        """How many messages the archive holds."""
        return sum(each.messages for each in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes of headers and payloads the archive holds."""
        return sum(each.bytes for each in self.files)

    def holes(self) -> list[tuple[int, int]]:
        """Return the ranges of sequences, first and last, that no file answers for."""
        found = []
        at = self.first
        for each in self.files:
            if each.first > at:
                found.append((at, each.first - 1))
            at = each.last + 1
        return found

    def between(self, first: int, last: int) -> list[FileEntry]:
        """Return the files that answer for a sequence of this range."""
        return [each for each in self.files if each.first <= last and each.last >= first]


class _Document(msgspec.Struct):
    format: str
    version: int
    number: int
    stream: str
    created: str
    config: dict[str, Any]
    first: int
    end: int
    whole: bool
    files: list[FileEntry]


class _Envelope(msgspec.Struct):
    checksum: str
    manifest: msgspec.Raw


def hex_of(found: int) -> str:
    """Return a hash as manifests write it."""
    return f"{found:016x}"


def manifest_name(number: int) -> str:
    """Return the name of a manifest."""
    return f"{MANIFESTS}/{number:0{_DIGITS}d}.json"


def find_manifest(folder: ArchiveFolder) -> Manifest | None:
    """Return an archive as it is now, or None if there is none; raise CorruptStore."""
    numbers = sorted(
        int(name.removesuffix(".json"))
        for name in folder.names(MANIFESTS)
        if name.endswith(".json") and name.removesuffix(".json").isdecimal()
    )
    if not numbers:
        return None
    pending: list[_Document] = []
    for number in reversed(numbers):
        pending.append(_read(folder, number))
        if pending[-1].whole:
            break
    pending.reverse()
    if not pending[0].whole or pending[-1].number - pending[0].number + 1 != len(pending):
        place = folder.full(manifest_name(pending[0].number))
        raise CorruptStore(place, 0, "a manifest before or after it is missing")
    newest = pending[-1]
    files = tuple(each for document in pending for each in document.files)
    _check_order(folder, files)
    return Manifest(
        newest.stream,
        newest.created,
        newest.config,
        newest.first,
        newest.end,
        files,
        newest.number,
    )


def load_manifest(folder: ArchiveFolder) -> Manifest:
    """Return an archive as it is now; raise UsageError if there is none, or CorruptStore."""
    found = find_manifest(folder)
    if found is None:
        raise UsageError(f"{folder.place}: no archive: there is no manifest in {MANIFESTS}/")
    return found


def _read(folder: ArchiveFolder, number: int) -> _Document:
    name = manifest_name(number)
    try:
        envelope = msgspec.json.decode(
            folder.read(name, ARCHIVE_MANIFEST_BYTES_MAX), type=_Envelope
        )
        inner = bytes(envelope.manifest)
        if hex_of(xxh64(inner)) != envelope.checksum:
            raise CorruptStore(folder.full(name), 0, "the manifest's checksum differs")
        document = msgspec.json.decode(inner, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptStore(folder.full(name), 0, f"no manifest: {error}") from None
    if document.version > VERSION:
        raise UnsupportedVersion(folder.full(name), document.version, VERSION)
    if document.format != FORMAT or document.number != number:
        raise CorruptStore(folder.full(name), 0, "a manifest of something else")
    return document


def _check_order(folder: ArchiveFolder, files: Sequence[FileEntry]) -> None:
    last = 0
    for each in files:
        if each.first <= last or each.last < each.first or "/" in each.name.partition("/")[2]:
            raise CorruptStore(folder.full(each.name), 0, "the manifest has it out of order")
        last = each.last


def commit(folder: ArchiveFolder, now: Manifest, added: Sequence[FileEntry]) -> Manifest:
    """Write the next manifest and return it: `now` with the added files.

    Raise AlreadyThere if another job has written one meanwhile.
    """
    number = now.number + 1
    files = (*now.files, *added)
    whole = number % WHOLE_EVERY == 1
    document = _Document(
        FORMAT,
        VERSION,
        number,
        now.stream,
        now.created,
        now.config,
        now.first,
        now.end,
        whole,
        list(files if whole else added),
    )
    _check_order(folder, files)
    inner = msgspec.json.encode(document, order="sorted")
    envelope = _Envelope(hex_of(xxh64(inner)), msgspec.Raw(inner))
    try:
        folder.put_if_absent(manifest_name(number), msgspec.json.encode(envelope))
    except AlreadyThere:
        raise AlreadyThere(
            f"{folder.place}: another job wrote manifest {number} meanwhile; run again to go on "
            "from there"
        ) from None
    return replace(now, files=files, number=number)
