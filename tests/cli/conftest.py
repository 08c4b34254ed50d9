"""Running the command line in this process, and stores to run it on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.testing.servers import BOTH, environ, server_process
from tests.cli.stores import make_store

_HOLD = """
import sys
from penstock.store.filestore import FileStore
from penstock.store.interface import StoreConfig

store = FileStore.open(sys.argv[1], StoreConfig(name="ORDERS"))
store.store(b"orders.new", b"", b"from the other process")
store.flush()
print("open", flush=True)
sys.stdin.read()
"""


_SPARK = ("--master", "local[1]", "--conf", "spark.driver.memory=1g")


def run_spark(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a job in a process of its own: a session must not end one of this process."""
    return subprocess.run(
        [sys.executable, "-m", "penstock", "spark", *map(str, arguments), *_SPARK],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env=environ(),
    )


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    """Return a function that runs `penstock` with arguments."""

    def penstock(*arguments: object, env: Mapping[str, str] | None = None) -> Ran:
        result = CliRunner().invoke(app, [str(each) for each in arguments], env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)

    return penstock


@pytest.fixture(scope="module", params=BOTH)
def jetstream_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return where a server of either kind listens, with JetStream."""
    folder = tmp_path_factory.mktemp("streams")
    with server_process(request.param, store_dir=folder) as server:
        yield server.url


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Return the directory of a sound store in several blocks."""
    path = tmp_path / "ORDERS"
    make_store(path)
    return path


@dataclass(frozen=True)
class Held:
    """A store that another process has open."""

    path: Path
    pid: int


@pytest.fixture
def held(orders: Path) -> Iterator[Held]:
    """Return a store that another process has open, and has written one more message to."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(orders)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        yield Held(orders, other.pid)
