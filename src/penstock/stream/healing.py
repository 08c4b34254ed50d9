"""Bringing a stream back after a failed write: refuse at once, reopen, go on.

A store whose write or sync has failed writes nothing more: what reached the disk is not known. Who
waits for an acknowledgement is told so in the same turn of the loop, and so is who publishes from
then on; reading goes on. Meanwhile the directory is opened again in a thread, which verifies what
was acknowledged and cuts off what was not, and the stream goes on with what that finds. While the
disk is full messages are still refused, but can be removed; messages are taken again when there is
room. A failure that comes back is waited for longer and longer.

Invariant: nothing is acknowledged because a sync that failed was tried again: what it was about
was refused and is cut off. An episode has two lines in the log, its beginning and its end.

Thread: the event loop's; `reopen` and `try_room` of the store's `Reopening` run in others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import PenstockError, StoreReadOnly
from penstock.limits import REOPEN_INTERVAL_S_MAX, REOPEN_INTERVAL_S_MIN
from penstock.store.filestore import FileStore
from penstock.store.reopening import Reopening
from penstock.store.threads import REOPEN

if TYPE_CHECKING:
    from penstock.stream.stream import StreamHost

R = TypeVar("R")

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Healing:
    """Brings the store of one stream back; see the module."""

    def __init__(
        self, host: StreamHost, name: str, store: FileStore, on_reopened: Callable[[], None]
    ) -> None:
        """`on_reopened` is called when the store goes on with what was found on the disk."""
        self._host = host
        self._name = name
        self._store = store
        self._reopening = Reopening(store)
        self._on_reopened = on_reopened
        self._is_ill = False
        self._is_full = False
        self._delay_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._work: Future[Any] | None = None
        self._reopened: asyncio.Event | None = None
        self._is_stopped = False

    @property
    def is_needed(self) -> bool:
        """Whether the store has failed and was not reopened yet."""
        return self._reopening.has_failed

    def begin(self, error: BaseException) -> None:
        """Reopen the store, which has failed."""
        if self._is_stopped:
            return
        self._is_full = isinstance(error, OSError) and error.errno in _FULL
        if not self._is_ill:
            self._is_ill = True
            text = "messages are refused until it can be written again"
            self._host.log("ERR", f"JetStream stream {self._name!r}: write failed: {error}: {text}")
        if self._work is None and self._timer is None:
            self._plan(self._start_reopening)

    def on_durable(self) -> None:
        """Note that a commit has ended well."""
        if self._is_ill and self._store.failure is None:
            self._is_ill = False
            self._delay_s = 0.0
            self._host.log("WRN", f"JetStream stream {self._name!r}: can be written again")
            self._host.has_storage(self._name)

    async def removing(self, remove: Callable[[], Awaitable[R]]) -> R:
        """Remove messages, when the store can; raise StoreReadOnly.

        A removal has to be written, too. A disk that has no room for that is full by what can be
        built again (`Compaction.spare_room`), which is known at the second try.
        """
        await self._reopen()
        try:
            return await remove()
        except StoreReadOnly:
            await self._reopen()
            return await remove()

    async def _reopen(self) -> None:
        """Wait until a store that has failed was reopened, once, well or not."""
        if not self._reopening.has_failed or self._is_stopped:
            return
        if self._reopened is None:
            self._reopened = asyncio.Event()
        if self._timer is not None:
            self._timer.cancel()
            self._start_reopening()
        await self._reopened.wait()

    def stop(self) -> None:
        """Leave the store as it is; nothing works on it any more when this returns."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._work is not None:
            with contextlib.suppress(OSError, PenstockError):
                opened = self._work.result()
                if opened is not None:
                    opened[0].shut_down()
        self._tell_waiting()

    def _plan(self, step: Callable[[], None]) -> None:
        self._timer = self._host.loop.call_later(self._delay_s, step)
        longest_s = REOPEN_INTERVAL_S_MIN if self._is_full else REOPEN_INTERVAL_S_MAX
        self._delay_s = min(max(self._delay_s * 2, REOPEN_INTERVAL_S_MIN), longest_s)

    def _work_on(self, work: Callable[[], Any], then: Callable[[], None]) -> None:
        self._timer = None
        loop = self._host.loop
        self._work = REOPEN.submit(work)
        self._work.add_done_callback(lambda _: loop.call_soon_threadsafe(then))

    def _start_reopening(self) -> None:
        self._work_on(self._reopening.reopen, self._adopt)

    def _adopt(self) -> None:
        work, self._work = self._work, None
        if self._is_stopped or work is None:
            return
        try:
            opened = work.result()
        except (OSError, PenstockError) as error:
            self._is_full = isinstance(error, OSError) and error.errno in _FULL
            self._tell_waiting()
            self._plan(self._start_reopening)
            return
        reason = self._store.failure
        self._reopening.adopt(opened)
        if self._is_full:
            self._reopening.refuse_messages(reason)
        self._on_reopened()
        self._tell_waiting()
        if self._reopening.has_failed:
            self._plan(self._start_reopening)
        elif self._is_full:
            self._plan(self._try_room)

    def _tell_waiting(self) -> None:
        if self._reopened is not None:
            self._reopened.set()
            self._reopened = None

    def _try_room(self) -> None:
        self._work_on(self._reopening.try_room, self._go_on)

    def _go_on(self) -> None:
        work, self._work = self._work, None
        if self._is_stopped or work is None:
            return
        if self._reopening.has_failed:
            self._plan(self._start_reopening)
        elif work.exception() is not None:
            self._plan(self._try_room)
        else:
            self._reopening.refuse_messages(None)
