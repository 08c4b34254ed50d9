"""Store directories of Go's nats-server: find the streams, open one, read its messages.

Invariant: nothing is ever written; every message returned passed its checksum; damage costs only
what it touches and is reported with its offset and the sequences it may have cost. A stream that a
running server writes to can be read, but as a snapshot: stop the server to compare numbers.

Called by the command line's import and inspection and by Spark's reader; one reader belongs to one
thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec

from penstock.errors import FormatError
from penstock.format.columns import ColumnBatch, ColumnBuilder
from penstock.format.files import LocalFolder, ReadableFolder
from penstock.format.golang.keys import ServerKey
from penstock.format.golang.metadata import GoConsumer, load_consumers, load_metadata
from penstock.format.golang.records import DamagedBytes
from penstock.format.golang.recovery import BlockFolder, recover
from penstock.format.golang.state import (
    BlockPlan,
    ReadReport,
    SubjectMatcher,
    flat_ranges,
    locate_damage,
)

_GLOBAL_ACCOUNT = "$G"
_SEQ_MAX = 2**62 - 1

FolderOpener = Callable[[str], ReadableFolder]


class GoStreamPath(msgspec.Struct, frozen=True):
    """Where a stream of Go's server lies."""

    account: str
    stream: str
    path: str


def _names_in(path: str, open_folder: FolderOpener) -> list[str]:
    try:
        return open_folder(path).list_names()
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_go_stream_directory(path: str, *, open_folder: FolderOpener = LocalFolder) -> bool:
    """Return True if a folder is laid out as Go's server lays out a stream."""
    return {"meta.inf", "msgs"} <= set(_names_in(path, open_folder))


def find_go_streams(
    store_dir: str, *, open_folder: FolderOpener = LocalFolder
) -> Iterator[GoStreamPath]:
    """Yield the streams of a server's `store_dir`, by account and name.

    The `jetstream` folder within may be given as well. Streams being deleted (a leading dot) are
    left out.
    """
    root = os.path.join(store_dir, "jetstream")
    if not _names_in(root, open_folder):
        root = store_dir
    for account in _names_in(root, open_folder):
        streams = os.path.join(root, account, "streams")
        for stream in _names_in(streams, open_folder):
            path = os.path.join(streams, stream)
            if not stream.startswith(".") and is_go_stream_directory(path, open_folder=open_folder):
                yield GoStreamPath(account, stream, path)


class GoStreamReader:
    """One stream, open for reading.

    `config` is the stream's configuration as the server stored it, `state` what the server would
    report, `blocks` what there is to read of each block, in order, `encrypted` whether it takes the
    server's key, and `report` what is wrong.
    """

    def __init__(
        self,
        path: str,
        *,
        key: str | bytes | None = None,
        account: str | None = None,
        now_ns: int | None = None,
        open_folder: FolderOpener = LocalFolder,
    ) -> None:
        """Open a stream's folder; may scan every block if index.db is missing or stale.

        `key` is the server's `jetstream { key }`; the account, which it is bound to, is taken from
        the path unless given. `now_ns` is for max_age, which is left alone without it. Raises
        WrongKey, and FileNotFoundError if there is no such folder.
        """
        self.path = path
        self.account = account if account is not None else _account_of(path)
        self.report = ReadReport()
        self._open_folder = open_folder
        self._server_key = None if key is None else ServerKey(key, self.account)
        folder_name = os.path.basename(os.path.abspath(path))
        metadata = load_metadata(
            open_folder(path),
            hash_name=folder_name,
            context=folder_name,
            server_key=self._server_key,
        )
        self.report.files.extend(metadata.problems)
        self.encrypted = metadata.key is not None
        self.config = metadata.config
        configured_name = self.config.get("name")
        self.name = configured_name if isinstance(configured_name, str) else folder_name
        self._blocks = BlockFolder(
            open_folder(self._messages_path()),
            self.name,
            self._server_key,
            key_proven=metadata.key is not None,
        )
        self.state, self.blocks = recover(
            self._blocks,
            self.report,
            stream=self.name,
            key=metadata.key,
            config=self.config,
            now_ns=now_ns,
        )

    def _messages_path(self) -> str:
        # A purge writes its new blocks beside the old ones and then swaps the folders. Once a block
        # stands among the new, the old ones are gone for good.
        started = os.path.join(self.path, "__new_msgs__")
        if any(name.endswith(".blk") for name in _names_in(started, self._open_folder)):
            return started
        return os.path.join(self.path, "msgs")

    def consumers(self) -> list[GoConsumer]:
        """Read every consumer's configuration and state; raises WrongKey."""
        return load_consumers(self.path, self.name, self._server_key, self._open_folder)

    def batches(
        self,
        *,
        first_seq: int = 1,
        last_seq: int = _SEQ_MAX,
        subjects: SubjectMatcher | None = None,
        headers: bool = True,
        payloads: bool = True,
    ) -> Iterator[ColumnBatch]:
        """Yield the messages of a range of sequences, one batch for each block that has any."""
        for plan in self.blocks:
            if plan.first_seq <= last_seq and first_seq <= plan.last_seq:
                builder = ColumnBuilder(headers=headers, payloads=payloads)
                batch = self._read(plan, builder, first_seq, last_seq, subjects)
                if batch.count:
                    yield batch

    def read_block(
        self,
        plan: BlockPlan,
        *,
        subjects: SubjectMatcher | None = None,
        headers: bool = True,
        payloads: bool = True,
    ) -> ColumnBatch:
        """Read the messages of one of `blocks`; the batch may be empty."""
        builder = ColumnBuilder(headers=headers, payloads=payloads)
        return self._read(plan, builder, 1, _SEQ_MAX, subjects)

    def verify(self) -> ReadReport:
        """Read every block and give the completed report."""
        for plan in self.blocks:
            self.read_block(plan, headers=False, payloads=False)
        return self.report

    def _read(
        self,
        plan: BlockPlan,
        builder: ColumnBuilder,
        first_seq: int,
        last_seq: int,
        subjects: SubjectMatcher | None,
    ) -> ColumnBatch:
        try:
            block = self._blocks.load_records(plan.number)
        except FormatError as error:
            size = self._blocks.block_bytes(plan.number)
            self._report_damage(plan, [DamagedBytes(0, size, error.reason, 0, 0)])
            return builder.take(plan.number)
        self._report_damage(plan, block.damage)
        first, last = max(first_seq, plan.first_seq), min(last_seq, plan.last_seq)
        if first <= last:
            block.fill(builder, first, last, flat_ranges(plan.deleted, first, last), subjects)
        return builder.take(plan.number)

    def _report_damage(self, plan: BlockPlan, damaged: list[DamagedBytes]) -> None:
        # A scan has reported already, and knows the neighbours that a plan does not.
        if self.report.index_problem is None:
            self.report.damage_by_block[plan.number] = [
                locate_damage(
                    plan.number,
                    each,
                    after_seq=plan.first_seq - 1,
                    before_seq=plan.last_seq + 1,
                    removed=plan.deleted,
                )
                for each in damaged
            ]


def _account_of(path: str) -> str:
    streams = os.path.dirname(os.path.abspath(path))
    if os.path.basename(streams) != "streams":
        return _GLOBAL_ACCOUNT
    return os.path.basename(os.path.dirname(streams))
