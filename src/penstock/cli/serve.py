"""`penstock server`: the server with nats-server's flags, on the loopback unless told otherwise.

The executable `penstock-server` is the stand-in and keeps nats-server's own defaults; this command
is for people, and does not open a port to the world by accident.
"""

from __future__ import annotations

import os

import typer

_ADDRESS_FLAGS = ("a", "addr", "net", "c", "config")


def serve(context: typer.Context) -> None:
    """Run the server; takes nats-server's flags (see: penstock server -- --help).

    Listens on 127.0.0.1 unless an address (-a) or a configuration file (-c) says otherwise.

        penstock server -p 4222 -m 8222
    """
    # Loaded here: the other commands need none of it.
    from penstock.server.main import run

    arguments = list(context.args)
    if not any(_flag(word) in _ADDRESS_FLAGS for word in arguments):
        arguments = ["-a", "127.0.0.1", *arguments]
    raise typer.Exit(run(arguments, os.environ))


def _flag(word: str) -> str:
    return word.lstrip("-").partition("=")[0] if word.startswith("-") else ""
