"""Group commit: all that was appended meanwhile goes to the disk in one write and one sync."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from typing_extensions import disjoint_base

from penstock.store.active_block import ActiveBlock, Chunk
from penstock.store.commit_steps import CommitSteps
from penstock.store.disk_threads import DiskJob

@disjoint_base
class Batch:
    """What one commit puts on the disk: chunks in order, and what they make durable."""

    @property
    def last_seq(self) -> int:
        """The last sequence that it makes durable."""
        ...

    @property
    def last_time_ns(self) -> int:
        """When that was stored."""
        ...

    @property
    def ticket(self) -> int:
        """Its number among the batches of the store."""
        ...

    @property
    def current(self) -> ActiveBlock | None:
        """The block that is still being written when the batch is taken."""
        ...

    @property
    def chunks(self) -> list[tuple[ActiveBlock, Chunk]]:
        """The bytes, each with its block."""
        ...

    def __init__(
        self, last_seq: int, last_time_ns: int, ticket: int, current: ActiveBlock | None
    ) -> None: ...

@disjoint_base
class Committer:
    """Runs commits, one at a time."""

    @property
    def exclusive_claims(self) -> int:
        """How many wait for a time without commits."""
        ...

    def __init__(self, steps: CommitSteps) -> None: ...
    def set_interval(self, interval_ns: int) -> None:
        """Look for work at each interval, also where nobody asks; 0 for never."""
        ...

    def start(self) -> None:
        """Commit from now on whenever `wake` asks for it, and at each interval."""
        ...

    def stop(self) -> None:
        """Begin no more commits; one may be under way."""
        ...

    def wake(self) -> None:
        """Begin a commit, or have one begun after that which is under way."""
        ...

    def commit(self, *, unless: Callable[[], bool] | None = None) -> bool:
        """Commit what is pending in this thread; False where nothing was."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Let no commit run within a `with`; never under the store's lock."""
        ...

    def on_done(self, job: DiskJob) -> None:
        """Bring the commit to its end whose job is done, unless somebody has done so."""
        ...
