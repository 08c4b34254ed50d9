"""A stream's folder and power cuts: an unfinished stream is none afterwards."""

from __future__ import annotations

from random import Random

import pytest

from penstock.errors import StreamOffline
from penstock.store.vfs import FileSystem
from penstock.stream.config.config import StreamConfig
from penstock.stream.storage import StreamFolder
from penstock.testing.filesystem import MemoryFileSystem
from penstock.text.times import Instant

PATH = "/store/streams/S"


class WatchedFiles(MemoryFileSystem):
    """A disk that remembers what power cuts would leave after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.survivors: list[MemoryFileSystem] = []

    def check_power(self, path: str) -> None:
        super().check_power(path)
        self.survivors += [self.survivor(Random(seed)) for seed in range(8)]

    def sync_dir(self, path: str) -> None:
        super().sync_dir(path)
        self.survivors.append(self.survivor(Random(0)))


def folder_in(files: FileSystem) -> StreamFolder:
    return StreamFolder(files, PATH, lambda: "unique")


def make_store(folder: StreamFolder) -> None:
    """Do what a store does first."""
    folder.files.make_dirs(folder.messages_path)
    folder.files.sync_dir(folder.path)


def prepared() -> StreamFolder:
    files = MemoryFileSystem()
    files.make_dirs("/store/streams")
    files.sync_dir("/")
    files.sync_dir("/store")
    folder = folder_in(files)
    folder.reserve()
    return folder


def survivors(folder: StreamFolder) -> list[StreamFolder]:
    """Return what may be found after a power cut."""
    files = folder.files
    assert isinstance(files, MemoryFileSystem)
    found = [folder_in(files.survivor(Random(seed))) for seed in range(64)]
    return [each for each in found if each.files.is_dir(PATH)]


def test_nothing_is_found_of_a_stream_that_was_only_begun() -> None:
    reserved = survivors(prepared())
    folder = prepared()
    make_store(folder)
    stored = survivors(folder)

    assert reserved
    assert stored
    for each in reserved + stored:
        assert each.finish_removal()
        assert not each.files.exists(PATH)


def test_a_stream_that_was_written_is_found() -> None:
    folder = prepared()
    make_store(folder)
    folder.write(StreamConfig(name="S"), Instant(7))
    written = survivors(folder)
    folder.end_reservation()

    assert len(written) == 64
    for each in written + survivors(folder):
        assert not each.finish_removal()
        assert each.read().created == Instant(7)


def test_a_new_stream_is_found_as_a_whole_or_not_at_all() -> None:
    files = WatchedFiles()
    files.make_dirs("/store/streams")
    files.sync_dir("/")
    files.sync_dir("/store")
    files.survivors.clear()
    folder = folder_in(files)
    folder.make(StreamConfig(name="S"), Instant(7))
    made = len(files.survivors)
    folder.settle()
    files.sync_dir("/store/streams")
    *cut_short, whole = files.survivors

    seen = set()
    for number, place in enumerate(cut_short):
        for name in place.list_names("/store/streams"):
            found = StreamFolder(place, f"/store/streams/{name}", lambda: "unique")
            is_none = found.finish_removal()
            seen.add((name, number < made, is_none))
            assert is_none != place.exists(found.path)
    # While it is made there is no stream; while it is settled there is one or none.
    assert seen == {
        ("unique.tmp", True, True),
        ("unique.tmp", False, True),
        ("S", False, True),
        ("S", False, False),
    }
    assert whole.list_names("/store/streams") == ["S"]
    for place in [each for each in files.survivors if each.is_dir(PATH)]:
        assert folder_in(place).read().created == Instant(7)
        assert place.is_dir(f"{PATH}/msgs")


def test_a_folder_of_others_is_not_taken_for_an_unfinished_stream() -> None:
    files = MemoryFileSystem()
    for path in ("/store/streams/notes.tmp/msgs", "/store/streams/mine.tmp"):
        files.make_dirs(path)
    files.open("/store/streams/notes.tmp/todo", "create").close()
    files.open("/store/streams/notes.tmp/stream.json", "create").close()

    files.make_dirs("/store/streams/0123456789abcdef.tmp/msgs/quarantine")

    ours = StreamFolder(files, "/store/streams/0123456789abcdef.tmp", lambda: "unique")
    assert ours.finish_removal()
    found = StreamFolder(files, "/store/streams/notes.tmp", lambda: "unique")
    assert not found.finish_removal()
    assert files.list_names(found.path) == ["msgs", "stream.json", "todo"]


def test_a_name_may_be_as_long_as_the_system_takes() -> None:
    files = MemoryFileSystem()
    files.make_dirs("/store/streams")
    name = "s" * 255
    folder = StreamFolder(files, f"/store/streams/{name}", lambda: "0123456789abcdef")

    folder.make(StreamConfig(name=name), Instant(7))

    assert max(map(len, files.list_names("/store/streams"))) == 255


def test_what_could_not_be_made_leaves_nothing_and_touches_nothing() -> None:
    folder = prepared()
    make_store(folder)
    before = folder.files.list_names(PATH)

    with pytest.raises(OSError, match="not empty"):
        folder.make(StreamConfig(name="S"), Instant(7))

    assert folder.files.list_names("/store/streams") == ["S"]
    assert folder.files.list_names(PATH) == before


def test_a_stream_without_its_document_is_kept() -> None:
    folder = prepared()
    make_store(folder)
    folder.end_reservation()

    assert not folder.finish_removal()
    with pytest.raises(StreamOffline):
        folder.read()
    assert folder.files.is_dir(folder.messages_path)


def test_what_is_left_when_a_removal_was_cut_off_is_removed() -> None:
    folder = prepared()
    make_store(folder)
    folder.write(StreamConfig(name="S"), Instant(7))
    folder.end_reservation()
    folder.begin_removal()

    for each in survivors(folder):
        assert each.finish_removal()
    folder.remove()
    folder.files.make_dirs(PATH)
    assert folder.finish_removal()
    assert not folder.files.exists(PATH)
