"""`penstock object`: files in buckets, in the manner of the `nats` tool.

A bucket is the stream OBJ_<bucket>; an object is a document about it under
$O.<bucket>.M.<name in base64> and its bytes in chunks under $O.<bucket>.C.<id>. Against any NATS
server, and together with every client that has object stores.

Invariant: an object is seen only when all of its chunks are acknowledged; what is read is
held against its digest before it takes its place.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from penstock.cli.arguments import AsJson, ConnectionOptions, with_server
from penstock.cli.jetstream.connection import Force, jetstream, make_sure, names, naming
from penstock.cli.jetstream.kv import Bucket
from penstock.cli.jetstream.stream_options import StorageKind, duration_ns, size_bytes
from penstock.cli.jetstream.streams import bound_size, span, when
from penstock.cli.output import (
    Column,
    OnProgress,
    count,
    make_output,
    progress,
    size,
    text,
    yes_or_no,
)
from penstock.client.jetstream import JetStream
from penstock.errors import FormatError, UsageError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Files in buckets of a server.")

PREFIX = "OBJ_"
CHUNK_BYTES = 128 * 1024
ROLLUP = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n"

ObjectName = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]

_BUCKETS = [
    Column("bucket", "bucket"),
    Column("description", "description", text),
    Column("bytes", "bytes", size, right=True),
    Column("ttl_ns", "time to live", span),
    Column("max_bytes", "max bytes", bound_size),
    Column("storage", "storage"),
    Column("sealed", "sealed", yes_or_no),
]
_OBJECT = [
    Column("name", "name", text),
    Column("description", "description", text),
    Column("size", "size", size, right=True),
    Column("chunks", "chunks", count, right=True),
    Column("digest", "digest", text),
    Column("mtime", "modified", when),
]


def stream_of(bucket: str) -> str:
    """Return the stream of a bucket; raise UsageError if it is no name."""
    if not bucket.replace("-", "").replace("_", "").isalnum() or not bucket.isascii():
        raise UsageError(f"not a name for a bucket: {bucket!r} (letters, digits, - and _)")
    return PREFIX + bucket


def meta_subject(bucket: str, name: str) -> str:
    """Return the subject of an object's document; raise UsageError if it is no name."""
    if not name:
        raise UsageError("an object must have a name")
    encoded = base64.urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode()
    return f"$O.{bucket}.M.{encoded}"


# Buckets


