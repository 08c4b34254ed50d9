"""`penstock consumer`: make, change, show, list, pause, reset and remove consumers of a stream.

In the manner of the `nats` tool, against any NATS server. Arguments and tables only; with --json
what the server answered is printed as it is. Messages are in `cli.jetstream.messages`.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.arguments import AsJson, ConnectionOptions, with_options, with_server
from penstock.cli.jetstream.connection import (
    Force,
    check_name,
    jetstream,
    make_sure,
    naming,
    naming_consumer,
)
from penstock.cli.jetstream.consumer_options import ConsumerCreation, ConsumerOptions, until
from penstock.cli.jetstream.streams import NEVER, StreamName, bound, span, when
from penstock.cli.output import (
    Column,
    Output,
    count,
    listed,
    make_output,
    size,
    text,
    yes_or_no,
)
from penstock.client.jetstream import JetStream
from penstock.clock import SystemClock
from penstock.errors import UsageError
from penstock.text.times import format_duration

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Consumers of a stream: make, change, read, pause, reset and remove them.",
)

SECOND_NS = 10**9

ConsumerName = Annotated[str, typer.Argument(metavar="CONSUMER", show_default=False)]


# How values look


def _spans(value: object) -> str:
    assert isinstance(value, list)
    return ", ".join(format_duration(each) for each in value)


def _bits(value: object) -> str:
    return f"{value:,} bit/s"


def _filters(value: object) -> str:
    return listed(value) if value else "all"


def _about(value: object) -> str:
    # A span of time is shown without its nanoseconds.
    assert isinstance(value, int)
    return format_duration(max(value // SECOND_NS, 1) * SECOND_NS)


def _notes(value: object) -> str:
    assert isinstance(value, dict)
    return ", ".join(f"{text(name)}={text(note)}" for name, note in value.items())


_CONFIG = [
    Column("name", "name", text),
    Column("stream", "stream", text),
    Column("description", "description", text),
    Column("kind", "kind"),
    Column("filters", "filters", _filters),
    Column("begins", "begins with", text),
    Column("ack_policy", "acks"),
    Column("ack_wait", "ack wait", span),
    Column("max_deliver", "max deliveries", bound),
    Column("backoff", "backoff", _spans),
    Column("max_ack_pending", "max acks pending", bound),
    Column("max_waiting", "max waiting pulls", count),
    Column("max_batch", "max batch of a pull", count),
    Column("max_bytes", "max bytes of a pull", size),
    Column("max_expires", "max wait of a pull", span),
    Column("deliver_group", "deliver group", text),
    Column("flow_control", "flow control", yes_or_no),
    Column("idle_heartbeat", "heartbeat", span),
    Column("rate_limit_bps", "rate limit", _bits),
    Column("replay_policy", "replay"),
    Column("headers_only", "headers only", yes_or_no),
    Column("sample_freq", "acks sampled", text),
    Column("inactive_threshold", "goes when unused for", span),
    Column("mem_storage", "state in memory", yes_or_no),
    Column("num_replicas", "replicas", count),
    Column("priority_policy", "priority", text),
    Column("priority_groups", "priority groups", listed),
    Column("notes", "metadata", _notes),
]
_STATE = [
    Column("created", "created", when),
    Column("paused", "paused for", _about),
    Column("delivered", "delivered up to sequence", count),
    Column("delivered_last", "last delivery", when),
    Column("acked", "acknowledged up to sequence", count),
    Column("acked_last", "last acknowledgement", when),
    Column("num_ack_pending", "acks pending", count),
    Column("num_redelivered", "redelivered", count),
    Column("num_pending", "messages to come", count),
    Column("num_waiting", "waiting pulls", count),
    Column("bound", "somebody listens", yes_or_no),
    Column("pinned", "pinned", listed),
]
_LIST = [
    Column("name", "name", text),
    Column("kind", "kind"),
    Column("filters", "filters", _filters),
    Column("ack_policy", "acks"),
    Column("pending", "to come", count, right=True),
    Column("ack_pending", "acks pending", count, right=True),
    Column("redelivered", "redelivered", count, right=True),
    Column("waiting", "waiting pulls", count, right=True),
    Column("last_delivery", "last delivery", when),
]


def filters_of(config: dict[str, Any]) -> list[str]:
    """Return the subjects that a consumer reads, empty for all."""
    one = config.get("filter_subject")
    return [one] if one else config.get("filter_subjects") or []


def _kind(config: dict[str, Any]) -> str:
    lasting = "durable" if config.get("durable_name") else "ephemeral"
    target = config.get("deliver_subject")
    return f"{lasting}, pushes to {text(target)}" if target else f"{lasting}, pulled"


def _begins(config: dict[str, Any]) -> str:
    policy = str(config["deliver_policy"])
    start = config.get("opt_start_seq") or config.get("opt_start_time")
    return policy.replace("_", " ") + (f" {start}" if start else "")


def show_consumer(info: dict[str, Any], *, as_json: bool) -> Output:
    """Print what the server knows of a consumer: facts for people, the document for programs."""
    output = make_output(as_json=as_json)
    config = info["config"]
    notes = config.get("metadata") or {}
    told = {
        **info,
        **config,
        "stream": info["stream_name"],
        "kind": _kind(config),
        "filters": filters_of(config) or None,
        "begins": _begins(config),
        "notes": {key: note for key, note in notes.items() if not key.startswith("_nats.")},
        "paused": info.get("pause_remaining") if info.get("paused") else None,
        "delivered": info["delivered"]["stream_seq"],
        "delivered_last": info["delivered"].get("last_active", NEVER),
        "acked": info["ack_floor"]["stream_seq"],
        "acked_last": info["ack_floor"].get("last_active", NEVER),
        "pinned": [
            f"{group['group']}: {group['pinned_client_id']}"
            for group in info.get("priority_groups") or []
            if group.get("pinned_client_id")
        ]
        or None,
        "bound": info.get("push_bound", False) if config.get("deliver_subject") else None,
    }
    shown = [column for column in _CONFIG if told.get(column.name)]
    known = [column for column in _STATE if told.get(column.name) is not None]
    output.facts(info if as_json else told, [*shown, *known])
    return output


def find_consumer(streams: JetStream, stream: str, name: str) -> dict[str, Any]:
    """Return the server's info on a consumer; raise ApiError."""
    check_name(stream)
    return streams.call(f"CONSUMER.INFO.{stream}.{check_name(name, 'consumer')}")


