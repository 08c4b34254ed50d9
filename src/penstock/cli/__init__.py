"""The command line: arguments in, tables or JSON out.

`main` is the way in. `store/` has the commands on stream directories; `pubsub` and `jetstream/`
those that talk to a server; `spark/` those that run Spark; `bench/` measures servers and `demo/`
shows the whole at work. `arguments` reads what people type and connects, `output` prints. Nothing
here knows a byte of the format.
"""
