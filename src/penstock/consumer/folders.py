"""What follows on the journal: consumers' folders are written, then synced, and the journal cut.

A consumer that was created or changed is on stable storage in the journal. When no more are made
for a moment, or after a few seconds at the latest, their documents are written to their folders
without a sync, for those who read folders: Spark, the command line, an earlier server. When there
was no change for longer, all of them are synced, and the journal's files are removed.

Invariants: folders are written, synced and removed by the thread of `state_writer` alone, a few at
a time, so that no state waits long; only at the end are they synced by several. The journal is cut
only if everything in it is on stable storage in a folder, or its folder is gone for good.

Thread: the event loop's, but for `_write` and `_sync`.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.folder import CONSUMERS_NAME, ConsumerFolder
from penstock.consumer.journal import ConsumerJournal
from penstock.consumer.state_writer import SavedConsumer, StateWriter
from penstock.errors import PenstockError
from penstock.format.state.journal import JournalEntry
from penstock.limits import (
    CONSUMER_FOLDERS_PER_JOB,
    CONSUMER_FOLDERS_S,
    CONSUMER_FOLDERS_S_MAX,
    CONSUMER_JOURNAL_REST_S,
)
from penstock.store.threads import COMMITS
from penstock.stream.changes import Change
from penstock.stream.stream import Stream, StreamHost
from penstock.text.times import Instant


class ListedConsumer(SavedConsumer, Protocol):
    """A consumer, as far as its folder is written."""

    name: str
    stream: Stream
    created: Instant
    is_closed: bool

    @property
    def config(self) -> ConsumerConfig:
        """The configuration in force."""
        ...


class ConsumerFolders:
    """The folders of the consumers of one account; see the module."""

    def __init__(
        self, host: StreamHost, journal: ConsumerJournal, state_writer: StateWriter
    ) -> None:
        self._host = host
        self.journal = journal
        self._state_writer = state_writer
        self._unwritten: dict[ListedConsumer, None] = {}
        self._unsynced: dict[ListedConsumer, None] = {}
        self._parents: dict[str, None] = {}
        """Folders of folders that were created or removed."""

        self.holds_all = False
        """Whether the journal speaks of what cannot be served: then it is not cut."""

        self._since_s = self._last_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._job: Future[None] | None = None

    # Changes

    def keep(self, consumer: ListedConsumer, config: ConsumerConfig | None) -> Change:
        """Put a configuration on stable storage, or that the consumer was removed, if None."""
        stream = consumer.stream
        document = None if config is None else consumer.document(config)
        change = self.journal.append(
            JournalEntry(stream.name, stream.created.time_ns, consumer.name, document)
        )
        if config is None:
            self.forget(consumer)
            # Not before: a consumer that came back after a crash must not have lost its state.
            change.on_success(lambda: self.discard(consumer))
        else:
            self.note(consumer)
        return change

    def remove(self, stream: Stream, folder: ConsumerFolder) -> Change:
        """Remove the folder of a consumer that cannot be served."""
        name = os.path.basename(folder.path)
        change = self.journal.append(JournalEntry(stream.name, stream.created.time_ns, name, None))
        change.on_success(lambda: self._remove(folder, folder.remove))
        return change

    def note(self, consumer: ListedConsumer) -> None:
        """Have a consumer's folder written, for the journal has a later document of it."""
        self._last_s = self._host.loop.time()
        if not self._unwritten:
            self._since_s = self._last_s
        self._unwritten[consumer] = None
        self._wake(CONSUMER_FOLDERS_S)

    def forget(self, consumer: ListedConsumer) -> None:
        """Write nothing more of a consumer that is being removed."""
        self._unwritten.pop(consumer, None)
        self._unsynced.pop(consumer, None)

    def discard(self, consumer: ListedConsumer) -> None:
        """Remove the folder of a consumer that is gone, unless another has it by now."""
        folder, created = consumer.folder, consumer.created
        if folder is not None:
            self.forget(consumer)
            self._remove(folder, lambda: folder.remove_own(created))

    def _remove(self, folder: ConsumerFolder, remove: Callable[[], None]) -> None:
        self._last_s = self._host.loop.time()
        self._parents[os.path.dirname(folder.path)] = None

        def work() -> None:
            # What is left of it would come back without the journal.
            self.holds_all |= not self._try(folder.path, remove)

        self._state_writer.run(work)
        self.rest()

    def rest(self) -> None:
        """Cut the journal some time later, if all that it says is in folders."""
        self._wake(CONSUMER_JOURNAL_REST_S)

    def _try(self, path: str, work: Callable[[], None]) -> bool:
        try:
            work()
        except (PenstockError, OSError) as error:
            self._host.log("ERR", f"JetStream consumer {path}: {error}")
            return False
        return True

    # Writing and syncing

    def _wake(self, delay_s: float) -> None:
        if self._job is not None:
            # What is due is looked at when that is done.
            return
        loop = self._host.loop
        due_s = loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due_s, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        now_s = self._host.loop.time()
        if self._unwritten:
            quiet_s, waiting_s = now_s - self._last_s, now_s - self._since_s
            if quiet_s < CONSUMER_FOLDERS_S and waiting_s < CONSUMER_FOLDERS_S_MAX:
                self._wake(CONSUMER_FOLDERS_S)
            else:
                self._write_next()
        elif self.journal.paths:
            rested_s = now_s - self._last_s
            if rested_s < CONSUMER_JOURNAL_REST_S or self.journal.is_busy:
                self._wake(max(CONSUMER_JOURNAL_REST_S - rested_s, CONSUMER_FOLDERS_S))
            elif not self.holds_all:
                self._sync_all()

    def _write_next(self) -> None:
        some = list(itertools.islice(self._unwritten, CONSUMER_FOLDERS_PER_JOB))
        for consumer in some:
            del self._unwritten[consumer]
            self._unsynced[consumer] = None
        self._do(lambda: self._write(some), self._written)

    def _do(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        loop = self._host.loop

        def done(job: Future[None]) -> None:
            loop.call_soon_threadsafe(self._done, job, then)

        self._job = self._state_writer.run(work)
        self._job.add_done_callback(done)

    def _done(self, job: Future[None], then: Callable[[], None]) -> None:
        if self._job is job:
            self._job = None
            then()

    def _write(self, some: list[ListedConsumer]) -> None:
        for consumer in some:
            if not consumer.is_closed:
                self._try(consumer.name, functools.partial(_place, consumer))

    def _written(self) -> None:
        if self._unwritten:
            self._write_next()
        else:
            self.rest()

    def _sync_all(self) -> None:
        paths, some, parents = self._take_stock()
        failed = False

        def next_step() -> None:
            nonlocal some, failed
            step, some = some[:CONSUMER_FOLDERS_PER_JOB], some[CONSUMER_FOLDERS_PER_JOB:]
            if step:
                self._do(lambda: note(self._sync(step), step), next_step)
            elif failed:
                self.rest()
            else:
                self._do(lambda: self._cut(paths, parents), self._written)

        def note(is_synced: bool, step: list[ListedConsumer]) -> None:
            nonlocal failed
            failed |= not is_synced
            if is_synced:
                for consumer in step:
                    self._unsynced.pop(consumer, None)

        next_step()

    def _take_stock(self) -> tuple[list[str], list[ListedConsumer], list[str]]:
        """Return the journal's files, the consumers in them, and the folders above theirs."""
        paths, some = self.journal.cut(), list(self._unsynced)
        for consumer in some:
            place = os.path.join(consumer.stream.folder.path, CONSUMERS_NAME)
            self._parents[place] = self._parents[consumer.stream.folder.path] = None
        return paths, some, list(self._parents)

    def _sync(self, some: list[ListedConsumer]) -> bool:
        """Sync folders; return False if one of them could not be."""
        return all(
            consumer.is_closed or self._try(consumer.name, functools.partial(_sync, consumer))
            for consumer in some
        )

    def _cut(self, paths: list[str], parents: list[str]) -> None:
        def work() -> None:
            for parent in parents:
                # It is gone with its stream, or lasts as long as the stream.
                if self._host.files.is_dir(parent):
                    self._host.files.sync_dir(parent)
                self._parents.pop(parent, None)
            self.journal.remove(paths)

        self._try("journal", work)

    def stop(self) -> None:
        """Have all changes on stable storage, in the folders, before returning.

        While no server runs the folders alone count: people may change and move them.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # What follows on a job under way is done here.
        self._job = None
        self.journal.finish()
        unwritten = list(self._unwritten)
        self._unsynced |= self._unwritten
        self._unwritten.clear()
        run = self._state_writer.run
        run(lambda: self._write(unwritten)).result()
        if self.journal.paths and not self.holds_all:
            paths, some, parents = self._take_stock()
            # Nobody is served any more: by several threads, which share the system's commits.
            if all(COMMITS.map(lambda each: self._sync([each]), some)):
                run(lambda: self._cut(paths, parents)).result()


def _place(consumer: ListedConsumer) -> None:
    if (folder := consumer.folder) is not None:
        folder.place(consumer.document(consumer.config), consumer.created)


def _sync(consumer: ListedConsumer) -> None:
    if (folder := consumer.folder) is not None:
        if not folder.is_placed:
            # It could not be written when it was time.
            _place(consumer)
        folder.sync()
