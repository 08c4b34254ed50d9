"""What a stream's directory holds, before anything of it is believed or changed.

The survey lists the files, reads every block's header and length, and finds out which blocks are
this stream's: all of them carry its salt. A header that is damaged is mended from what else is
known: a single byte by its checksum, more from the block's index, and without that from the salt,
under which the records of a plain block check out. What cannot be read is kept in the list, with
the reason and, where something tells, the sequences that it held.

What always holds: nothing is written. A wrong key and a newer format are found here, so that they
end the opening of a store before anything is changed.

Called by recovery, under the store's lock file.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from penstock.errors import CorruptStore, FormatError
from penstock.format.block import (
    HEADER_BYTES,
    BlockHeader,
    correct_block_header,
    decode_block_header,
    record_seed,
)
from penstock.format.block_index import BlockIndex
from penstock.format.block_keys import unsealer
from penstock.format.block_walker import BlockWalker
from penstock.format.envelope import Cipher
from penstock.format.layout import block_name, index_name, sort_names
from penstock.format.sequence_set import SequenceSet
from penstock.format.subject_table import SubjectTable
from penstock.store.block_head import BlockHead, read_heads
from penstock.store.engine import Engine

GENERATIONS_TRIED = 64
"""A block whose header is lost is tried with these many generations of its checksum seed."""


class Survey(msgspec.Struct):
    """A directory in its parts."""

    salt: int
    heads: dict[int, BlockHead]
    """By number, in order."""

    indexed: set[int]
    """The blocks that have an index file."""

    temporaries: list[str]
    tombstones: SequenceSet = msgspec.field(default_factory=SequenceSet)
    """What the indexes of missing blocks tell of removed messages."""

    notes: list[str] = msgspec.field(default_factory=list)

    @property
    def readable(self) -> list[int]:
        """The numbers of the blocks that can be read, in order."""
        return [number for number, head in self.heads.items() if head.header is not None]


def read_file(engine: Engine, name: str) -> bytes | None:
    """Give a whole file of the store, None where there is none."""
    try:
        file = engine.files.open(engine.file_path(name), "read")
    except FileNotFoundError:
        return None
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def missing_block(engine: Engine, number: int) -> BlockHead:
    """Give the head of a block that has no file."""
    path = engine.file_path(block_name(number))
    return BlockHead(number, path, reason="the block file is missing")


def survey_directory(engine: Engine, salt: int) -> Survey:
    """Look at every file; `salt` is what the checkpoint or the mark tells, 0 for nothing.

    Raises WrongKey and UnsupportedVersion.
    """
    names, indexed, temporaries = sort_names(engine.files.list_names(engine.path))
    starts = engine.files.read_starts(engine.path, list(names.values()), HEADER_BYTES)
    heads = read_heads(engine.path, names, starts)
    survey = Survey(_choose_salt(heads, salt), heads, indexed, temporaries)
    for head in heads.values():
        if not head.belongs_to(survey.salt):
            _claim(engine, survey, head)
    lone = sorted(indexed - names.keys())
    for number in lone:
        _add_lone_index(engine, survey, number)
    if lone:
        survey.heads = dict(sorted(heads.items()))
    for head in heads.values():
        header = head.header
        if header is not None and header.cipher:
            unsealer(header, engine.config.name.encode(), engine.key, head.path)
    return survey


def _choose_salt(heads: dict[int, BlockHead], told: int) -> int:
    """Give the stream's salt: what was told if a block agrees, else what most blocks have."""
    headers = [head.header for head in heads.values() if head.header is not None]
    if not headers or any(header.salt == told for header in headers):
        return told
    return Counter(header.salt for header in headers).most_common(1)[0][0]


def _claim(engine: Engine, survey: Survey, head: BlockHead) -> None:
    """See whether a block is this stream's, and mend its header where it must be."""
    found = head.header
    if found is None:
        head.header = _mended(engine, survey, head)
    elif found.salt != survey.salt:
        head.header, head.is_foreign = None, True
        head.reason = "a block of another stream"
    elif found.number != head.number:
        head.header, head.is_foreign = None, True
        head.reason = f"the header says block {found.number}"
    if head.header is None:
        index = _load_index(engine, survey, head.number)
        if index is not None:
            head.first_seq, head.last_seq = index.base_seq, index.last_seq


def _load_index(engine: Engine, survey: Survey, number: int) -> BlockIndex | None:
    """Give a block's index, whole and this stream's, or None."""
    name = index_name(number)
    data = read_file(engine, name) if number in survey.indexed else None
    if data is None:
        return None
    try:
        index = BlockIndex.load(data, engine.file_path(name))
        header = decode_block_header(index.header, engine.file_path(name))
    except (CorruptStore, FormatError):
        return None
    is_ours = (header.salt, header.number) == (survey.salt or header.salt, number)
    return index if is_ours else None


def _mended(engine: Engine, survey: Survey, head: BlockHead) -> BlockHeader | None:
    corrected = correct_block_header(head.image, head.path)
    if corrected is not None and corrected.number == head.number:
        survey.salt = survey.salt or corrected.salt
        return corrected if corrected.salt == survey.salt else None
    index = _load_index(engine, survey, head.number)
    if index is not None:
        return decode_block_header(index.header, head.path)
    if not survey.salt or engine.config.cipher != Cipher.NONE:
        # An encrypted block's key is lost with its header.
        return None
    return _header_by_records(engine, survey, head)


def _header_by_records(engine: Engine, survey: Survey, head: BlockHead) -> BlockHeader | None:
    """Find the generation under which the records of a plain block check out."""
    data = read_file(engine, block_name(head.number)) or b""
    before = [
        other.header.base_seq
        for number, other in survey.heads.items()
        if number < head.number and other.header is not None
    ]
    base_seq = max(before, default=1)
    for generation in range(GENERATIONS_TRIED):
        seed = record_seed(survey.salt, head.number, generation)
        walker = BlockWalker(data, block=head.number, seed=seed, base_seq=base_seq)
        probe = BlockIndex(head.number, generation, base_seq, bytes(HEADER_BYTES), SubjectTable())
        walker.index_into(probe)
        if walker.whole_bytes > HEADER_BYTES:
            # No block begins before its first message, nor with the last of the one before.
            first = probe.entry(0)[0] if probe.count else probe.last_seq + 1
            head.has_one_commit = walker.commit_start <= HEADER_BYTES
            return BlockHeader(head.number, survey.salt, first, 0, generation)
    return None


def _add_lone_index(engine: Engine, survey: Survey, number: int) -> None:
    """Take note of an index whose block is missing: blocks are removed after their indexes."""
    index = _load_index(engine, survey, number)
    if index is None:
        survey.notes.append(f"{index_name(number)}: an index without its block, left alone")
        return
    head = missing_block(engine, number)
    head.first_seq, head.last_seq = index.base_seq, index.last_seq
    survey.heads[number] = head
    survey.tombstones.update(index.tombstones)
