"""The parts of one open store: made here, wired, started and shut down together.

`Log` holds the messages and takes new ones, `Durability` commits what was changed, `Sealing` writes
the indexes of full blocks, `Checkpoints` sums the stream up, `Compaction` gives disk space back and
`Removal` removes on request. Each holds the parts that it uses, and none knows this module: only
the stores and the builder of stores do.

Invariant: the parts of one engine belong to one directory, and to one opening of it.

Thread: any. The lock of the log is never held during a write or a sync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.clock import Clock
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.layout import HIGH_WATER_NAME
from penstock.store.commit.commit import Commits, DiskWriter, HighWaterMark
from penstock.store.commit.disk_threads import DoneJobs
from penstock.store.commit.durability import Durability
from penstock.store.directory import StoreDirectory
from penstock.store.health import StoreHealth
from penstock.store.interface import (
    CommitCallback,
    DurableCallback,
    FailureCallback,
    RecoveryReport,
    StoreConfig,
)
from penstock.store.log.log import Log
from penstock.store.recovery.recover import recover
from penstock.store.settings import StoreSettings
from penstock.store.threads import Background
from penstock.store.upkeep.checkpoint import Checkpoints
from penstock.store.upkeep.compaction import Compaction
from penstock.store.upkeep.removal import Removal
from penstock.store.upkeep.sealing import Sealing
from penstock.store.vfs import FileSystem


class Engine:
    """The parts that make up an open store; see the module."""

    def __init__(
        self,
        path: str,
        config: StoreConfig,
        *,
        files: FileSystem,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        key: StoreKey | None,
        threaded: bool,
        volatile: bool,
        on_durable: DurableCallback | None,
        on_damage: Callable[[Damage], None] | None,
        on_commit: CommitCallback | None = None,
        on_failure: FailureCallback | None = None,
        done_jobs: DoneJobs | None = None,
    ) -> None:
        self._threaded = threaded
        self._on_damage, self._on_commit, self._done_jobs = on_damage, on_commit, done_jobs
        self._on_failure = on_failure
        self._keeps_up = False
        lock, rewriting = threading.RLock(), threading.RLock()
        directory = StoreDirectory(files, path, random_bytes)
        health = StoreHealth(path, lock, on_damage, on_failure)
        self.settings = StoreSettings(
            config, clock=clock, random_bytes=random_bytes, key=key, is_volatile=volatile
        )
        self.log = log = Log(self.settings, directory, health, lock)
        self.background = Background(failed=health.note_problem)
        high_water = HighWaterMark(files, directory.file_path(HIGH_WATER_NAME))
        disk = DiskWriter(files, path, high_water, clock, is_volatile=volatile)
        commits = Commits(
            log,
            disk,
            on_durable=on_durable,
            on_commit=on_commit,
            on_due=self._submit_due,
            done_jobs=done_jobs,
        )
        self._sealing = sealing = Sealing(log, disk, rewriting)
        self.durability = durability = Durability(log, commits, disk, high_water, sealing)
        self.checkpoints = Checkpoints(log, durability, sealing, self.background, rewriting)
        self.compaction = Compaction(
            log, durability, sealing, self.checkpoints, self.background, rewriting
        )
        self.removal = Removal(
            log, durability, sealing, self.checkpoints, self.compaction, self.background
        )

    def recover(self) -> RecoveryReport:
        """Bring the parts up from the directory, before any other use; return what was found."""
        report = recover(
            self.log, self.durability.high_water, self.checkpoints, threaded=self._threaded
        )
        self.durability.commits.go_on_after(self.log.ledger.last_seq)
        return report

    def begin_upkeep(self) -> None:
        """Free disk space and write checkpoints from now on, when a commit makes it due."""
        self._keeps_up = True

    def start(self) -> None:
        """Use threads from now on, where that is wanted; after recovery, which knows of none."""
        if self._threaded:
            self.background.start()
            self.durability.start()

    def sibling(self) -> Engine:
        """Return a new engine with the same arguments, not recovered yet."""
        return Engine(
            self.log.directory.path,
            self.settings.config,
            files=self.log.directory.files,
            clock=self.settings.clock,
            random_bytes=self.settings.random_bytes,
            key=self.settings.key,
            threaded=self._threaded,
            volatile=self.settings.is_volatile,
            on_durable=self.durability.commits.on_durable,
            on_damage=self._on_damage,
            on_commit=self._on_commit,
            on_failure=self._on_failure,
            done_jobs=self._done_jobs,
        )

    def reopen(self) -> tuple[Engine, RecoveryReport]:
        """Open what is on the disk again, in another engine; raises, and then nothing has changed.

        What this one acknowledged is verified, and what it did not is cut off if it has failed.
        It can be read as before meanwhile, in other threads too.
        """
        self.halt()
        if self.log.health.failure is not None:
            self.durability.give_up()
        engine = self.sibling()
        try:
            report = engine.recover()
            engine.durability.flush()
            engine.start()
        except BaseException:
            engine.shut_down()
            raise
        return engine, report

    def reconfigure(self, config: StoreConfig) -> None:
        """Go over to another configuration; its limits are still to be applied."""
        with self.log.lock:
            self.log.health.check_writable()
            before = self.settings.config
            self.settings.change(config, self.log.directory.path)
            self.log.configure()
            if (config.cipher, config.compression) != (before.cipher, before.compression):
                self.log.seal_active()
            self.durability.committer.set_interval(config.sync_interval_ns)

    def halt(self) -> None:
        """Begin no more work, and wait for what is under way; what is there can be read."""
        self.background.stop()
        self.durability.committer.stop()
        with self.durability.exclusive():
            pass

    def shut_down(self) -> None:
        """Refuse writes, begin no more work, close the files; nothing is flushed."""
        self.log.health.close()
        self.halt()
        self.close_files()

    def close_files(self) -> None:
        """Close the files of an engine that was halted."""
        with self.durability.exclusive(), self.log.lock:
            self.log.close()
            self.durability.high_water.close()

    def _submit_due(self, seals: bool, is_sparse: bool) -> None:
        """Hand out the background work that a commit has made due."""
        if seals:
            self.background.submit(self._sealing.write_due_indexes)
        if is_sparse and self._keeps_up:
            self.compaction.submit()
        if self._keeps_up and self.checkpoints.is_due:
            self.background.submit(self.checkpoints.write_if_open)
