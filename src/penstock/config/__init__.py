"""Options: everything that can be configured, by file and by flag, each declared once.

    language/   the configuration language: text to values with their locations
    options/    every option: keys, flag, default, reloadable or not, documentation
    flags       the command line
    load        file and flags to `ServerOptions`, checked; the digest that `-t` prints
    check       rules that need several options, check_imports those between accounts
    operators   what an operator's JWT adds to the options
    reload      which options may change while the server runs

Nothing here listens, connects or writes. Siblings (security, routing) are not imported: they are
passed plain values from the options.
"""
