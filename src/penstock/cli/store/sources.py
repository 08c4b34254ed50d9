"""Stream directories of every layout, looked at in the same way, read-only and without a lock.

`find_streams` walks a tree; `open_source` opens one directory: ours, or one of Go's nats-server.
Directories of the old JSON-lines layout are found and named, but must be imported to be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from penstock.cli.arguments import load_key, load_secret
from penstock.errors import UsageError
from penstock.format.block_folder import BlockCheck
from penstock.format.columns import MessageRow
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression
from penstock.format.golang.directory import GoStreamReader, is_go_stream_directory
from penstock.format.layout import (
    LEGACY_NAME,
    LOCK_NAME,
    QUARANTINE_NAME,
    is_stream_directory,
)
from penstock.format.reader import Selection, StreamReader
from penstock.format.summary import StreamSummary, find_sealing, summarize, top_subjects
from penstock.store.vfs import find_lock_holder
from penstock.subjects import SubjectFilter

PENSTOCK = "penstock"
GO = "go"
JSON_LINES = "json-lines"


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """A stream in numbers; None for what its layout does not hold without reading everything."""

    messages: int
    bytes: int
    first_seq: int
    first_time_ns: int
    last_seq: int
    last_time_ns: int
    deleted: int
    subjects: int | None
    blocks: int
    encryption: str | None
    compression: str | None


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """One block; the live messages are those that were not removed."""

    number: int
    bytes: int
    messages: int
    first_seq: int
    last_seq: int
    first_time_ns: int
    last_time_ns: int
    sealed: bool
    encrypted: bool
    generation: int


class StreamSource(Protocol):
    """One stream's directory; `damage` collects what is found damaged while it is read."""

    path: str
    name: str
    layout: str

    @property
    def damage(self) -> list[Damage]:
        """What is damaged, as far as it was read."""
        ...

    @property
    def problems(self) -> list[str]:
        """What is wrong with files that are not blocks."""
        ...

    def facts(self) -> StreamFacts:
        """Return the stream in numbers."""
        ...

    def top_subjects(self, count: int) -> list[tuple[bytes, int]]:
        """Return the subjects with the most messages, most first."""
        ...

    def blocks(self) -> list[BlockFacts]:
        """Return the blocks, in order."""
        ...

    def messages(self, wanted: Selection) -> Iterator[MessageRow]:
        """Yield the wanted messages, in order of sequence."""
        ...

    def checks(self) -> Iterator[BlockCheck]:
        """Read every byte; yield a check of each block."""
        ...


class PenstockSource:
    """A directory of Penstock."""

    layout = PENSTOCK

    def __init__(self, path: str, name: str, key_file: Path | None) -> None:
        self.path = path
        self.name = name
        self._reader = StreamReader(path, stream=name, key=load_key(key_file))

    @cached_property
    def _summary(self) -> StreamSummary:
        return summarize(self._reader)

    @property
    def damage(self) -> list[Damage]:
        """What is damaged, as far as it was read."""
        return self._reader.damage

    @property
    def problems(self) -> list[str]:
        """None: every file that is no block is derived from the blocks."""
        return []

    def facts(self) -> StreamFacts:
        """Return the stream in numbers."""
        summary = self._summary
        compression, cipher = find_sealing(self._reader)
        return StreamFacts(
            messages=summary.messages,
            bytes=summary.bytes,
            first_seq=summary.first_seq,
            first_time_ns=summary.first_time_ns,
            last_seq=summary.last_seq,
            last_time_ns=summary.last_time_ns,
            deleted=summary.deleted,
            subjects=summary.subjects,
            blocks=len(self._reader.blocks),
            encryption=None if cipher is Cipher.NONE else cipher.name.lower(),
            compression=None if compression is Compression.NONE else compression.name.lower(),
        )

    def top_subjects(self, count: int) -> list[tuple[bytes, int]]:
        """Return the subjects with the most messages, most first."""
        return top_subjects(self._summary, count)

    def blocks(self) -> list[BlockFacts]:
        """Return the blocks, in order."""
        return [
            BlockFacts(
                number=block.number,
                bytes=block.bytes,
                messages=self._summary.live_by_block.get(block.number, 0),
                first_seq=block.base_seq,
                last_seq=block.last_seq,
                first_time_ns=block.first_time_ns,
                last_time_ns=block.last_time_ns,
                sealed=block.sealed,
                encrypted=block.encrypted,
                generation=block.generation,
            )
            for block in self._reader.blocks
        ]

    def messages(self, wanted: Selection) -> Iterator[MessageRow]:
        """Yield the wanted messages, in order of sequence."""
        for batch in self._reader.batches(wanted):
            yield from batch.messages()

    def checks(self) -> Iterator[BlockCheck]:
        """Read every byte; yield a check of each block."""
        return self._reader.verify()


