"""Lets Spark find the format `penstock-blocks`: Spark looks for a module of this name.

Loaded by Spark alone, in the driver. It holds only the class of the format, under the name that
Spark expects.
"""

from penstock.spark.blocks.source import BlockSource as DefaultSource

__all__ = ["DefaultSource"]
