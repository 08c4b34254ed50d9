"""The command line: arguments in, tables or JSON out.

`main` is the way in. `store` and `upkeep` hold the commands on stream directories, `messaging` and
`replying` those that talk to a server, which `connecting` reaches; `demo` shows the whole at work.
`sources` looks at directories of every layout alike, `output` prints, `arguments`
reads what people type. Nothing here knows a byte of the format.
"""
