"""The server as a process: its log lines, its files, its signals and how it ends.

    INT, TERM   shut down          HUP    reload the configuration
    USR1        reopen the log     USR2   lame duck mode, then shut down

Log lines come in the words and the order of the reference server: harnesses wait for them. What
goes wrong without anybody to tell becomes one line of the log, never a traceback.

One process, one of these; it is given the arguments and the environment.
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
from penstock.config.flags import FlagResult
from penstock.config.load import Loaded, load
from penstock.config.options import SYSTEM_ACCOUNT, ServerOptions
from penstock.config.urls import join_host_port
from penstock.errors import CannotListen, CannotLog, PenstockError, UsageError
from penstock.net.listening import ListeningSockets
from penstock.server.lame_duck import let_clients_go
from penstock.server.log import Log
from penstock.server.ports_file import ports_path, urls, write_pid_file, write_ports_file
from penstock.server.server import Server
from penstock.server.signals import NAMES
from penstock.server.unavailable import without_effect
from penstock.server.version import GIT_COMMIT, GO_VERSION, NATS_VERSION

EXIT_DONE = 0
EXIT_FAILED = 1


def serve(
    flags: FlagResult, loaded: Loaded, environ: Mapping[str, str], sockets: ListeningSockets
) -> int:
    """Run a server until it is told to end; give the exit code. Signals may wait until it listens.

    Raises PenstockError or OSError for what shows before there is a log.
    """
    _allow_many_files()
    clock = SystemClock()
    try:
        log = Log(clock, loaded.options)
    except CannotLog as error:
        # Where there is no log yet, it is told as Go's own logger would.
        stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(clock.now_ns() // 10**9))
        os.write(2, f"{stamp} {error}\n".encode())
        return EXIT_FAILED
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        server = Server(loaded.options, clock=clock, log=log, sockets=sockets)
        server.config_digest = loaded.digest
        return runner.run(_Process(flags, environ, server, log).live())


def _allow_many_files() -> None:
    """Let the process open as many files as it may: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where even that is refused, it goes on with what it has.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Wish(Enum):
    """What is asked for without a signal."""

    RELOAD = auto()
    END = auto()


class _Process:
    def __init__(
        self, flags: FlagResult, environ: Mapping[str, str], server: Server, log: Log
    ) -> None:
        self._flags = flags
        self._environ = environ
        self._log = log
        self._server = server
        if flags.config_file:
            self._server.ask_reload = lambda: self._received.put_nowait(_Wish.RELOAD)
        self._received: asyncio.Queue[signal.Signals | _Wish] = asyncio.Queue()
        self._ports_file: Path | None = None

    async def live(self) -> int:
        """Start, do what signals ask for, and shut down."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_unhandled)
        self._announce_start()
        if not self._write_pid_file(self._server.options) or not await self._open():
            self._log.close()
            return EXIT_FAILED
        # All that was loaded and recovered stays, and need not be looked through ever again.
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
            from penstock.server.jetstream_resources import node_name

            log.line("INF", f"  Node:     {node_name(server.name)}")
        log.line("INF", f"  ID:       {server.server_id}")
        if server.identities.authenticator.has_plain_passwords:
            log.line("WRN", "Plaintext passwords detected, use nkeys or bcrypt")
        file = self._flags.config_file
        if file:
            log.line("INF", f"Using configuration file: {file} ({server.config_digest})")
        if server.options.operators:
            # Most servers have none, and start without loading what is about them.
            from penstock.server.operator_lines import operator_lines

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

    def _write_pid_file(self, options: ServerOptions) -> bool:
        if not options.pid_file:
            return True
        try:
            write_pid_file(options.pid_file)
        except OSError as error:
            reason = (error.strerror or "failed").lower()
            told = f"open {options.pid_file}: {reason}"
            self._log.line("FTL", f"Could not write pidfile: {told}")
            return False
        return True

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
        """Do what signals ask for until one says to end; give lame duck mode if it is on."""
        leaving: asyncio.Task[None] | None = None
        while True:
            received = await self._received.get()
            if isinstance(received, signal.Signals):
                self._log.line("INF", f'Trapped "{NAMES[received]}" signal')
            match received:
                case _Wish.END:
                    return leaving
                case signal.SIGINT:
                    return leaving
                case signal.SIGTERM if leaving is None:
                    return None
                case signal.SIGHUP | _Wish.RELOAD:
                    await self._reload()
                case signal.SIGUSR1:
                    self._reopen_log()
                case signal.SIGUSR2 if leaving is None:
                    leaving = tasks.create_task(self._leave(), name="lame duck")
                case _:
                    # Lame duck mode goes on.
                    pass

    async def _leave(self) -> None:
        await let_clients_go(self._server)
        self._received.put_nowait(_Wish.END)

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
        # Most servers are never told to; all would wait for it to be loaded.
        from penstock.server.reloading import take_options

        before = self._server.options
        try:
            if not self._flags.config_file:
                reason = "can only reload config when a file is provided using -c or --config"
                raise UsageError(reason)
            loaded = load(self._flags, self._environ)
            await take_options(self._server, loaded.options)
        except (PenstockError, OSError) as error:
            told = str(error).rstrip("\n")
            self._log.line("ERR", f"Failed to reload server configuration: {told}")
            return
        self._server.config_digest = loaded.digest
        options = self._server.options
        if options.pid_file != before.pid_file:
            self._write_pid_file(options)
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
    """Say that a port cannot be had, in Go's words."""
    where = join_host_port(error.host, max(error.port, 0))
    listening = f"listen tcp {where}: bind: {error.reason}"
    if error.reason == "invalid port":
        listening = f"listen tcp: address {error.port}: invalid port"
    if error.reason == "no such host":
        listening = f"listen tcp: lookup {error.host}: no such host"
    if error.what == "monitoring":
        return f"Can't start monitoring: can't listen to the monitor port: {listening}"
    return f'Error listening on port: {where}, "{listening}"'
