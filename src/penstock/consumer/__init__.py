"""Consumers: who gets which message of a stream, and what they have said of it.

`config` and `info` are the documents, `validation`, `creation` and `updates` the rules for what
clients ask for. A consumer is a cursor over a stream's store with a memory of its own. Nothing here
knows of sockets or of the JetStream API.
"""
