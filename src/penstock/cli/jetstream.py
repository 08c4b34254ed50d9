"""What the commands about streams share: a connection, errors that help, and being sure.

    with jetstream(link) as streams:
        streams.call(…)

What always holds: what a server refuses ends as one line that says what to try; nothing is removed
at a terminal without a yes, and elsewhere without --force.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from penstock import error_codes
from penstock.cli.connecting import Link
from penstock.cli.output import printable
from penstock.client.jetstream import JetStream
from penstock.errors import ApiError, NoAnswer, RefusedByServer, UsageError

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
def jetstream(link: Link) -> Iterator[JetStream]:
    """Give JetStream over a connection; what is refused says what to do."""
    with link.connect() as client:
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
    """Say which stream there is not, and which one may have been meant."""
    try:
        yield
    except ApiError as error:
        if error.err_code != error_codes.STREAM_NOT_FOUND.err_code:
            raise
        known = [each.removeprefix(prefix) for each in names(streams) if each.startswith(prefix)]
        raise _unknown(what, name, known) from None


@contextlib.contextmanager
def naming_consumer(streams: JetStream, stream: str, name: str) -> Iterator[None]:
    """Say which consumer there is not, or which stream, and which one may have been meant."""
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
    """Give the names of all streams, or of those that listen to a subject."""
    return list(streams.pages("STREAM.NAMES", "streams", {"subject": subject} if subject else {}))


def check_name(name: str, what: str = "stream") -> str:
    """Give a name that can stand in a subject; raises UsageError."""
    if not name or not name.isprintable() or any(char in " .*>/\\" for char in name):
        raise UsageError(f"not a name for a {what}: {name!r} (without spaces, dots, * > / and \\)")
    return name


def make_sure(question: str, *, force: bool) -> None:
    """Ask before something is removed; raises UsageError where nobody can be asked."""
    if force:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody to ask: --force says yes")
    typer.confirm(question, abort=True)
