"""Streams as Spark tables: sources and sinks for PySpark, over block files and over the wire.

`penstock.spark.register(spark)` registers the formats with a session. `write_ordered` writes a
frame in order. Executors load `format` and `client`, never the server.
"""

from penstock.spark.session import register
from penstock.spark.sinks.sink import write_ordered

__all__ = ["register", "write_ordered"]
