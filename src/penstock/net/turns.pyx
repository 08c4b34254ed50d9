"""How long the turns of the event loop last: the longest wait that the server itself causes.

A turn is what the loop does between two waits for events. While it lasts, no other client is
served. The loop is libuv's, within uvloop: a handle of libuv's own kind is called once a turn,
without the interpreter's lock, and computes the turn's length from the clock and from what libuv
says it has waited. That costs some 50 ns a turn and nothing per message.

Invariant: every turn counts that begins and ends while a loop is watched. A turn far too long is
told to `on_long`, in the loop's thread.

Time is not an argument here: what is measured is how long the machine took.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

import sys

from penstock.limits import TURN_LONG_NS, TURN_TOLD_NS

cdef extern from "dlfcn.h" nogil:
    enum:
        RTLD_LAZY
        RTLD_NOLOAD
    void* dlopen(const char* path, int how)
    void* dlsym(void* library, const char* name)

# A part of libuv's interface, as its documentation has it. The library is the one that uvloop is
# linked with, so its functions are looked up there.
cdef enum:
    METRICS_IDLE_TIME = 1  # UV_METRICS_IDLE_TIME
    PREPARE = 9  # UV_PREPARE

ctypedef void (*Callback)(void* handle) noexcept nogil
ctypedef int (*Configure)(void* loop, int option, ...) noexcept nogil
ctypedef int (*Init)(void* loop, void* handle) noexcept nogil
ctypedef int (*Start)(void* handle, Callback callback) noexcept nogil
ctypedef void (*Close)(void* handle, Callback callback) noexcept nogil
ctypedef void (*Unref)(void* handle) noexcept nogil
ctypedef size_t (*HandleSize)(int kind) noexcept nogil
ctypedef uint64_t (*IdleTime)(void* loop) noexcept nogil
ctypedef uint64_t (*Now)() noexcept nogil

cdef struct Libuv:
    Configure configure
    Init prepare_init
    Start prepare_start
    Close close
    Unref unref
    HandleSize handle_size
    IdleTime idle_time
    Now now

cdef Libuv libuv
cdef size_t handle_bytes = 0
cdef int64_t LONG = TURN_LONG_NS
cdef int64_t TOLD = TURN_TOLD_NS


cdef void* _function(void* library, const char* name) except NULL:
    cdef void* found = dlsym(library, name)
    if found == NULL:
        raise ImportError(f"uvloop has no {name.decode()}")
    return found


cdef size_t _look_up(str path) except 0:
    # Returns the bytes of a handle.
    cdef bytes encoded = path.encode()
    cdef void* library = dlopen(encoded, RTLD_LAZY | RTLD_NOLOAD)
    if library == NULL:
        raise ImportError(f"{path} is not loaded")
    libuv.configure = <Configure>_function(library, b"uv_loop_configure")
    libuv.prepare_init = <Init>_function(library, b"uv_prepare_init")
    libuv.prepare_start = <Start>_function(library, b"uv_prepare_start")
    libuv.close = <Close>_function(library, b"uv_close")
    libuv.unref = <Unref>_function(library, b"uv_unref")
    libuv.handle_size = <HandleSize>_function(library, b"uv_handle_size")
    libuv.idle_time = <IdleTime>_function(library, b"uv_metrics_idle_time")
    libuv.now = <Now>_function(library, b"uv_hrtime")
    return libuv.handle_size(PREPARE)


cdef inline void** _owner(void* handle) noexcept nogil:
    # The meter of a handle stands behind it: uvloop takes what is in it for one of its own objects.
    return <void**>(<char*>handle + handle_bytes)


@cython.final
cdef class TurnMeter:
    """Measures the turns of one loop; see the module."""

    cdef void* loop
    cdef void* handle
    cdef int64_t seen_ns, waited_ns
    cdef readonly int64_t turns, long_turns, longest_ns
    """Turns so far, those longer than `TURN_LONG_NS`, and the longest, in nanoseconds."""

    cdef object on_long

    def __init__(self, on_long not None):
        """`on_long` is called with the length of each turn longer than `TURN_TOLD_NS`."""
        self.on_long = on_long

    def watch(self, loop not None):
        """Measure the turns of a loop from now on, if it is one of uvloop's."""
        global handle_bytes
        # A server inside a program may run in another loop, and does not load uvloop then.
        uvloop = sys.modules.get("uvloop.loop")
        if self.handle != NULL or uvloop is None or not isinstance(loop, uvloop.Loop):
            return
        if handle_bytes == 0:
            handle_bytes = _look_up(uvloop.__file__)
        self.loop = PyCapsule_GetPointer(uvloop.libuv_get_loop_t_ptr(loop), NULL)
        self.handle = calloc(1, handle_bytes + sizeof(void*))
        if self.handle == NULL:
            raise MemoryError
        libuv.configure(self.loop, METRICS_IDLE_TIME)
        libuv.prepare_init(self.loop, self.handle)
        _owner(self.handle)[0] = <void*>self
        libuv.prepare_start(self.handle, _on_turn)
        # A loop with nothing else to do may end.
        libuv.unref(self.handle)
        self.seen_ns = 0

    def leave(self):
        """Measure no more; the loop must have a turn yet before it is closed."""
        if self.handle != NULL:
            _owner(self.handle)[0] = NULL
            libuv.close(self.handle, _on_closed)
            self.handle = NULL

    def __dealloc__(self):
        if self.handle != NULL:
            # It was not left, and the loop may be gone: its handle is not touched any more.
            _owner(self.handle)[0] = NULL

    def note(self, int64_t now_ns, int64_t waited_ns):
        """Note that a turn ends; `waited_ns` is how long the loop has waited in all its time."""
        cdef int64_t turn_ns = self._note(now_ns, waited_ns)
        if turn_ns > TOLD:
            self.on_long(turn_ns)

    cdef int64_t _note(self, int64_t now_ns, int64_t waited_ns) noexcept nogil:
        # Returns the turn's length, 0 for the first.
        cdef int64_t turn_ns = 0
        if self.seen_ns:
            turn_ns = now_ns - self.seen_ns - (waited_ns - self.waited_ns)
            self.turns += 1
            if turn_ns > LONG:
                self.long_turns += 1
            if turn_ns > self.longest_ns:
                self.longest_ns = turn_ns
        self.seen_ns = now_ns
        self.waited_ns = waited_ns
        return turn_ns


cdef void _on_turn(void* handle) noexcept nogil:
    cdef void* owner = _owner(handle)[0]
    cdef int64_t turn_ns
    if owner != NULL:
        turn_ns = (<TurnMeter>owner)._note(
            <int64_t>libuv.now(), <int64_t>libuv.idle_time((<TurnMeter>owner).loop)
        )
        if turn_ns > TOLD:
            _tell(owner, turn_ns)


cdef void _tell(void* owner, int64_t turn_ns) noexcept with gil:
    (<TurnMeter>owner).on_long(turn_ns)


cdef void _on_closed(void* handle) noexcept nogil:
    free(handle)
