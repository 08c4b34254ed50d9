"""Random scripts for several clients, from one seed.

Every publish has a payload of its own, so that copies of one message can be told from the next
message. Queue groups lie within one client, and their members are called by the group: which member
gets a message is the server's choice.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Mapping

from tests.conformance.transcripts import Step, Transcript, comparable

_WORDS = ["foo", "bar", "baz", "*", ">", "*x", ""]
_REPLIES = ["", "", "r.1", "r.2", "foo.bar", "_INBOX.a.b", "_R_.x"]
_FATAL = [
    "NONSENSE\r\n",
    "PUB foo -1\r\n",
    "PUB foo\r\n",
    "SUB foo\r\n",
    "SUB a b c d\r\n",
    "HPUB a 5 1\r\n",
    "PUB foo 1\r\nxx\r\n",
    "CONNECT {\r\n",
    "-ERR 'no'\r\n",
    "PUB foo 99999999\r\n",
    "UNSUB\r\n",
    'CONNECT {"protocol":9}\r\n',
    "INFO {\r\n",
    "\r\n",
    "SUB " + "y" * 5000 + " 1\r\n",
]
# Of several subscriptions to a reply, one receives "no responders": in the reference it depends on
# what was published before.
_NOBODY = re.compile(rb"^(HMSG \S+) \S+ (?=\d+ \d+\r\nNATS/1.0 503\r\n)")
_QUEUE_MEMBER = re.compile(rb"^(H?MSG \S+ q[a-z]+)\d+ ")


class Fuzzer:
    """Makes scripts; the same seed makes the same script."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._published = 0
        self._headers = {name: self._random.random() < 0.5 for name in "abc"}

    def script(self) -> list[Step]:
        """Return the steps of one script."""
        steps = [Step(name, self._connect(name)) for name in "abc"]
        for _ in range(self._random.randint(6, 12)):
            name = self._random.choice("abc")
            steps += self._cut(name, self._operations(name).encode())
        return steps

    def _operations(self, name: str) -> str:
        data = ""
        for _ in range(self._random.randint(1, 8)):
            if self._random.random() < 0.015:
                # It comes last: the reference may still carry out what stands behind `-ERR`.
                return data + self._random.choice(_FATAL)
            data += self._operation(name)
        return data

    def _cut(self, name: str, data: bytes) -> list[Step]:
        # Sometimes in two or three pieces; only the last one is awaited.
        places = sorted(self._random.sample(range(1, len(data)), min(2, len(data) - 1)))
        if self._random.random() < 0.7 or b"PING" in data.upper():
            places = []
        bounds = [0, *places, len(data)]
        pieces = [data[start:end] for start, end in itertools.pairwise(bounds)]
        return [
            Step(name, piece, wait=place == len(pieces) - 1) for place, piece in enumerate(pieces)
        ]

    def _connect(self, name: str) -> bytes:
        options = {
            "verbose": self._random.random() < 0.4,
            "pedantic": False,
            "echo": self._random.random() < 0.7,
            "headers": self._headers[name],
            "no_responders": self._headers[name] and self._random.random() < 0.5,
            "protocol": self._random.choice((0, 1)),
        }
        return f"CONNECT {json.dumps(options)}\r\n".encode()

    def _subject(self) -> str:
        words = self._random.choices(_WORDS, weights=[20, 12, 1, 8, 4, 1, 0.5], k=3)
        return ".".join(words[: self._random.choice((1, 2, 2, 2, 3))]) or "foo"

    def _space(self) -> str:
        return self._random.choice((" ", " ", " ", "\t", "  "))

    def _word(self, word: str) -> str:
        return self._random.choice((word, word, word, word.lower(), word.title()))

    def _operation(self, name: str) -> str:
        kinds = ["publish"] * 10 + ["headed"] * 4 + ["subscribe"] * 6 + ["unsubscribe"] * 4
        kind = self._random.choice([*kinds, "queue", "queue", "ping", "pong", "+ok"])
        if kind == "publish" or (kind == "headed" and not self._headers[name]):
            return self._publish()
        if kind == "headed":
            return self._publish_headed()
        if kind == "subscribe":
            return f"{self._word('SUB')}{self._space()}{self._subject()} {self._sid()}\r\n"
        if kind == "unsubscribe":
            limit = self._random.choice(("", "", " 0", " 1", " 2", " 3", " x"))
            return f"{self._word('UNSUB')} {self._sid()}{limit}\r\n"
        if kind == "queue":
            return self._queue(name)
        return f"{self._word(kind.upper())}\r\n"

    def _sid(self) -> str:
        return str(self._random.randint(1, 6))

    def _queue(self, name: str) -> str:
        sid = f"q{name}{self._random.choice('gh')}{self._random.randint(1, 3)}"
        if self._random.random() < 0.3:
            return f"UNSUB {sid}\r\n"
        # A member's group follows from its name, however often that is reused.
        return f"SUB {self._subject()} {sid[:-1]} {sid}\r\n"

    def _payload(self) -> str:
        self._published += 1
        return f"{self._published}:" + "p" * self._random.choice((0, 1, 7, 300))

    def _publish(self) -> str:
        payload = self._payload()
        reply = self._random.choice(_REPLIES)
        size = self._random.choice((str(len(payload)), f"{len(payload):05}"))
        line = f"{self._word('PUB')}{self._space()}{self._subject()} {reply} {size}"
        return f"{line}\r\n{payload}\r\n"

    def _publish_headed(self) -> str:
        headers = self._random.choice(("NATS/1.0\r\n\r\n", "NATS/1.0\r\nA: b\r\n\r\n", "odd", ""))
        payload = headers + self._payload()
        reply = self._random.choice(_REPLIES)
        line = f"HPUB {self._subject()} {reply} {len(headers)} {len(payload)}"
        return f"{line}\r\n{payload}\r\n"


def without_choices(transcripts: Mapping[str, Transcript]) -> dict[str, Transcript]:
    """Name members of a queue group by the group; leave out the receiver of "no responders"."""
    return {
        name: Transcript(
            comparable(
                _NOBODY.sub(rb"\1 ", _QUEUE_MEMBER.sub(rb"\1 ", frame)) for frame in each.frames
            ),
            each.closed,
        )
        for name, each in transcripts.items()
    }
