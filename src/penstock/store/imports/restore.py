"""Restoring a stream from a snapshot, into a directory that holds nothing yet.

The store is built beside its place and moved there when the snapshot's end has vouched for every
byte: after an error or a crash there is the whole store or none. The limits of the configuration
are applied when the restored store is opened, as at any opening.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from penstock.clock import Clock, SystemClock
from penstock.errors import FormatError, InternalError
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.limits import READ_CHUNK_BYTES
from penstock.store.filestore import FileStore
from penstock.store.imports.build import (
    StoreBuilder,
    StoreEnvironment,
    check_vacant,
    folder_beside,
)
from penstock.store.imports.snapshot import SnapshotParser
from penstock.store.interface import DurableCallback, StoreConfig
from penstock.store.vfs import FileSystem, OsFileSystem


def restore(
    path: str,
    chunks: Iterable[bytes],
    config: StoreConfig | None = None,
    *,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
    key: StoreKey | None = None,
    threaded: bool = True,
    on_durable: DurableCallback | None = None,
    on_damage: Callable[[Damage], None] | None = None,
) -> FileStore:
    """Build a store at `path` from a snapshot's bytes, cut anywhere, and open it.

    Without a configuration the stream gets the snapshot's name and the defaults. Raises UsageError
    where something is at `path`, FormatError for bytes that are no whole snapshot,
    UnsupportedVersion, StoreLocked where another restore is under way, OSError; and leaves nothing
    behind then.
    """
    files = files or OsFileSystem()
    clock = clock or SystemClock()
    check_vacant(files, path)
    environment = StoreEnvironment(files, clock, random_bytes, key)
    parser = SnapshotParser()
    pieces = _pieces(chunks)
    messages = []
    for piece in pieces:
        messages = parser.feed(piece)
        if parser.head is not None:
            break
    if parser.head is None:
        raise FormatError("the snapshot is cut off")
    config = config or StoreConfig(name=parser.head.stream)
    builder = StoreBuilder(folder_beside(path, "restoring"), config, environment)
    try:
        builder.add(messages)
        for piece in pieces:
            builder.add(parser.feed(piece))
        _finish(builder, parser)
        builder.put_in_place(path)
    except BaseException:
        builder.abandon()
        raise
    return FileStore.open(
        path,
        config,
        files=files,
        clock=clock,
        random_bytes=random_bytes,
        key=key,
        threaded=threaded,
        on_durable=on_durable,
        on_damage=on_damage,
    )


def _pieces(chunks: Iterable[bytes]) -> Iterable[memoryview]:
    """Cut what comes into pieces that can be taken at once, however much comes in one."""
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), READ_CHUNK_BYTES):
            yield view[start : start + READ_CHUNK_BYTES]


def _finish(builder: StoreBuilder, parser: SnapshotParser) -> None:
    head = parser.head
    assert head is not None, "messages come after the head"
    parser.check_complete()
    built = builder.finish(last_seq=head.last_seq, last_time_ns=head.last_time_ns)
    if (built.messages, built.last_seq) != (parser.messages, head.last_seq):
        raise InternalError(f"restored {built.messages} messages of {parser.messages}")
