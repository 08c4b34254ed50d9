"""The options of `penstock-kv`: which bucket, where it is, and what of it is read.

A bucket is a stream, so options of reading are passed on to the format that reads the stream:
`penstock` with a server, `penstock-blocks` with a directory. Used in the driver alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from penstock.errors import UsageError
from penstock.spark.blocks import settings as block_settings
from penstock.spark.connection import ALIASES, Connection
from penstock.spark.folder import stream_name
from penstock.spark.kv.rows import COLUMNS, STREAM_PREFIX, TEXT_COLUMNS
from penstock.spark.options import (
    Batches,
    Following,
    Names,
    OnCorruptRecord,
    Options,
    Positive,
    ValueFormat,
    parse_time,
)
from penstock.spark.part import Splitting
from penstock.spark.schema import Column, choose
from penstock.spark.streams import settings as stream_settings

FORMAT = "penstock-kv"

_BUCKET = re.compile(r"[A-Za-z0-9_-]+\Z")
_KEY_PATTERN = re.compile(r"[-/_=.A-Za-z0-9*>]+\Z")


class Mode(StrEnum):
    """What a table of a bucket shows."""

    LATEST = "latest"
    HISTORY = "history"


class Source(msgspec.Struct, frozen=True, rename="camel"):
    """Options: which bucket, and what of it."""

    bucket: str = ""
    path: str = ""
    mode: Mode | None = None
    as_of: str = ""
    keys: Names | None = None
    include_deletes: bool = False
    value_format: ValueFormat = ValueFormat.BINARY
    columns: Names | None = None

    def chosen(self) -> list[Column]:
        """Return the columns of the table; raise UsageError."""
        known = COLUMNS if self.value_format is ValueFormat.BINARY else TEXT_COLUMNS
        return list(known) if self.columns is None else choose(self.columns, known)

    def ends(self) -> dict[str, str]:
        """Return the options that end the stream at `asOf`; a revision itself is read."""
        if not self.as_of:
            return {}
        if self.as_of.isdecimal():
            return {"endingOffsets": str(int(self.as_of) + 1)}
        parse_time(self.as_of, "asOf", 0)
        return {"endingTimestamp": self.as_of}


class DirectoryOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Options: how a directory is read; see `penstock-blocks`."""

    layout: block_settings.Layout = block_settings.Layout.AUTO
    key_file: str = ""
    on_corrupt_record: OnCorruptRecord = OnCorruptRecord.FAIL
    quarantine_path: str = ""


class ServerOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Options: how messages are requested; see `penstock`."""

    fetch_batch: Positive = 2000


class StartOptions(msgspec.Struct, frozen=True, rename="camel"):
    """Options: where a streaming query begins; see `penstock`."""

    starting_offsets: str = ""
    starting_timestamp: str = ""


class KvSettings(msgspec.Struct, frozen=True):
    """All options of one use of the format; either `server` or `blocks` is set."""

    bucket: str
    source: Source
    server: stream_settings.Settings | None
    blocks: block_settings.Settings | None

    @property
    def mode(self) -> Mode:
        """What a batch's table shows."""
        return self.source.mode or Mode.LATEST


def read_settings(given: Mapping[str, str]) -> KvSettings:
    """Return the checked options of the format; raise UsageError."""
    options = Options(FORMAT, given, ALIASES)
    source = options.group(Source)
    kinds: list[type[msgspec.Struct]] = [Batches, Splitting, Following, StartOptions]
    kinds += [DirectoryOptions] if source.path else [Connection, ServerOptions]
    for kind in kinds:
        options.group(kind)
    options.finish()
    bucket = _bucket(source)
    source.chosen()
    handed_on = {
        name: text for name, text in given.items() if _is_of(kinds, ALIASES.get(name.lower(), name))
    }
    # If a bucket keeps few values of a key, new changes remove old ones: that is no loss.
    if not any(name.lower() == "failondataloss" for name in handed_on):
        handed_on["failOnDataLoss"] = "false"
    handed_on |= source.ends() | {"stream": _stream(source, bucket)}
    if source.keys is not None:
        handed_on["subject"] = ",".join(map(subject_of, source.keys))
    if not source.path:
        return KvSettings(bucket, source, stream_settings.read_settings(handed_on), None)
    handed_on["path"] = source.path
    return KvSettings(bucket, source, None, block_settings.read_settings(handed_on))


def _bucket(source: Source) -> str:
    found = source.bucket
    if source.path and not found:
        found = stream_name(source.path).removeprefix(STREAM_PREFIX)
    if not found:
        raise UsageError(f"{FORMAT}: give a bucket, or the directory of its stream: .load(path)")
    return check_bucket(found)


def check_bucket(name: str) -> str:
    """Return a bucket's name; raise UsageError if it cannot be one."""
    if not _BUCKET.match(name):
        raise UsageError(f"{FORMAT}: {name!r} cannot be a bucket's name")
    return name


def _stream(source: Source, bucket: str) -> str:
    return STREAM_PREFIX + bucket if source.bucket else stream_name(source.path)


def _is_of(kinds: list[type[msgspec.Struct]], name: str) -> bool:
    return any(
        name.lower() == field.encode_name.lower()
        for kind in kinds
        for field in msgspec.structs.fields(kind)
    )


def subject_of(pattern: str) -> str:
    """Return the pattern of subjects of keys; a mirror has the subjects of its origin."""
    if not _KEY_PATTERN.match(pattern) or "" in pattern.split("."):
        raise UsageError(f"option keys: {pattern!r} is no key, nor a pattern of keys")
    return f"$KV.*.{pattern}"
