"""Store directories of Go's nats-server, read and never written.

    <store_dir>/jetstream/<ACCOUNT>/streams/<STREAM>/
        meta.inf  meta.sum  [meta.key]
        msgs/             <n>.blk  [<n>.key]  index.db
        obs/<CONSUMER>/   meta.inf  meta.sum  o.dat  [meta.key]

`directory` is the way in: `find_go_streams`, `is_go_stream_directory` and `GoStreamReader`. Below
it stand `recovery` (which messages a folder of blocks holds), `retention`, `index_db`, `blocks`,
`metadata`, `consumer_state`, `keys` and `cursor`, and the compiled `records`, `highway` and `s2`.
"""
