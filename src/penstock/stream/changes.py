"""A change that is in force, and on its way to stable storage.

Whoever makes a change returns a `Change`; whoever tells a client of it waits for that first.

Thread: the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Done = Callable[[OSError | None], None]
"""Called on the event loop when a change is on stable storage, or with the reason why it is not."""


class Change:
    """One change, or several that are written together."""

    __slots__ = ("_done", "_error", "_is_over")

    def __init__(self) -> None:
        self._done: list[Done] = []
        self._is_over = False
        self._error: OSError | None = None

    def then(self, done: Done) -> None:
        """Have a function called when it is on stable storage, or cannot be; now if it is over."""
        if self._is_over:
            done(self._error)
        else:
            self._done.append(done)

    def on_success(self, act: Callable[[], None]) -> None:
        """Have a function called when it is on stable storage."""
        self.then(lambda error: act() if error is None else None)

    def on_failure(self, act: Callable[[OSError], None]) -> None:
        """Have a function called if it cannot be put on stable storage."""
        self.then(lambda error: None if error is None else act(error))

    async def wait(self) -> None:
        """Wait until it is on stable storage; raise OSError if it cannot be."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(error: OSError | None) -> None:
            if waiting.done():
                return
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

        self.then(wake)
        await waiting

    def end(self, error: OSError | None) -> None:
        """Call all that wait."""
        self._is_over, self._error = True, error
        waiting, self._done = self._done, []
        for done in waiting:
            done(error)


def both(one: Change, other: Change) -> Change:
    """Return a change that is on stable storage when two others are."""
    change = Change()
    errors: list[OSError | None] = []

    def ended(error: OSError | None) -> None:
        errors.append(error)
        if len(errors) == 2:
            change.end(errors[0] or errors[1])

    one.then(ended)
    other.then(ended)
    return change
