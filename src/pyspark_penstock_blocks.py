"""Spark finds the format `penstock-blocks` by itself: it looks for modules named like this one.

Loaded by Spark alone, in the driver's Python; holds nothing but the format's class under the name
that Spark asks for.
"""

from penstock.spark.blocks.source import BlockSource as DefaultSource

__all__ = ["DefaultSource"]
