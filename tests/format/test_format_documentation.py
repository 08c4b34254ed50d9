"""The examples in docs/format.md are true: they are run here, and give what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

PAGE = (ROOT / "docs" / "format.md").read_text()


def example(name: str) -> str:
    """Return the fenced text after a mark of the page."""
    found = re.search(rf"<!-- example: {name} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, name
    return found[1]


def dump(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        lines.append(f"{at:08x}  {left:<23}  {right:<23}  |{text}|\n")
    return "".join(lines)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    exec(example("write"), {})
    return tmp_path / "orders"


def test_the_writing_example_gives_the_bytes_on_the_page(written: Path) -> None:
    assert dump((written / "000001.blk").read_bytes()) == example("bytes")


@pytest.mark.parametrize("name", ["read", "reader"])
def test_the_reading_examples_print_what_the_page_says(
    written: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    exec(example(name), {})

    assert capsys.readouterr().out == example("output")


def test_the_page_leads_to_the_specification() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)

    assert links
    assert all((ROOT / "docs" / link).exists() for link in links)
