"""The options of `penstock consumer add` and `edit`, which become configuration fields.

Durations are written as 30s, 12h or 7d, sizes as 512, 64KB or 10MB. Where delivery begins is a
word, a sequence, a time, or how long ago. Pure, but for the file that an option names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli.arguments import parse_time
from penstock.cli.jetstream.stream_options import (
    ConfigFile,
    duration_ns,
    metadata,
    read_config,
    said_option,
    size_bytes,
)
from penstock.cli.output import rfc3339
from penstock.errors import UsageError

DEAD_LETTER = "penstock.dead_letter"
KEY_TOKEN = "penstock.key_token"
"""Metadata that our server understands; others keep it and do nothing."""

_POLICIES = {"all": "all", "new": "new", "last": "last", "subject": "last_per_subject"}


class AckKind(StrEnum):
    """What an acknowledgement stands for."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"


class Replay(StrEnum):
    """How fast messages that are there already are delivered."""

    INSTANT = "instant"
    ORIGINAL = "original"


class Priority(StrEnum):
    """Which of several clients that pull is served first."""

    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


def start_fields(text: str, now_ns: int) -> dict[str, Any]:
    """Return the fields for where delivery begins; raise UsageError."""
    if text in _POLICIES:
        return {"deliver_policy": _POLICIES[text]}
    if text.isdecimal():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": int(text)}
    try:
        time_ns = parse_time(text, now_ns)
    except UsageError:
        raise UsageError(
            f"not where delivery can begin: {text!r} (all, new, last, subject, a sequence,"
            " a time, or how long ago, as 1h)"
        ) from None
    return {"deliver_policy": "by_start_time", "opt_start_time": rfc3339(time_ns)}


def until(text: str, now_ns: int) -> str:
    """Return a time to come: how long from now, or RFC 3339; raise UsageError."""
    try:
        time_ns = now_ns + duration_ns(text)
    except UsageError:
        time_ns = parse_time(text, now_ns)
    if time_ns <= now_ns:
        raise UsageError(f"not a time to come: {text!r} (like 30m, 2d or 2030-01-01T00:00:00Z)")
    shown = rfc3339(time_ns)
    assert shown is not None, "a time to come is not 0"
    return shown


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options that may be changed later; None for one that was not given."""

    filters: Annotated[
        list[str] | None, said_option("--filter", metavar="SUBJECT", help="What it reads (again).")
    ] = None
    config_file: ConfigFile = None
    description: Annotated[
        str | None, said_option("--description", metavar="TEXT", help="What it is for.")
    ] = None
    target: Annotated[
        str | None,
        said_option("--target", metavar="SUBJECT", help="Push to there, instead of being pulled."),
    ] = None
    wait: Annotated[
        str | None,
        said_option("--wait", metavar="DURATION", help="How long an ack may take."),
    ] = None
    max_deliver: Annotated[
        int | None, said_option("--max-deliver", metavar="N", help="The most tries of a message.")
    ] = None
    backoff: Annotated[
        list[str] | None,
        said_option("--backoff", metavar="DURATION", help="Between its tries (again)."),
    ] = None
    max_pending: Annotated[
        int | None, said_option("--max-pending", metavar="N", help="The most without their ack.")
    ] = None
    max_waiting: Annotated[
        int | None, said_option("--max-waiting", metavar="N", help="The most pulls that wait.")
    ] = None
    max_pull_batch: Annotated[
        int | None, said_option("--max-pull-batch", metavar="N", help="The most of one pull.")
    ] = None
    max_pull_bytes: Annotated[
        str | None, said_option("--max-pull-bytes", metavar="SIZE", help="The same in bytes.")
    ] = None
    max_pull_expire: Annotated[
        str | None,
        said_option("--max-pull-expire", metavar="DURATION", help="How long a pull may wait."),
    ] = None
    inactive_threshold: Annotated[
        str | None,
        said_option("--inactive-threshold", metavar="DURATION", help="Goes when unused so long."),
    ] = None
    headers_only: Annotated[
        bool | None,
        typer.Option("--headers-only/--no-headers-only", help="Whether payloads stay away."),
    ] = None
    sample: Annotated[
        int | None,
        said_option("--sample", metavar="PERCENT", help="Of how many acks a metric is told."),
    ] = None
    bps: Annotated[
        int | None, said_option("--bps", metavar="N", help="The most bits a second that it pushes.")
    ] = None
    replicas: Annotated[
        int | None, said_option("--replicas", metavar="N", help="Servers that keep its state.")
    ] = None
    metadata: Annotated[
        list[str] | None, said_option("--metadata", metavar="K:V", help="A note (again).")
    ] = None
    dead_letter: Annotated[
        str | None,
        said_option("--dead-letter", metavar="SUBJECT", help="Where given up messages go."),
    ] = None
    key_token: Annotated[
        int | None,
        said_option("--key-token", metavar="N", help="Subject token whose messages keep order."),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields that were given as options; raise UsageError or OSError."""
        said: dict[str, Any] = self._bounds() | {
            "description": self.description,
            "deliver_subject": self.target,
            "headers_only": self.headers_only,
            "sample_freq": None if self.sample is None else f"{self.sample}%",
            "rate_limit_bps": self.bps,
            "num_replicas": self.replicas,
            "metadata": self._notes(),
        }
        if self.filters is not None:
            # One filter and several stand in different fields, of which one must be empty.
            is_one = len(self.filters) == 1
            said["filter_subject"] = self.filters[0] if is_one else ""
            said["filter_subjects"] = [] if is_one else self.filters
        return read_config(self.config_file) | {
            name: value for name, value in said.items() if value is not None
        }

    def _bounds(self) -> dict[str, Any]:
        return {
            "ack_wait": None if self.wait is None else duration_ns(self.wait),
            "max_deliver": self.max_deliver,
            "backoff": None if self.backoff is None else [duration_ns(one) for one in self.backoff],
            "max_ack_pending": self.max_pending,
            "max_waiting": self.max_waiting,
            "max_batch": self.max_pull_batch,
            "max_bytes": None if self.max_pull_bytes is None else size_bytes(self.max_pull_bytes),
            "max_expires": (
                None if self.max_pull_expire is None else duration_ns(self.max_pull_expire)
            ),
            "inactive_threshold": (
                None if self.inactive_threshold is None else duration_ns(self.inactive_threshold)
            ),
        }

    def _notes(self) -> dict[str, str] | None:
        notes = metadata(self.metadata or [])
        if self.dead_letter is not None:
            notes[DEAD_LETTER] = self.dead_letter
        if self.key_token is not None:
            notes[KEY_TOKEN] = str(self.key_token)
        return notes or None


