"""The store on disk as bytes. `README.md` beside this file is the normative specification.

`directory` finds what a stream's directory holds and what is wrong with it; recovery and `reader`,
on which Spark stands, share it. Nothing in this package opens a file for writing, waits, or knows
of a server.
"""
