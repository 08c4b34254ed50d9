"""Importing a stream of Go's nats-server: its store directory becomes one of ours.

Messages keep sequence, time, subject, headers and payload; what is missing there stays missing, and
the last sequence is the same even if its message is gone. Consumers' states become state files, and
the configurations of the stream and its consumers are kept as they were in `import.json`:

    {"stream": {…}, "consumers": {"worker": {…}}}

Invariant: the source is only read; the target appears whole or not at all; what could not
be carried over is in the report. Limits are not applied here: the target's own are, when it is
opened.

Stop the server first. Called by the command line; one thread.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.errors import UsageError
from penstock.format.columns import ColumnBatch
from penstock.format.envelope import StoreKey
from penstock.format.golang.directory import GoStreamReader, is_go_stream_directory
from penstock.format.golang.metadata import GoConsumer, GoConsumerState
from penstock.format.layout import CONSUMERS_NAME, IMPORT_NAME, consumer_state_name
from penstock.format.state.consumer import (
    ConsumerState,
    PendingDelivery,
    SequencePair,
    encode_consumer_state,
)
from penstock.store.imports.build import (
    ImportReport,
    StoreBuilder,
    StoreEnvironment,
    check_vacant,
    folder_beside,
)
from penstock.store.interface import NEVER_NS, RawMessage, StoreConfig
from penstock.store.vfs import FileSystem, OsFileSystem, write_atomically

Progress = Callable[[int, int], None]
"""Called with the messages done so far and in all."""

_SECOND_NS = 1_000_000_000
_TTL_HEADER = b"\r\nNats-TTL:"
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": _SECOND_NS,
    "m": 60 * _SECOND_NS,
    "h": 3600 * _SECOND_NS,
}

_BEYOND_A_STORE = (
    "allow_atomic",
    "allow_msg_counter",
    "allow_msg_schedules",
    "mirror",
    "republish",
    "sealed",
    "sources",
    "subject_delete_marker_ttl",
    "subject_transform",
)
"""Features of a stream, by their name in its configuration, that a store alone does not have."""


def import_go_stream(
    source_path: str,
    target_path: str,
    config: StoreConfig | None = None,
    *,
    key: StoreKey | None = None,
    go_key: str | bytes | None = None,
    progress: Progress | None = None,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
) -> ImportReport:
    """Build a store at `target_path` from a stream's folder of Go's server.

    Without a configuration the store gets the stream's name and the defaults. `key` is the new
    store's, `go_key` the server's `jetstream { key }`. Raises UsageError where something is at the
    target or no stream at the source, WrongKey, StoreLocked, OSError; nothing is left behind then.
    """
    if not is_go_stream_directory(source_path):
        raise UsageError(f"{source_path}: not a stream's folder of Go's nats-server")
    files = files or OsFileSystem()
    check_vacant(files, target_path)
    reader = GoStreamReader(source_path, key=go_key)
    consumers = reader.consumers()
    report = ImportReport(reader.name, unsupported=_unsupported(reader.config))
    config = config or StoreConfig(name=reader.name)
    environment = StoreEnvironment(files, clock or SystemClock(), random_bytes, key)
    builder = StoreBuilder(folder_beside(target_path, "importing"), config, environment)
    try:
        _copy_messages(reader, builder, report, progress)
        _write_consumers(files, builder.path, consumers, report, random_bytes)
        _write_configuration(files, builder.path, reader, consumers, random_bytes)
        builder.put_in_place(target_path)
    except BaseException:
        builder.abandon()
        raise
    return report


def _copy_messages(
    reader: GoStreamReader,
    builder: StoreBuilder,
    report: ImportReport,
    progress: Progress | None,
) -> None:
    expires = bool(reader.config.get("allow_msg_ttl"))
    total = reader.state.messages
    done = 0
    for batch in reader.batches():
        messages = list(_raw_messages(batch, expires=expires))
        report.expiring += sum(1 for message in messages if 0 < message[5] < NEVER_NS)
        builder.add(messages)
        done += len(messages)
        if progress is not None:
            progress(done, total)
    built = builder.finish(
        last_seq=reader.state.last_seq, last_time_ns=reader.state.last_timestamp_ns
    )
    report.messages = built.messages
    report.bytes = built.bytes
    report.first_seq = built.first_seq
    report.last_seq = built.last_seq
    report.missing = max(total - built.messages, 0)
    report.damage = list(reader.report.damage)
    report.problems = [f"{each.path}: {each.reason}" for each in reader.report.files]


def _raw_messages(batch: ColumnBatch, *, expires: bool) -> Iterator[RawMessage]:
    seqs = memoryview(batch.sequences).cast("Q")
    times = memoryview(batch.timestamps).cast("q")
    subject_ends = memoryview(batch.subject_offsets).cast("i")
    headers_ends = memoryview(batch.header_offsets).cast("i")
    payload_ends = memoryview(batch.payload_offsets).cast("i")
    subject_at = headers_at = payload_at = 0
    for row in range(batch.count):
        subject_end, headers_end = subject_ends[row + 1], headers_ends[row + 1]
        payload_end = payload_ends[row + 1]
        headers = batch.headers[headers_at:headers_end]
        expires_ns = expiry_ns(headers, times[row]) if expires and headers else 0
        yield (
            seqs[row],
            times[row],
            batch.subjects[subject_at:subject_end],
            headers,
            batch.payloads[payload_at:payload_end],
            expires_ns,
        )
        subject_at, headers_at, payload_at = subject_end, headers_end, payload_end


def expiry_ns(headers: bytes, timestamp_ns: int) -> int:
    """Return when a message's time to live ends, 0 for a value that the server ignores too."""
    _, found, after = headers.partition(_TTL_HEADER)
    if not found:
        return 0
    text = after.partition(b"\r\n")[0].decode("utf-8", "replace").strip()
    if text.lower() == "never":
        return NEVER_NS
    seconds = ttl_seconds(text)
    return timestamp_ns + seconds * _SECOND_NS if seconds > 0 else 0


