"""Threads that write and sync without the interpreter, for all stores of a process.

A `DiskJob` writes a file, syncs it if so wanted, and writes a short mark in another one that tells
of it. Behind what it writes it may leave room: zeros, into which later jobs write. Where a block is
full it goes on with the next one: it makes the file, writes and syncs it too, and at last syncs the
folder. It is handed to a few threads that never touch a Python object, so that the commits of many
streams are on the disk at the same time (where they share the file system's own commits) and none
of them waits for the interpreter's lock. A job that is done is put into the `DoneJobs` that it was
made for, whose owner is woken by a descriptor and finishes all that are there in one go. A caller
that needs a job's end waits for it, and does the work itself if no thread has begun it.

Invariant: a job's bytes are written whole, then synced, one file after the other, then the folder,
then its mark is written, or its error says why not; nothing is tried again after a failure; a job
is done once.

Any thread. The threads are started when there is work, and last as long as the process.
"""

import os

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.types cimport off_t
from posix.unistd cimport close, read, write

from penstock.store.log.active_block cimport Chunk

from penstock.errors import UsageError
from penstock.limits import DISK_THREADS_MAX

cdef extern from "Python.h":
    bytes PyUnicode_EncodeFSDefault(object text)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    ctypedef unsigned long pthread_t
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_broadcast(pthread_cond_t* condition)
    int pthread_attr_init(pthread_attr_t* attributes)
    int pthread_attr_destroy(pthread_attr_t* attributes)
    int pthread_attr_setstacksize(pthread_attr_t* attributes, size_t size)
    int pthread_attr_setdetachstate(pthread_attr_t* attributes, int state)
    int pthread_create(
        pthread_t* thread, const pthread_attr_t* attributes,
        void* (*run)(void*) noexcept nogil, void* argument,
    )
    int pthread_setname_np(pthread_t thread, const char* name)
    int PTHREAD_CREATE_DETACHED

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t* signals)
    int pthread_sigmask(int how, const sigset_t* signals, sigset_t* old)
    int SIG_SETMASK

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int count, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* descriptors, unsigned long count, int timeout_ms)
    int POLLIN

cdef enum:
    # A thread only calls the system. The calls of a simulated disk run Python, which needs about as
    # much; memory is taken for the pages that are touched alone.
    STACK_BYTES = 1048576

# The queue and its length, how many threads there are and how many of them wait for work, and how
# many others wait for a job's end.
cdef pthread_mutex_t queue_mutex
cdef pthread_cond_t queue_has_work
cdef pthread_cond_t job_is_done
cdef Task* first_queued = NULL
cdef Task* last_queued = NULL
cdef int queued = 0
cdef int threads = 0
cdef int idle_threads = 0
cdef int waiters = 0
cdef int threads_max = DISK_THREADS_MAX
cdef uint8_t[65536] zeros

pthread_mutex_init(&queue_mutex, NULL)
pthread_cond_init(&queue_has_work, NULL)
pthread_cond_init(&job_is_done, NULL)


cdef inline int64_t _now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef void _write(
    Task* task, int fd, const uint8_t* data, size_t size, uint64_t offset
) noexcept nogil:
    # Write all of it, or note why not; nothing after an error.
    cdef size_t done = 0
    cdef ssize_t written
    while done < size and not task.error:
        written = task.calls.pwrite(fd, data + done, size - done, <off_t>(offset + done))
        if written > 0:
            done += written
        elif written == 0:
            task.error = EIO
        elif errno != EINTR:
            task.error = errno


cdef void _make_room(Task* task) noexcept nogil:
    # Write zeros behind the data. A disk that is too full for them may do for the data.
    cdef Part* last = &task.parts[task.count - 1]
    cdef size_t wanted = task.room
    cdef uint64_t offset = last.offset + last.size
    cdef ssize_t written
    task.room = 0
    while task.room < wanted:
        written = task.calls.pwrite(
            last.fd, zeros, min(wanted - task.room, sizeof(zeros)), <off_t>(offset + task.room)
        )
        if written > 0:
            task.room += written
        elif written == 0 or errno != EINTR:
            return


cdef void _do_part(Task* task, Part* part, bint is_last) noexcept nogil:
    if part.path != NULL:
        part.fd = task.calls.create(task.root, part.path)
        while part.fd < 0 and errno == EINTR:
            part.fd = task.calls.create(task.root, part.path)
        if part.fd < 0:
            task.error = errno
            return
    _write(task, part.fd, part.data, part.size, part.offset)
    if is_last and task.room and not task.error:
        _make_room(task)
    if task.syncs and not task.error and task.calls.fdatasync(part.fd) != 0:
        task.error = errno


