"""JSON documents of JetStream as clients of the reference server know them.

`walking` tells whether a text is JSON and `scanning` what is in it, both compiled; `shapes` says
what a class looks like as a document, `decoding` fills such a class from JSON, `encoding` writes
it, `times` are the instants in it. The rules are those that a client can see: how keys are matched,
what is left out, the words of every error.

Pure: no files, no clock. Used by streams, consumers, the API and the monitor.
"""
