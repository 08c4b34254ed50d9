"""The server as a process: its log lines, its files, its signals and its exit code.

    INT, TERM   shut down          HUP    reload the configuration
    USR1        reopen the log     USR2   lame duck mode, then shut down

Log lines have the words and the order of the reference server: harnesses wait for them. An
exception that no caller handles becomes one line of the log, never a traceback.

Called by `command_line`, once in a process, with the arguments and the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import time
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any

import uvloop

from penstock.clock import SystemClock
from penstock.config.check import without_effect
from penstock.config.flags import FlagResult
from penstock.config.load import Loaded, load
from penstock.config.options.server import SYSTEM_ACCOUNT
from penstock.config.options.values import join_host_port
from penstock.errors import CannotListen, CannotLog, PenstockError, UsageError
from penstock.net.listener import ListeningSockets
from penstock.server.clients import enter_lame_duck_mode
from penstock.server.log import Log
from penstock.server.process_files import NAMES, ports_path, urls, write_pid_file, write_ports_file
from penstock.server.server import Server
from penstock.server.version import GIT_COMMIT, GO_VERSION, NATS_VERSION

EXIT_DONE = 0
EXIT_FAILED = 1

_RELOAD_FAILED = "Failed to reload server configuration"


def serve(
    flags: FlagResult,
    loaded: Loaded,
    environ: Mapping[str, str],
    sockets: ListeningSockets,
    pid_file_fault: str,
) -> int:
    """Run a server until a signal ends it; return the exit code. Held signals are handled then.

    `pid_file_fault` says why the pid file could not be written, if so: the server does not start.
    Raises PenstockError or OSError for faults that show before there is a log.
    """
    _allow_many_files()
    clock = SystemClock()
    try:
        log = Log(clock, loaded.options)
    except CannotLog as error:
        # Without a log, the line is written as Go's own logger would.
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(clock.now_ns() // 10**9))
        os.write(2, f"{stamp} {error}\n".encode())
        return EXIT_FAILED
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = Server(loaded.options, clock=clock, log=log, sockets=sockets)
        server.config_digest = loaded.digest
        return runner.run(_Process(flags, environ, server, log, pid_file_fault).live())


def _allow_many_files() -> None:
    """Raise the limit of open files to its maximum: each connection is a file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # If even that is refused, the limit stays as it is.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Request(Enum):
    """Requests that come without a signal."""

    RELOAD = auto()
    END = auto()


