"""Options: what the server may be told, by file and by flag, declared once each.

    lexer, parser   the configuration language: text to values that know their place
    digest          the digest of a configuration, as `-t` prints it
    durations       Go's durations, read and written
    reading         what a value may be; errors and warnings gathered
    options         every option: keys, flag, default, reloadable or not, documentation
    flags           the command line
    load            file and flags to `ServerOptions`, checked
    reload          which options may change while the server runs

Nothing here listens, connects or writes. Siblings (security, routing) are never imported: they are
given plain values out of the options.
"""
