"""What a server loads: a plain one nothing that only others need, and the version next to nothing.

Test-suites of clients start hundreds of servers; what each of them loads is what they wait for.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

LISTED = "import json; print(json.dumps(sorted(sys.modules)))"
SERVED = f"""
import asyncio, sys
from penstock.server.embedded import EmbeddedServer

async def main():
    async with EmbeddedServer(settings=sys.argv[1]):
        {LISTED}

asyncio.run(main())
"""
VERSION = f"""
import sys
from penstock.server.main import run

run(["--version"], {{}})
{LISTED}
"""
HEAVY = {"aiohttp", "bcrypt", "cryptography", "prometheus_client", "rich", "typer", "uvloop"}


def loaded(program: str, *arguments: str) -> set[str]:
    """Give the modules that a program had loaded when it printed them last."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "settings",
    ["port: -1", "port: -1, authorization { token: t }", "port: -1, http_port: -1"],
    ids=["plain", "a token", "monitoring"],
)
def test_a_server_loads_nothing_that_only_others_need(settings: str) -> None:
    assert loaded(SERVED, settings) & HEAVY == set()


def test_the_version_is_told_without_loading_the_server() -> None:
    ours = {name for name in loaded(VERSION) if name.startswith("penstock.")}

    assert ours == {"penstock.server", "penstock.server.main", "penstock.server.version"}
