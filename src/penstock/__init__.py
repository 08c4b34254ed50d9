"""Penstock: a NATS and JetStream server whose streams are Spark tables.

Only the version lives here; every part is imported by its full name.
"""

__version__ = "0.1.0"
