"""`penstock kv`: keys and values in buckets, in the manner of the `nats` tool.

A bucket is the stream KV_<bucket>, a key the subject $KV.<bucket>.<key>, a value its last message;
a deletion is a message too, whose headers say so. Works with any NATS server, and together with
every client that has key-value buckets.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from penstock.cli.arguments import AsJson, ConnectionOptions, with_server
from penstock.cli.jetstream.connection import Force, follow, jetstream, make_sure, names, naming
from penstock.cli.jetstream.stream_options import StorageKind, duration_ns, size_bytes
from penstock.cli.jetstream.streams import bound_size, span, when
from penstock.cli.output import Column, count, make_output, moment, parse_headers, printable, size
from penstock.cli.pubsub import Body, Raw, SendOn, interrupted_quietly, read_bodies
from penstock.client.jetstream import JetStream, Stored
from penstock.errors import UsageError

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Keys and values in buckets of a server."
)

PREFIX = "KV_"
DUPLICATE_WINDOW_NS = 120 * 10**9
HISTORY_MAX = 64
"""Values of one key: a bound of the buckets' format (ADR-8)."""

_BUCKET = re.compile(r"[A-Za-z0-9_-]+\Z")
_KEY = re.compile(r"[-/_=.A-Za-z0-9]+\Z")
_PATTERN = re.compile(r"[-/_=.A-Za-z0-9*>]+\Z")

Bucket = Annotated[str, typer.Argument(metavar="BUCKET", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="KEY", show_default=False)]

_STATUS = [
    Column("bucket", "bucket"),
    Column("values", "values", count),
    Column("bytes", "bytes", size),
    Column("history", "history kept", count),
    Column("ttl_ns", "time to live", span),
    Column("max_bytes", "max bytes", bound_size),
    Column("max_value_bytes", "max value size", bound_size),
    Column("storage", "storage"),
    Column("last", "last change", when),
]
_ENTRY = [
    Column("key", "key"),
    Column("revision", "revision", count, right=True),
    Column("operation", "operation"),
    Column("created", "created", moment),
    Column("value", "value"),
]


# Names


def stream_of(bucket: str) -> str:
    """Return the stream of a bucket; raise UsageError if it is no name."""
    if not _BUCKET.match(bucket):
        raise UsageError(f"not a name for a bucket: {bucket!r} (letters, digits, - and _)")
    return PREFIX + bucket


def subject_of(bucket: str, key: str, *, is_pattern: bool = False) -> str:
    """Return the subject of a key; raise UsageError if it is no key."""
    wanted = _PATTERN if is_pattern else _KEY
    if not wanted.match(key) or "" in key.split("."):
        raise UsageError(f"not a key: {key!r} (letters, digits and - / _ = with single dots)")
    return f"$KV.{bucket}.{key}"


def operation_of(message: Stored) -> str:
    """Return what a message did to its key: PUT, DEL or PURGE."""
    headers = parse_headers(message.headers)
    if "Nats-Marker-Reason" in headers:
        return "PURGE" if headers["Nats-Marker-Reason"] != ["Remove"] else "DEL"
    return headers.get("KV-Operation", ["PUT"])[0]


def entry_of(bucket: str, message: Stored) -> dict[str, object]:
    """Return what a message says of its key, as a document."""
    return {
        "bucket": bucket,
        "key": printable(message.subject).removeprefix(f"$KV.{bucket}."),
        "revision": message.seq,
        "operation": operation_of(message),
        "created": message.time,
        "value": printable(message.payload),
    }


# Buckets


