"""The parts of an open store do not know the engine that wires them, and change only themselves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.store

FOLDER = Path(penstock.store.__file__).parent
OWNERS = {
    "engine.py": "it makes the parts",
    "filestore.py": "it is the public face of an engine",
    "memstore.py": "it is the file store over memory",
    "slices.py": "it is the public face for changes that take long",
    "reopening.py": "it puts a new engine in the place of one that has failed",
    "imports/build.py": "it writes a store of its own, apart from any that is open",
}
"""The only modules that may name the engine, each with the reason."""

PARTS = {
    "Background",
    "BlockCache",
    "Checkpoints",
    "Committer",
    "Commits",
    "Compaction",
    "DiskWriter",
    "Durability",
    "Engine",
    "HighWaterMark",
    "Ledger",
    "Log",
    "Removal",
    "Sealing",
    "StoreDirectory",
    "StoreHealth",
    "StoreSettings",
}
PART_NAMES = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", part).lower() for part in PARTS} | {
    "cache",
    "directory",
    "disk",
    "health",
    "settings",
}
"""What variables and attributes that hold a part are called."""

ALLOWED = {
    "commit/commit.pyx": {"self.high_water.place"},  # `DiskWriter` and the mark are one module
    "commit/committer.pyx": {"self.committer.exclusive_claims"},  # so are a turn and its committer
}
"""Assignments of compiled modules to a part, each with its reason."""

COMPILED_ASSIGNMENT = re.compile(r"^ *((?:\w+\.)*(\w+)\.\w+)(?:, .*)? [-+|]?= ")
SOURCES = sorted(
    path.relative_to(FOLDER).as_posix()
    for pattern in ("*.py", "*.pyx", "*.pyi", "*.pxd")
    for path in FOLDER.rglob(pattern)
)


def names_of(text: str) -> set[str]:
    """Return the words of a module's code, without its strings and comments."""
    code = re.sub(r'""".*?"""|"[^"\n]*"|#[^\n]*', "", text, flags=re.DOTALL)
    return set(re.findall(r"\w+", code))


def assigned_parts(text: str) -> set[str]:
    """Return the assignments to attributes of parts that are held by the code of a module."""
    return {ast.unparse(target) for target in _targets(ast.parse(text)) if _is_of_part(target)}


def _targets(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield node


def _is_of_part(target: ast.expr) -> bool:
    holder = target.value if isinstance(target, ast.Attribute) else None
    name = getattr(holder, "attr", getattr(holder, "id", ""))
    return name.lstrip("_") in PART_NAMES


def compiled_assignments(text: str) -> set[str]:
    """As `assigned_parts`, for a compiled module."""
    found = (COMPILED_ASSIGNMENT.match(line) for line in text.splitlines())
    return {match[1] for match in found if match and match[2].lstrip("_") in PART_NAMES}


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in OWNERS])
def test_a_part_does_not_know_the_engine(name: str) -> None:
    assert names_of((FOLDER / name).read_text()) & {"Engine", "engine"} == set()


@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith(".py")])
def test_a_part_is_changed_by_its_methods_only(name: str) -> None:
    assert assigned_parts((FOLDER / name).read_text()) == set()


@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith(".pyx")])
def test_a_part_is_changed_by_its_methods_only_in_compiled_code(name: str) -> None:
    assert compiled_assignments((FOLDER / name).read_text()) - ALLOWED.get(name, set()) == set()


def test_assignments_are_found() -> None:
    assert assigned_parts("self._log.salt = 1") == {"self._log.salt"}
    assert assigned_parts("a, log.ledger.removed = 1, 2") == {"log.ledger.removed"}
    assert assigned_parts("ledger.last_seq += 1") == {"ledger.last_seq"}
    assert assigned_parts("self.log = log\nblock.active = None") == set()
    assert compiled_assignments("        ledger.reclaimable = False") == {"ledger.reclaimable"}
    assert compiled_assignments("    self.log = log\n    if ledger.a == 1:") == set()


def test_the_parts_and_their_owners_are_found() -> None:
    assert {"log/log.py", "commit/commit.pyx", "upkeep/sealing.py"} <= set(SOURCES)
    for name in OWNERS:
        assert "Engine" in names_of((FOLDER / name).read_text())
    classes = {
        name
        for source in SOURCES
        for name in re.findall(r"^(?:cdef )?class (\w+)", (FOLDER / source).read_text(), re.M)
    }
    assert classes >= PARTS
