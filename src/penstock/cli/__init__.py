"""The command line: arguments in, tables or JSON out.

`main` is the way in. `store` and `upkeep` hold the commands on stream directories, `demo` shows the
whole at work. `sources` looks at directories of every layout alike, `output` prints, `arguments`
reads what people type. Nothing here knows a byte of the format.
"""