class GoSource:
    """A directory of Go's nats-server."""

    layout = GO

    def __init__(self, path: str, key_file: Path | None) -> None:
        self.path = path
        self._reader = GoStreamReader(path, key=load_secret(key_file))
        self.name = self._reader.name

    @property
    def damage(self) -> list[Damage]:
        """What is damaged, as far as it was read."""
        return self._reader.report.damage

    @property
    def problems(self) -> list[str]:
        """What is wrong with files that are not blocks."""
        return [f"{problem.path}: {problem.reason}" for problem in self._reader.report.files]

    def facts(self) -> StreamFacts:
        """Return the stream in numbers; its subjects are counted only when it is read."""
        state = self._reader.state
        span = state.last_seq - state.first_seq + 1
        compression = self._reader.config.get("compression")
        return StreamFacts(
            messages=state.messages,
            bytes=state.bytes,
            first_seq=state.first_seq,
            first_time_ns=state.first_timestamp_ns,
            last_seq=state.last_seq,
            last_time_ns=state.last_timestamp_ns,
            deleted=max(span - state.messages, 0),
            subjects=None,
            blocks=len(self._reader.blocks),
            encryption="by the server's key" if self._reader.encrypted else None,
            compression=str(compression) if compression not in (None, "", "none") else None,
        )

    def top_subjects(self, count: int) -> list[tuple[bytes, int]]:
        """Read every message's subject; return those with the most messages."""
        totals: dict[bytes, int] = {}
        for batch in self._reader.batches(headers=False, payloads=False):
            for message in batch.messages():
                totals[message.subject] = totals.get(message.subject, 0) + 1
        return sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:count]

    def blocks(self) -> list[BlockFacts]:
        """Return the blocks that hold messages, in order."""
        return [
            BlockFacts(
                number=plan.number,
                bytes=plan.bytes,
                messages=plan.messages,
                first_seq=plan.first_seq,
                last_seq=plan.last_seq,
                first_time_ns=0,
                last_time_ns=0,
                sealed=plan is not self._reader.blocks[-1],
                encrypted=self._reader.encrypted,
                generation=0,
            )
            for plan in self._reader.blocks
        ]

    def messages(self, wanted: Selection) -> Iterator[MessageRow]:
        """Yield the wanted messages, in order of sequence."""
        batches = self._reader.batches(
            first_seq=max(wanted.first_seq, 1),
            last_seq=wanted.last_seq,
            subjects=wanted.subjects,
            headers=wanted.headers,
            payloads=wanted.payloads,
        )
        for batch in batches:
            for message in batch.messages():
                if wanted.first_ns <= message.timestamp_ns <= wanted.last_ns:
                    yield message

    def checks(self) -> Iterator[BlockCheck]:
        """Read every block; yield a check of each."""
        for plan in self._reader.blocks:
            batch = self._reader.read_block(plan, headers=False, payloads=False)
            check = BlockCheck(plan.number, plan.bytes, batch.count)
            check.damage += self._reader.report.damage_by_block.get(plan.number, [])
            yield check


def layout_of(path: str) -> str | None:
    """Return the layout of a directory, None if it holds no stream."""
    if is_go_stream_directory(path):
        return GO
    try:
        names = os.listdir(path)
    except OSError:
        return None
    if LEGACY_NAME in names:
        return JSON_LINES
    return PENSTOCK if is_stream_directory(names) else None


def find_streams(root: str) -> Iterator[tuple[str, str]]:
    """Yield (path, layout) of every stream in a tree, in order of path."""
    for path, folders, _ in os.walk(root):
        layout = layout_of(path)
        if layout is None:
            folders.sort()
        else:
            # What is in a stream's directory belongs to it.
            folders.clear()
            yield path, layout


def open_source(path: str, *, name: str | None, key_file: Path | None) -> StreamSource:
    """Open a stream's directory; raise UsageError if no stream there can be read."""
    layout = layout_of(path)
    if layout == GO:
        return GoSource(path, key_file)
    if layout == PENSTOCK:
        return PenstockSource(path, name or stream_name(path), key_file)
    if layout == JSON_LINES:
        raise UsageError(
            f"{path}: an old JSON-lines store; `penstock store import {path} TARGET` brings it over"
        )
    raise UsageError(f"{path}: no stream here; `penstock store ls {path}` looks further down")


def require_penstock(path: str) -> None:
    """Raise UsageError if a directory is not Penstock's, so must not be changed."""
    layout = layout_of(path)
    if layout == GO:
        raise UsageError(
            f"{path}: written by Go's nats-server, and never changed by Penstock; "
            f"`penstock store import {path} TARGET` copies it"
        )
    if layout != PENSTOCK:
        open_source(path, name=None, key_file=None)


def stream_name(path: str) -> str:
    """Return the stream's name that a directory's name stands for."""
    return os.path.basename(os.path.abspath(path))


def holder_of(path: str) -> int | None:
    """Return the process that has a directory of Penstock open for writing."""
    return find_lock_holder(os.path.join(path, LOCK_NAME))


def disk_bytes(path: str) -> int:
    """Return the bytes of all files in a directory and its folders."""
    return sum(entry.lstat().st_size for entry in Path(path).rglob("*") if entry.is_file())


def quarantined(path: str) -> list[str]:
    """Return the files in quarantine: bytes that were cut off or could not be read."""
    try:
        return sorted(os.listdir(os.path.join(path, QUARANTINE_NAME)))
    except FileNotFoundError:
        return []


def subject_filter(patterns: list[str]) -> SubjectFilter | None:
    """Return the filter of the patterns, None for every subject."""
    return SubjectFilter([pattern.encode() for pattern in patterns]) if patterns else None
