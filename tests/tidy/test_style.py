"""What no linter checks: sizes, opening words, names.

An exemption states the size as it is, with a reason. It may only shrink: when the file or function
gets smaller the entry must follow, and when it is within the limit the entry must go.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, imports_of, relative, source_files

MODULE_LINES_MAX = 600
TEST_MODULE_LINES_MAX = 800
CYTHON_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
TABLE_LINES_MAX = 900
"""Of `limits.py`: a bound is looked for in one place, and no table is read from end to end."""

FOLDER_MODULES_MAX = 20 + 1
"""Besides its __init__."""

PUBLIC_METHODS_MAX = 20

FILES_EXEMPT: dict[str, tuple[int, str]] = {}
"""{path: (lines, reason)}"""

FUNCTIONS_EXEMPT: dict[str, tuple[int, str]] = {}
"""{path::name: (lines, reason)}"""

CLASSES_EXEMPT: dict[str, tuple[int, str]] = {
    "src/penstock/net/channel.py::Channel": (23, "overrides hooks of Link; adds 16 of its own"),
    "src/penstock/net/connection.py::Connection": (26, "overrides hooks of Link and of Channel"),
    "src/penstock/net/link.pyx::Link": (
        29,
        "the compiled half of a connection: 19 are hooks, one for each operation or event, that the"
        " Python half overrides; a second object would cost a look-up per call",
    ),
    "src/penstock/store/filestore.py::FileStore": (
        49,
        "the store's one public face: each method is one operation of a stream, takes the lock and"
        " delegates to queries, removal, limits, compaction, snapshot or repair",
    ),
    "src/penstock/store/interface.py::StreamStore": (
        30,
        "the contract of both stores, written once; streams need all of it",
    ),
}
"""{path::class: (public methods, reason)}"""

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


_CYTHON_CLASS = re.compile(
    r"^(?:cdef )?class (\w+)[^\n]*:\n((?:(?:    [^\n]*|[ \t]*|\))\n)*)", re.MULTILINE
)
_CYTHON_METHOD = re.compile(r"^    (?:def|cpdef)\b[^(\n]*?(\w+)\(", re.MULTILINE)
# In pieces as well.
_DIALECT = re.compile(r'"""(?:Gi' + r"ves? |Te" + r"lls? )[^\n]{0,40}")


def lines_max(path: Path) -> int:
    if path.suffix != ".py":
        return CYTHON_LINES_MAX
    if path == PACKAGE / "limits.py":
        return TABLE_LINES_MAX
    return TEST_MODULE_LINES_MAX if "tests" in path.parts else MODULE_LINES_MAX


def file_sizes() -> dict[str, int]:
    """Return the lines of each file that is over its limit."""
    sizes = {path: len(path.read_text().splitlines()) for path in FILES}
    return {relative(path): size for path, size in sizes.items() if size > lines_max(path)}


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """Return each function's name and length in lines."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def cython_functions(text: str) -> Iterator[tuple[str, int]]:
    """Return each function's name and length: up to the last line that is indented further."""
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
    """Return the lines of each function that is over the limit."""
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
        f"{what}: {size}, and the exemption says {exempt[what][0]}"
        if what in exempt
        else f"{what}: {size} is over the limit"
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


def opens_well(path: Path) -> bool:
    """Return True if a file's first lines say what it is for."""
    text = path.read_text()
    if not text:
        return path.stem == "__init__"
    if path.suffix == ".py":
        return bool(ast.get_docstring(ast.parse(text)))
    return text.startswith(('"""', "# "))


def test_a_file_opens_by_saying_what_it_is_for() -> None:
    assert [relative(path) for path in FILES if not opens_well(path)] == []


def test_nothing_is_left_unfinished_without_an_issue_number() -> None:
    assert [
        f"{relative(path)}: {line}"
        for path in FILES
        for line in path.read_text().splitlines()
        if _UNFINISHED.search(line)
    ] == []


def test_a_module_is_imported_by_its_full_name() -> None:
    assert [
        f"{relative(path)}: {item.module}"
        for path in FILES
        for item in imports_of(path)
        if item.module.startswith(".")
    ] == []


def test_a_file_is_named_for_what_it_holds() -> None:
    assert [relative(path) for path in FILES if path.stem in WAREHOUSES] == []


def test_a_test_is_named_by_a_sentence_and_not_by_a_number() -> None:
    assert [
        f"{relative(path)}::{name}"
        for path in TEST_FILES
        for name, _ in python_functions(path.read_text())
        if name.startswith("test") and name[-1].isdigit()
    ] == []


def opened_directly(path: Path) -> list[int]:
    """Return the lines of a file that call the built-in open()."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


def test_files_are_opened_through_a_file_system() -> None:
    assert [
        f"{relative(path)}:{line}"
        for path in PYTHON_FILES
        if path.is_relative_to(PACKAGE) and not relative(path).startswith(OPEN_ALLOWED)
        for line in opened_directly(path)
    ] == []


def test_a_folder_holds_few_modules() -> None:
    modules = Counter(
        relative(path.parent)
        for path in FILES
        if path.is_relative_to(PACKAGE) and path.suffix in (".py", ".pyx")
    )

    assert {folder: size for folder, size in modules.items() if size > FOLDER_MODULES_MAX} == {}


def public_methods(path: Path) -> Iterator[tuple[str, int]]:
    """Return each class of a file with how many methods it offers, properties included."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {
                    part.name
                    for part in node.body
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
                }
                yield node.name, sum(not name.startswith("_") for name in names)
        return
    for head, body in _CYTHON_CLASS.findall(path.read_text()):
        names = set(_CYTHON_METHOD.findall(body))
        yield head, sum(not name.startswith("_") for name in names)


def test_no_class_offers_more_than_people_can_keep_in_mind() -> None:
    sizes = {
        f"{relative(path)}::{name}": size
        for path in FILES
        if path.is_relative_to(PACKAGE) and path.suffix in (".py", ".pyx")
        for name, size in public_methods(path)
        if size > PUBLIC_METHODS_MAX
    }

    assert ratchet(sizes, CLASSES_EXEMPT) == []


def test_methods_of_compiled_classes_are_counted() -> None:
    text = (
        "cdef class Link(Receiver):\n"
        "    def send(self):\n        pass\n"
        "    cdef int hidden(self) except -1:\n        return 0\n"
        "    cpdef bint is_open(self):\n        return True\n"
        "    def _private(self):\n        pass\n"
        "\n\ncdef int outside():\n    return 1\n"
        "class Plain:\n    def one(self):\n        pass\n"
    )
    found = {head: set(_CYTHON_METHOD.findall(body)) for head, body in _CYTHON_CLASS.findall(text)}

    assert found == {"Link": {"send", "is_open", "_private"}, "Plain": {"one"}}


def test_docstrings_are_in_plain_words() -> None:
    assert [
        f"{relative(path)}: {words}"
        for path in source_files(".py", ".pyx", ".pxd", ".pyi")
        for words in _DIALECT.findall(path.read_text())
    ] == []
