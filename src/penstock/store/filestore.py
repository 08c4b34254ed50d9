"""The file store: a stream's messages in a directory of blocks.

This is the public face. Each call takes the log's lock, asks or changes the ledger, and lets the
committer know; what takes longer is done by the other parts of the `Engine`.

Invariant: nothing is acknowledged as durable before it is on stable storage; damage is
reported, counted in the state, and never handed out.

Safe from any thread. Every call may block on the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from penstock.clock import Clock, SystemClock
from penstock.errors import (
    CorruptStore,
    LimitReached,
    RecordNotFound,
    SequenceOutOfOrder,
    UsageError,
)
from penstock.format.block_folder import BlockCheck
from penstock.format.damage import Damage
from penstock.format.envelope import StoreKey
from penstock.format.layout import LOCK_NAME
from penstock.format.sequence_set import SequenceSet
from penstock.format.subjects.listing import SubjectListing
from penstock.limits import SEQUENCE_MAX
from penstock.store.commit.disk_threads import DoneJobs
from penstock.store.engine import Engine
from penstock.store.imports.build import StoreEnvironment, make_folders
from penstock.store.imports.from_json_lines import migrate_json_lines
from penstock.store.imports.snapshot import snapshot_chunks
from penstock.store.interface import (
    CommitCallback,
    DurableCallback,
    FailureCallback,
    FilteredState,
    NewMessage,
    RecoveryReport,
    StoreConfig,
    SubjectState,
)
from penstock.store.log import queries
from penstock.store.log.block import StoredMessage
from penstock.store.log.fast_append import Appender
from penstock.store.log.fast_scan import Scanner
from penstock.store.settings import check_key
from penstock.store.slices import SlicedChanges
from penstock.store.store_state import StoreState
from penstock.store.upkeep import limits
from penstock.store.upkeep.repair import RepairReport, repair_blocks
from penstock.store.vfs import FileSystem, Lock, OsFileSystem, remove_tree
from penstock.subjects import SubjectFilter


class FileStore:
    """A stream in a directory; see the module. `open` is the way in."""

    def __init__(self, engine: Engine, lock: Lock, report: RecoveryReport) -> None:
        """Use `open`."""
        self.engine = engine
        """Its parts; for modules of the store, and for who looks at them through `reopening`."""

        self._lock = lock
        self.report = report
        engine.begin_upkeep()

    @classmethod
    def open(
        cls,
        path: str,
        config: StoreConfig | None = None,
        *,
        files: FileSystem | None = None,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        key: StoreKey | None = None,
        threaded: bool = True,
        on_durable: DurableCallback | None = None,
        on_damage: Callable[[Damage], None] | None = None,
        on_commit: CommitCallback | None = None,
        on_failure: FailureCallback | None = None,
        done_jobs: DoneJobs | None = None,
    ) -> FileStore:
        """Open a stream's directory, making it where there is none.

        Commits are finished where `done_jobs` are reaped, or by a thread if there are none.
        Without threads a commit happens only in `flush`, and background work at once: what
        deterministic tests want. Raises StoreLocked, WrongKey, UnsupportedVersion, OSError.
        """
        config = config or StoreConfig()
        files = files or OsFileSystem()
        make_folders(files, path)
        lock = files.lock(os.path.join(path, LOCK_NAME))
        engine = Engine(
            path,
            config,
            files=files,
            clock=clock or SystemClock(),
            random_bytes=random_bytes,
            key=key,
            threaded=threaded,
            volatile=False,
            on_durable=on_durable,
            on_damage=on_damage,
            on_commit=on_commit,
            on_failure=on_failure,
            done_jobs=done_jobs,
        )
        try:
            check_key(path, config, key)
            environment = StoreEnvironment(files, engine.settings.clock, random_bytes, key)
            migration = migrate_json_lines(engine.log.directory, config, environment)
            report = engine.recover()
            report.migrated_messages = migration.messages
            report.notes += migration.notes
            store = cls(engine, lock, report)
            engine.durability.flush()
            engine.start()
        except BaseException:
            engine.shut_down()
            lock.release()
            raise
        return store

    @property
    def path(self) -> str:
        """The directory."""
        return self.engine.log.directory.path

    @property
    def config(self) -> StoreConfig:
        """The configuration in force."""
        return self.engine.settings.config

    @property
    def last_seq(self) -> int:
        """The highest sequence that was given to a message."""
        return self.engine.log.ledger.last_seq

    @property
    def durable_seq(self) -> int:
        """Everything up to here is on stable storage."""
        return self.engine.durability.durable_seq

    @property
    def failure(self) -> str | None:
        """Why the store takes no messages, or None."""
        health = self.engine.log.health
        return health.failure or health.shortage

    @property
    def problems(self) -> list[str]:
        """The last things that went wrong without costing data."""
        return list(self.engine.log.health.problems)

    # Writing

    def store(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        expires_ns: int = 0,
        keep: int = 0,
    ) -> tuple[int, int]:
        """Keep a message under the next sequence; return (sequence, time)."""
        log = self.engine.log
        with log.lock:
            log.health.check_takes_messages()
            log.writer.capacity.refuse(subject, headers, payload, keep=keep)
            seq = log.ledger.last_seq + 1
            now_ns = log.times.stamp(seq, log.ledger.last_time_ns)
            log.writer.append_message(
                subject, headers, payload, seq=seq, timestamp_ns=now_ns, expires_ns=expires_ns
            )
            log.writer.capacity.make_room(keep)
        self.engine.durability.changed()
        return seq, now_ns

    def appender(self) -> Appender:
        """Return an appender for compiled code; valid until `reset`, `reopen` or `repair`."""
        return Appender(self.engine.log, self.engine.durability)

    def scanner(self) -> Scanner:
        """Return a scanner for message after message; valid until `reset`, `reopen` or `repair`."""
        return Scanner(self.engine.log, self.engine.durability)

    def store_raw(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        *,
        seq: int,
        timestamp_ns: int,
        expires_ns: int = 0,
        keep: int = 0,
        is_refusable: bool = False,
    ) -> None:
        """Keep a message under a given sequence, above the last, and time.

        `keep` as in `store`. Without `is_refusable` no limit refuses it: the oldest give way.
        """
        log = self.engine.log
        with log.lock:
            log.health.check_takes_messages()
            if seq <= log.ledger.last_seq:
                raise SequenceOutOfOrder(seq, log.ledger.last_seq)
            limits.check_sequence(seq)
            if is_refusable:
                log.writer.capacity.refuse(subject, headers, payload, keep=keep)
            log.times.note(seq)
            log.writer.append_message(
                subject, headers, payload, seq=seq, timestamp_ns=timestamp_ns, expires_ns=expires_ns
            )
            log.writer.capacity.make_room(keep)
        self.engine.durability.changed()

    def store_batch(
        self,
        messages: Sequence[NewMessage],
        *,
        expires_ns: Sequence[int] = (),
        keep: Sequence[int] = (),
        durable: bool = False,
    ) -> tuple[int, int]:
        """Keep all of them, or none if one is refused; return (first, last sequence)."""
        log = self.engine.log
        batch = messages if isinstance(messages, list) else list(messages)
        if not batch:
            raise UsageError("an empty batch")
        with log.lock:
            log.health.check_takes_messages()
            log.writer.capacity.refuse_batch(batch)
            first = log.ledger.last_seq + 1
            now_ns = log.times.stamp(first, log.ledger.last_time_ns)
            log.writer.append_many(batch, now_ns, expires_ns, keep)
            last = log.ledger.last_seq
        self.engine.durability.changed(durable=durable)
        return first, last

    def skip(self, count: int = 1) -> int:
        """Skip sequences without messages; return the last of them."""
        log = self.engine.log
        if count < 1:
            raise UsageError(f"cannot skip {count} sequences")
        with log.lock:
            log.health.check_takes_messages()
            limits.check_sequence(log.ledger.last_seq + count)
            log.append_skip(log.ledger.last_seq + 1, count)
            last: int = log.ledger.last_seq
        self.engine.durability.changed()
        return last

    def flush(self) -> int:
        """Make everything stored and removed so far durable; return the last sequence."""
        self.engine.durability.flush()
        return self.engine.durability.durable_seq

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that the next open has nothing to add up."""
        self.engine.log.health.check_writable()
        self.engine.background.drain()
        self.engine.checkpoints.write()

    def forget_sealed(self) -> None:
        """Let go of the files and indexes of sealed blocks; they come back when they are needed."""
        with self.engine.log.lock:
            self.engine.log.cache.close()

    # Reading

    def load(self, seq: int) -> StoredMessage:
        """Return one message; raise RecordNotFound, or CorruptStore if it is damaged."""
        log = self.engine.log
        message = log.ledger.load_at_hand(seq)
        if message is not None:
            return message
        with log.lock:
            try:
                return log.ledger.load(seq)
            except CorruptStore as error:
                self._note_damage(error, seq)
                raise

    def has(self, seq: int) -> bool:
        """Whether there is a message; whether it is damaged is not looked at."""
        with self.engine.log.lock:
            try:
                self.engine.log.ledger.place_of(seq)
            except RecordNotFound:
                return False
        return True

    def _note_damage(self, error: CorruptStore, seq: int) -> None:
        try:
            block, offset, length = self.engine.log.ledger.place_of(seq)
        except (CorruptStore, RecordNotFound):
            # The index is damaged, which is told already, and costs no record.
            return
        self.engine.log.health.report_damage(
            Damage(block.number, offset, length, error.reason, seq, seq)
        )

    def load_next(self, seq: int, subjects: SubjectFilter | None = None) -> StoredMessage:
        """Return the first wanted message from `seq` on; damage is stepped over and reported."""
        log = self.engine.log
        start = seq
        with log.lock:
            while (found := queries.find_next(log.ledger, subjects, seq)) is not None:
                with contextlib.suppress(CorruptStore):
                    return self.load(found)
                seq = found + 1
        raise RecordNotFound(start, "no message from sequence")

    def load_previous(self, seq: int, subjects: SubjectFilter | None = None) -> StoredMessage:
        """Return the last wanted message up to `seq`; damage is stepped over and reported."""
        log = self.engine.log
        start = seq
        with log.lock:
            while seq and (found := queries.find_previous(log.ledger, subjects, seq)) is not None:
                with contextlib.suppress(CorruptStore):
                    return self.load(found)
                seq = found - 1
        raise RecordNotFound(start, "no message up to sequence")

    def load_last(self, subject: bytes) -> StoredMessage:
        """Return the newest message of a subject; raise RecordNotFound."""
        log = self.engine.log
        with log.lock:
            seq = queries.find_last(log.ledger, subject)
            if seq is None:
                name = subject.decode("utf-8", "replace")
                raise RecordNotFound(0, f"no message of subject {name},")
            return self.load(seq)

    def seq_from_time(self, time_ns: int) -> int:
        """Return the first sequence not before a time, or one past the last if there is none."""
        with self.engine.log.lock:
            found = queries.find_from_time(self.engine.log.ledger, time_ns)
            return self.engine.log.ledger.last_seq + 1 if found is None else found

    def multi_last(
        self,
        subjects: SubjectFilter,
        *,
        up_to_seq: int = 0,
        up_to_time_ns: int = 0,
        count_max: int = 0,
    ) -> list[int]:
        """Return the newest sequence of each wanted subject, in order."""
        with self.engine.log.lock:
            bound = up_to_seq or None
            if up_to_time_ns:
                later = self.seq_from_time(up_to_time_ns + 1)
                bound = later - 1
            found = queries.find_lasts(self.engine.log.ledger, subjects, bound)
        if 0 < count_max < len(found):
            raise LimitReached("number of subjects", count_max)
        return found

    def all_last(self) -> list[int]:
        """Return the newest sequence of every subject, in order."""
        return self.multi_last(SubjectFilter([]))

    # State

    def state(self) -> StoreState:
        """Return the stream's numbers, in constant time."""
        log = self.engine.log
        with log.lock:
            return StoreState(log.ledger, self.engine.durability.durable_seq, log.health.damage)

    def filtered_state(self, subjects: SubjectFilter | None, seq: int = 0) -> FilteredState:
        """Return the number of wanted messages from `seq` on, and their first and last sequence."""
        with self.engine.log.lock:
            ledger = self.engine.log.ledger
            first = queries.find_next(ledger, subjects, seq)
            if first is None:
                return FilteredState(0, 0, 0)
            last = queries.find_previous(ledger, subjects, ledger.last_seq)
            return FilteredState(queries.count_from(ledger, subjects, seq), first, last or 0)

    def subjects_state(self, subjects: SubjectFilter) -> dict[bytes, SubjectState]:
        """Return each wanted subject's number of messages, first and last sequence."""
        with self.engine.log.lock:
            return {
                subject: SubjectState(*ends)
                for subject, ends in queries.find_ends(self.engine.log.ledger, subjects).items()
            }

    def subjects_totals(self, subjects: SubjectFilter) -> dict[bytes, int]:
        """Return the number of messages of each wanted subject."""
        with self.engine.log.lock:
            return self.engine.log.ledger.table.totals(subjects)

    def list_subjects(self, listing: SubjectListing, count: int) -> bool:
        """Have a listing look at about `count` subjects; return True if it is complete."""
        with self.engine.log.lock:
            return listing.step(self.engine.log.ledger.table, count)

    def count_pending(
        self, subjects: SubjectFilter | None, seq: int, *, last_per_subject: bool = False
    ) -> int:
        """Count the wanted messages from `seq` on (only each subject's newest, if so asked)."""
        with self.engine.log.lock:
            if last_per_subject:
                wanted = subjects or SubjectFilter([])
                return sum(
                    1 for last in queries.find_lasts(self.engine.log.ledger, wanted) if last >= seq
                )
            return queries.count_from(self.engine.log.ledger, subjects, seq)

    def deleted(self) -> SequenceSet:
        """Return the sequences between first and last without a message."""
        with self.engine.log.lock:
            return queries.find_gaps(self.engine.log.ledger)

    # Removing

    def remove(self, seq: int) -> bool:
        """Remove a message; return False if there is none."""
        log = self.engine.log
        self.engine.compaction.spare_room()
        with log.lock:
            log.health.check_writable()
            removed = log.ledger.remove(seq) > 0
        self.engine.durability.changed()
        return removed

    def erase(self, seq: int) -> bool:
        """Remove a message and overwrite its bytes on the disk before returning."""
        return self.engine.removal.erase(seq)

    def purge(
        self,
        subjects: SubjectFilter | None = None,
        *,
        seq: int = 0,
        keep: int = 0,
        durable: bool = True,
    ) -> int:
        """Remove the wanted messages below `seq` (0: all), but the newest `keep`."""
        return self.engine.removal.purge(subjects, seq=seq, keep=keep, durable=durable)

    def compact(self, seq: int, *, durable: bool = True) -> int:
        """Remove everything below `seq`, which becomes the first sequence even if it is new."""
        limits.check_sequence(seq)
        return self.engine.removal.compact(seq, durable=durable)

    def truncate(self, seq: int) -> None:
        """Remove everything above `seq`, which must exist, and go on after it."""
        self.engine.removal.truncate(seq)

    def expire(self, count_max: int = SEQUENCE_MAX) -> int:
        """Remove the messages that have outlived their time, at most `count_max`.

        Return how many these were.
        """
        log = self.engine.log
        with log.lock:
            log.health.check_writable()
            removed = limits.expire(log, count_max)
        if removed:
            self.engine.durability.changed()
        return removed

    def due(self, count_max: int) -> list[int]:
        """Return the first messages that have outlived their time, for the owner to remove."""
        with self.engine.log.lock:
            return limits.due(self.engine.log, count_max)

    def next_expiry_ns(self) -> int | None:
        """Return when `expire` may have something to do next, or None."""
        with self.engine.log.lock:
            return limits.next_expiry_ns(self.engine.log)

    def reclaim(self, *, thorough: bool = False) -> int:
        """Free disk space now; return the bytes freed.

        A thorough one leaves nothing of what was removed, in the block being written neither.
        """
        return self.engine.compaction.reclaim_now(thorough=thorough)

    def repair(self, progress: Callable[[BlockCheck], None] | None = None) -> RepairReport:
        """Build again all that is derived, and rewrite what is damaged, keeping its bytes aside.

        `progress` is told of each block after it was read.
        """
        self.flush()
        found = list(self.engine.log.health.damage)
        self.engine.checkpoints.drop_now()
        reports = [self.report, self.reopen()]
        log, compaction = self.engine.log, self.engine.compaction
        report = repair_blocks(log, compaction, reports, found, progress)
        self.flush()
        return report

    # Living

    @property
    def in_slices(self) -> SlicedChanges:
        """Long changes, some messages at a time."""
        return SlicedChanges(self.engine)

    def update_config(self, config: StoreConfig) -> None:
        """Go over to another configuration and apply its limits."""
        with self.engine.log.lock:
            self.engine.reconfigure(config)
            limits.enforce_all(self.engine.log)
        self.engine.durability.changed()

    def snapshot(self) -> Iterator[bytes]:
        """Yield the stream as it is now, in pieces of bytes that `restore` takes.

        The store may go on being written; it gives no disk space back before the last piece was
        taken or the iterator was let go of.
        """
        return snapshot_chunks(self.engine.log, self.engine.compaction)

    def reset(self) -> None:
        """Forget everything, sequences too."""
        self.engine.removal.reset()

    def reopen(self) -> RecoveryReport:
        """Reopen the store from the disk, as after a failed write whose cause is gone.

        What was never acknowledged is given up; what was is read back and verified.
        """
        self.engine.shut_down()
        self.adopt(self.engine.reopen())
        return self.report

    def adopt(self, opened: tuple[Engine, RecoveryReport]) -> None:
        """Go on with what reopening has found; appenders and scanners are valid no more."""
        before = self.engine
        self.engine, self.report = opened
        before.close_files()
        self.engine.begin_upkeep()

    def stop(self) -> None:
        """Make everything durable, write a checkpoint, then refuse writes."""
        engine, log = self.engine, self.engine.log
        with log.lock:
            if log.health.closed:
                return
            # From here on nothing comes in, so the flush has all that was ever taken.
            log.health.close()
        try:
            if log.health.failure is None:
                engine.checkpoints.write_at_stop()
        finally:
            engine.shut_down()
            self._lock.release()

    def delete(self) -> None:
        """Remove the store and everything in it."""
        engine, log = self.engine, self.engine.log
        engine.shut_down()
        remove_tree(log.directory.files, log.directory.path)
        self._lock.release()

    def __enter__(self) -> FileStore:
        """Return the store."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        self.stop()