cdef void _do(Task* task) noexcept nogil:
    cdef int64_t started_ns = _now_ns()
    task.reached = 0
    while task.reached < task.count:
        _do_part(task, &task.parts[task.reached], task.reached == task.count - 1)
        if task.error:
            break
        task.reached += 1
    if task.folder != NULL and not task.error:
        task.error = task.calls.sync_folder(task.root, task.folder)
    task.took_ns = _now_ns() - started_ns
    _write(task, task.mark_fd, task.mark, task.mark_size, task.mark_offset)


cdef void _link(Task* task) noexcept nogil:
    global first_queued, last_queued, queued
    task.state = QUEUED
    task.before = last_queued
    task.after = NULL
    if last_queued == NULL:
        first_queued = task
    else:
        last_queued.after = task
    last_queued = task
    queued += 1


cdef void _unlink(Task* task) noexcept nogil:
    global first_queued, last_queued, queued
    task.state = UNDER_WAY
    queued -= 1
    if task.before != NULL:
        task.before.after = task.after
    else:
        first_queued = task.after
    if task.after != NULL:
        task.after.before = task.before
    else:
        last_queued = task.before
    task.before = task.after = NULL


cdef void _hand_over(Task* task) noexcept nogil:
    # Put a finished job where its owner looks, who is woken for the first one.
    cdef DoneList* done = task.done
    cdef uint64_t one = 1
    cdef bint is_first = done.first == NULL
    task.after = NULL
    if is_first:
        done.first = task
    else:
        done.last.after = task
    done.last = task
    if is_first:
        # It fails only where as many wake-ups wait as the counter holds, and one is enough.
        write(done.fd, &one, sizeof(one))


cdef void* _work(void* _) noexcept nogil:
    global idle_threads
    cdef Task* task
    pthread_mutex_lock(&queue_mutex)
    while True:
        while first_queued == NULL:
            idle_threads += 1
            pthread_cond_wait(&queue_has_work, &queue_mutex)
            idle_threads -= 1
        task = first_queued
        _unlink(task)
        pthread_mutex_unlock(&queue_mutex)
        _do(task)
        pthread_mutex_lock(&queue_mutex)
        task.state = DONE
        _hand_over(task)
        if waiters:
            pthread_cond_broadcast(&job_is_done)
    return NULL


cdef int _start_thread() noexcept nogil:
    # 0, or the system's error number. Signals are for the threads that run Python.
    global threads
    cdef pthread_t thread
    cdef pthread_attr_t attributes
    cdef sigset_t every, before
    cdef int error
    pthread_attr_init(&attributes)
    pthread_attr_setstacksize(&attributes, STACK_BYTES)
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
    sigfillset(&every)
    pthread_sigmask(SIG_SETMASK, &every, &before)
    error = pthread_create(&thread, &attributes, _work, NULL)
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)
    if not error:
        threads += 1
        pthread_setname_np(thread, b"penstock-disk")
    return error


cdef class DoneJobs:
    """Jobs that are done and wait for their owner; see the module."""

    def __cinit__(self):
        self.list.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.list.fd < 0:
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        if self.list.fd >= 0:
            close(self.list.fd)

    def fileno(self):
        """Return the descriptor that is readable when `reap` has something to do."""
        return self.list.fd

    def wait(self):
        """Wait until `reap` has something to do."""
        cdef pollfd watched
        watched.fd = self.list.fd
        watched.events = POLLIN
        with nogil:
            poll(&watched, 1, -1)

    def reap(self):
        """Finish every job that is done."""
        cdef uint64_t count
        cdef Task* task
        cdef Task* after
        cdef DiskJob job
        cdef list jobs = []
        read(self.list.fd, &count, sizeof(count))
        pthread_mutex_lock(&queue_mutex)
        task = self.list.first
        self.list.first = self.list.last = NULL
        pthread_mutex_unlock(&queue_mutex)
        while task != NULL:
            after = task.after
            job = <DiskJob>task.job
            jobs.append(job)
            Py_DECREF(job)
            task = after
        for job in jobs:
            job.finish(job)


