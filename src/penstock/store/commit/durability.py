"""How a store's changes become durable: asking for commits, waiting for them, and how far they are.

Callers change the log under its lock and then call `changed`, which has the change committed soon,
or `flush`, which commits in the caller's thread.

Invariant: a message is durable only after a commit put its record on stable storage; after a failed
write or sync nothing is written or acknowledged any more.

Thread: any, never under the store's lock except where a method says otherwise.
"""

from __future__ import annotations

import contextlib

from penstock.errors import StoreReadOnly
from penstock.limits import PENDING_BYTES_MAX, UNSEALED_BLOCKS_MAX, VOLATILE_PENDING_BYTES_MAX
from penstock.store.commit.commit import Commits, DiskWriter, HighWaterMark
from penstock.store.commit.committer import Committer
from penstock.store.log.block import Block
from penstock.store.log.log import Log
from penstock.store.upkeep.sealing import Sealing


class Durability:
    """The way to the disk of one store; see the module."""

    def __init__(
        self,
        log: Log,
        commits: Commits,
        disk: DiskWriter,
        high_water: HighWaterMark,
        sealing: Sealing,
    ) -> None:
        self._log = log
        self._sealing = sealing
        self.commits = commits
        self.disk = disk
        self.high_water = high_water
        self.committer = Committer(commits)

    @property
    def durable_seq(self) -> int:
        """Everything up to here is on stable storage."""
        return self.commits.durable_seq

    def start(self) -> None:
        """Commit in other threads from now on."""
        self.committer.set_interval(self._log.settings.config.sync_interval_ns)
        self.committer.start()

    def changed(self, *, durable: bool = False) -> None:
        """Have a change committed soon; wait for that if `durable` or if much is pending."""
        log = self._log
        if log.settings.is_volatile:
            if log.pending_bytes() > VOLATILE_PENDING_BYTES_MAX:
                self.flush()
            else:
                self.commits.tell_volatile()
            return
        if not durable:
            self.committer.wake()
        if durable:
            self.flush()
        elif log.pending_bytes() > PENDING_BYTES_MAX:
            # Whose change it is hears of a failure as it would without the wait.
            with contextlib.suppress(StoreReadOnly):
                self.flush()
        if len(log.unsealed_index) > UNSEALED_BLOCKS_MAX:
            self._sealing.write_due_indexes()

    def flush(self) -> None:
        """Make all that was changed so far durable, committing in this thread; raises."""
        with self._log.lock:
            wanted = self.commits.next_ticket()
            self.disk.want_sync(wanted)
        self.committer.commit(unless=lambda: self.commits.durable_ticket >= wanted)
        with self._log.lock:
            self._log.health.check_not_failed()

    def cut_room(self) -> None:
        """Leave no room behind the block that is being written: nothing is to follow; raises."""
        with self.exclusive():
            with self._log.lock:
                roomy = [active for active in self._log.unwritten if active.has_room]
            for active in roomy:
                self.disk.cut_room(active)

    def give_up(self) -> None:
        """Cut off what a store that has failed may have written and never acknowledged; raises.

        Who sent it was told that it is not stored, and what is left of it would only take room.
        """
        log = self._log
        number, size = self.high_water.place
        with log.lock:
            begun = [*log.unwritten, *(each.active for each in log.ledger.blocks if each.active)]
        files = log.directory.files
        for active in {each.number: each for each in begun}.values():
            if active.number < number or not files.exists(active.path):
                continue
            if active.number > number:
                files.unlink(active.path)
                continue
            file = files.open(active.path, "update")
            try:
                if file.size() > size:
                    file.truncate(size)
                    file.sync_data()
            finally:
                file.close()
        files.sync_dir(log.directory.path)

    def exclusive(self) -> contextlib.AbstractContextManager[None]:
        """Let no commit run within a `with`."""
        return self.committer.exclusive()

    def release(self, block: Block) -> None:
        """Write and sync nothing more of a block that is about to be removed; under the lock."""
        active = block.active
        if active is not None:
            self._log.release(block)
            self.disk.forget(active)
