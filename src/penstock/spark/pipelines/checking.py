"""Where a pipeline's streams are, and whether they are there: asked before Spark starts.

Asks the server, and where a sink was told to create its stream, makes it. Used by the driver.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import UsageError
from penstock.spark.connecting import streams_of
from penstock.spark.kv import write as kv_write
from penstock.spark.pipelines.ends import KvOutput, Output, StreamOutput
from penstock.spark.pipelines.pipeline import Pipeline
from penstock.spark.pipelines.templates import Template
from penstock.spark.sinks import settings as sink_settings
from penstock.spark.streams.settings import find_streams, read_settings

EXACTLY_ONCE = "exactly-once"

_MESSAGES = StructType([StructField(name, StringType()) for name in ("subject", "value")])
_PAIRS = StructType([StructField(name, StringType()) for name in ("key", "value")])
_SOME_BATCH = {"sinkId": "some", "version": "0"}


def connection_options(pipeline: Pipeline, server: str) -> dict[str, str]:
    """Give the options of connections; `server` counts over what the pipeline says."""
    url = server or pipeline.server
    return {**pipeline.options, **({"servers": url} if url else {})}


def letters_options(subject: Template, connection: Mapping[str, str]) -> dict[str, str]:
    """Give how dead letters are published; asks the server which stream takes them."""
    settings = read_settings({"stream": "any", **connection})
    with streams_of(settings.connection) as streams:
        asked = {"subject": subject.example()}
        names = list(streams.pages("STREAM.NAMES", "streams", asked))
    if len(names) != 1:
        raise UsageError(f"dead letters: no stream takes {subject.text!r}")
    return {**connection, "stream": names[0], "delivery": EXACTLY_ONCE}


def checkpoint_of(pipeline: Pipeline, given: str) -> str:
    """Give the folder of a pipeline's checkpoints; `given` counts over what it says itself."""
    base = given or pipeline.checkpoint or "checkpoints"
    return f"{base.rstrip('/')}/{pipeline.name}"


def check_ends(pipeline: Pipeline, connection: Mapping[str, str]) -> None:
    """Refuse a pipeline whose streams and buckets are not there, or cannot do what they shall.

    Raises UsageError and what connecting raises.
    """
    if not pipeline.flows:
        raise UsageError(f"pipeline {pipeline.name} has no flow")
    for flow in pipeline.flows:
        try:
            for each in flow.inputs:
                find_streams(read_settings({**connection, **each.options}))
                if each.dead_letters is not None:
                    _check_stream(letters_options(each.dead_letters, connection))
            _check_output(flow.output, connection)
        except UsageError as error:
            raise UsageError(f"flow {flow.name}: {error}") from None


def _check_output(output: Output, connection: Mapping[str, str]) -> None:
    if isinstance(output, StreamOutput):
        _check_stream({**connection, **output.options})
    elif isinstance(output, KvOutput):
        options = {**connection, "bucket": output.bucket, **output.options}
        kv_write.read_sink(options, _PAIRS)


def _check_stream(options: dict[str, str]) -> None:
    is_exact = options.get("delivery") == EXACTLY_ONCE
    sink_settings.read_sink({**options, **(_SOME_BATCH if is_exact else {})}, _MESSAGES)
