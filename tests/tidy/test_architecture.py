"""docs/architecture.md is a map of what is there: every file and every name on it exists.

So it is with docs/promises.md, which names the tests that prove each promise.

A path in backquotes is a file or folder below src/penstock or of the project; a name in backquotes
is defined in a file that the same line mentions.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT

PAGE = ROOT / "docs" / "architecture.md"
PROMISES = ROOT / "docs" / "promises.md"
WALK_LINES_MAX = 12
WALKS = 8

_CODE = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"[\w./-]+(?:\.(?:py|pyx|pxd|md|toml|json)|/)")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


def find_file(mention: str) -> Path | None:
    """Return the file or folder that a path on the map means, or None if there is none."""
    return next((path for top in (PACKAGE, ROOT) if (path := top / mention).exists()), None)


def defines(text: str, name: str) -> bool:
    """Return True if a file defines a name: a class, function, attribute, constant or C field."""
    kinds = (
        rf"(?:class|def|struct|enum) +{name}\b",
        rf"^ *(?:cdef|cpdef)\b.*\b{name}\b",
        rf"^ *(?:self\.)?{name} *[:=]",
    )
    return re.search("|".join(kinds), text, re.MULTILINE) is not None


def complaints(page: str) -> list[str]:
    """Return what the page mentions and the tree does not have."""
    found = []
    for number, line in enumerate(page.splitlines(), start=1):
        mentions = _CODE.findall(line)
        paths = [each for each in mentions if _PATH.fullmatch(each)]
        files = {each: find_file(each) for each in paths}
        found += [f"line {number}: no file {each}" for each, file in files.items() if file is None]
        texts = [file.read_text() for file in files.values() if file is not None and file.is_file()]
        for name in (each for each in mentions if each not in paths and _NAME.fullmatch(each)):
            if not texts or not all(
                any(defines(text, part) for text in texts) for part in name.split(".")
            ):
                found.append(f"line {number}: {name} is not in {', '.join(paths) or 'any file'}")
    return found


def walks(page: str) -> dict[str, list[str]]:
    """Return the steps of each walk: the numbered lines below its heading."""
    _, _, part = page.partition("\n## Walks\n")
    part, _, _ = part.partition("\n## ")
    sections = part.split("\n### ")[1:]
    return {
        section.splitlines()[0]: re.findall(r"^\d+\. .*", section, re.MULTILINE)
        for section in sections
    }


@pytest.mark.parametrize("page", [PAGE, PROMISES], ids=lambda page: page.name)
def test_every_file_and_name_on_the_map_exists(page: Path) -> None:
    assert complaints(page.read_text()) == []


def test_every_promise_names_the_tests_that_prove_it() -> None:
    promises, _, _ = PROMISES.read_text().partition("\n## The last long runs\n")
    blocks = promises.split("\n\n**")[1:]

    assert len(blocks) > 10
    assert all("`tests/" in block for block in blocks)


def test_every_walk_is_short_and_passes_files() -> None:
    found = walks(PAGE.read_text())

    assert len(found) == WALKS
    for name, steps in found.items():
        assert 0 < len(steps) <= WALK_LINES_MAX, name
        assert all(_PATH.search(step) for step in steps), name


@pytest.mark.parametrize(
    "line",
    [
        "see `store/no_such.py`",
        "`limits.py` `NO_SUCH_LIMIT`",
        "`errors.py` `StoreError.nothing`",
        "`StoreError`",
    ],
)
def test_what_is_not_there_is_found(line: str) -> None:
    assert len(complaints(line)) == 1


def test_what_is_there_is_fine() -> None:
    assert complaints("`errors.py` `StoreError`, in `store/` and `docs/architecture.md`") == []
