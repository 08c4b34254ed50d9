"""What the server says of itself to clients: the version of the protocol surface that it speaks."""

from __future__ import annotations

NATS_VERSION = "2.15.1"
"""Clients switch features on by it, so it is that of the server whose behaviour we match."""

VERSION_LINE = f"nats-server: v{NATS_VERSION}\n"
"""What `--version` prints: harnesses read the number after the v."""

GIT_COMMIT = "penstock"
GO_VERSION = "python"
API_LEVEL = 5
