"""A small NATS client on the server's own compiled protocol: for benches, the CLI and Spark.

Not a rival of nats-py: it connects, publishes, subscribes, requests and flushes, and does nothing
that its users here do not need. `client` is what to use; `address` and `credentials` say where and
as whom, `opening` goes there, `wire` has the bytes.
"""
