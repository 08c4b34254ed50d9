"""A pipeline in Python: totals of orders, kept in a bucket, and large orders in a stream.

penstock kv add TOTALS
penstock stream add LARGE --allow-batch --subjects 'large.>' --subjects '_fence.LARGE.>'
penstock run examples/orders.py --once
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from penstock.spark.pipelines import Pipeline, from_stream, to_kv, to_stream

pipeline = Pipeline("orders")
orders = from_stream("ORDERS", schema="id long not null, region string, price decimal(10,2)")


@pipeline.flow(orders, to_kv("TOTALS", key="{region}"), mode="update")
def totals(frame: DataFrame) -> DataFrame:
    """Return the number of orders and their total, for each region."""
    return frame.groupBy("region").agg(F.count("*").alias("orders"), F.sum("price").alias("total"))


@pipeline.flow(orders, to_stream("LARGE", subject="large.{region}"))
def large(frame: DataFrame) -> DataFrame:
    """Return orders above 100."""
    return frame.where("price > 100")
