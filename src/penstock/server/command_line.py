"""What the command line of `penstock-server` asks for, done: run, check, signal, help, version.

Exit codes and what is printed where are those of the reference server: errors begin with
`nats-server:` on standard error and end with code 1; a flag that does not exist shows the help and,
odd as it is, ends with code 0, since that is what scripts meet there too.

Called by `main`, once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence

from penstock.config.flags import Action, FlagResult, help_text, parse_flags, tls_help_text
from penstock.config.load import check_config, load
from penstock.config.options import ServerOptions
from penstock.errors import ConfigError, PenstockError, UsageError
from penstock.net.listening import ListeningSockets
from penstock.server.version import VERSION_LINE

EXIT_DONE = 0
EXIT_FAILED = 1

SIGNALS_HELD = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that come before the server listens to them wait: whoever finds the port open may send
them, and they would end the process. Those that are meant to end it do, at any time."""


def obey(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a command line asks for; give the exit code."""
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
            # Each action loads only what it needs.
            from penstock.server.signals import send_signal

            assert flags.signal is not None
            send_signal(flags.signal.command, flags.signal.target)
        case Action.RUN:
            loaded = load(flags, environ)
            _tell("".join(f"{warning}\n" for warning in loaded.warnings))
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS_HELD)
            sockets = _bind_ahead(loaded.options)
            from penstock.server.process import serve

            return serve(flags, loaded, environ, sockets)
    return EXIT_DONE


def _bind_ahead(options: ServerOptions) -> ListeningSockets:
    """Let clients connect from now on; the last port last, for by then all are open."""
    sockets = ListeningSockets()
    sockets.bind_ahead(options.http_host, options.http_port)
    sockets.bind_ahead(options.http_host, options.https_port)
    if options.websocket is not None:
        sockets.bind_ahead(options.websocket.host, options.websocket.port)
    sockets.bind_ahead(options.host, options.port)
    return sockets