@app.command()
@with_server
def add(
    connection: ConnectionOptions,
    bucket: Bucket,
    history: Annotated[
        int, typer.Option(min=1, max=HISTORY_MAX, metavar="N", help="Values kept of each key.")
    ] = 1,
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="How long values are kept.")] = "-1",
    max_bucket_size: Annotated[str, typer.Option(metavar="SIZE", help="The most bytes.")] = "-1",
    max_value_size: Annotated[str, typer.Option(metavar="SIZE", help="The largest value.")] = "-1",
    storage: Annotated[StorageKind, typer.Option(help="Where it is kept.")] = StorageKind.FILE,
    replicas: Annotated[int, typer.Option(min=1, metavar="N", help="Servers that keep it.")] = 1,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    compress: Annotated[bool, typer.Option("--compress", help="Pack values.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a bucket.

    \b
    penstock kv add sessions --ttl 12h --history 5
    """
    ttl_ns = duration_ns(ttl)
    config = {
        "name": stream_of(bucket),
        "description": description,
        "subjects": [f"$KV.{bucket}.>"],
        "max_msgs_per_subject": history,
        "max_bytes": size_bytes(max_bucket_size),
        "max_msg_size": size_bytes(max_value_size),
        "max_age": ttl_ns,
        "duplicate_window": min(ttl_ns or DUPLICATE_WINDOW_NS, DUPLICATE_WINDOW_NS),
        "storage": str(storage),
        "num_replicas": replicas,
        "compression": "s2" if compress else "none",
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }
    with jetstream(connection) as streams:
        told = streams.call(f"STREAM.CREATE.{config['name']}", config)
    _tell_status(bucket, told, as_json)


@app.command("info")
@app.command("status", hidden=True)
@with_server
def info(connection: ConnectionOptions, bucket: Bucket, as_json: AsJson = False) -> None:
    """Show a bucket; `status` is the same."""
    with _bucket(connection, bucket) as streams:
        told = streams.call(f"STREAM.INFO.{stream_of(bucket)}")
    _tell_status(bucket, told, as_json)


def _status(bucket: str, told: dict[str, Any]) -> dict[str, object]:
    config, state = told["config"], told["state"]
    return {
        "bucket": bucket,
        "values": state["messages"],
        "bytes": state["bytes"],
        "history": config["max_msgs_per_subject"],
        "ttl_ns": config["max_age"],
        "max_bytes": config["max_bytes"],
        "max_value_bytes": config.get("max_msg_size", -1),
        "storage": config["storage"],
        "last": state["last_ts"],
    }


def _tell_status(bucket: str, told: dict[str, Any], as_json: bool) -> None:
    output = make_output(as_json=as_json)
    output.facts(_status(bucket, told), _STATUS)
    output.finish()


@app.command()
@with_server
def rm(connection: ConnectionOptions, bucket: Bucket, force: Force = False) -> None:
    """Remove a bucket and everything in it."""
    make_sure(f"Remove the bucket {bucket!r} and everything in it?", force=force)
    with _bucket(connection, bucket) as streams:
        streams.call(f"STREAM.DELETE.{stream_of(bucket)}")


@app.command()
@with_server
def ls(
    connection: ConnectionOptions,
    bucket: Annotated[
        str | None, typer.Argument(metavar="BUCKET", help="Its keys.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the buckets, or the keys of one."""
    output = make_output(as_json=as_json)
    if bucket is None:
        with jetstream(connection) as streams:
            found = sorted(name for name in names(streams) if name.startswith(PREFIX))
            told = [streams.call(f"STREAM.INFO.{name}") for name in found]
        rows = [
            _status(name.removeprefix(PREFIX), each) for name, each in zip(found, told, strict=True)
        ]
        output.rows("buckets", _STATUS, rows)
    else:
        with _bucket(connection, bucket) as streams:
            keys = sorted(_keys(streams, bucket))
        for key in keys:
            output.say(key)
        output.facts({"keys": keys}, [])
    output.finish()


def _keys(streams: JetStream, bucket: str) -> Iterator[str]:
    """Yield the keys that have a value."""
    name = stream_of(bucket)
    subjects = [subject for subject, _ in streams.subjects(name, f"$KV.{bucket}.>")]
    for message in streams.find_last(name, subjects):
        if message is not None and operation_of(message) == "PUT":
            yield printable(message.subject).removeprefix(f"$KV.{bucket}.")


# Keys


@app.command()
@with_server
def put(
    connection: ConnectionOptions,
    bucket: Bucket,
    key: Key,
    value: Body = None,
    as_json: AsJson = False,
) -> None:
    """Set the value of a key, from the argument or from stdin; its revision is printed."""
    subject = subject_of(bucket, key)
    with _bucket(connection, bucket) as streams:
        _check_exists(streams, bucket)
        (payload,) = read_bodies(streams.client, value, SendOn.EOF)
        ack = streams.publish(subject.encode(), payload)
    output = make_output(as_json=as_json)
    output.facts({"bucket": bucket, "key": key, "revision": ack["seq"]}, [])
    output.say(str(ack["seq"]))
    output.finish()


@app.command()
@with_server
def get(
    connection: ConnectionOptions,
    bucket: Bucket,
    key: Key,
    revision: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="An older value.", show_default=False)
    ] = None,
    raw: Raw = False,
    as_json: AsJson = False,
) -> None:
    """Print the value of a key."""
    subject = subject_of(bucket, key)
    wanted: dict[str, object] = {"last_by_subj": subject} if revision is None else {"seq": revision}
    with _bucket(connection, bucket) as streams:
        found = streams.find(stream_of(bucket), **wanted)
    has_value = found is not None and found.subject == subject.encode()
    if found is None or not has_value or operation_of(found) != "PUT":
        at = f" at revision {revision}" if revision is not None else ""
        raise UsageError(f"the key {key!r} has no value{at}; `penstock kv ls {bucket}` lists keys")
    if raw:
        sys.stdout.buffer.write(found.payload)
        sys.stdout.buffer.flush()
        return
    output = make_output(as_json=as_json)
    output.facts(entry_of(bucket, found), _ENTRY)
    output.finish()


