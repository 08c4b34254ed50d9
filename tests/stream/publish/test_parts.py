"""The parts of a stream's publish path do not know their owner: they decide, it applies."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import penstock.stream.publish

FOLDER = Path(penstock.stream.publish.__file__).parent
OWNERS = {"Publishing", "Stream", "AccountStreams"}
PARTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "publishing.py")


def imported_names(path: Path) -> set[str]:
    """Return every name that a module imports, for types too."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }


@pytest.mark.parametrize("name", PARTS)
def test_a_part_does_not_know_its_owner(name: str) -> None:
    assert imported_names(FOLDER / name) & OWNERS == set()


def test_the_parts_are_found() -> None:
    assert {"judge.py", "refusals.py", "writer.py", "atomic_batches.py"} <= set(PARTS)
    assert "StreamFacts" in imported_names(FOLDER / "judge.py")
