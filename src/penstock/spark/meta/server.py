"""Rows of `penstock-meta` as a server tells them: API calls in pages, and no message is read.

Loaded by executors; each function is given JetStream and yields rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.client.jetstream import JetStream
from penstock.documents.times import ZERO_TIME_NS, parse_instant
from penstock.errors import ApiError, InvalidDocument, RefusedByServer, UsageError
from penstock.spark.meta.tables import Row
from penstock.subjects import SubjectFilter

Document = Mapping[str, Any]
"""A JSON document of the API."""


def stream_rows(streams: JetStream, name: str) -> Iterator[Row]:
    """Give a stream."""
    info = _called(streams, f"STREAM.INFO.{name}")
    state = info["state"]
    yield config_facts(info["config"]) | {
        "stream": name,
        "created": time_ns(info.get("created")),
        "messages": state["messages"],
        "bytes": state["bytes"],
        "first_sequence": state["first_seq"],
        "first_timestamp": time_ns(state.get("first_ts")),
        "last_sequence": state["last_seq"],
        "last_timestamp": time_ns(state.get("last_ts")),
        "deleted": state.get("num_deleted", 0),
        "subject_count": state.get("num_subjects", 0),
        "consumer_count": state.get("consumer_count", 0),
    }


def config_facts(config: Document) -> dict[str, Any]:
    """Give what a stream's configuration tells."""
    return {
        "subjects": config.get("subjects") or [],
        "retention": config.get("retention", "limits"),
        "storage": config.get("storage", "file"),
        "replicas": config.get("num_replicas", 1),
    }


def consumer_rows(streams: JetStream, stream: str) -> Iterator[Row]:
    """Give the consumers of a stream."""
    for info in streams.pages(f"CONSUMER.LIST.{stream}", "consumers", {}):
        yield consumer_facts(info["config"]) | {
            "stream": stream,
            "consumer": info["name"],
            "created": time_ns(info.get("created")),
            "delivered_sequence": info["delivered"]["stream_seq"],
            "ack_floor_sequence": info["ack_floor"]["stream_seq"],
            "pending": info["num_pending"],
            "ack_pending": info["num_ack_pending"],
            "redelivered": info["num_redelivered"],
            "waiting": info["num_waiting"],
        }


def consumer_facts(config: Document) -> dict[str, Any]:
    """Give what a consumer's configuration tells."""
    one = config.get("filter_subject")
    return {
        "durable": bool(config.get("durable_name")),
        "filter_subjects": config.get("filter_subjects") or ([one] if one else []),
        "deliver_policy": config.get("deliver_policy", "all"),
        "ack_policy": config.get("ack_policy", "none"),
    }


def subject_rows(streams: JetStream, stream: str, patterns: Sequence[str]) -> Iterator[Row]:
    """Give the subjects of a stream that match, each once, in pages."""
    for place, pattern in enumerate(patterns):
        told = SubjectFilter(each.encode() for each in patterns[:place]) if place else None
        for subject, count in streams.subjects(stream, pattern):
            if told is None or not told.matches(subject.encode()):
                yield {"stream": stream, "subject": subject, "messages": count}


def time_ns(text: str | None) -> int | None:
    """Read a time of a document; None where it stands for none."""
    if not text:
        return None
    try:
        found = parse_instant(text).time_ns
    except InvalidDocument as error:
        raise RefusedByServer(f"a time that is none: {error}") from None
    return None if found == ZERO_TIME_NS else found


def _called(streams: JetStream, name: str) -> dict[str, Any]:
    try:
        return streams.call(name)
    except ApiError as error:
        raise UsageError(f"{name}: {error}") from None