@app.command()
@with_server
def add(
    connection: ConnectionOptions,
    bucket: Bucket,
    ttl: Annotated[str, typer.Option(metavar="DURATION", help="How long objects are kept.")] = "-1",
    max_bucket_size: Annotated[str, typer.Option(metavar="SIZE", help="The most bytes.")] = "-1",
    storage: Annotated[StorageKind, typer.Option(help="Where it is kept.")] = StorageKind.FILE,
    replicas: Annotated[int, typer.Option(min=1, metavar="N", help="Servers that keep it.")] = 1,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a bucket.

    \b
    penstock object add pictures --max-bucket-size 10GB
    """
    config = {
        "name": stream_of(bucket),
        "description": description,
        "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        "max_age": duration_ns(ttl),
        "max_bytes": size_bytes(max_bucket_size),
        "storage": str(storage),
        "num_replicas": replicas,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
    with jetstream(connection) as streams:
        told = streams.call(f"STREAM.CREATE.{config['name']}", config)
    output = make_output(as_json=as_json)
    output.facts(_bucket_row(told), _BUCKETS)
    output.finish()


def _bucket_row(told: dict[str, Any]) -> dict[str, object]:
    config, state = told["config"], told["state"]
    return {
        "bucket": config["name"].removeprefix(PREFIX),
        "description": config.get("description", ""),
        "bytes": state["bytes"],
        "ttl_ns": config["max_age"],
        "max_bytes": config["max_bytes"],
        "storage": config["storage"],
        "sealed": config["sealed"],
    }


@app.command()
@with_server
def ls(
    connection: ConnectionOptions,
    bucket: Annotated[
        str | None, typer.Argument(metavar="BUCKET", help="Its objects.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the buckets, or the objects of one."""
    output = make_output(as_json=as_json)
    if bucket is None:
        with jetstream(connection) as streams:
            found = sorted(name for name in names(streams) if name.startswith(PREFIX))
            rows = [_bucket_row(streams.call(f"STREAM.INFO.{name}")) for name in found]
        output.rows("buckets", _BUCKETS, rows)
    else:
        with _bucket(connection, bucket) as streams:
            objects = sorted(_objects(streams, bucket), key=lambda each: str(each["name"]))
        output.rows("objects", _OBJECT, objects)
    output.finish()


def _objects(streams: JetStream, bucket: str) -> Iterator[dict[str, Any]]:
    name = stream_of(bucket)
    subjects = [subject for subject, _ in streams.subjects(name, f"$O.{bucket}.M.>")]
    for message in streams.find_last(name, subjects):
        if message is not None:
            document = _document(message.payload) | {"mtime": message.time}
            if not document.get("deleted"):
                yield document


# Objects


@app.command()
@with_server
def put(
    connection: ConnectionOptions,
    bucket: Bucket,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its name (the file's).", show_default=False)
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it is.")] = "",
    as_json: AsJson = False,
) -> None:
    """Copy a file into a bucket; what was there under its name is replaced.

    \b
    penstock object put pictures cat.jpg
    """
    name = name or file.name
    target = meta_subject(bucket, name)
    with _bucket(connection, bucket) as streams:
        before = _find(streams, bucket, name)
        unique = secrets.token_hex(11)
        document = {"name": name, "description": description, "bucket": bucket, "nuid": unique}
        with file.open("rb") as source, progress("put", is_shown=not as_json) as tell:
            document |= _upload(streams, f"$O.{bucket}.C.{unique}", source, tell)
        streams.publish(target.encode(), json.dumps(document).encode(), headers=ROLLUP)
        if before is not None:
            _purge_chunks(streams, bucket, before)
    output = make_output(as_json=as_json)
    output.facts(document, _OBJECT[:-1])
    output.finish()


def _upload(streams: JetStream, subject: str, source: BinaryIO, tell: OnProgress) -> dict[str, Any]:
    """Send a file in chunks; return the fields of the object's document about them."""
    total = os.fstat(source.fileno()).st_size
    digest = hashlib.sha256()
    done = chunks = 0

    def read() -> Iterator[bytes]:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            yield chunk

    for taken in streams.publish_all(subject.encode(), read()):
        done += taken
        chunks += 1
        tell(done, max(total, done))
    encoded = base64.urlsafe_b64encode(digest.digest()).decode()
    return {
        "size": done,
        "chunks": chunks,
        "digest": f"SHA-256={encoded}",
        "options": {"max_chunk_size": CHUNK_BYTES},
    }


@app.command()
@with_server
def get(
    connection: ConnectionOptions,
    bucket: Bucket,
    name: ObjectName,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-O", metavar="FILE", dir_okay=False, help="Where to (here, by its name)."
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Copy an object into a file."""
    target = output_file or Path(Path(name).name)
    if target.exists():
        make_sure(f"Overwrite {target}?", force=force)
    with _bucket(connection, bucket) as streams:
        document = _known(streams, bucket, name)
        partial = target.with_name(f".{target.name}.unfinished")
        try:
            with partial.open("wb") as file, progress("get", is_shown=not as_json) as tell:
                _download(streams, bucket, document, file, tell)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    output = make_output(as_json=as_json)
    output.facts(document | {"file": str(target)}, _OBJECT)
    output.finish()


def _download(
    streams: JetStream, bucket: str, document: dict[str, Any], file: BinaryIO, tell: OnProgress
) -> None:
    digest = hashlib.sha256()
    done = 0
    total = document.get("size", 0)
    if document.get("chunks", 0):
        for message in streams.each(stream_of(bucket), f"$O.{bucket}.C.{document['nuid']}"):
            digest.update(message.payload)
            file.write(message.payload)
            done += len(message.payload)
            tell(done, max(total, done))
            if done >= total:
                break
    known = document.get("digest", "").partition("=")[2]
    if done != total or known.rstrip("=") != base64.urlsafe_b64encode(
        digest.digest()
    ).decode().rstrip("="):
        raise FormatError(f"the object {document['name']!r} is not whole: its digest is another")


@app.command()
@with_server
def info(
    connection: ConnectionOptions,
    bucket: Bucket,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An object.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show an object, or a bucket."""
    output = make_output(as_json=as_json)
    with _bucket(connection, bucket) as streams:
        if name is None:
            told = streams.call(f"STREAM.INFO.{stream_of(bucket)}")
            output.facts(_bucket_row(told), _BUCKETS)
        else:
            output.facts(_known(streams, bucket, name), _OBJECT)
    output.finish()


@app.command()
@with_server
def rm(
    connection: ConnectionOptions,
    bucket: Bucket,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An object.", show_default=False)
    ] = None,
    force: Force = False,
) -> None:
    """Remove an object, or a bucket and everything in it."""
    if name is None:
        make_sure(f"Remove the bucket {bucket!r} and everything in it?", force=force)
    else:
        make_sure(f"Remove the object {name!r} of {bucket!r}?", force=force)
    with _bucket(connection, bucket) as streams:
        if name is None:
            streams.call(f"STREAM.DELETE.{stream_of(bucket)}")
            return
        document = _known(streams, bucket, name)
        gone = {"name": name, "bucket": bucket, "nuid": document["nuid"], "deleted": True}
        subject = meta_subject(bucket, name).encode()
        streams.publish(subject, json.dumps(gone | _NOTHING).encode(), headers=ROLLUP)
        _purge_chunks(streams, bucket, document)


_NOTHING = {"size": 0, "chunks": 0, "digest": ""}


# What they share


@contextlib.contextmanager
def _bucket(connection: ConnectionOptions, bucket: str) -> Iterator[JetStream]:
    name = stream_of(bucket)
    with (
        jetstream(connection) as streams,
        naming(streams, bucket, prefix=PREFIX, what="bucket"),
    ):
        streams.call(f"STREAM.INFO.{name}")
        yield streams


def _document(payload: bytes) -> dict[str, Any]:
    try:
        document = json.loads(payload)
    except ValueError:
        document = None
    if not isinstance(document, dict) or "nuid" not in document or "name" not in document:
        raise FormatError("the document about an object cannot be read")
    return document


def _find(streams: JetStream, bucket: str, name: str) -> dict[str, Any] | None:
    found = streams.find(stream_of(bucket), last_by_subj=meta_subject(bucket, name))
    if found is None:
        return None
    document = _document(found.payload) | {"mtime": found.time}
    return None if document.get("deleted") else document


def _known(streams: JetStream, bucket: str, name: str) -> dict[str, Any]:
    document = _find(streams, bucket, name)
    if document is None:
        raise UsageError(
            f"there is no object {name!r}; `penstock object ls {bucket}` lists those there are"
        )
    return document


def _purge_chunks(streams: JetStream, bucket: str, document: dict[str, Any]) -> None:
    wanted = {"filter": f"$O.{bucket}.C.{document['nuid']}"}
    streams.call(f"STREAM.PURGE.{stream_of(bucket)}", wanted)
