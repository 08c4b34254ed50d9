"""A small NATS client on the server's own compiled protocol: for load processes, the CLI and Spark.

It connects, publishes, subscribes, requests and flushes, and does nothing that its users here do
not need. `client` is the connection; `credentials` says where and as whom to connect, `connect`
does it; `wire` has the bytes. `jetstream` is JetStream over a client; `columns` and `row_publisher`
move many messages as columns. The loops of `penstock bench` are in `bench.loops`.
"""
