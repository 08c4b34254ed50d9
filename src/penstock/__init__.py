"""Penstock: a NATS and JetStream server whose streams are Spark tables.

`Server` starts one inside a program (see `penstock.server.embedded`); it is loaded when it is asked
for, so that importing the package stays cheap. Every other part is imported by its full name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.server.embedded import EmbeddedServer as Server

__version__ = "0.1.0"

__all__ = ["Server", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Server":
        from penstock.server.embedded import EmbeddedServer

        return EmbeddedServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
