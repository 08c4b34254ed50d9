"""Streams as Spark tables: sources and sinks for PySpark, over block files and over the wire.

`penstock.spark.register(spark)` makes the formats known to a session; `write_ordered` has a frame
written in order. Executors load `format` and `client`, never the server.
"""

from penstock.spark.registration import register
from penstock.spark.sinks.ordering import write_ordered

__all__ = ["register", "write_ordered"]
