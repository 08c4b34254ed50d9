"""`penstock pub`, `sub`, `req` and `reply`: messages for people, in the manner of the `nats` tool.

Messages go to stdout, remarks about them to stderr. `sub` and `reply` end quietly with Ctrl-C,
which is their usual end; the other two with code 130. A message that the server refuses, a request
without an answer and a timeout end with code 1.

`reply` answers requests with a body, with themselves, or with a command's output. A command runs
without a shell: its words are split first, and only then the request is put into them, so that the
text of a request is always one argument and nothing else. The request is also given on stdin, and
in NATS_REQUEST_SUBJECT and NATS_REQUEST_BODY if it fits there.

Text from other clients is printed so that it cannot control the terminal, except with --raw.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.arguments import ConnectionOptions, duration_s, with_server
from penstock.cli.output import count as shown_count
from penstock.cli.output import json_document, parse_headers, printable, size
from penstock.client.client import Client
from penstock.client.wire import ReceivedMessage
from penstock.clock import SystemClock
from penstock.errors import NoAnswer, RefusedByServer, UsageError
from penstock.limits import COMMAND_VARIABLE_BYTES_MAX
from penstock.subjects import is_literal, is_valid_subject

EXIT_INTERRUPTED = 130

_COUNT = re.compile(rb"\{\{\.?Count\}\}")
_HEADER_NAME = re.compile(r"[!-9;-~]+")


class SendOn(StrEnum):
    """What ends a message that is read from stdin."""

    EOF = "eof"
    NEWLINE = "newline"


Subject = Annotated[str, typer.Argument(metavar="SUBJECT", show_default=False)]
Body = Annotated[
    str | None,
    typer.Argument(metavar="BODY", help="The payload; without it stdin.", show_default=False),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="K:V", help="A header; may be given several times."),
]
Raw = Annotated[bool, typer.Option("--raw", "-r", help="Print payloads alone, as they are.")]
Count = Annotated[int, typer.Option("--count", metavar="N", min=0, help="How many messages.")]
Sleep = Annotated[
    str | None, typer.Option("--sleep", metavar="DURATION", help="Wait so long between messages.")
]


# What is typed


def subject_of(text: str, *, is_pattern: bool = False) -> bytes:
    """Return a subject as bytes; raise UsageError if it is not one."""
    subject = text.encode("utf-8", "surrogateescape")
    if not is_valid_subject(subject):
        raise UsageError(f"not a subject: {text!r}")
    if not is_pattern and not is_literal(subject):
        raise UsageError(f"a message has one subject, without wildcards: {text!r}")
    return subject


def header_block(headers: list[str] | None) -> bytes | None:
    """Return the header block of K:V words, None without any; raise UsageError for a wrong one."""
    if not headers:
        return None
    lines = [b"NATS/1.0\r\n"]
    for each in headers:
        name, colon, value = each.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or "\r" in value or "\n" in value:
            raise UsageError(f"not a header: {each!r} (like 'Trace-Id: 42')")
        lines.append(f"{name}: {value.strip()}\r\n".encode("utf-8", "surrogateescape"))
    return b"".join([*lines, b"\r\n"])


def with_count(body: bytes, number: int) -> bytes:
    """Return the body with the message's number in place of {{Count}}."""
    return _COUNT.sub(b"%d" % number, body) if b"Count}}" in body else body


def read_bodies(client: Client, body: str | None, send_on: SendOn) -> Iterator[bytes]:
    """Yield the argument, all of stdin, or each of its lines; raise UsageError for one too large.

    At a terminal there is nothing to wait for: the body is empty.
    """
    bytes_max = int(client.info.get("max_payload", 1 << 20))
    if body is not None or (send_on is SendOn.EOF and sys.stdin.isatty()):
        yield checked((body or "").encode("utf-8", "surrogateescape"), bytes_max)
    elif send_on is SendOn.EOF:
        yield checked(sys.stdin.buffer.read(bytes_max + 1), bytes_max)
    else:
        while line := sys.stdin.buffer.readline(bytes_max + 2):
            yield checked(line.removesuffix(b"\n").removesuffix(b"\r"), bytes_max)


def checked(body: bytes, bytes_max: int) -> bytes:
    """Return the payload; raise UsageError if the server would refuse its size."""
    if len(body) > bytes_max:
        raise UsageError(f"the server takes payloads of at most {size(bytes_max)}")
    return body


# What is shown


def tell(text: str) -> None:
    """Print a remark on stderr."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def quoted(text: bytes) -> str:
    """Return a subject in quotes, safe on a terminal."""
    return f'"{printable(text)}"'


def shown_lines(text: bytes) -> str:
    """Return a payload as text that is safe on a terminal, with its own lines."""
    return "\n".join(
        "\t".join(printable(part) for part in line.split(b"\t")) for line in text.split(b"\n")
    )


def as_text(heading: str, headers: bytes, payload: bytes | None) -> bytes:
    """Return a message for people: a heading, its headers, and the payload if it is wanted."""
    lines = [heading]
    for name, values in parse_headers(headers).items():
        lines += (f"{printable(name.encode())}: {printable(one.encode())}" for one in values)
    if payload is not None:
        lines += ["", shown_lines(payload)] if headers else [shown_lines(payload)]
    return "\n".join([*lines, "", ""]).encode()


def show(
    message: ReceivedMessage, heading: str, *, raw: bool, as_json: bool = False, body: bool = True
) -> None:
    """Print a message: the payload as it is, a JSON object on a line, or text for people."""
    if raw:
        line = message.payload + b"\n"
    elif as_json:
        line = json_document(
            {"subject": printable(message.subject), "reply": printable(message.reply)},
            message.headers,
            message.payload if body else None,
        )
    else:
        line = as_text(heading, message.headers, message.payload if body else None)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def interrupted_quietly(code: int) -> Iterator[None]:
    """Let Ctrl-C end the command with a code, without a message."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(code) from None


