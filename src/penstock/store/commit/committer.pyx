"""Group commit: all that was appended meanwhile goes to the disk in one write and one sync.

While one commit is on the disk the next batch gathers, so throughput grows with load and latency
stays at about one sync. `wake` begins a commit and waits for nothing: the usual one is handed to
the threads that write and sync without the interpreter, one that takes more (a store's first, a
stream that is kept in memory) to a thread that all stores share. What came meanwhile is begun
when it ends. A caller of `flush` commits in its own thread, or helps with what is under way.

Invariant: one commit at a time; `finish` runs only after the batch's bytes were written
and, with sync "always", synced, in that order; after a failure nothing is ever written or
acknowledged again. A thread that waits for a commit can finish it: no thread depends on another one
except for the writing itself.

Any thread.
"""

import threading
import weakref

from libc.stdint cimport int64_t, uint64_t

from penstock.store.commit.disk_threads cimport DiskJob

from penstock.store.threads import ALARMS, COMMITS


cdef class Batch:
    """What one commit puts on the disk: chunks in order, and what they make durable."""

    def __init__(self, uint64_t last_seq, int64_t last_time_ns, uint64_t ticket, current):
        self.last_seq = last_seq
        self.last_time_ns = last_time_ns
        self.ticket = ticket
        self.current = current
        self.chunks = []
        self.roomy = []


cdef class Committer:
    """Runs commits, one at a time; see the module."""

    def __init__(self, steps not None):
        """`steps` are `CommitSteps`."""
        self.steps = steps
        self.lock = threading.Lock()
        self.turn_ended = threading.Condition(self.lock)

    def set_interval(self, int64_t interval_ns):
        """Look for work at each interval without being woken; 0 for never."""
        cdef bint is_new = self.is_started and interval_ns and not self.interval_ns
        self.interval_ns = interval_ns
        if is_new:
            _set_alarm(self, interval_ns)

    def start(self):
        """Commit from now on whenever `wake` asks for it, and at each interval."""
        self.is_started = True
        if self.interval_ns:
            _set_alarm(self, self.interval_ns)

    def stop(self):
        """Begin no more commits; one may be under way."""
        self.is_started = False

    def wake(self):
        """Begin a commit, or have one begun after that which is under way."""
        if not self.is_started:
            return
        with self.lock:
            if self.is_busy or self.exclusive_claims:
                self.is_wanted = True
                return
            self.is_busy = True
            self.is_wanted = False
        self._begin()

    def commit(self, *, unless=None):
        """Commit what is pending in this thread; False where nothing was.

        `unless` is asked when it is our turn: by then another's commit may have done our work, and
        those that wait must not each make one of their own.
        """
        cdef Batch batch
        cdef DiskJob job
        if not self._take_turn(unless, False):
            return False
        try:
            batch = self.steps.take()
            if batch is not None:
                job = self.steps.job(batch)
                if job is not None:
                    job.do()
                self._complete(batch, job)
        except OSError as error:
            self.steps.fail(error)
            batch = None
        except BaseException as error:
            # What was taken is neither written nor pending any more: nothing may follow it.
            self.steps.fail(error)
            raise
        finally:
            self._end_turn()
        if batch is None:
            return False
        self.steps.after()
        return True

    def exclusive(self):
        """Let no commit run within a `with`; never under the store's lock.

        Commits give way to a caller that waits for this: a busy stream makes one after the other.
        """
        return _Exclusive(self)

    # Turns

    cdef bint _take_turn(self, object unless, bint is_exclusive) except -1:
        # All who wait are woken by each commit's end, and not one after the other: who is served
        # by it goes on at once, and can store again while the next commit is on the disk.
        cdef DiskJob job
        while True:
            with self.lock:
                if unless is not None and unless():
                    return False
                if not self.is_busy and (is_exclusive or not self.exclusive_claims):
                    self.is_busy = True
                    return True
                job = self.job
                if job is None:
                    self.waiting += 1
                    try:
                        self.turn_ended.wait()
                    finally:
                        self.waiting -= 1
            if job is not None:
                job.wait()
                self.on_done(job)

    cdef int _end_turn(self) except -1:
        cdef bint goes_on
        with self.lock:
            goes_on = self.is_wanted and self.is_started and not self.exclusive_claims
            self.is_busy = goes_on
            if goes_on:
                self.is_wanted = False
            if self.waiting:
                self.turn_ended.notify_all()
        if goes_on:
            self._begin()
        return 0

    # Commits that no caller waits for: no error leaves them, the store reports it.

    cdef int _begin(self) except -1:
        # Begin the commit whose turn it is.
        cdef Batch batch
        cdef DiskJob job
        try:
            batch = self.steps.take()
            if batch is None:
                self._end_turn()
                return 0
            job = self.steps.job(batch)
            if job is None:
                COMMITS.submit(self._write, batch)
                return 0
            # It fails if the process has no descriptors left: before a thread waits for a job that
            # is never done.
            done_jobs = self.steps.done_jobs()
            with self.lock:
                self.job = job
                self.batch = batch
                if self.waiting:
                    self.turn_ended.notify_all()
            job.submit(self.on_done, done_jobs)
        except Exception as error:
            self.steps.fail(error)
            self._end_turn()
        return 0

    def _write(self, Batch batch not None):
        self._conclude(batch, None)

    cpdef on_done(self, DiskJob job):
        """Finish the commit whose job is done, unless another thread has done so."""
        cdef Batch batch
        with self.lock:
            if self.job is not job:
                return
            batch = self.batch
            self.job = None
            self.batch = None
        self._conclude(batch, job)

    cdef int _conclude(self, Batch batch, DiskJob job) except -1:
        try:
            self._complete(batch, job)
        except Exception as error:
            self.steps.fail(error)
            self._end_turn()
            return 0
        self._end_turn()
        try:
            self.steps.after()
        except Exception as error:
            self.steps.fail(error)
        return 0

    cdef int _complete(self, Batch batch, DiskJob job) except -1:
        if job is None:
            self.steps.write(batch)
        else:
            self.steps.written(batch, job)
        self.steps.finish(batch)
        if job is None:
            self.steps.mark(batch)
        return 0

    def _ring(self):
        # The alarm: gives when to ring again, 0 for never.
        if not self.is_started:
            return 0
        self.wake()
        return self.interval_ns


cdef class _Exclusive:
    # The turn of a caller that wants no commit meanwhile.
    cdef Committer committer

    def __init__(self, Committer committer not None):
        self.committer = committer

    def __enter__(self):
        with self.committer.lock:
            self.committer.exclusive_claims += 1
        try:
            self.committer._take_turn(None, True)
        finally:
            with self.committer.lock:
                self.committer.exclusive_claims -= 1

    def __exit__(self, *exception):
        self.committer._end_turn()


def _set_alarm(Committer committer not None, int64_t delay_ns):
    # A store that is gone must not be kept for its alarm.
    found = weakref.ref(committer)

    def ring():
        again = found()
        delay_ns = 0 if again is None else again._ring()
        if delay_ns:
            ALARMS.call_later(delay_ns, ring)

    ALARMS.call_later(delay_ns, ring)
