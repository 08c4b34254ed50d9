"""Building a whole store from messages that exist already, apart from where it will stand.

Restores, imports and migrations write a new store in a folder of its own, without limits and
without threads, and bring it to its place only when it is whole and on stable storage. A folder
that an interrupted attempt left is cleared by the next one; the lock in it keeps two attempts
apart.

Invariant: messages keep their sequences, times and expiries; what `finish` has returned
from is durable; where the store will stand nothing appears before `put_in_place`.

One thread at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from penstock.clock import Clock
from penstock.errors import SequenceOutOfOrder, UsageError
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import LOCK_NAME
from penstock.store.engine import Engine
from penstock.store.interface import Discard, RawMessage, StoreConfig
from penstock.store.log.bulk import append_raw
from penstock.store.vfs import FileSystem, remove_tree

_RECORD_OVERHEAD_BYTES = 64
"""What a record's lengths, trailer and expiry can add to its bytes; as `bulk.append_raw` counts."""


class StoreEnvironment(msgspec.Struct, frozen=True):
    """What a store takes from the world: the arguments of `FileStore.open` that builders share."""

    files: FileSystem
    clock: Clock
    random_bytes: Callable[[int], bytes]
    key: StoreKey | None


class Built(msgspec.Struct, frozen=True):
    """What a finished builder has written."""

    messages: int
    bytes: int
    subjects: int
    first_seq: int
    last_seq: int


class ImportReport(msgspec.Struct):
    """What an import brought over, and what it could not."""

    stream: str
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    missing: int = 0
    """Messages that the source counts and that could not be read."""

    expiring: int = 0
    """Messages with a time to live."""

    consumers: list[str] = msgspec.field(default_factory=list)
    """Consumers whose state was brought over."""

    damage: list[Damage] = msgspec.field(default_factory=list)
    """Damage to the source's blocks."""

    problems: list[str] = msgspec.field(default_factory=list)
    """Files that could not be used as they are, and why."""

    unsupported: list[str] = msgspec.field(default_factory=list)
    """What the configuration asks for and the imported store does not do."""

    @property
    def is_whole(self) -> bool:
        """Return True if every message and every consumer came over."""
        return not (self.missing or self.damage or self.problems)


def check_vacant(files: FileSystem, path: str) -> None:
    """Raise UsageError unless `path` is free for a new store: nothing there, or an empty folder."""
    if files.exists(path) and (not files.is_dir(path) or files.list_names(path)):
        raise UsageError(f"{path}: there is something already; a new store needs an empty place")


def folder_beside(path: str, purpose: str) -> str:
    """Return the folder next to `path` where what will stand there is built."""
    return f"{path.rstrip('/')}.{purpose}"


def without_limits(config: StoreConfig) -> StoreConfig:
    """Return a configuration under which every message stays, and every commit is synced."""
    return replace(
        config,
        max_msgs=0,
        max_bytes=0,
        max_age_ns=0,
        max_msgs_per_subject=0,
        max_msg_bytes=0,
        discard=Discard.OLD,
        discard_new_per_subject=False,
        sync_interval_ns=0,
    )


class StoreBuilder:
    """A store that is being built; see the module."""

    def __init__(self, path: str, config: StoreConfig, environment: StoreEnvironment) -> None:
        """Begin in the folder `path`, which is made, and cleared of an interrupted attempt.

        Raises StoreLocked where another attempt is under way.
        """
        self.path = path
        self._files = files = environment.files
        try:
            make_folders(files, path)
            self._lock = files.lock(os.path.join(path, LOCK_NAME))
        except OSError:
            with contextlib.suppress(OSError):
                files.remove_dir(path)
            raise
        try:
            _clear(files, path)
            self._engine = Engine(
                path,
                without_limits(config),
                files=files,
                clock=environment.clock,
                random_bytes=environment.random_bytes,
                key=environment.key,
                threaded=False,
                volatile=False,
                on_durable=None,
                on_damage=None,
            )
            self._engine.recover()
        except BaseException:
            self._lock.release()
            with contextlib.suppress(OSError):
                remove_tree(files, path)
            raise
        self._is_plain = config.compression is Compression.NONE and config.cipher is Cipher.NONE

    @property
    def last_seq(self) -> int:
        """The sequence of the message that was added last, 0 before the first."""
        return self._engine.log.ledger.last_seq

    def add(self, messages: list[RawMessage]) -> None:
        """Append messages with rising sequences; raises SequenceOutOfOrder, FormatError."""
        if self._is_plain:
            self._add_plain(messages)
        else:
            for seq, timestamp_ns, subject, headers, payload, expires_ns in messages:
                if seq <= self.last_seq:
                    raise SequenceOutOfOrder(seq, self.last_seq)
                self._engine.log.writer.append_message(
                    subject,
                    headers,
                    payload,
                    seq=seq,
                    timestamp_ns=timestamp_ns,
                    expires_ns=expires_ns,
                )
        self._engine.durability.changed()

    def _add_plain(self, messages: list[RawMessage]) -> None:
        log = self._engine.log
        place = 0
        while place < len(messages):
            seq, _, subject, headers, payload, _ = messages[place]
            record_bytes = len(subject) + len(headers) + len(payload) + _RECORD_OVERHEAD_BYTES
            place = append_raw(
                log.ledger,
                log.room_for(record_bytes, seq),
                messages,
                place,
                block_bytes_max=log.settings.config.block_bytes,
            )

    def finish(self, *, last_seq: int = 0, last_time_ns: int = 0) -> Built:
        """Pass over what is missing up to `last_seq`, make all durable, and close the store."""
        log = self._engine.log
        ledger = log.ledger
        if last_seq > ledger.last_seq:
            log.append_skip(ledger.last_seq + 1, last_seq - ledger.last_seq)
        log.raise_last_time(last_time_ns)
        self._engine.checkpoints.write()
        self._engine.durability.high_water.sync()
        self._files.sync_dir(self.path)
        built = Built(
            ledger.messages, ledger.bytes, ledger.table.live, ledger.first_seq, ledger.last_seq
        )
        self.close()
        return built

    def put_in_place(self, path: str) -> None:
        """Move the finished store to `path`, which must be vacant; durable when this returns."""
        self._files.sync_dir(self.path)
        self._files.rename(self.path, path)
        self._files.sync_dir(_parent(path))

    def close(self) -> None:
        """Let go of the folder, and leave it as it is."""
        self._engine.shut_down()
        self._lock.release()

    def abandon(self) -> None:
        """Remove the folder, if the file system allows it."""
        self.close()
        with contextlib.suppress(OSError):
            remove_tree(self._files, self.path)


def make_folders(files: FileSystem, path: str) -> None:
    """Make a folder and its parents, so that a power cut does not take them."""
    made = [path.rstrip("/")]
    while (place := os.path.dirname(made[-1])) and not files.exists(place):
        made.append(place)
    # An existing folder may have been made by a process that was killed before it synced the
    # parent. A process that lived on has locked it.
    is_new = not files.exists(os.path.join(path, LOCK_NAME))
    files.make_dirs(path)
    if is_new:
        for each in reversed(made):
            files.sync_dir(_parent(each))


def _parent(path: str) -> str:
    return os.path.dirname(path.rstrip("/")) or "."


def _clear(files: FileSystem, path: str) -> None:
    """Remove everything in a folder but the lock that is held."""
    for name in files.list_names(path):
        inner = os.path.join(path, name)
        if files.is_dir(inner):
            remove_tree(files, inner)
        elif name != LOCK_NAME:
            files.unlink(inner)
