"""What a stream is: its configuration, its messages, and the rules that both keep.

`config` declares it, `creation` and `updates` decide what becomes of a request for one; their rules
are pure. `account` has the streams of an account, `stream` is one of them. Messages come in through
`ingest`, which is compiled; those that want a closer look go on to `publishing`, whose rules are a
module each: `expectations`, `message_ids`, `rollups`, `lifetimes`, `counters`, `schedules`,
`batches`, `fast_batches`, `republishing`. `mirrors` and `sources` bring messages of other streams.
"""
