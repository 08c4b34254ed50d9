"""Every compiled module has a stub that says what it holds, and is as new as its source."""

from __future__ import annotations

import ast
import importlib
import inspect
import types
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT, imports_of, module_name, relative, source_files

COMPILED = [path for path in source_files(".pyx") if path.is_relative_to(PACKAGE)]


def public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def stub_names(body: list[ast.stmt]) -> set[str]:
    """Return the public names that a stub's module or class body declares."""
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if not is_alias(node):
                names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return public(names)


def is_alias(node: ast.AnnAssign) -> bool:
    """Return True if it names a type, for readers of the stub only."""
    return isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"


def defined_names(module: types.ModuleType) -> set[str]:
    """Return the public functions and classes that a module defines itself."""
    return public(
        {
            name
            for name, value in vars(module).items()
            if (callable(value) and getattr(value, "__module__", None) == module.__name__)
        }
    )


def member_names(cls: type) -> set[str]:
    """Return the public methods and attributes that a class defines itself."""
    return public(set(vars(cls)) | set(inspect.get_annotations(cls)))


def sources_of(path: Path) -> set[Path]:
    """Return a .pyx and every .pxd of ours that is compiled into it."""
    found: set[Path] = set()
    waiting = [path, path.with_suffix(".pxd")]
    while waiting:
        source = waiting.pop()
        if source in found or not source.exists():
            continue
        found.add(source)
        for item in imports_of(source):
            waiting += (
                (ROOT / "src" / Path(*name.split("."))).with_suffix(".pxd")
                for name in item.modules()
                if name.startswith("penstock.")
            )
    return found


def stub_of(path: Path) -> ast.Module:
    return ast.parse(path.with_suffix(".pyi").read_text())


@pytest.mark.parametrize("path", COMPILED, ids=relative)
def test_a_compiled_module_has_a_stub(path: Path) -> None:
    assert path.with_suffix(".pyi").exists()


@pytest.mark.parametrize("path", COMPILED, ids=relative)
def test_a_stub_tells_every_function_and_class_and_nothing_else(path: Path) -> None:
    module = importlib.import_module(module_name(path))
    told = stub_names(stub_of(path).body)

    assert defined_names(module) - told == set(), "not in the stub"
    assert told - set(vars(module)) == set(), "only in the stub"


@pytest.mark.parametrize("path", COMPILED, ids=relative)
def test_a_stub_tells_every_member_of_a_class_and_nothing_else(path: Path) -> None:
    module = importlib.import_module(module_name(path))

    for node in stub_of(path).body:
        if isinstance(node, ast.ClassDef) and hasattr(module, node.name):
            assert stub_names(node.body) == member_names(getattr(module, node.name)), node.name


@pytest.mark.parametrize("path", COMPILED, ids=relative)
def test_a_compiled_module_is_not_older_than_its_source(path: Path) -> None:
    built = Path(importlib.import_module(module_name(path)).__file__ or "")

    assert built.suffix == ".so"
    newer = {
        source for source in sources_of(path) if source.stat().st_mtime > built.stat().st_mtime
    }
    assert {relative(source) for source in newer} == set(), "run make setup"