def raise_refusals(client: Client) -> None:
    """Raise RefusedByServer if the server sent an error."""
    if client.errors:
        raise RefusedByServer(printable(client.errors[-1]))


# The commands


@with_server
def pub(
    connection: ConnectionOptions,
    subject: Subject,
    body: Body = None,
    header: Headers = None,
    reply: Annotated[
        str | None, typer.Option("--reply", metavar="SUBJECT", help="Where answers shall go.")
    ] = None,
    count: Count = 1,
    sleep: Sleep = None,
    send_on: Annotated[
        SendOn, typer.Option("--send-on", help="What ends a message of stdin.")
    ] = SendOn.EOF,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
) -> None:
    """Publish a message, or --count of them; {{Count}} in the body is each one's number.

    \b
    penstock pub orders.eu 'order {{Count}}' --count 10 -H 'Source: shell'
    tail -f access.log | penstock pub logs.web --send-on newline
    """
    target = subject_of(subject)
    answers = None if reply is None else subject_of(reply)
    block = header_block(header)
    pause_s = 0.0 if sleep is None else duration_s(sleep)
    with interrupted_quietly(EXIT_INTERRUPTED), connection.connect() as client:
        sent = sent_bytes = 0
        for each in read_bodies(client, body, send_on):
            for _ in range(count):
                if pause_s and sent:
                    client.flush()
                    time.sleep(pause_s)
                sent += 1
                payload = with_count(each, sent)
                sent_bytes += len(payload)
                client.publish(target, payload, reply=answers, headers=block)
            if send_on is SendOn.NEWLINE:
                client.send()
        client.flush()
        raise_refusals(client)
    if not quiet:
        what = "message" if sent == 1 else "messages"
        tell(f"Published {shown_count(sent)} {what}, {size(sent_bytes)}, to {quoted(target)}")


@with_server
def sub(
    connection: ConnectionOptions,
    subjects: Annotated[list[str], typer.Argument(metavar="SUBJECT...", show_default=False)],
    queue: Annotated[
        str | None, typer.Option("--queue", metavar="GROUP", help="Share with others of a group.")
    ] = None,
    count: Count = 0,
    raw: Raw = False,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Print no payloads.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print messages as they come, until --count of them or Ctrl-C.

    \b
    penstock sub 'orders.>' audit
    penstock sub 'orders.>' --queue workers --count 10 --json
    """
    patterns = [subject_of(each, is_pattern=True) for each in subjects]
    group = None if queue is None else subject_of(queue)
    with interrupted_quietly(0), connection.connect() as client:
        for pattern in patterns:
            client.subscribe(pattern, queue=group)
        client.flush()
        raise_refusals(client)
        tell(f"Subscribed to {', '.join(quoted(each) for each in patterns)}")
        client.set_timeout(None)
        number = 0
        while not count or number < count:
            message = client.next_of_any()
            number += 1
            heading = f"[#{number}] Received on {quoted(message.subject)}"
            if message.reply:
                heading += f" with reply {quoted(message.reply)}"
            show(message, heading, raw=raw, as_json=as_json, body=not headers_only)


@with_server
def req(
    connection: ConnectionOptions,
    subject: Subject,
    body: Body = None,
    header: Headers = None,
    replies: Annotated[
        int,
        typer.Option(
            "--replies", metavar="N", min=0, help="Wait for so many answers; 0 for all in time."
        ),
    ] = 1,
    raw: Raw = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Send a request and print its answers, with the time that each took.

    \b
    penstock req weather.london ''
    penstock req discover '' --replies 0 --timeout 1s
    """
    target, block, clock = subject_of(subject), header_block(header), SystemClock()
    with interrupted_quietly(EXIT_INTERRUPTED), connection.connect() as client:
        (payload,) = read_bodies(client, body, SendOn.EOF)
        start_ns = clock.monotonic_ns()
        inbox = client.begin_request(target, payload, headers=block)
        got = 0
        while not replies or got < replies:
            left_s = connection.timeout_s - (clock.monotonic_ns() - start_ns) / 1e9
            message = _next_answer(client, inbox, left_s)
            if message is None:
                break
            taken_ms = (clock.monotonic_ns() - start_ns) / 1e6
            if not message.payload and message.headers.startswith(b"NATS/1.0 503"):
                raise NoAnswer(f"nobody listens on {quoted(target)}")
            got += 1
            show(message, f"Received with rtt {taken_ms:.3f} ms", raw=raw, as_json=as_json)
        raise_refusals(client)
    if got < max(replies, 1):
        told = "no answer" if not got else f"{got} of {replies} answers"
        raise NoAnswer(f"{told} on {quoted(target)} within {connection.timeout}")


def _next_answer(client: Client, inbox: bytes, left_s: float) -> ReceivedMessage | None:
    if left_s <= 0:
        return None
    client.set_timeout(left_s)
    try:
        return client.next_answer(inbox)
    except TimeoutError:
        return None


# Answering requests

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