# The commands


@app.command()
@with_options(ConnectionOptions, ConsumerOptions, ConsumerCreation)
def add(
    connection: ConnectionOptions,
    options: ConsumerOptions,
    creation: ConsumerCreation,
    stream: StreamName,
    name: ConsumerName,
    as_json: AsJson = False,
) -> None:
    """Make a consumer: durable, pulled and acknowledged one by one, unless options say otherwise.

    \b
    penstock consumer add ORDERS billing --filter 'orders.eu.>' --max-deliver 5
    penstock consumer add ORDERS audit --deliver 24h --ack none --ephemeral
    penstock consumer add ORDERS mirror --target mirror.in --heartbeat 5s --flow-control
    penstock consumer add ORDERS jobs --max-deliver 3 --dead-letter dead.orders
    """
    now_ns = SystemClock().now_ns()
    said = options.fields() | creation.fields(check_name(name, "consumer"), now_ns)
    config = {"ack_policy": "explicit"} | said
    with jetstream(connection) as streams, naming(streams, stream):
        asked = {"stream_name": check_name(stream), "config": config, "action": "create"}
        info = streams.call(f"CONSUMER.CREATE.{stream}.{name}", asked)
    show_consumer(info, as_json=as_json).finish()


@app.command()
@with_options(ConnectionOptions, ConsumerOptions)
def edit(
    connection: ConnectionOptions,
    options: ConsumerOptions,
    stream: StreamName,
    name: ConsumerName,
    as_json: AsJson = False,
) -> None:
    """Change a consumer's configuration; options that are not given stay as they are.

    \b
    penstock consumer edit ORDERS billing --wait 2m --max-pending 5000
    """
    changes = options.fields()
    if not changes:
        raise UsageError("nothing to change was said; --help lists what can be")
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        config = find_consumer(streams, stream, name)["config"]
        notes = (config.get("metadata") or {}) | changes.pop("metadata", {})
        changed = config | changes | {"name": name} | ({"metadata": notes} if notes else {})
        asked = {"stream_name": stream, "config": changed, "action": "update"}
        info = streams.call(f"CONSUMER.CREATE.{stream}.{name}", asked)
    show_consumer(info, as_json=as_json).finish()


@app.command()
@with_server
def info(
    connection: ConnectionOptions, stream: StreamName, name: ConsumerName, as_json: AsJson = False
) -> None:
    """Show a consumer: its configuration, how far it is, and what it waits for."""
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        told = find_consumer(streams, stream, name)
    show_consumer(told, as_json=as_json).finish()


