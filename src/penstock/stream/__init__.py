"""Streams: their configuration, their messages, and the rules for both.

`account` holds the streams of an account, `stream` is one of them, `storage` is its folder and
store. `config/` declares a configuration and checks requests to create or update one. `publish/` is
the way of a message into a stream: `rules` judge it, compiled `ingest` stores it, and `publishing`
does what is rare.
`schedule/` publishes messages later. `replication/` fills mirrors and sourcing streams.
"""