cdef class DiskJob:
    """What one commit writes and syncs; see the module."""

    def __init__(self, *, bint syncs):
        """Sync what is written if `syncs`."""
        self.chunks = []
        self.paths = []
        self.encoded = []
        self.task.syncs = syncs
        self.task.job = <void*>self

    cdef Part* _add(self, str path, SystemCalls calls, Chunk chunk) except NULL:
        cdef Part* part = &self.task.parts[self.task.count]
        if self.task.count == PARTS_MAX:
            raise UsageError(f"a job of more than {PARTS_MAX} files")
        if self.calls is not None and calls is not self.calls:
            raise UsageError("a job on two file systems")
        self.calls = calls
        self.task.calls = &calls.table
        self.chunks.append(chunk)
        self.paths.append(path)
        part.path = NULL
        part.data = chunk.data
        part.size = chunk.size
        part.offset = chunk.start
        self.task.count += 1
        return part

    def write(self, file, Chunk chunk not None):
        """Write a chunk to an open file, after what was added before."""
        self._add(file.path, file.calls, chunk).fd = file.call_fd()

    def create(self, root, str path not None, Chunk chunk not None):
        """Make a file in the same folder as others, and write a chunk to it."""
        cdef bytes encoded = PyUnicode_EncodeFSDefault(path)
        cdef Part* part = self._add(path, root.calls, chunk)
        self.encoded.append(encoded)
        part.fd = -1
        part.path = encoded
        self.root = root
        self.folder = PyUnicode_EncodeFSDefault(os.path.dirname(path))
        self.task.root = root.call_fd()
        self.task.folder = self.folder

    def created(self):
        """Return the open file of each part that has made one, once it is done; else None.

        They are the caller's from now on: it asks once.
        """
        cdef int place
        cdef list files = []
        for place in range(self.task.count):
            if self.task.parts[place].path == NULL or self.task.parts[place].fd < 0:
                files.append(None)
            else:
                files.append(self.root.opened(self.paths[place], self.task.parts[place].fd))
        return files

    def mark(self, file, uint64_t offset, bytes data not None):
        """Write something short to another file too, after the sync."""
        cdef const uint8_t* start = data
        if len(data) > MARK_BYTES_MAX:
            raise UsageError(f"a mark of {len(data)} bytes")
        if file.calls is not self.calls:
            raise UsageError("a mark on another file system")
        self.task.mark_fd = file.call_fd()
        self.task.mark_offset = offset
        self.task.mark_size = len(data)
        memcpy(self.task.mark, start, len(data))

    def leave_room(self, size_t size):
        """Write zeros behind the chunk too, as many as the disk takes."""
        self.task.room = size

    @property
    def room(self):
        """How many zeros are to be written; once it is done, how many were."""
        return self.task.room

    @property
    def syncs(self):
        """Whether it is a sync too."""
        return self.task.syncs

    @property
    def seconds(self):
        """How long it took, once it is done."""
        return self.task.took_ns / 1e9

    def check(self):
        """Raise OSError where the job, which is done, has failed."""
        if self.task.error:
            path = self.paths[min(self.task.reached, self.task.count - 1)]
            raise OSError(self.task.error, os.strerror(self.task.error), path)

    def do(self):
        """Do it here and now."""
        with nogil:
            _do(&self.task)
        self.task.state = DONE

    def submit(self, finish, DoneJobs done_jobs not None):
        """Have a disk thread do it.

        `finish(job)` is called when `done_jobs` are reaped; it raises nothing.
        """
        cdef int error = 0
        cdef bint has_idle
        self.finish = finish
        self.done_jobs = done_jobs
        self.task.done = &done_jobs.list
        Py_INCREF(self)
        pthread_mutex_lock(&queue_mutex)
        _link(&self.task)
        has_idle = queued <= idle_threads
        if not has_idle and threads < threads_max:
            error = _start_thread()
        if not error or threads:
            pthread_mutex_unlock(&queue_mutex)
            if has_idle:
                # A thread that is woken with the mutex held would have to wait for that again.
                pthread_cond_signal(&queue_has_work)
            return
        # No thread could be started and none is there. The interpreter lock is never waited for
        # with the queue's mutex held: others take them the other way round.
        _unlink(&self.task)
        with nogil:
            pthread_mutex_unlock(&queue_mutex)
            _do(&self.task)
            pthread_mutex_lock(&queue_mutex)
            self.task.state = DONE
            _hand_over(&self.task)
            if waiters:
                pthread_cond_broadcast(&job_is_done)
            pthread_mutex_unlock(&queue_mutex)

    def wait(self):
        """Wait until it is done, or do it; `finish` is left to the caller or to `reap`."""
        global waiters
        cdef bint is_ours
        with nogil:
            pthread_mutex_lock(&queue_mutex)
            is_ours = self.task.state == QUEUED
            if is_ours:
                _unlink(&self.task)
                pthread_mutex_unlock(&queue_mutex)
                _do(&self.task)
                pthread_mutex_lock(&queue_mutex)
                self.task.state = DONE
                if waiters:
                    pthread_cond_broadcast(&job_is_done)
            else:
                waiters += 1
                while self.task.state != DONE:
                    pthread_cond_wait(&job_is_done, &queue_mutex)
                waiters -= 1
            pthread_mutex_unlock(&queue_mutex)
        if is_ours:
            Py_DECREF(self)