@dataclass(frozen=True, slots=True)
class ConsumerCreation:
    """The options that are fixed when the consumer is made."""

    deliver: Annotated[
        str | None,
        said_option(
            "--deliver",
            metavar="WHERE",
            help="Begins with: all, new, last, subject (its last), a sequence, a time, or 1h ago.",
        ),
    ] = None
    ack: Annotated[AckKind | None, typer.Option("--ack", help="What is acknowledged.")] = None
    replay: Annotated[
        Replay | None, typer.Option("--replay", help="At once, or as fast as they came.")
    ] = None
    deliver_group: Annotated[
        str | None,
        said_option("--deliver-group", metavar="GROUP", help="Whose members share what it pushes."),
    ] = None
    flow_control: Annotated[
        bool | None, typer.Option("--flow-control", help="Push no faster than it is read.")
    ] = None
    heartbeat: Annotated[
        str | None,
        said_option("--heartbeat", metavar="DURATION", help="Say that it lives when it is idle."),
    ] = None
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Goes some time after its last client.")
    ] = False
    memory: Annotated[
        bool | None, typer.Option("--memory", help="Its state is kept in memory alone.")
    ] = None
    pause: Annotated[
        str | None,
        said_option("--pause", metavar="TIME", help="Delivers nothing until then, or for so long."),
    ] = None
    priority: Annotated[
        Priority | None, typer.Option("--priority", help="Who of a group is served first.")
    ] = None
    groups: Annotated[
        list[str] | None,
        said_option("--priority-group", metavar="GROUP", help="Groups that may pull (again)."),
    ] = None
    pinned_ttl: Annotated[
        str | None,
        said_option("--pinned-ttl", metavar="DURATION", help="A silent pinned client's time."),
    ] = None

    def fields(self, name: str, now_ns: int) -> dict[str, Any]:
        """Return the fields that were given as options; raise UsageError."""
        said: dict[str, Any] = {
            "name": name,
            # Sent even if empty: a configuration file may hold another value.
            "durable_name": "" if self.ephemeral else name,
            "ack_policy": None if self.ack is None else str(self.ack),
            "replay_policy": None if self.replay is None else str(self.replay),
            "deliver_group": self.deliver_group,
            "flow_control": self.flow_control,
            "idle_heartbeat": None if self.heartbeat is None else duration_ns(self.heartbeat),
            "mem_storage": self.memory,
            "pause_until": None if self.pause is None else until(self.pause, now_ns),
            "priority_policy": None if self.priority is None else str(self.priority),
            "priority_groups": self.groups,
            "priority_timeout": (None if self.pinned_ttl is None else duration_ns(self.pinned_ttl)),
        }
        start = {} if self.deliver is None else start_fields(self.deliver, now_ns)
        return start | {key: value for key, value in said.items() if value is not None}
