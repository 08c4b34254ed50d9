"""Consumers: which messages of a stream clients get, and what they say of them.

`registry` creates, finds and removes the consumers of a stream. `consumer` is one of them, the
owner of its parts: `progress` (what it remembers), `pump` (which message goes next), `acks`,
`pull_delivery` or `push_delivery`. `ack_receiver`, `delivery`, `needs` and `pending` are compiled:
they run per message. `needs` and `retention` say which messages a stream may remove. `folder` and
`state_writer` keep a consumer on disk, `config/` has the rules of its configuration, `extensions/`
what no other server has. Nothing here knows sockets or the JetStream API.
"""