@app.command()
@with_server
def ls(
    connection: ConnectionOptions,
    stream: StreamName,
    names: Annotated[bool, typer.Option("--names", "-n", help="Print only the names.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the consumers of a stream."""
    with jetstream(connection) as streams, naming(streams, stream):
        found = streams.pages(f"CONSUMER.LIST.{check_name(stream)}", "consumers", {})
        infos = sorted(found, key=lambda each: str(each["name"]))
    output = make_output(as_json=as_json)
    if names:
        for each in infos:
            output.say(text(each["name"]))
        output.facts({"consumers": [each["name"] for each in infos]}, [])
    else:
        output.rows("consumers", _LIST, [_row(each) for each in infos])
    output.finish()


def _row(info: dict[str, Any]) -> dict[str, object]:
    config = info["config"]
    return {
        "name": info["name"],
        "kind": _kind(config),
        "filters": filters_of(config),
        "ack_policy": config["ack_policy"],
        "pending": info["num_pending"],
        "ack_pending": info["num_ack_pending"],
        "redelivered": info["num_redelivered"],
        "waiting": info["num_waiting"],
        "last_delivery": info["delivered"].get("last_active", NEVER),
    }


@app.command()
@with_server
def rm(
    connection: ConnectionOptions, stream: StreamName, name: ConsumerName, force: Force = False
) -> None:
    """Remove a consumer; the stream's messages stay, unless they wait for it alone."""
    check_name(stream)
    check_name(name, "consumer")
    make_sure(f"Remove the consumer {name!r} of {stream!r}?", force=force)
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        streams.call(f"CONSUMER.DELETE.{stream}.{name}")


@app.command()
@with_server
def pause(
    connection: ConnectionOptions,
    stream: StreamName,
    name: ConsumerName,
    time: Annotated[
        str, typer.Argument(metavar="UNTIL", show_default=False, help="A time, or for how long.")
    ],
    as_json: AsJson = False,
) -> None:
    """Deliver nothing until some time; delivery then goes on by itself.

    \b
    penstock consumer pause ORDERS billing 30m
    penstock consumer pause ORDERS billing 2030-01-01T00:00:00Z
    """
    deadline = until(time, SystemClock().now_ns())
    _pause(connection, stream, name, {"pause_until": deadline}, as_json=as_json)


@app.command()
@with_server
def resume(
    connection: ConnectionOptions, stream: StreamName, name: ConsumerName, as_json: AsJson = False
) -> None:
    """Go on with a consumer that is paused."""
    _pause(connection, stream, name, {}, as_json=as_json)


def _pause(
    connection: ConnectionOptions, stream: str, name: str, request: dict[str, str], *, as_json: bool
) -> None:
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        # Some servers answer the pause of a missing consumer with success, others do not.
        find_consumer(streams, stream, name)
        answer = streams.call(f"CONSUMER.PAUSE.{stream}.{name}", request)
    output = make_output(as_json=as_json)
    output.facts(answer, [])
    if answer.get("paused"):
        output.say(f"Paused for {_about(answer['pause_remaining'])}")
    else:
        output.say("Not paused")
    output.finish()


@app.command()
@with_server
def reset(
    connection: ConnectionOptions,
    stream: StreamName,
    name: ConsumerName,
    seq: Annotated[
        int, typer.Option(min=0, metavar="SEQ", help="Begin there; 0: behind what is acknowledged.")
    ] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Forget what was delivered, and deliver again: what is not acknowledged, or from --seq on.

    \b
    penstock consumer reset ORDERS billing --seq 12000
    """
    check_name(stream)
    check_name(name, "consumer")
    make_sure(f"Deliver messages of {stream!r} to {name!r} once more?", force=force)
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        find_consumer(streams, stream, name)
        told = streams.call(f"CONSUMER.RESET.{stream}.{name}", {"seq": seq} if seq else None)
    output = show_consumer(told, as_json=as_json)
    output.say(f"Begins with sequence {told['reset_seq']:,}")
    output.finish()


@app.command()
@with_server
def unpin(
    connection: ConnectionOptions,
    stream: StreamName,
    name: ConsumerName,
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    force: Force = False,
) -> None:
    """Let another client of a priority group take over from the one that is pinned."""
    make_sure(f"Unpin the client of group {group!r} of {name!r}?", force=force)
    with jetstream(connection) as streams, naming_consumer(streams, stream, name):
        find_consumer(streams, stream, name)
        streams.call(f"CONSUMER.UNPIN.{stream}.{name}", {"group": group})
