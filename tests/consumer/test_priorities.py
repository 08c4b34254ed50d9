"""Who is served first of clients that ask at the same time."""

from __future__ import annotations

from pathlib import Path

from penstock.testing.servers import PENSTOCK, server_process
from tests.consumer.delivered import Life


def asking(subject: str, reply: str, priority: int) -> bytes:
    body = b'{"batch":2,"group":"G","priority":%d}' % priority
    return f"PUB {subject} {reply} {len(body)}\r\n".encode() + body + b"\r\n"


def test_the_first_in_rank_of_requests_that_come_together_is_served_first(tmp_path: Path) -> None:
    with server_process(PENSTOCK, store_dir=tmp_path) as server:
        life = Life(server.port, "S")
        try:
            life.filled("a", "b", "c", priority_policy="prioritized", priority_groups=["G"])
            life.listen("low")
            life.listen("high")
            subject = "$JS.API.CONSUMER.MSG.NEXT.S.C"
            life._send(asking(subject, "low", 1) + asking(subject, "high", 0))
            life.take(3)
        finally:
            life.close()

    assert [line.split(":")[0] for line in life.lines] == ["high", "high", "low"]
