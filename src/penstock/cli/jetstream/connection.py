"""What the commands about streams share: a connection, errors that help, questions, and `follow`.

    with jetstream(connection) as streams:
        streams.call(…)

Invariant: an error of the server ends as one line that says what to try. Nothing is removed without
a yes at a terminal, or --force elsewhere.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock import error_codes
from penstock.cli.arguments import ConnectionOptions
from penstock.cli.output import printable, rfc3339
from penstock.client.jetstream import JetStream, Stored, is_delivered, read_delivered
from penstock.client.wire import ReceivedMessage
from penstock.errors import ApiError, NoAnswer, RefusedByServer, UsageError
from penstock.limits import CLI_HEARTBEATS_MISSED_MAX

Force = Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")]

_ADVICE = {
    error_codes.STREAM_NAME_EXIST.err_code: "`edit` changes one that is there",
    error_codes.STREAM_SUBJECT_OVERLAP.err_code: "another stream takes them: `penstock stream ls`",
    error_codes.CONSUMER_ALREADY_EXISTS.err_code: "`edit` changes one that is there",
    error_codes.CONSUMER_NAME_EXIST.err_code: "`edit` changes one that is there",
    error_codes.CONSUMER_FC_REQUIRES_PUSH.err_code: "--target makes it push",
    error_codes.CONSUMER_HB_REQUIRES_PUSH.err_code: "--target makes it push",
    error_codes.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS.err_code: "--heartbeat 5s, say",
    error_codes.CONSUMER_PUSH_MAX_WAITING.err_code: "only without --target",
    error_codes.CONSUMER_MAX_DELIVER_BACKOFF.err_code: "--max-deliver above the --backoff given",
    error_codes.MAXIMUM_CONSUMERS_LIMIT.err_code: "`penstock stream edit --max-consumers` allows",
    error_codes.NO_MESSAGE_FOUND.err_code: "`info` tells the first and the last sequence",
    error_codes.NOT_ENABLED_FOR_ACCOUNT.err_code: "`jetstream: enabled` in the account's block",
}


@contextlib.contextmanager
def jetstream(connection: ConnectionOptions) -> Iterator[JetStream]:
    """Connect and yield JetStream; an error of the server says what to try."""
    with connection.connect() as client:
        try:
            yield JetStream(client)
        except ApiError as error:
            advice = _ADVICE.get(error.err_code)
            more = f"; {advice}" if advice else ""
            raise RefusedByServer(f"{printable(str(error).encode())}{more}") from None
        except NoAnswer as error:
            raise NoAnswer(f"{error}; `penstock server -js` starts one that has it") from None


@contextlib.contextmanager
def naming(
    streams: JetStream, name: str, *, prefix: str = "", what: str = "stream"
) -> Iterator[None]:
    """Raise UsageError if there is no such stream, with the name that may have been meant."""
    try:
        yield
    except ApiError as error:
        if error.err_code != error_codes.STREAM_NOT_FOUND.err_code:
            raise
        known = [each.removeprefix(prefix) for each in names(streams) if each.startswith(prefix)]
        raise _unknown(what, name, known) from None


@contextlib.contextmanager
def naming_consumer(streams: JetStream, stream: str, name: str) -> Iterator[None]:
    """Raise UsageError if there is no such consumer or stream, with a name that may be meant."""
    with naming(streams, stream):
        try:
            yield
        except ApiError as error:
            if error.err_code != error_codes.CONSUMER_NOT_FOUND.err_code:
                raise
            known = streams.pages(f"CONSUMER.NAMES.{stream}", "consumers", {})
            raise _unknown("consumer", name, list(known)) from None


def _unknown(what: str, name: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    by_case = [each for each in known if each.lower() == name.lower()]
    meant = (by_case or close)[:1]
    advice = f"did you mean {meant[0]!r}?" if meant else f"there are {len(known)}: `ls` shows"
    return UsageError(f"there is no {what} {printable(name.encode())!r}; {advice}")


def names(streams: JetStream, subject: str = "") -> list[str]:
    """Return the names of all streams, or of those that capture a subject."""
    return list(streams.pages("STREAM.NAMES", "streams", {"subject": subject} if subject else {}))


def check_name(name: str, what: str = "stream") -> str:
    """Return the name; raise UsageError if it cannot stand in a subject."""
    if not name or not name.isprintable() or any(char in " .*>/\\" for char in name):
        raise UsageError(f"not a name for a {what}: {name!r} (without spaces, dots, * > / and \\)")
    return name


def make_sure(question: str, *, force: bool) -> None:
    """Ask before something is removed; raise UsageError if there is no terminal to ask at."""
    if force:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody to ask: --force says yes")
    typer.confirm(question, abort=True)


HEARTBEAT_S = 5
SECOND_NS = 10**9


def follow(streams: JetStream, stream: str, pattern: str) -> Iterator[Stored]:
    """Yield the last message of each matching subject, and then every new one, for ever."""
    client = streams.client
    inbox = client.new_inbox() + b".follow"
    sid = client.subscribe(inbox)
    config: dict[str, Any] = {
        "deliver_subject": inbox.decode(),
        "deliver_policy": "last_per_subject",
        "ack_policy": "none",
        "filter_subject": pattern,
        "idle_heartbeat": HEARTBEAT_S * SECOND_NS,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 60 * SECOND_NS,
    }
    asked = {"stream_name": stream, "config": config}
    streams.call(f"CONSUMER.CREATE.{stream}", asked)
    client.set_timeout(HEARTBEAT_S * CLI_HEARTBEATS_MISSED_MAX)
    while True:
        message = client.next_message(sid)
        if is_delivered(message):
            yield _stored(message)


def _stored(message: ReceivedMessage) -> Stored:
    """Return a delivered message with the sequence and time of its reply subject."""
    told = read_delivered(message)
    time = rfc3339(told.time_ns) or ""
    return Stored(message.subject, told.seq, message.headers, message.payload, time)
