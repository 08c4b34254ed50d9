"""The reference server and ours side by side, with clients that do the same on both.

`Watched` is one running server with a monitoring port; `Client` speaks the protocol in plain words
and waits for answers, never for time. `comparable` makes two answers comparable: what must differ
between two servers (ids, times, ports, memory) becomes its kind, and lists without an order of
their own are sorted. Names, their order, kinds and all other values stay as they are.
"""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.testing.servers import PENSTOCK, REFERENCE, ServerProcess

CONFIG = """
http: "127.0.0.1:-1"
server_name: alpha
accounts {
  SYS { users [ {user: admin, password: admin-secret} ] }
  A { users [
    {user: a, password: a-secret}
    {user: limited, password: limited-secret, permissions: {
      publish: ["x.>", "$SYS.REQ.USER.INFO"]
      subscribe: {allow: ["y.>", "_INBOX.>"], deny: "y.z"}
      allow_responses: true
    }}
  ] }
  B { users [ {user: b, password: b-secret} ] }
}
system_account: SYS
"""
SECRETS = ("admin-secret", "a-secret", "limited-secret", "b-secret", "wrong-secret")

DIFFERENT = frozenset({
    "server_id", "id", "now", "start", "stop", "time", "timestamp", "last_activity", "rtt",
    "uptime", "idle", "port", "http_port", "mem", "cpu", "git_commit", "go", "config_load_time",
    "update_time", "seq", "pending_bytes", "num_cache", "num_matches", "cache_hit_rate",
    "max_fanout", "avg_fanout",
})  # fmt: skip
"""Fields whose values differ between any two servers; only their kind is compared."""

UNORDERED = frozenset({
    "accounts", "account_statz", "imports", "exports", "subscriptions_list",
    "subscriptions_list_detail", "allow", "deny",
})  # fmt: skip


class Client:
    """One client connection."""

    def __init__(self, port: int, user: str, password: str, name: str = "") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        self._stream.readline()
        options = {
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True,
            "protocol": 1, "lang": "test", "version": "1.0", "name": name, "user": user,
            "pass": password,
        }  # fmt: skip
        self._send(f"CONNECT {json.dumps(options)}\r\n")
        self.infos: list[dict[str, Any]] = []
        self._waiting: list[tuple[str, bytes]] = []

    def _send(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def flush(self) -> None:
        """Wait until the server has seen everything; ConnectionError where it closed."""
        self._send("PING\r\n")
        while (message := self._next()) is not None:
            self._waiting.append(message)

    def _next(self) -> tuple[str, bytes] | None:
        """Return the next message; None for the answer to a PING."""
        while True:
            line = self._stream.readline().decode()
            words = line.split()
            if not words or words[0] == "-ERR":
                raise ConnectionError(line)
            if words[0] == "PONG":
                return None
            if words[0] == "PING":
                self._send("PONG\r\n")
            elif words[0] == "INFO":
                self.infos.append(json.loads(line[5:]))
            elif words[0] in ("MSG", "HMSG"):
                return words[1], self._stream.read(int(words[-1]) + 2)[:-2]

    def subscribe(self, subject: str, sid: int, queue: str = "") -> None:
        """Add a subscription."""
        self._send(f"SUB {subject} {queue} {sid}\r\n")

    def publish(self, subject: str, body: str = "", reply: str = "") -> None:
        """Publish."""
        self._send(f"PUB {subject} {reply} {len(body)}\r\n{body}\r\n")

    def message(self) -> tuple[str, bytes]:
        """Wait for the next message."""
        if self._waiting:
            return self._waiting.pop(0)
        while (message := self._next()) is None:
            pass
        return message

    def ask(self, subject: str, body: str = "") -> bytes:
        """Ask and give the answer; b"503" for nobody there."""
        self.subscribe("_INBOX.answer", 99)
        self.publish(subject, body, "_INBOX.answer")
        name, data = self.message()
        while name != "_INBOX.answer":
            name, data = self.message()
        self._send("UNSUB 99\r\n")
        self.flush()
        return b"503" if data.startswith(b"NATS/1.0 503") else data

    def is_unanswered(self, subject: str, body: str) -> bool:
        """Return True if a request of the system account's user is met with silence."""
        self.subscribe("_INBOX.>", 99)
        self.publish(subject, body, "_INBOX.answer")
        # The server answers in the order of requests, so a later answer shows the silence.
        self.publish("$SYS.REQ.SERVER.PING.IDZ", "", "_INBOX.later")
        name, _ = self.message()
        self._send("UNSUB 99\r\n")
        self.flush()
        self._waiting.clear()
        return name == "_INBOX.later"

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


class Watched(ServerProcess):
    """A running server with its monitoring port."""

    def __init__(self, command: str | Sequence[str], config: Path) -> None:
        super().__init__(command, "-c", config, "-a", "127.0.0.1", "-p", "-1")
        self.wait_for("Server is ready")
        found = re.search(r"Starting http monitor on .*:(\d+)", self.log)
        self.http_port = int(found[1]) if found else 0

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Fetch a page: status, headers, body."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}") as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()

    def client(self, user: str, name: str = "", password: str = "") -> Client:
        """Connect as one of the configured users."""
        client = Client(self.port, user, password or f"{user}-secret", name)
        try:
            client.flush()
        except ConnectionError:
            client.close()
            raise
        return client


def both(folder: Path, config: str = CONFIG) -> tuple[Watched, Watched]:
    """Start the reference server and ours."""
    file = folder / "server.conf"
    file.write_text(config)
    reference = Watched(REFERENCE, file)
    try:
        return reference, Watched(PENSTOCK, file)
    except BaseException:
        reference.stop()
        raise


def comparable(value: Any, *also_different: str, name: str = "") -> Any:
    """Return an answer with what must differ replaced by its kind; see the module."""
    if name in DIFFERENT or name in also_different:
        kinds = {int: "number", float: "number", str: "text"}
        return f"<{kinds.get(type(value), value)}>"
    if isinstance(value, dict):
        if "sid" in value and value["subject"].startswith("$SYS."):
            # A subscription of the server itself; its numbers depend on an order by chance.
            also_different = (*also_different, "cid")
        return {key: comparable(each, *also_different, name=key) for key, each in value.items()}
    if isinstance(value, list):
        items = [comparable(each, *also_different, name="") for each in value]
        return sorted(items, key=json.dumps) if name in UNORDERED else items
    return value


def as_text(value: Any, *also_different: str) -> str:
    """Return a comparable text in which the order of fields counts."""
    return json.dumps(comparable(value, *also_different), indent=1)
