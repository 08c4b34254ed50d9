"""Imports point down only, in Python and in compiled code alike, as `tools/layers.toml` says.

import-linter checks the same for what it can see; it does not see Cython.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, Import, cython_imports, imports_of, module_name, relative
from tools.layers import load_layers, targets, with_part

LAYERS = load_layers()
SERVER_CODE = LAYERS.groups["server-code"]
TABLES = LAYERS.groups["tables"]

WRITES_STORES = "penstock.spark.jobs."
"""Jobs that make or change directories of blocks do so by the store's own code; formats do not."""

HANDED_ON = {"": frozenset({"penstock.server.embedded"})}
"""What the package itself offers by a short name, loaded when it is asked for."""

MODULES = sorted(
    path
    for path in PACKAGE.rglob("*")
    if path.suffix in (".py", ".pyx", ".pxd") and path.parent != PACKAGE.parent
)


def package_of(module: str) -> str:
    """Return the part of a full name that stands in the table; "" for penstock itself."""
    return [*module.split("."), ""][1]


def complaints(module: str, imports: list[Import]) -> list[str]:
    """Return what is wrong with a module's imports."""
    package = package_of(module)
    here = LAYERS.number_of(package)
    forbidden = LAYERS.forbidden.get(package, frozenset())
    # The command line names Spark's types, and loads it where a command needs it.
    if package not in ("cli", "spark"):
        forbidden |= TABLES
    if module.startswith(WRITES_STORES):
        forbidden -= {"penstock.store"}
    found = set()
    handed_on = HANDED_ON.get(package, frozenset())
    for name in (name for item in imports for name in item.modules()):
        if name.rpartition(".")[0] in handed_on or name in handed_on:
            continue
        parts = name.split(".")
        prefixes = {".".join(parts[:size]) for size in range(1, len(parts) + 1)}
        found |= {f"{package} must not know of {taboo}" for taboo in prefixes & forbidden}
        target = package_of(name) if parts[0] == "penstock" else package
        there = LAYERS.number_of(target)
        if package == "__main__":
            continue
        if target != package and there is not None and (here is None or there <= here):
            found.add(f"{package} stands beside or below {target}")
    return sorted(found)


@pytest.mark.parametrize("path", targets(LAYERS), ids=relative)
def test_the_picture_the_page_and_the_import_contract_are_those_of_the_table(path: Path) -> None:
    marker, part = targets(LAYERS)[path]

    assert path.read_text() == with_part(path.read_text(), marker, part), "run make layers"


def test_a_module_imports_only_what_is_below_it() -> None:
    found = {relative(path): complaints(module_name(path), imports_of(path)) for path in MODULES}

    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_every_module_has_a_place_in_the_table() -> None:
    packages = {package_of(module_name(path)) for path in MODULES} - {"", "__main__"}

    assert {package for package in packages if LAYERS.number_of(package) is None} == set()


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("penstock.format.record", "from penstock.store.vfs cimport File"),
        ("penstock.format.record", "from penstock cimport store"),
        ("penstock.format.record", "cimport penstock.store.vfs as vfs"),
        ("penstock.format.record", "from penstock import (\n    errors,\n    store,\n)"),
        ("penstock.format.record", "def lazy():\n    import time"),
        ("penstock.format.record", "import json, random"),
        ("penstock.limits", "from penstock.clock import Clock"),
        ("penstock.store.vfs", "from penstock.testing.clock import FakeClock"),
        ("penstock.store.vfs", "import asyncio"),
        ("penstock.store.vfs", "from pyarrow.lib cimport Buffer"),
        ("penstock.spark.batch", "from penstock.store.filestore import FileStore"),
    ],
)
def test_an_import_upwards_or_sideways_is_found(module: str, line: str) -> None:
    assert len(complaints(module, list(cython_imports(line)))) == 1


def test_imports_downwards_and_words_in_text_are_fine() -> None:
    text = (
        '"""Words:\nimport asyncio\n"""\n'
        "# import time\n"
        "from penstock.format.wire cimport get_u64, put_u64\n"
        "from penstock.errors import FormatError\n"
        "import os\n"
    )

    assert complaints("penstock.format.record", list(cython_imports(text))) == []


def test_the_format_loads_without_a_store_a_server_or_an_event_loop() -> None:
    names = sorted(
        {
            module_name(path)
            for path in (PACKAGE / "format").rglob("*")
            if path.suffix in (".py", ".pyx")
        }
    )
    program = (
        "import importlib, json, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )

    loaded = set(json.loads(answer.stdout))
    assert "penstock.format.columns" in loaded
    unwanted = {"asyncio", "socket", "penstock.cli", "penstock.testing"} | SERVER_CODE | TABLES
    assert loaded & unwanted == set()
