"""The layers of the package: reads `layers.toml` and writes it where people and tools look for it.

    python -m tools.layers           # writes CONTRIBUTING.md, docs/architecture.md, pyproject.toml

`tests/tidy/test_layers.py` checks that the three are up to date, and every import against it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tools" / "layers.toml"
PACKAGE = ROOT / "src" / "penstock"

_NAMES_WIDTH = 34


class Layers(NamedTuple):
    """The table: layers from the top down, and what a package may not import besides."""

    layers: tuple[dict[str, str], ...]
    groups: dict[str, frozenset[str]]
    forbidden: dict[str, frozenset[str]]

    def number_of(self, package: str) -> int | None:
        """Return a package's layer, counted from the top, or None if it is not in the table."""
        return next((n for n, packages in enumerate(self.layers) if package in packages), None)


def load_layers() -> Layers:
    """Read the table. Names of our own packages get their prefix."""
    table = tomllib.loads(TABLE.read_text())
    layers = tuple(table["layer"])
    ours = {name for layer in layers for name in layer}
    groups = {
        group: frozenset(f"penstock.{name}" if name in ours else name for name in names)
        for group, names in table["groups"].items()
    }
    forbidden = {
        package: groups[names] if isinstance(names, str) else frozenset(names)
        for package, names in table["forbidden"].items()
    }
    return Layers(layers, groups, forbidden)


def picture(layers: Layers) -> str:
    """Return the layers as a block of text: a line for each layer."""
    lines = []
    for layer in layers.layers:
        names = "  ".join(layer)
        if len(layer) == 1:
            lines.append(f"    {names:<{_NAMES_WIDTH}}{next(iter(layer.values()))}")
        else:
            lines.append(f"    {names}")
    return "\n".join(line.rstrip() for line in lines)


def package_list(layers: Layers) -> str:
    """Return a Markdown table: a row for each package, layer by layer."""
    rows = ["| layer | package | what it is for |", "|---:|---|---|"]
    for number, layer in zip(range(len(layers.layers), 0, -1), layers.layers, strict=True):
        for name, purpose in layer.items():
            path = f"src/penstock/{name}" + ("/" if (PACKAGE / name).is_dir() else "")
            rows.append(f"| {number} | [{name}](../{_file_of(path)}) | {purpose} |")
    return "\n".join(rows)


def contract(layers: Layers) -> str:
    """Return the layers as import-linter reads them; it cannot see compiled modules."""
    lines = []
    for layer in layers.layers:
        names = [name if _is_visible(name) else f"({name})" for name in layer]
        lines.append(f'  "{" | ".join(names)}",')
    return "layers = [\n" + "\n".join(lines) + "\n]"


def _is_visible(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def _file_of(path: str) -> str:
    if path.endswith("/"):
        return path
    return next(
        (path + suffix for suffix in (".py", ".pyx") if (ROOT / (path + suffix)).exists()), path
    )


def targets(layers: Layers) -> dict[Path, tuple[str, str]]:
    """Return the files that hold a part of the table: the marker's name and the text."""
    return {
        ROOT / "CONTRIBUTING.md": ("layers", picture(layers)),
        ROOT / "docs" / "architecture.md": ("packages", package_list(layers)),
        ROOT / "pyproject.toml": ("layers", contract(layers)),
    }


def with_part(text: str, marker: str, part: str) -> str:
    """Return a file's text with the lines between its two markers replaced."""
    start, end = (_marker_line(text, f"{marker}:{which}") for which in ("start", "end"))
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    gap = "\n" if start.startswith("<!--") else ""
    return f"{before}{start}\n{gap}{part}\n{gap}{end}{after}"


def _marker_line(text: str, marker: str) -> str:
    return next(line for line in text.splitlines() if line in (f"<!-- {marker} -->", f"# {marker}"))


def main() -> None:
    """Write every file that holds a part of the table."""
    for path, (marker, part) in targets(load_layers()).items():
        path.write_text(with_part(path.read_text(), marker, part))


if __name__ == "__main__":
    main()
