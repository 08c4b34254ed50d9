"""What a disk holds and what it would hold after a power cut: the images under the memory files.

A file has its current bytes, the bytes that are on stable storage, and the changes between the two
in order. A folder has its current entries and those on stable storage; the changes between them
stand in one `Journal` for the whole disk.

Invariant: a survivor is the stable image plus some of the unsynced changes. Of a file's
bytes, any 512-byte sectors may have arrived, or a prefix cut at any byte of what was appended. Of a
folder's entries, a prefix of its changes has arrived, and a rename has happened or has not, also
between two folders.

Used by `penstock.testing.filesystem`, which holds the lock around every call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

SECTOR_BYTES = 512
"""What a disk writes whole or not at all; true of every disk that is sold."""


@dataclass(slots=True)
class Write:
    """Bytes put at an offset."""

    offset: int
    data: bytearray

    def apply(self, image: bytearray) -> None:
        """Put the bytes there; a gap before them becomes zeros."""
        if not self.data:
            return
        if len(image) < self.offset:
            image.extend(bytes(self.offset - len(image)))
        image[self.offset : self.offset + len(self.data)] = self.data

    def sectors(self) -> list[Write]:
        """Cut it at the disk's sector boundaries."""
        end = self.offset + len(self.data)
        cuts = range(self.offset - self.offset % SECTOR_BYTES, end, SECTOR_BYTES)
        pieces = []
        for cut in cuts:
            first, last = max(cut, self.offset), min(cut + SECTOR_BYTES, end)
            pieces.append(Write(first, self.data[first - self.offset : last - self.offset]))
        return pieces


@dataclass(slots=True)
class Resize:
    """A cut, or an extension with zeros."""

    size: int

    def apply(self, image: bytearray) -> None:
        """Make the image that long."""
        del image[self.size :]
        image.extend(bytes(self.size - len(image)))


@dataclass(slots=True, eq=False)
class FileImage:
    """One file, whatever its names are."""

    current: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    unsynced: list[Write | Resize] = field(default_factory=list)

    def change(self, change: Write | Resize) -> None:
        """Make a change that is not on stable storage yet."""
        change.apply(self.current)
        self.unsynced.append(change)

    def sync(self) -> None:
        """Put every change on stable storage."""
        for change in self.unsynced:
            change.apply(self.stable)
        self.unsynced.clear()

    def flip_bit(self, bit: int) -> None:
        """Damage one bit wherever it is held: in memory, on its way, and on the medium."""
        offset, mask = bit // 8, 1 << bit % 8
        self.current[offset] ^= mask
        if offset < len(self.stable):
            self.stable[offset] ^= mask
        for change in self.unsynced:
            if isinstance(change, Write) and 0 <= offset - change.offset < len(change.data):
                change.data[offset - change.offset] ^= mask

    def survivor(self, keep: Random | None) -> FileImage:
        """Return what a power cut leaves: the stable bytes and what `keep` lets through."""
        image = bytearray(self.stable)
        if keep is not None and self.unsynced:
            keep.choice((self._keep_prefix, self._keep_sectors))(image, keep)
        return FileImage(bytearray(image), image)

    def _keep_prefix(self, image: bytearray, keep: Random) -> None:
        """The first changes arrived, the last of them only up to some sector or byte."""
        count = keep.randint(0, len(self.unsynced))
        for change in self.unsynced[:count]:
            change.apply(image)
        if count == len(self.unsynced):
            return
        torn = self.unsynced[count]
        if isinstance(torn, Write):
            pieces = torn.sectors()
            for piece in pieces[: keep.randint(0, len(pieces))]:
                piece.apply(image)
            if len(image) > len(self.stable) and keep.random() < 0.5:
                del image[keep.randint(len(self.stable), len(image)) :]

    def _keep_sectors(self, image: bytearray, keep: Random) -> None:
        """Any sectors arrived, in any order; the file's length may have arrived without them."""
        chance = keep.random()
        for change in self.unsynced:
            pieces = change.sectors() if isinstance(change, Write) else [change]
            for piece in pieces:
                if keep.random() < chance:
                    piece.apply(image)
        if len(image) < len(self.current) and keep.random() < 0.5:
            image.extend(bytes(keep.randint(0, len(self.current) - len(image))))


@dataclass(slots=True, eq=False)
class FolderImage:
    """One folder: its entries now and on stable storage."""

    current: dict[str, Image] = field(default_factory=dict)
    stable: dict[str, Image] = field(default_factory=dict)


Image: TypeAlias = FileImage | FolderImage

Entry: TypeAlias = tuple[FolderImage, str, "Image | None"]
"""In this folder, this name now means this image, or nothing."""


@dataclass(slots=True)
class EntryChange:
    """Entries that change together: one for a creation or a removal, two for a rename."""

    entries: tuple[Entry, ...]

    def folders(self) -> set[int]:
        """Return the identities of the folders it touches."""
        return {id(folder) for folder, _, _ in self.entries}


def _put(entries: dict[str, Image], name: str, image: Image | None) -> None:
    if image is None:
        entries.pop(name, None)
    else:
        entries[name] = image


class Journal:
    """The changes of entries that are not on stable storage yet, in the order they were made."""

    def __init__(self) -> None:
        self._changes: list[EntryChange] = []

    def change(self, *entries: Entry) -> None:
        """Change entries, all of them or none after a power cut."""
        for folder, name, image in entries:
            _put(folder.current, name, image)
        self._changes.append(EntryChange(entries))

    def sync(self, folder: FolderImage) -> None:
        """Put a folder's changes on stable storage, and what must have happened before them."""
        touched, synced, rest = {id(folder)}, [], []
        for change in reversed(self._changes):
            if touched & change.folders():
                touched |= change.folders()
                synced.append(change)
            else:
                rest.append(change)
        for change in reversed(synced):
            for place, name, image in change.entries:
                _put(place.stable, name, image)
        self._changes = rest[::-1]

    def survivor(self, root: FolderImage, keep: Random | None) -> FolderImage:
        """Return the tree that a power cut leaves."""
        extra: dict[int, list[Entry]] = {}
        for change in self._kept(keep):
            for entry in change.entries:
                extra.setdefault(id(entry[0]), []).append(entry)
        return self._copy(root, extra, keep)

    def _kept(self, keep: Random | None) -> list[EntryChange]:
        if keep is None:
            return []
        chance = keep.choice((0.5, 0.9, 1.0))
        lost: set[int] = set()
        kept = []
        for change in self._changes:
            if lost & change.folders() or keep.random() >= chance:
                # Nothing later in these folders may arrive either.
                lost |= change.folders()
            else:
                kept.append(change)
        return kept

    def _copy(
        self, folder: FolderImage, extra: dict[int, list[Entry]], keep: Random | None
    ) -> FolderImage:
        entries = dict(folder.stable)
        for _, name, image in extra.get(id(folder), ()):
            _put(entries, name, image)
        copies: dict[str, Image] = {
            name: image.survivor(keep)
            if isinstance(image, FileImage)
            else self._copy(image, extra, keep)
            for name, image in sorted(entries.items())
        }
        return FolderImage(copies, dict(copies))
