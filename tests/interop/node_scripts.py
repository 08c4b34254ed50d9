"""Runs the scripts in `node/`: a process of Node.js goes through some of them with one server.

The packages are installed once, when the first script is asked for. Where Node.js or npm is
missing, or the registry cannot be reached, tests are skipped with that as the reason.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.servers import ServerProcess

FOLDER = Path(__file__).parent / "node"
WAIT_S = 30

_WEBSOCKET = re.compile(r"Listening for websocket clients on wss?://.*:(\d+)")


def websocket_port(server: ServerProcess) -> int:
    """Return the port that a server's log names."""
    found = _WEBSOCKET.search(server.log)
    assert found is not None, server.log
    return int(found[1])


def installed_node() -> str:
    """Return the path of Node.js, with the packages installed; skip the test where that fails."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js and npm are missing: apt-get install -y nodejs npm")
    installed = FOLDER / "node_modules" / ".package-lock.json"
    # Several workers may come here at once; the first installs for all.
    with (FOLDER / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = (FOLDER / "package-lock.json").stat().st_mtime
        if not installed.exists() or installed.stat().st_mtime < wanted:
            _install(npm)
    return node


def _install(npm: str) -> None:
    done = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"npm could not install the packages of {FOLDER}: {done.stderr.strip()}")


def run_scripts(
    names: Sequence[str],
    settings: dict[str, Any],
    *,
    when_ready: Callable[[], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return how each script ended: {name: {"script": name, "result" or "failed": …}}.

    `when_ready` is called when a script says that it is.
    """
    command = [installed_node(), "run.mjs", json.dumps(settings), *names]
    with subprocess.Popen(
        command,
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            if when_ready is not None:
                assert json.loads(process.stdout.readline()) == {"ready": True}
                when_ready()
            output, _ = process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            # One of them hangs; those before it have told how they ended.
            process.kill()
            output, _ = process.communicate()
        except BaseException:
            process.kill()
            raise
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {line["script"]: line for line in lines}
