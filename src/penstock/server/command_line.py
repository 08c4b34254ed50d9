"""Does what the command line of `penstock-server` asks: run, check, signal, help, version.

Exit codes and output are those of the reference server. Errors begin with `nats-server:` on
standard error, with code 1. An unknown flag shows the help and ends with code 0, as scripts expect
from the reference server.

Called by `main`, once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence

from penstock.config.flags import Action, FlagResult, help_text, parse_flags, tls_help_text
from penstock.config.load import check_config, load
from penstock.config.options.server import ServerOptions
from penstock.errors import ConfigError, PenstockError, UsageError
from penstock.net.listener import ListeningSockets
from penstock.server.process_files import forget_ports_file, send_signal, write_pid_file
from penstock.server.version import VERSION_LINE

EXIT_DONE = 0
EXIT_FAILED = 1

SIGNALS_HELD = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that wait until the server handles them: a client that finds the port open may send
them, and they would end the process. Those that are meant to end it do, at any time."""


def obey(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a command line asks for; return the exit code."""
    try:
        flags = parse_flags(arguments)
    except UsageError as error:
        _tell(f"{error}\n")
        sys.stdout.write(f"{help_text()}\n")
        return EXIT_DONE
    except ConfigError as error:
        return _fail(str(error))
    try:
        return _act(flags, environ)
    except PenstockError as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(f"open {error.filename}: {(error.strerror or 'failed').lower()}")


def _fail(reason: str) -> int:
    _tell(f"nats-server: {reason}\n")
    return EXIT_FAILED


def _tell(text: str) -> None:
    # There is none where it was closed before the process began.
    if sys.stderr is not None:
        sys.stderr.write(text)


def _act(flags: FlagResult, environ: Mapping[str, str]) -> int:
    match flags.action:
        case Action.VERSION:
            sys.stdout.write(VERSION_LINE)
        case Action.HELP:
            sys.stdout.write(f"{help_text()}\n")
        case Action.HELP_TLS:
            sys.stdout.write(f"{tls_help_text()}\n")
        case Action.CHECK:
            _tell(f"nats-server: {check_config(flags, environ)}\n")
        case Action.SIGNAL:
            assert flags.signal is not None
            send_signal(flags.signal.command, flags.signal.target)
        case Action.RUN:
            loaded = load(flags, environ)
            _tell("".join(f"{warning}\n" for warning in loaded.warnings))
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_HELD)
            # Before a port opens: whoever waits for the port reads these files next.
            forget_ports_file(loaded.options.ports_file_dir)
            pid_file_fault = write_pid_file(loaded.options.pid_file)
            sockets = ListeningSockets() if pid_file_fault else _bind_ahead(loaded.options)
            from penstock.server.process import serve

            return serve(flags, loaded, environ, sockets, pid_file_fault)
    return EXIT_DONE


def _bind_ahead(options: ServerOptions) -> ListeningSockets:
    """Bind all ports, so that clients can connect while the server loads; the client port last."""
    sockets = ListeningSockets()
    sockets.bind_ahead(options.http_host, options.http_port)
    sockets.bind_ahead(options.http_host, options.https_port)
    if options.websocket is not None:
        sockets.bind_ahead(options.websocket.host, options.websocket.port)
    sockets.bind_ahead(options.host, options.port)
    return sockets
