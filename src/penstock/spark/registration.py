"""Making the formats known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.spark.archives.source import ArchiveSource
from penstock.spark.blocks.source import BlockSource
from penstock.spark.kv.source import KvSource
from penstock.spark.meta.source import MetaSource
from penstock.spark.streams.source import StreamSource

FORMATS = (ArchiveSource, BlockSource, KvSource, MetaSource, StreamSource)


def register(spark: SparkSession) -> None:
    """Make every format of Penstock known to this session."""
    for each in FORMATS:
        spark.dataSource.register(each)
