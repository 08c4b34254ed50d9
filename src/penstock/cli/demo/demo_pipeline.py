"""The demo's pipeline, as any user would write it: `penstock run demo_pipeline.py`.

Sales go by the minute into a table, and the totals of every region and step into a bucket. A
message that is no order becomes a dead letter.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.spark.pipelines import Pipeline, from_stream, to_kv, to_table

ORDERS = from_stream(
    "ORDERS",
    schema="order long not null, region string not null, step string, cents long, at timestamp",
    dead_letters="dead.{_subject}",
    max_messages=200_000,
)

pipeline = Pipeline("sales")


@pipeline.flow(ORDERS, to_table("minutes"))
def minutes(orders: DataFrame) -> DataFrame:
    """Sum up what was ordered within each minute, once it is over."""
    return (
        orders.withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "1 minute"), "region")
        .agg(F.count("*").alias("events"), F.sum("cents").alias("cents"))
        .select("window.start", "region", "events", "cents")
    )


@pipeline.flow(ORDERS, to_kv("TOTALS", key="{region}.{step}"), mode="update")
def totals(orders: DataFrame) -> DataFrame:
    """Keep the totals of each region and step up to date."""
    return orders.groupBy("region", "step").agg(
        F.count("*").alias("events"), F.sum("cents").alias("cents")
    )
