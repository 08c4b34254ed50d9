"""Our own source files as the tidy tests see them: where they are and what they import.

Python files are parsed; Cython files are read line by line, because no parser that we want to
depend on reads them: comments and triple-quoted strings are taken out first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "penstock"

_TEXT = re.compile(r'"""(?:\\.|[^\\])*?"""' + r"|'''(?:\\.|[^\\])*?'''", re.DOTALL)
_COMMENT = re.compile(r"#[^\n]*")
_FROM = re.compile(r"^[ \t]*from[ \t]+(\S+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*c?import[ \t]+([^\n(]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Import:
    """A module that a file asks for, by its full name; `names` are what it takes from it."""

    module: str
    names: tuple[str, ...]

    def modules(self) -> tuple[str, ...]:
        """Return every module that this may load: `from a import b` may mean a or a.b."""
        return (self.module, *(f"{self.module}.{name}" for name in self.names))


def source_files(*suffixes: str) -> list[Path]:
    """Return our files with these suffixes, in a fixed order."""
    tops = [ROOT / name for name in ("src", "tests", "benchmarks", "tools")]
    found = [ROOT / "setup.py"] if ".py" in suffixes else []
    for top in tops:
        found += (path for path in top.rglob("*") if path.suffix in suffixes)
    return sorted(found)


def relative(path: Path) -> str:
    """Return a path as people write it."""
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """Return the full name of a module under src."""
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> list[Import]:
    """Return what a file imports or cimports."""
    text = path.read_text()
    return list(python_imports(text) if path.suffix in (".py", ".pyi") else cython_imports(text))


def python_imports(text: str) -> Iterator[Import]:
    """Read the imports of a Python file, those inside functions too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield Import(module, tuple(alias.name for alias in node.names))


def cython_imports(text: str) -> Iterator[Import]:
    """Read the imports and cimports of a Cython file."""
    plain = _COMMENT.sub("", _TEXT.sub("", text)).replace("\\\n", " ")
    for module, names in _FROM.findall(plain):
        taken = [name.split()[0] for name in names.strip("() \t").split(",") if name.strip()]
        yield Import(module, tuple(taken))
    for modules in _IMPORT.findall(plain):
        yield from (Import(name.split()[0], ()) for name in modules.split(",") if name.strip())