@app.command("del")
@with_server
def delete(connection: ConnectionOptions, bucket: Bucket, key: Key, force: Force = False) -> None:
    """Delete a key; its older values stay in its history."""
    make_sure(f"Delete the key {key!r} of {bucket!r}?", force=force)
    _mark(connection, bucket, key, b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n")


@app.command()
@with_server
def purge(connection: ConnectionOptions, bucket: Bucket, key: Key, force: Force = False) -> None:
    """Delete a key and its history."""
    make_sure(f"Delete the key {key!r} of {bucket!r} and its history?", force=force)
    _mark(connection, bucket, key, b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n")


def _mark(connection: ConnectionOptions, bucket: str, key: str, headers: bytes) -> None:
    subject = subject_of(bucket, key)
    with _bucket(connection, bucket) as streams:
        _check_exists(streams, bucket)
        streams.publish(subject.encode(), headers=headers)


@app.command()
@with_server
def history(
    connection: ConnectionOptions, bucket: Bucket, key: Key, as_json: AsJson = False
) -> None:
    """Print all that is kept of a key, oldest first."""
    subject = subject_of(bucket, key)
    with _bucket(connection, bucket) as streams:
        rows = [entry_of(bucket, each) for each in streams.each(stream_of(bucket), subject)]
    output = make_output(as_json=as_json)
    output.rows("entries", _ENTRY, rows)
    output.finish()


@app.command()
@with_server
def watch(
    connection: ConnectionOptions,
    bucket: Bucket,
    key: Annotated[str, typer.Argument(metavar="PATTERN", help="Of these keys alone (all).")] = ">",
    number: Annotated[
        int, typer.Option("--count", metavar="N", min=0, help="End after so many; 0 for never.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
) -> None:
    """Print the values of keys and then every change, until --count of them or Ctrl-C."""
    pattern = subject_of(bucket, key, is_pattern=True)
    with interrupted_quietly(0), _bucket(connection, bucket) as streams:
        for place, message in enumerate(follow(streams, stream_of(bucket), pattern), start=1):
            _print_change(entry_of(bucket, message), as_json)
            if place == number:
                return


def _print_change(entry: dict[str, object], as_json: bool) -> None:
    if as_json:
        line = json.dumps(entry)
    else:
        value = f": {entry['value']}" if entry["operation"] == "PUT" else ""
        created = moment(entry["created"])
        line = f"[{created}] {entry['operation']} {entry['bucket']} > {entry['key']}{value}"
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# What they share


@contextlib.contextmanager
def _bucket(connection: ConnectionOptions, bucket: str) -> Iterator[JetStream]:
    stream_of(bucket)
    with (
        jetstream(connection) as streams,
        naming(streams, bucket, prefix=PREFIX, what="bucket"),
    ):
        yield streams


def _check_exists(streams: JetStream, bucket: str) -> None:
    """Ask for the bucket: without it a publish would only find no responders."""
    streams.call(f"STREAM.INFO.{stream_of(bucket)}")
