"""Servers to compare: the real one and ours, each its own process with the same configuration."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from penstock.testing.servers import (
    PENSTOCK,
    command_of,
    find_reference,
    server_process,
)

REFERENCE = (find_reference(),)
OURS = tuple(command_of(PENSTOCK))


class Pair:
    """The real server and ours with one configuration."""

    def __init__(self, folder: Path, config: str = "") -> None:
        file = folder / "server.conf"
        file.write_text(config)
        with ExitStack() as stack:
            self.reference = stack.enter_context(server_process(REFERENCE, config=file))
            self.ours = stack.enter_context(server_process(OURS, config=file))
            self._stack = stack.pop_all()

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        assert "Traceback" not in self.ours.log, self.ours.log
