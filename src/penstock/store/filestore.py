"""The file store: a stream's messages in a directory of blocks.

This is the public face. Each call takes the engine's lock, asks or changes the ledger, and lets the
committer know; what takes longer is done by `removal`, `compaction`, `recovery` and `snapshot`.

What always holds: nothing is acknowledged as durable before it is on stable storage; damage is
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
from penstock.format.damage import Damage
from penstock.format.envelope import Cipher, Compression, StoreKey
from penstock.format.layout import LOCK_NAME
from penstock.format.reader import BlockCheck
from penstock.format.sequence_set import SequenceSet
from penstock.store import questions, removal, retention
from penstock.store.block_files import StoredMessage
from penstock.store.building import make_folders
from penstock.store.checkpoint import drop_checkpoint, write_checkpoint
from penstock.store.compaction import reclaim, reclaim_now
from penstock.store.disk_threads import DoneJobs
from penstock.store.engine import Engine
from penstock.store.intake import Intake
from penstock.store.interface import (
    CommitCallback,
    DurableCallback,
    FilteredState,
    NewMessage,
    RecoveryReport,
    StoreConfig,
    StoreState,
    SubjectState,
)
from penstock.store.migration import migrate_json_lines
from penstock.store.outtake import Outtake
from penstock.store.recovery import recover
from penstock.store.repair import RepairReport, repair_blocks
from penstock.store.resting import come_to_rest
from penstock.store.snapshot import snapshot_chunks
from penstock.store.vfs import FileSystem, Lock, OsFileSystem, remove_tree
from penstock.subjects import SubjectFilter


class FileStore:
    """A stream in a directory; see the module. `open` is the way in."""

    def __init__(self, engine: Engine, lock: Lock, report: RecoveryReport) -> None:
        """Use `open`."""
        self._engine = engine
        self._lock = lock
        self.report = report
        engine.reclaim_job = self._reclaim
        engine.checkpoint_job = self._checkpoint_if_due

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
        done_jobs: DoneJobs | None = None,
    ) -> FileStore:
        """Open a stream's directory, making it where there is none.

        Commits are finished by whoever reaps `done_jobs`, or by a thread where there are none.
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
            done_jobs=done_jobs,
        )
        try:
            engine.check_key(config)
            migration = migrate_json_lines(engine)
            report = recover(engine)
            report.migrated_messages = migration.messages
            report.notes += migration.notes
            store = cls(engine, lock, report)
            engine.flush()
            engine.start()
        except BaseException:
            engine.shut_down()
            lock.release()
            raise
        return store

    @property
    def path(self) -> str:
        """The directory."""
        return self._engine.path

    @property
    def config(self) -> StoreConfig:
        """The configuration in force."""
        return self._engine.config

    @property
    def last_seq(self) -> int:
        """The highest sequence that was given to a message."""
        return self._engine.ledger.last_seq

    @property
    def durable_seq(self) -> int:
        """Everything up to here is on stable storage."""
        return self._engine.durable_seq

    @property
    def failure(self) -> str | None:
        """Why the store is read-only, or None."""
        return self._engine.failure

    @property
    def problems(self) -> list[str]:
        """The last things that went wrong without costing data."""
        return list(self._engine.problems)

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
        """Keep a message under the next sequence; give (sequence, time)."""
        engine = self._engine
        with engine.lock:
            engine.check_writable()
            retention.refuse(engine, subject, headers, payload, keep=keep)
            seq = engine.ledger.last_seq + 1
            now_ns = engine.times.stamp(seq, engine.ledger.last_time_ns)
            engine.append(
                subject, headers, payload, seq=seq, timestamp_ns=now_ns, expires_ns=expires_ns
            )
            retention.enforce(engine, keep)
        engine.changed()
        return seq, now_ns

    def intake(self) -> Intake:
        """Give the quick way in for plain messages; good until `reset` or `restore`."""
        return Intake(self._engine)

    def outtake(self) -> Outtake:
        """Give the quick way out for message after message; good until `reset` or `restore`."""
        return Outtake(self._engine)

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
        engine = self._engine
        with engine.lock:
            engine.check_writable()
            if seq <= engine.ledger.last_seq:
                raise SequenceOutOfOrder(seq, engine.ledger.last_seq)
            retention.check_sequence(seq)
            if is_refusable:
                retention.refuse(engine, subject, headers, payload, keep=keep)
            engine.times.note(seq)
            engine.append(
                subject, headers, payload, seq=seq, timestamp_ns=timestamp_ns, expires_ns=expires_ns
            )
            retention.enforce(engine, keep)
        engine.changed()

    def store_batch(
        self,
        messages: Sequence[NewMessage],
        *,
        expires_ns: Sequence[int] = (),
        keep: Sequence[int] = (),
        durable: bool = False,
    ) -> tuple[int, int]:
        """Keep all of them or, where one is refused, none; give (first, last sequence)."""
        engine = self._engine
        batch = messages if isinstance(messages, list) else list(messages)
        if not batch:
            raise UsageError("an empty batch")
        with engine.lock:
            engine.check_writable()
            retention.refuse_batch(engine, batch)
            first = engine.ledger.last_seq + 1
            now_ns = engine.times.stamp(first, engine.ledger.last_time_ns)
            sealed = (self.config.compression, self.config.cipher)
            if sealed == (Compression.NONE, Cipher.NONE) and not (expires_ns or keep):
                engine.append_many(batch, now_ns)
            else:
                for place, message in enumerate(batch):
                    seq, expiry_ns = first + place, expires_ns[place] if expires_ns else 0
                    engine.append(*message, seq=seq, timestamp_ns=now_ns, expires_ns=expiry_ns)
                    retention.enforce(engine, keep[place] if keep else 0)
            retention.enforce_totals(engine)
            last = engine.ledger.last_seq
        engine.changed(durable=durable)
        return first, last

    def skip(self, count: int = 1) -> int:
        """Pass over sequences without messages; give the last of them."""
        engine = self._engine
        if count < 1:
            raise UsageError(f"cannot skip {count} sequences")
        with engine.lock:
            engine.check_writable()
            retention.check_sequence(engine.ledger.last_seq + count)
            engine.append_skip(engine.ledger.last_seq + 1, count)
            last: int = engine.ledger.last_seq
        engine.changed()
        return last

    def flush(self) -> int:
        """Make everything stored and removed so far durable; give the last sequence."""
        self._engine.flush()
        return self._engine.durable_seq

    def _reclaim(self) -> None:
        if self._engine.failure is None and not self._engine.closed:
            reclaim(self._engine)

    def _checkpoint_if_due(self) -> None:
        if self._engine.failure is None and not self._engine.closed:
            write_checkpoint(self._engine)

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that the next open has nothing to add up."""
        self._engine.check_writable()
        self._engine.background.drain()
        write_checkpoint(self._engine)

    def forget_sealed(self) -> None:
        """Let go of the files and indexes of sealed blocks; they come back when they are needed."""
        with self._engine.lock:
            self._engine.cache.close()

    def maintain(self) -> None:
        """Do what is due: expiry, disk space, checkpoint. For a timer of the owner's."""
        self.expire()
        self.flush()

    # Reading

    def load(self, seq: int) -> StoredMessage:
        """Give one message; raises RecordNotFound, or CorruptStore where it is damaged."""
        engine = self._engine
        message = engine.ledger.load_at_hand(seq)
        if message is not None:
            return message
        with engine.lock:
            try:
                return engine.ledger.load(seq)
            except CorruptStore as error:
                self._note_damage(error, seq)
                raise

    def has(self, seq: int) -> bool:
        """Whether there is a message; whether it is damaged is not looked at."""
        with self._engine.lock:
            try:
                self._engine.ledger.place_of(seq)
            except RecordNotFound:
                return False
        return True

    def _note_damage(self, error: CorruptStore, seq: int) -> None:
        try:
            block, offset, length = self._engine.ledger.place_of(seq)
        except (CorruptStore, RecordNotFound):
            # The index is damaged, which is told already, and costs no record.
            return
        self._engine.report_damage(Damage(block.number, offset, length, error.reason, seq, seq))

    def load_next(self, seq: int, subjects: SubjectFilter | None = None) -> StoredMessage:
        """Give the first wanted message from `seq` on, stepping over damage, which is reported."""
        engine = self._engine
        start = seq
        with engine.lock:
            while (found := questions.find_next(engine.ledger, subjects, seq)) is not None:
                with contextlib.suppress(CorruptStore):
                    return self.load(found)
                seq = found + 1
        raise RecordNotFound(start, "no message from sequence")

    def load_previous(self, seq: int, subjects: SubjectFilter | None = None) -> StoredMessage:
        """Give the last wanted message up to `seq`, stepping over damage, which is reported."""
        engine = self._engine
        start = seq
        with engine.lock:
            while (
                seq and (found := questions.find_previous(engine.ledger, subjects, seq)) is not None
            ):
                with contextlib.suppress(CorruptStore):
                    return self.load(found)
                seq = found - 1
        raise RecordNotFound(start, "no message up to sequence")

    def load_last(self, subject: bytes) -> StoredMessage:
        """Give the newest message of a subject; raises RecordNotFound."""
        engine = self._engine
        with engine.lock:
            seq = questions.find_last(engine.ledger, subject)
            if seq is None:
                name = subject.decode("utf-8", "replace")
                raise RecordNotFound(0, f"no message of subject {name},")
            return self.load(seq)

    def seq_from_time(self, time_ns: int) -> int:
        """Give the first sequence not before a time; one past the last where there is none."""
        with self._engine.lock:
            found = questions.find_from_time(self._engine.ledger, time_ns)
            return self._engine.ledger.last_seq + 1 if found is None else found

    def multi_last(
        self,
        subjects: SubjectFilter,
        *,
        up_to_seq: int = 0,
        up_to_time_ns: int = 0,
        count_max: int = 0,
    ) -> list[int]:
        """Give the newest sequence of each wanted subject, in order."""
        with self._engine.lock:
            bound = up_to_seq or None
            if up_to_time_ns:
                later = self.seq_from_time(up_to_time_ns + 1)
                bound = later - 1
            found = questions.find_lasts(self._engine.ledger, subjects, bound)
        if 0 < count_max < len(found):
            raise LimitReached("number of subjects", count_max)
        return found

    def all_last(self) -> list[int]:
        """Give the newest sequence of every subject, in order."""
        return self.multi_last(SubjectFilter([]))

    # State

    def state(self) -> StoreState:
        """Give the stream in numbers, in constant time."""
        engine = self._engine
        with engine.lock:
            ledger = engine.ledger
            span = ledger.last_seq - ledger.first_seq + 1
            return StoreState(
                messages=ledger.messages,
                bytes=ledger.bytes,
                first_seq=ledger.first_seq,
                first_time_ns=ledger.first_time_ns,
                last_seq=ledger.last_seq,
                last_time_ns=ledger.last_time_ns,
                deleted=max(span - ledger.messages, 0),
                subjects=ledger.table.live,
                durable_seq=engine.durable_seq,
                lost=tuple(engine.damage),
            )

    def filtered_state(self, subjects: SubjectFilter | None, seq: int = 0) -> FilteredState:
        """Give the wanted messages from `seq` on."""
        with self._engine.lock:
            ledger = self._engine.ledger
            first = questions.find_next(ledger, subjects, seq)
            if first is None:
                return FilteredState(0, 0, 0)
            last = questions.find_previous(ledger, subjects, ledger.last_seq)
            return FilteredState(questions.count_from(ledger, subjects, seq), first, last or 0)

    def subjects_state(self, subjects: SubjectFilter) -> dict[bytes, SubjectState]:
        """Give each wanted subject's messages."""
        with self._engine.lock:
            return {
                subject: SubjectState(*ends)
                for subject, ends in questions.find_ends(self._engine.ledger, subjects).items()
            }

    def subjects_totals(self, subjects: SubjectFilter) -> dict[bytes, int]:
        """Give the number of messages of each wanted subject."""
        with self._engine.lock:
            return self._engine.ledger.table.totals(subjects)

    def count_pending(
        self, subjects: SubjectFilter | None, seq: int, *, last_per_subject: bool = False
    ) -> int:
        """Count the wanted messages from `seq` on (only each subject's newest, if so asked)."""
        with self._engine.lock:
            if last_per_subject:
                wanted = subjects or SubjectFilter([])
                return sum(
                    1 for last in questions.find_lasts(self._engine.ledger, wanted) if last >= seq
                )
            return questions.count_from(self._engine.ledger, subjects, seq)

    def deleted(self) -> SequenceSet:
        """Give the sequences between first and last without a message."""
        with self._engine.lock:
            return questions.find_gaps(self._engine.ledger)

    # Removing

    def remove(self, seq: int) -> bool:
        """Remove a message; False where there is none."""
        engine = self._engine
        with engine.lock:
            engine.check_writable()
            removed = engine.ledger.remove(seq) > 0
        engine.changed()
        return removed

    def erase(self, seq: int) -> bool:
        """Remove a message and overwrite its bytes on the disk before returning."""
        return removal.erase(self._engine, seq)

    def purge(
        self,
        subjects: SubjectFilter | None = None,
        *,
        seq: int = 0,
        keep: int = 0,
        durable: bool = True,
    ) -> int:
        """Remove the wanted messages below `seq` (0: all), but the newest `keep`."""
        return removal.purge(self._engine, subjects, seq=seq, keep=keep, durable=durable)

    def compact(self, seq: int, *, durable: bool = True) -> int:
        """Remove everything below `seq`, which becomes the first sequence even if it is new."""
        retention.check_sequence(seq)
        return removal.compact(self._engine, seq, durable=durable)

    def truncate(self, seq: int) -> None:
        """Remove everything above `seq`, which must exist, and go on after it."""
        removal.truncate(self._engine, seq)

    def expire(self) -> int:
        """Remove what has outlived its time; give how many."""
        engine = self._engine
        with engine.lock:
            engine.check_writable()
            removed = retention.expire(engine)
        if removed:
            engine.changed()
        return removed

    def due(self, count_max: int) -> list[int]:
        """Give the first of what has outlived its time, for an owner who removes it."""
        with self._engine.lock:
            return retention.due(self._engine, count_max)

    def next_expiry_ns(self) -> int | None:
        """Tell when `expire` may have something to do next, or None."""
        with self._engine.lock:
            return retention.next_expiry_ns(self._engine)

    def reclaim(self, *, thorough: bool = False) -> int:
        """Give disk space back now; returns the bytes.

        A thorough one leaves nothing of what was removed, in the block being written neither.
        """
        return reclaim_now(self._engine, thorough=thorough)

    def repair(self, progress: Callable[[BlockCheck], None] | None = None) -> RepairReport:
        """Build again all that is derived, and rewrite what is damaged, keeping its bytes aside.

        `progress` is told of each block after it was read.
        """
        self.flush()
        found = list(self._engine.damage)
        with self._engine.rewriting:
            drop_checkpoint(self._engine)
        reports = [self.report, self.reopen()]
        return repair_blocks(self._engine, reports, found, progress)

    # Living

    def update_config(self, config: StoreConfig) -> None:
        """Go over to another configuration and apply its limits."""
        with self._engine.lock:
            self._engine.reconfigure(config)
            retention.enforce_all(self._engine)
        self._engine.changed()

    def snapshot(self) -> Iterator[bytes]:
        """Give the stream, as it is now, in pieces of bytes that `restore` takes.

        The store may go on being written; it gives no disk space back before the last piece was
        taken or the iterator was let go of.
        """
        return snapshot_chunks(self._engine)

    def reset(self) -> None:
        """Forget everything, sequences too."""
        removal.reset(self._engine)

    def reopen(self) -> RecoveryReport:
        """Take stock from the disk again, as after a failed write whose cause is gone.

        What was never acknowledged is given up; what was is read back and verified.
        """
        engine = self._engine
        engine.shut_down()
        self._engine, self.report = FileStore.open_engine(engine)
        self._engine.reclaim_job = self._reclaim
        self._engine.checkpoint_job = self._checkpoint_if_due
        return self.report

    @staticmethod
    def open_engine(old: Engine) -> tuple[Engine, RecoveryReport]:
        """Make an engine like another, from the same directory, under the lock that is held."""
        engine = old.sibling()
        try:
            report = recover(engine)
            engine.flush()
            engine.start()
        except BaseException:
            engine.shut_down()
            raise
        return engine, report

    def stop(self) -> None:
        """Make everything durable, write a checkpoint, then refuse writes."""
        engine = self._engine
        with engine.lock:
            if engine.closed:
                return
            # From here on nothing comes in, so the flush has all that was ever taken.
            engine.closed = True
        try:
            if engine.failure is None:
                come_to_rest(engine)
        finally:
            engine.shut_down()
            self._lock.release()

    def delete(self) -> None:
        """Remove the store and everything in it."""
        engine = self._engine
        engine.shut_down()
        remove_tree(engine.files, engine.path)
        self._lock.release()

    def __enter__(self) -> FileStore:
        """Give the store itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop."""
        self.stop()
