"""The executable `penstock-server`, a replacement of `nats-server`.

    penstock-server -c server.conf

Test suites of clients start hundreds of servers, so as little as possible is loaded. The version is
answered here, everything else by `command_line`.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from penstock.server.version import VERSION_LINE

_VERSION_FLAGS = frozenset({"-v", "--v", "-version", "--version"})


def main() -> None:
    """Run with the process's own arguments, and exit."""
    # An interrupt before the server can listen to it ends the process, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is loaded from here on stays as long as the process; `process` turns it on again.
    gc.disable()
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a command line asks for; return the exit code."""
    if len(arguments) == 1 and arguments[0] in _VERSION_FLAGS:
        sys.stdout.write(VERSION_LINE)
        return 0
    from penstock.server.command_line import obey

    return obey(arguments, environ)


if __name__ == "__main__":
    main()
