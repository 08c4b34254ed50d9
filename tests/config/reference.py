"""What the real server says of a command line or a configuration file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.testing.servers import find_reference

_PLACE = re.compile(r"[\w.-]+\.conf:\d+:\d+")
_RELOADED = re.compile(r"\[(?:INF|ERR)\] (Reloaded server configuration|Failed to reload .*)")
_READY = "Server is ready"


@dataclass(frozen=True, slots=True)
class Answer:
    """How a run ended and what it printed."""

    exit_code: int
    output: str
    errors: str

    @property
    def places(self) -> set[str]:
        """The places that the errors name."""
        return set(_PLACE.findall(self.errors))


def ask(*arguments: str, environ: dict[str, str] | None = None) -> Answer:
    """Run the real server until it ends by itself."""
    done = subprocess.run(
        [find_reference(), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=30,
        env=os.environ | (environ or {}),
    )
    return Answer(done.returncode, done.stdout, done.stderr)


@contextmanager
def running(config: Path) -> Iterator[Reloads]:
    """Run the real server on a file until the block is left."""
    process = subprocess.Popen(
        [find_reference(), "-c", str(config)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if _READY in line:
                break
        yield Reloads(process)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


class Reloads:
    """A running server that can be told to read its file again."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def reload(self) -> str:
        """Reload, and give what the server says in the end."""
        self._process.send_signal(signal.SIGHUP)
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := _RELOADED.search(line):
                return found[1]
        raise AssertionError("the server ended")
