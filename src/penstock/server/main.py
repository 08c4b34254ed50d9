"""The executable `penstock-server`, a replacement of `nats-server`.

    penstock-server -c server.conf

Test suites of clients start hundreds of servers, so as little as possible is loaded. The version is
answered here, everything else by `command_line`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from penstock.server.version import VERSION_LINE

_VERSION_FLAGS = frozenset({"-v", "--v", "-version", "--version"})


def main() -> None:
    """Run with the process's own arguments, and exit."""
    # An interrupt before the server can listen to it ends the process, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _forget_ports_file(sys.argv[1:])
    # What is loaded from here on stays as long as the process; `process` turns it on again.
    gc.disable()
    sys.exit(run(sys.argv[1:], os.environ))


def _forget_ports_file(arguments: Sequence[str]) -> None:
    """Remove the ports file that an earlier process with the same number has left.

    A harness looks for the file as soon as it has the number, long before anything is loaded; a
    folder that only the configuration names is looked at when that is read.
    """
    words = [word for each in arguments for word in each.split("=", 1)]
    for flag, folder in pairwise(words):
        if flag in ("-ports_file_dir", "--ports_file_dir"):
            # There is none, as almost always.
            with contextlib.suppress(OSError):
                Path(folder, f"nats-server_{os.getpid()}.ports").unlink()


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a command line asks for; return the exit code."""
    if len(arguments) == 1 and arguments[0] in _VERSION_FLAGS:
        sys.stdout.write(VERSION_LINE)
        return 0
    from penstock.server.command_line import obey

    return obey(arguments, environ)


if __name__ == "__main__":
    main()