def ttl_seconds(text: str) -> int:
    """Read a `Nats-TTL`: whole seconds, or a duration as Go writes it; 0 for anything else.

    The server cuts a duration to whole seconds, and refuses one of less than a second.
    """
    if text.isascii() and text.isdigit():
        return int(text) if len(text) < 12 else 0
    parts = _DURATION.findall(text)
    if not parts or "".join(parts) != text or len(text) > 64:
        return 0
    total_ns = 0
    for part in parts:
        unit = part.lstrip("0123456789.")
        whole, _, fraction = part.removesuffix(unit).partition(".")
        number = int(whole + fraction or "0") * _UNIT_NS[unit]
        total_ns += number // 10 ** len(fraction)
    return total_ns // _SECOND_NS


def _unsupported(config: Mapping[str, Any]) -> list[str]:  # Any: a JSON document
    found = [name for name in _BEYOND_A_STORE if config.get(name)]
    retention = config.get("retention", "limits")
    if retention != "limits":
        found.append(f"retention: {retention}")
    if (config.get("num_replicas") or 1) != 1:
        found.append(f"num_replicas: {config['num_replicas']}")
    return sorted(found)


# Consumers and configuration


def _write_consumers(
    files: FileSystem,
    folder: str,
    consumers: list[GoConsumer],
    report: ImportReport,
    random_bytes: Callable[[int], bytes],
) -> None:
    for consumer in consumers:
        report.problems += [f"{each.path}: {each.reason}" for each in consumer.problems]
        if consumer.state is None:
            continue
        try:
            image = encode_consumer_state(to_consumer_state(consumer.state))
        except UsageError as error:
            report.problems.append(f"consumer {consumer.name}: {error}")
            continue
        target = os.path.join(folder, CONSUMERS_NAME)
        files.make_dirs(target)
        path = os.path.join(target, consumer_state_name(consumer.name))
        write_atomically(files, path, image, unique=random_bytes(8).hex())
        report.consumers.append(consumer.name)


def to_consumer_state(state: GoConsumerState) -> ConsumerState:
    """Return a consumer's state as we keep it.

    The oldest version of Go's file does not number the deliveries that wait for an ack: they get
    the numbers after the ack floor, in order.
    """
    floor = SequencePair(state.ack_floor_consumer_seq, state.ack_floor_stream_seq)
    pending = {}
    for place, (stream_seq, each) in enumerate(sorted(state.pending.items()), start=1):
        consumer_seq = each.consumer_seq or floor.consumer_seq + place
        pending[stream_seq] = PendingDelivery(consumer_seq, each.delivered_ns)
    return ConsumerState(
        delivered=SequencePair(state.delivered_consumer_seq, state.delivered_stream_seq),
        ack_floor=floor,
        pending=pending,
        redelivered=dict(state.redelivered),
    )


def _write_configuration(
    files: FileSystem,
    folder: str,
    reader: GoStreamReader,
    consumers: list[GoConsumer],
    random_bytes: Callable[[int], bytes],
) -> None:
    document = {
        "stream": dict(reader.config),
        "consumers": {consumer.name: dict(consumer.config) for consumer in consumers},
    }
    image = json.dumps(document, indent=2, sort_keys=True).encode() + b"\n"
    path = os.path.join(folder, IMPORT_NAME)
    write_atomically(files, path, image, unique=random_bytes(8).hex())
