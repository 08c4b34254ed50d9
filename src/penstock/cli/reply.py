"""`penstock reply`: answers requests with a body, with themselves, or with a command's output.

A command runs without a shell: its words are split first, and only then the request is put into
them, so that the text of a request is always one argument and nothing else. The request is also
given on stdin, and in NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY if it fits there.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from typing import Annotated

import typer

from penstock.cli.connect import ConnectionOptions, duration_s, with_server
from penstock.cli.pubsub import (
    Body,
    Count,
    Headers,
    Sleep,
    Subject,
    checked,
    header_block,
    interrupted_quietly,
    quoted,
    raise_refusals,
    show,
    subject_of,
    tell,
    with_count,
)
from penstock.client.wire import ReceivedMessage
from penstock.errors import UsageError
from penstock.limits import COMMAND_VARIABLE_BYTES_MAX

QUEUE = "NATS-RPLY-22"
"""The group that repliers share, the `nats` tool's among them: one of them answers."""

_PLACE = re.compile(r"\{\{\.?(Request|[0-9]{1,3})\}\}")


@with_server
def reply(
    connection: ConnectionOptions,
    subject: Subject,
    body: Body = None,
    header: Headers = None,
    echo: Annotated[bool, typer.Option("--echo", help="Answer with the request itself.")] = False,
    command: Annotated[
        str | None,
        typer.Option("--command", metavar="COMMAND", help="Answer with what this prints."),
    ] = None,
    queue: Annotated[
        str, typer.Option("--queue", metavar="GROUP", help="Share with others of a group.")
    ] = QUEUE,
    count: Count = 0,
    sleep: Sleep = None,
) -> None:
    """Answer requests, until --count of them or Ctrl-C.

    In a command, {{0}}, {{1}}… are the parts of the request's subject and {{Request}} is its body.
    A command that fails, or takes longer than --timeout, gives no answer.

    \b
    penstock reply help 'request {{Count}}: ask again tomorrow'
    penstock reply 'weather.*' --command 'curl -s wttr.in/{{1}}?format=3'
    """
    if (body is not None) + echo + (command is not None) != 1:
        raise UsageError("say how to answer: a body, --echo or --command, and only one of them")
    pattern, group = subject_of(subject, is_pattern=True), subject_of(queue)
    block, words = header_block(header), split_command(command)
    pause_s = 0.0 if sleep is None else duration_s(sleep)
    with interrupted_quietly(0), connection.connect() as client:
        bytes_max = int(client.info.get("max_payload", 1 << 20))
        sid = client.subscribe(pattern, queue=group)
        client.flush()
        raise_refusals(client)
        tell(f"Answering on {quoted(pattern)}, in the group {quoted(group)}")
        number = 0
        while not count or number < count:
            client.set_timeout(None)
            request = client.next_message(sid)
            number += 1
            show(request, f"[#{number}] Received on {quoted(request.subject)}", raw=False)
            if not request.reply:
                continue
            if pause_s:
                time.sleep(pause_s)
            try:
                answer = _answer(request, body, words, number, connection.timeout_s)
                checked(answer, bytes_max)
            except (OSError, ValueError, UsageError, subprocess.SubprocessError) as error:
                tell(f"no answer to {quoted(request.subject)}: {_told(error)}")
                continue
            headers = block or (request.headers or None if echo else None)
            client.publish(request.reply, answer, headers=headers)
            client.flush()
        raise_refusals(client)


def _answer(
    request: ReceivedMessage, body: str | None, words: list[str], number: int, timeout_s: float
) -> bytes:
    if words:
        return run_command(words, request, timeout_s)
    if body is None:
        return request.payload
    return with_count(body.encode("utf-8", "surrogateescape"), number)


def split_command(command: str | None) -> list[str]:
    """Return a command's words, none without a command; raise UsageError."""
    if command is None:
        return []
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"not a command: {error}") from None
    if not words:
        raise UsageError("the command is empty")
    return words


def filled_in(words: list[str], request: ReceivedMessage) -> list[str]:
    """Return the words with the request put in; a token that the subject lacks becomes ""."""
    parts = [os.fsdecode(part) for part in request.subject.split(b".")]

    def value(place: re.Match[str]) -> str:
        if place[1] == "Request":
            return os.fsdecode(request.payload)
        number = int(place[1])
        return parts[number] if number < len(parts) else ""

    return [_PLACE.sub(value, word) for word in words]


def run_command(words: list[str], request: ReceivedMessage, timeout_s: float) -> bytes:
    """Return what a command prints; raise if it fails or cannot be run."""
    told = {b"NATS_REQUEST_SUBJECT": request.subject}
    if len(request.payload) <= COMMAND_VARIABLE_BYTES_MAX and b"\0" not in request.payload:
        told[b"NATS_REQUEST_BODY"] = request.payload
    # Flushed first, so that what the command itself prints comes after our lines.
    sys.stdout.flush()
    return subprocess.run(
        filled_in(words, request),
        input=request.payload,
        stdout=subprocess.PIPE,
        env=os.environb | told,
        timeout=timeout_s,
        check=True,
    ).stdout


def _told(error: Exception) -> str:
    # The command itself is left out: a request is part of it.
    if isinstance(error, subprocess.CalledProcessError):
        return f"the command ended with {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return "the command took too long"
    if isinstance(error, OSError):
        return f"the command cannot be run: {error.strerror}"
    return str(error)
