"""Every bound stands in `limits.py`, or says beside it why it does not.

A constant is taken for a bound by its name: `…_MAX`, `…_LIMIT`, `…_AT_ONCE`, `…_PER_TURN`. Outside
of `limits.py` one may be the end of a type (2**63 - 1), or its docstring or comment names who fixes
it: a format, a protocol, the reference server. A constant of a compiled module must be known to the
C compiler and stays beside its code, with a comment or an entry here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock import limits
from tests.tidy.sources import PACKAGE, relative, source_files

_BOUND = re.compile(r"(?:^|_)(?:MAX|(?<!NO_)LIMIT|AT_ONCE|PER_TURN)$")
_FIXED_BY = re.compile(r"\b(?:format|protocol|reference server|Go's|RFC)\b")
_TYPE_END = re.compile(r"-?\(?2 ?\*\* ?\d+\)?(?: - 1)?|0x7?F+|0x10+")
_IN_CYTHON = re.compile(r"^\s*(?:cdef )?(?:[\w ]+ )?([A-Z_][A-Z0-9_]*) *= *([-(]?\d[^#\n]*)(#.*)?$")
_COMMENT = re.compile(r"\s*#\s*\S")

COMPILED = {
    "CHUNKS_MAX": "of a block's recent bytes in memory, which are bounded by WRITE_CACHE_BYTES_MAX",
    "DIGITS_MAX": "of a block's number, which has 32 bits",
    "FRACTION_DIGITS_MAX": "of a second in nanoseconds",
    "MARK_BYTES_MAX": "the size of a slot of the format",
    "NUMBER_SIZE_MAX": "the digits of a number of 64 bits",
    "REPR_RANGES_MAX": "what a set shows of itself in a log; it bounds nothing else",
}
"""{name: what fixes it} of constants in compiled modules that have no comment."""


class Bound(NamedTuple):
    """A bound outside of `limits.py`: its value as written, and the text that belongs to it."""

    name: str
    value: str
    text: str


def is_number(node: ast.expr) -> bool:
    """Return True if an expression computes a number from numbers, one of which is written out."""
    parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
    allowed = ast.Constant | ast.BinOp | ast.UnaryOp | ast.Name
    return all(isinstance(each, allowed) for each in parts) and any(
        isinstance(each, ast.Constant) and isinstance(each.value, int | float) for each in parts
    )


def bounds_in_python(text: str) -> Iterator[Bound]:
    """Yield the bounds of a module, each with its docstring and the comments at it."""
    lines = text.splitlines()
    body = ast.parse(text).body
    for place, node in enumerate(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            name, value = node.target.id, node.value
        else:
            continue
        if not _BOUND.search(name) or not is_number(value):
            continue
        said = [lines[node.lineno - 1].partition("#")[2]]
        above = node.lineno - 2
        while above >= 0 and _COMMENT.match(lines[above]):
            said.append(lines[above])
            above -= 1
        following = body[place + 1] if place + 1 < len(body) else None
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            said.append(str(following.value.value))
        yield Bound(name, ast.get_source_segment(text, value) or "", " ".join(said))


def bounds_in_cython(text: str) -> Iterator[Bound]:
    """Yield the bounds of a compiled module, each with the comment beside it or above its group."""
    said = ""
    for line in text.splitlines():
        found = _IN_CYTHON.match(line)
        if _COMMENT.match(line):
            said = line
        elif found is None:
            said = ""
        elif _BOUND.search(found[1]):
            yield Bound(found[1], found[2].strip(), f"{said} {found[3] or ''}".strip())


def compiled_without_comment(path: Path) -> list[str]:
    """Return the names of the bounds of a compiled module that are not explained there."""
    return [
        each.name
        for each in bounds_in_cython(path.read_text())
        if not each.text and not _TYPE_END.fullmatch(each.value)
    ]


def unexplained(path: Path) -> list[str]:
    """Return the names of the bounds of a file that should stand in `limits.py`."""
    if path.suffix != ".py":
        return [name for name in compiled_without_comment(path) if name not in COMPILED]
    return [
        each.name
        for each in bounds_in_python(path.read_text())
        if not _FIXED_BY.search(each.text) and not _TYPE_END.fullmatch(each.value)
    ]


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in source_files(".py", ".pyx", ".pxd")
        if PACKAGE in path.parents and path != PACKAGE / "limits.py"
    ],
    ids=relative,
)
def test_bounds_stand_in_the_table_or_say_who_fixes_them(path: Path) -> None:
    assert unexplained(path) == []


def test_each_bound_of_the_table_has_its_reason() -> None:
    text = (PACKAGE / "limits.py").read_text()
    body = ast.parse(text).body
    explained = {
        node.targets[0].id
        for node, following in pairwise(body)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    }

    assert {name for name in vars(limits) if name.isupper()} - explained == {"KIB", "MIB"}


def test_no_entry_for_compiled_modules_outlives_its_reason() -> None:
    found = {
        name
        for path in source_files(".pyx", ".pxd")
        if PACKAGE in path.parents
        for name in compiled_without_comment(path)
    }

    assert set(COMPILED) == found


def test_a_bound_is_found_by_its_name_and_told_from_the_ends_of_types() -> None:
    text = 'A_MAX = 7\nB_MAX = 2**63 - 1\nC_MAX: int = 9\n"""Of the format."""\nD_MAX = f(7)\n'

    found = list(bounds_in_python(text))

    assert [each.name for each in found] == ["A_MAX", "B_MAX", "C_MAX"]
    assert [bool(_TYPE_END.fullmatch(each.value)) for each in found] == [False, True, False]
    assert [bool(_FIXED_BY.search(each.text)) for each in found] == [False, False, True]


def test_a_compiled_bound_is_explained_by_the_comment_of_its_group() -> None:
    text = "cdef enum:\n  # Why.\n  A_MAX = 1\n  B_MAX = 2\n\n  C_MAX = 3\n  D_MAX = 4  # x\n"

    found = {each.name: bool(each.text) for each in bounds_in_cython(text)}

    assert found == {"A_MAX": True, "B_MAX": True, "C_MAX": False, "D_MAX": True}