class _Process:
    def __init__(
        self,
        flags: FlagResult,
        environ: Mapping[str, str],
        server: Server,
        log: Log,
        pid_file_fault: str,
    ) -> None:
        self._flags = flags
        self._pid_file_fault = pid_file_fault
        self._environ = environ
        self._log = log
        self._server = server
        if flags.config_file:
            self._server.ask_reload = lambda: self._received.put_nowait(_Request.RELOAD)
        self._received: asyncio.Queue[signal.Signals | _Request] = asyncio.Queue()
        self._ports_file: Path | None = None

    async def live(self) -> int:
        """Start, obey signals, shut down; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_unhandled)
        self._announce_start()
        if self._pid_file_fault:
            self._log.line("FTL", f"Could not write pidfile: {self._pid_file_fault}")
        if self._pid_file_fault or not await self._open():
            self._log.close()
            return EXIT_FAILED
        # Everything that was loaded and recovered stays: the collector need not look at it again.
        gc.freeze()
        gc.enable()
        for number in NAMES:
            loop.add_signal_handler(number, self._received.put_nowait, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NAMES)
        self._announce_listening()
        self._write_ports_file()
        self._log.line("INF", "Server is ready")
        async with asyncio.TaskGroup() as tasks:
            leaving = await self._obey_signals(tasks)
            if leaving is not None:
                leaving.cancel()
        await self._shut_down()
        return EXIT_DONE

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        told = f"{type(error).__name__}: {error}" if error is not None else context.get("message")
        self._log.line("ERR", f"Internal error: {told}")

    # Start

    def _announce_start(self) -> None:
        server, log = self._server, self._log
        log.line("INF", "Starting nats-server")
        log.line("INF", f"  Version:  {NATS_VERSION}")
        log.line("INF", f"  Git:      [{GIT_COMMIT}]")
        log.line("DBG", f"  Go build: {GO_VERSION}")
        log.line("INF", f"  Name:     {server.name}")
        jetstream = server.options.jetstream
        if jetstream is not None and jetstream.enabled:
            # Only a server with streams loads what they need.
            from penstock.server.jetstream.resources import node_name

            log.line("INF", f"  Node:     {node_name(server.name)}")
        log.line("INF", f"  ID:       {server.server_id}")
        if server.identities.authenticator.has_plain_passwords:
            log.line("WRN", "Plaintext passwords detected, use nkeys or bcrypt")
        file = self._flags.config_file
        if file:
            log.line("INF", f"Using configuration file: {file} ({server.config_digest})")
        if server.options.operators:
            # Most servers have none, and start without loading what is about them.
            from penstock.server.startup_log import operator_lines

            for level, text in operator_lines(server.options, server.clock.now_ns() // 10**9):
                log.line(level, text)
        if (system := server.options.system_account_name) == SYSTEM_ACCOUNT:
            log.line("DBG", f'Created system account: "{system}"')
        for name in without_effect(server.options):
            log.line("WRN", f"{name} is not available yet, going on without it")

    async def _open(self) -> bool:
        try:
            await self._server.start()
        except CannotListen as error:
            self._log.line("FTL", _told(error))
            return False
        except UsageError as error:
            self._log.line("FTL", str(error))
            return False
        return True

    def _announce_listening(self) -> None:
        options = self._server.options
        websocket = options.websocket
        if websocket is not None and websocket.port:
            place = join_host_port(websocket.host, websocket.port)
            scheme = "ws" if websocket.tls is None else "wss"
            self._log.line("INF", f"Listening for websocket clients on {scheme}://{place}")
            if websocket.tls is None:
                unsafe = "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!"
                self._log.line("WRN", unsafe)
        where = join_host_port(options.host, options.port)
        self._log.line("INF", f"Listening for client connections on {where}")
        if options.proxy_protocol:
            self._log.line("INF", "PROXY protocol enabled for client connections")
        if options.tls is None:
            return
        how = "available" if options.allow_non_tls else "required"
        self._log.line("INF", f"TLS {how} for client connections")
        if options.tls.handshake_first_ns == 0:
            self._log.line(
                "WRN",
                'Clients that are not using "TLS Handshake First" option will fail to connect',
            )

    # Files

    def _write_ports_file(self) -> None:
        options = self._server.options
        if not options.ports_file_dir:
            return
        scheme = "nats" if options.tls is None else "tls"
        listening = {"nats": urls(scheme, options.host, options.port)}
        for scheme, port in (("http", options.http_port), ("https", options.https_port)):
            if port:
                listening["monitoring"] = urls(scheme, options.http_host, port)
        websocket = options.websocket
        if websocket is not None and websocket.port:
            scheme = "ws" if websocket.tls is None else "wss"
            listening["websocket"] = urls(scheme, websocket.host, websocket.port)
        try:
            self._ports_file = write_ports_file(options.ports_file_dir, listening)
        except OSError as error:
            path = ports_path(options.ports_file_dir)
            reason = f"open {path}: {(error.strerror or 'failed').lower()}"
            self._log.line("ERR", f"Error writing ports file ({path}): {reason}")

    def _remove_ports_file(self) -> None:
        if self._ports_file is not None:
            with contextlib.suppress(OSError):
                self._ports_file.unlink()
            self._ports_file = None

    # Signals

    async def _obey_signals(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None] | None:
        """Obey signals until one ends the server; return the task of lame duck mode, if any."""
        leaving: asyncio.Task[None] | None = None
        while True:
            received = await self._received.get()
            if isinstance(received, signal.Signals):
                self._log.line("INF", f'Trapped "{NAMES[received]}" signal')
            match received:
                case _Request.END:
                    return leaving
                case signal.SIGINT:
                    return leaving
                case signal.SIGTERM if leaving is None:
                    return None
                case signal.SIGHUP | _Request.RELOAD:
                    await self._reload()
                case signal.SIGUSR1:
                    self._reopen_log()
                case signal.SIGUSR2 if leaving is None:
                    leaving = tasks.create_task(self._leave(), name="lame duck")
                case _:
                    # Lame duck mode goes on.
                    pass

    async def _leave(self) -> None:
        await enter_lame_duck_mode(self._server)
        self._received.put_nowait(_Request.END)

    def _reopen_log(self) -> None:
        if not self._log.is_file:
            self._log.line("INF", "File log re-open ignored, not a file logger")
            return
        try:
            self._log.reopen()
        except OSError as error:
            self._log.line("ERR", f"File log re-open failed: {error}")
            return
        self._log.line("INF", "File log re-opened")

    async def _reload(self) -> None:
        # Most servers are never reloaded, and start without loading it.
        from penstock.server.reload import take_options

        before = self._server.options
        if not self._flags.config_file:
            reason = "can only reload config when a file is provided using -c or --config"
            self._log.line("ERR", f"{_RELOAD_FAILED}: {reason}")
            return
        try:
            loaded = load(self._flags, self._environ)
            await take_options(self._server, loaded.options)
        except (PenstockError, OSError) as error:
            told = str(error).rstrip("\n")
            self._log.line("ERR", f"{_RELOAD_FAILED}: {told}")
            return
        except Exception as error:  # noqa: BLE001 - nothing has changed: the server goes on
            self._log.line("ERR", f"{_RELOAD_FAILED}: {type(error).__name__}: {error}")
            return
        self._server.config_digest = loaded.digest
        options = self._server.options
        if options.pid_file != before.pid_file and (reason := write_pid_file(options.pid_file)):
            self._log.line("ERR", f"Failed to write pidfile: {reason}")
        if options.ports_file_dir != before.ports_file_dir:
            self._remove_ports_file()
            self._write_ports_file()
        self._log.line("INF", f"Reloaded server configuration ({loaded.digest})")

    # End

    async def _shut_down(self) -> None:
        self._log.line("INF", "Initiating Shutdown...")
        self._remove_ports_file()
        await self._server.stop()
        self._log.line("INF", "Server Exiting..")
        self._log.close()


def _told(error: CannotListen) -> str:
    """Return why a port cannot be bound, in Go's words."""
    where = join_host_port(error.host, max(error.port, 0))
    listening = f"listen tcp {where}: bind: {error.reason}"
    if error.reason == "invalid port":
        listening = f"listen tcp: address {error.port}: invalid port"
    if error.reason == "no such host":
        listening = f"listen tcp: lookup {error.host}: no such host"
    if error.what == "monitoring":
        return f"Can't start monitoring: can't listen to the monitor port: {listening}"
    return f'Error listening on port: {where}, "{listening}"'
