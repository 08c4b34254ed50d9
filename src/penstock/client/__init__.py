"""A small NATS client on the server's own compiled protocol: for benches, the CLI and Spark.

Not a rival of nats-py: it connects, publishes, subscribes, requests and flushes, and does nothing
that its users here do not need.
"""
