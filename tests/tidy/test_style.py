"""What no linter checks: sizes, opening words, names.

An exemption states the size as it is, with a reason. It may only shrink: when the file or function
gets smaller the entry must follow, and when it is within the limit the entry must go.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, imports_of, relative, source_files

MODULE_LINES_MAX = 600
TEST_MODULE_LINES_MAX = 800
CYTHON_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

FILES_EXEMPT: dict[str, tuple[int, str]] = {}
"""{path: (lines, reason)}"""

FUNCTIONS_EXEMPT: dict[str, tuple[int, str]] = {}
"""{path::name: (lines, reason)}"""

OPEN_ALLOWED = ("src/penstock/format/files.py", "src/penstock/store/vfs.py", "src/penstock/cli/")
"""Who may call the built-in open(); the others are given a file system."""

FILES = source_files(".py", ".pyx", ".pxd")
PYTHON_FILES = [path for path in FILES if path.suffix == ".py"]
TEST_FILES = [path for path in PYTHON_FILES if path.name.startswith("test_")]
WAREHOUSES = {"utils", "util", "helpers", "common", "misc", "manager"}

# In pieces, or this file would be the first to be found.
_UNFINISHED = re.compile(r"#.*\b(?:FIX" + r"ME|X" + r"XX|TO" + r"DO\b(?!\(#\d+\):))")
_CYTHON_FUNCTION = re.compile(
    r"^(?P<indent> *)c?p?def\b(?! (?:class|struct|union|enum|extern)\b)[^=\n]*?(?P<name>\w+) *\("
)


def lines_max(path: Path) -> int:
    if path.suffix != ".py":
        return CYTHON_LINES_MAX
    return TEST_MODULE_LINES_MAX if "tests" in path.parts else MODULE_LINES_MAX


def file_sizes() -> dict[str, int]:
    """Give the lines of each file that is over its limit."""
    sizes = {path: len(path.read_text().splitlines()) for path in FILES}
    return {relative(path): size for path, size in sizes.items() if size > lines_max(path)}


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """Give each function's name and length in lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def cython_functions(text: str) -> Iterator[tuple[str, int]]:
    """Give each function's name and length: up to the last line that is indented further."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        head = _CYTHON_FUNCTION.match(line)
        if head is None:
            continue
        indent = len(head["indent"])
        last = start
        for place in range(start + 1, len(lines)):
            body = lines[place]
            closing = body.strip().startswith(")")
            if body.strip() and not closing and len(body) - len(body.lstrip()) <= indent:
                break
            if body.strip():
                last = place
        yield head["name"], last - start + 1


def function_sizes() -> dict[str, int]:
    """Give the lines of each function that is over the limit."""
    sizes = {}
    for path in FILES:
        functions = python_functions if path.suffix == ".py" else cython_functions
        for name, size in functions(path.read_text()):
            if size > FUNCTION_LINES_MAX:
                sizes[f"{relative(path)}::{name}"] = size
    return sizes


def ratchet(sizes: dict[str, int], exempt: dict[str, tuple[int, str]]) -> list[str]:
    """Say where the sizes over the limit and the exemptions differ."""
    found = [
        f"{what}: {size} lines, and the exemption says {exempt[what][0]}"
        if what in exempt
        else f"{what}: {size} lines is over the limit"
        for what, size in sizes.items()
        if what not in exempt or exempt[what][0] != size
    ]
    found += [f"{what}: within the limit, drop its exemption" for what in exempt.keys() - sizes]
    found += [f"{what}: no reason given" for what, (_, reason) in exempt.items() if not reason]
    return found


def test_no_file_is_longer_than_its_limit_or_its_exemption() -> None:
    assert ratchet(file_sizes(), FILES_EXEMPT) == []


def test_no_function_is_longer_than_its_limit_or_its_exemption() -> None:
    assert ratchet(function_sizes(), FUNCTIONS_EXEMPT) == []


@pytest.mark.parametrize(
    ("size", "exemption"),
    [
        ({"a.py": 700}, {}),
        ({"a.py": 701}, {"a.py": (700, "a table")}),
        ({"a.py": 699}, {"a.py": (700, "a table")}),
        ({}, {"a.py": (700, "a table")}),
        ({"a.py": 700}, {"a.py": (700, "")}),
    ],
    ids=["new", "grown", "shrunk", "within the limit", "no reason"],
)
def test_an_exemption_that_does_not_fit_is_found(
    size: dict[str, int], exemption: dict[str, tuple[int, str]]
) -> None:
    assert len(ratchet(size, exemption)) == 1
    assert ratchet({"a.py": 700}, {"a.py": (700, "a table")}) == []


def test_functions_of_compiled_code_are_measured_whole() -> None:
    text = (
        "cdef class Builder:\n"
        "    cdef int add(\n"
        "        self, int value,\n"
        "    ) except -1 nogil:\n"
        "\n"
        "        return 0\n"
        "\n"
        "    def take(self):\n"
        "        return 1\n"
        "\n"
        "cdef inline int twice(int value) noexcept nogil:\n"
        "    return 2 * value\n"
        "cdef int count = len(())\n"
    )

    assert list(cython_functions(text)) == [("add", 5), ("take", 2), ("twice", 2)]


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_file_opens_by_saying_what_it_is_for(path: Path) -> None:
    text = path.read_text()

    if not text:
        assert path.stem == "__init__"
    elif path.suffix == ".py":
        assert ast.get_docstring(ast.parse(text))
    else:
        assert text.startswith(('"""', "# "))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_nothing_is_left_unfinished_without_an_issue_number(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if _UNFINISHED.search(line)] == []


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_module_is_imported_by_its_full_name(path: Path) -> None:
    assert [item.module for item in imports_of(path) if item.module.startswith(".")] == []


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_file_is_named_for_what_it_holds(path: Path) -> None:
    assert path.stem not in WAREHOUSES


@pytest.mark.parametrize("path", TEST_FILES, ids=relative)
def test_a_test_is_named_by_a_sentence_and_not_by_a_number(path: Path) -> None:
    names = [name for name, _ in python_functions(path.read_text()) if name.startswith("test")]

    assert [name for name in names if name[-1].isdigit()] == []


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in PYTHON_FILES
        if path.is_relative_to(PACKAGE) and not relative(path).startswith(OPEN_ALLOWED)
    ],
    ids=relative,
)
def test_files_are_opened_through_a_file_system(path: Path) -> None:
    calls = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]

    assert calls == []
