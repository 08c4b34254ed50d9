"""Pipelines as code, over streams: from streams, through frames, to streams, tables and buckets.

    from penstock.spark.pipelines import Pipeline, from_stream, to_kv, to_stream, to_table

`penstock run FILE` runs one, from Python or from YAML. There is no engine of our own: a flow is a
query of Structured Streaming. The names listed here are public.
"""

from penstock.spark.pipelines.pipeline import Pipeline, from_stream, to_kv, to_stream, to_table

__all__ = ["Pipeline", "from_stream", "to_kv", "to_stream", "to_table"]
