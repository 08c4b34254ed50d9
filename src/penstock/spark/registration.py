"""Making the formats known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.spark.archive import ArchiveSource
from penstock.spark.blocks import BlockSource
from penstock.spark.kv import KvSource
from penstock.spark.meta import MetaSource
from penstock.spark.streams import StreamSource

FORMATS = (ArchiveSource, BlockSource, KvSource, MetaSource, StreamSource)


def register(spark: SparkSession) -> None:
    """Make every format of Penstock known to this session."""
    for each in FORMATS:
        spark.dataSource.register(each)
