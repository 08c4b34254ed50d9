"""Store directories of Go's nats-server, read and never written.

    <store_dir>/jetstream/<ACCOUNT>/streams/<STREAM>/
        meta.inf  meta.sum  [meta.key]
        msgs/             <n>.blk  [<n>.key]  index.db
        obs/<CONSUMER>/   meta.inf  meta.sum  o.dat  [meta.key]

`directory` is the way in: `find_go_streams`, `is_go_stream_directory` and `GoStreamReader`. Below
it are `recovery` (block files, and which of their messages are live), `state` (`index.db`),
`metadata` (configurations and consumers), `keys`, `archive`, and the compiled `records`, `highway`
and `s2`.
"""
