"""A server inside another program: `penstock.Server`.

    async with penstock.Server() as server:
        client = await nats.connect(server.url)

The server runs in the running event loop, asyncio's own or uvloop; there may be several. By default
it listens on a free port of the loopback. It handles no signal, ends no process, and writes its log
through `logging`, under the name "penstock.server".

Thread: the event loop's.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from penstock.clock import Clock
from penstock.config.flags import FlagValue
from penstock.config.load import Loaded, load_for_program
from penstock.config.options.server import ServerOptions
from penstock.errors import UsageError
from penstock.server.clients import enter_lame_duck_mode
from penstock.server.log import LogChange, LogOptions
from penstock.server.process_files import local_url
from penstock.server.reload import take_options
from penstock.server.server import Server

BASE = ServerOptions(host="127.0.0.1", port=-1)
"""The options without any configuration: only the loopback, so that nothing is exposed."""

_LEVELS = {
    "TRC": logging.DEBUG,
    "DBG": logging.DEBUG,
    "INF": logging.INFO,
    "WRN": logging.WARNING,
    "ERR": logging.ERROR,
    "FTL": logging.CRITICAL,
}


class EmbeddedServer:
    """A server in the running event loop; see the module.

    `config` is a configuration file of nats-server's kind, `settings` is text in its language
    instead of a file, and the other arguments count over both. `port` -1 is any free port; so is
    `monitor_port`, and without one there is no monitoring.
    """

    def __init__(
        self,
        *,
        config: str | os.PathLike[str] | None = None,
        settings: str = "",
        host: str | None = None,
        port: int | None = None,
        monitor_port: int | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        """Read the configuration; raise ConfigError or UsageError if it cannot be used."""
        if config is not None and settings:
            raise UsageError("give a configuration file or settings, not both")
        wanted: dict[str, FlagValue | None] = {
            "config_file": None if config is None else os.fspath(config),
            "host": host,
            "port": port,
            "http_port": monitor_port,
        }
        self._values = {name: value for name, value in wanted.items() if value is not None}
        self._environ = environ
        self._log = ProgramLog(logger or logging.getLogger("penstock.server"))
        loaded = self._load(settings)
        self._server = Server(loaded.options, clock=clock, log=self._log)
        self._server.config_digest = loaded.digest

    def _load(self, settings: str) -> Loaded:
        loaded = load_for_program(self._values, self._environ, base=BASE, text=settings)
        for warning in loaded.warnings:
            self._log.line("WRN", warning)
        return loaded

    # Where it is

    @property
    def host(self) -> str:
        """The address that clients connect to."""
        return self._server.options.host

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._server.port

    @property
    def url(self) -> str:
        """The URL for clients on this machine."""
        return self._server.url

    @property
    def monitor_url(self) -> str | None:
        """The URL of the monitoring pages, or None without monitoring."""
        options = self._server.options
        for scheme, port in (("http", options.http_port), ("https", options.https_port)):
            if port:
                return local_url(scheme, options.http_host, port) + options.http_base_path
        return None

    @property
    def websocket_url(self) -> str | None:
        """The URL for WebSocket clients, or None without a WebSocket listener."""
        websocket = self._server.options.websocket
        if websocket is None or not websocket.port:
            return None
        scheme = "ws" if websocket.no_tls or websocket.tls is None else "wss"
        return local_url(scheme, websocket.host, websocket.port)

    # Living

    async def start(self) -> None:
        """Start listening; raise CannotListen if a port cannot be bound."""
        await self._server.start()
        self._log.line("INF", f"Listening for client connections on {self.url}")

    async def reload(self, settings: str | None = None) -> None:
        """Read the configuration file again, or use other settings.

        Raises ConfigError, UsageError or OSError, and then nothing has changed.
        """
        has_file = "config_file" in self._values
        if has_file != (settings is None):
            raise UsageError(
                "its configuration is a file, which is read again"
                if has_file
                else "it has no configuration file: give new settings"
            )
        loaded = self._load(settings or "")
        await take_options(self._server, loaded.options)
        self._server.config_digest = loaded.digest

    async def lame_duck(self) -> None:
        """Send the clients away, a few at a time, and then close."""
        await enter_lame_duck_mode(self._server)
        await self.close()

    async def close(self) -> None:
        """Close the listeners and every connection; closing twice does nothing."""
        await self._server.stop()

    async def __aenter__(self) -> EmbeddedServer:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close."""
        await self.close()


class ProgramLog:
    """The server's lines as records of `logging`, which decides what becomes of them."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def line(self, level: str, text: str) -> None:
        """Log a line."""
        self._logger.log(_LEVELS[level], "%s", text)

    def prepare(self, options: LogOptions) -> LogChange:
        """Return a change that does nothing: where lines go is the program's choice."""
        return LogChange(lambda: None, lambda: None)
