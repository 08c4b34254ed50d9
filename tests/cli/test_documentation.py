"""The Python in the pages runs as it stands, and the links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PROJECT = Path(__file__).parents[2]
PAGES = [
    "README.md", "docs/store.md", "docs/cli.md", "docs/compatibility.md", "docs/embedding.md",
    "docs/jetstream.md", "docs/consumers.md", "docs/benchmarks.md", "CHANGELOG.md",
]  # fmt: skip

PRINTED = {
    "README.md": [
        "on stable storage: PAYMENTS 1",
        "payments.eu b'4200 cents'",
        "1 row",
        'b\'{"order": 1, "cents": 4200}\'',
        "b'orders.eu.paid'",
        "2",
        "2 of 3",
        "2 rows, sequences [1, 3]",
    ],
    "docs/embedding.md": [
        "b'hello'",
        "127.0.0.1 True",
        "True True",
        '1 expected an integer for "max_payload", got a string',
        "clients address already in use",
        "compared b'NATS/1.0 503\\r\\nNats-Subject: nobody\\r\\n\\r\\n'",
        "compared b'NATS/1.0 503\\r\\nNats-Subject: nobody\\r\\n\\r\\n'",
    ],
    "docs/jetstream.md": [
        "ORDERS 1",
        "orders.eu.placed b'4200 cents'",
        "1 done, 0 to come",
        "2 None",
        "2 True",
        "b'orders.eu.placed' b'orders.eu.paid'",
        "[b'300', b'320', b'340']",
        "1000000",
        "1 of the copy",
        "2 of the copy",
    ],
    "docs/consumers.md": [
        "1 b'0'",
        "2 b'1'",
        "3 b'2'",
        "dead.orders.billing b'0'",
        "Stream: ORDERS",
        "Consumer: billing",
        "Sequence: 1",
        "Subject: orders.eu",
        "Deliveries: 1",
        "Reason: terminated",
        "Text: no such customer",
        "events.ann.1 events.bob.1",
        "events.ann.2",
    ],
}
"""What the examples of a page print."""

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def examples(page: str) -> list[str]:
    """Return the pieces of Python of a page that can run here."""
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    found: list[str] = _PYTHON.findall((PROJECT / page).read_text())
    return [text for text in found if has_arrow or "import pyarrow" not in text]


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/store.md", "docs/embedding.md", "docs/jetstream.md", "docs/consumers.md"],
)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    # Each example of the README is a program of its own, with its own imports.
    pieces = examples(page)
    printed: list[str] = []
    for program in pieces if page == "README.md" else ["\n".join(pieces)]:
        ended = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.stderr == ""
        assert ended.returncode == 0
        printed += ended.stdout.splitlines()

    assert pieces
    if page in PRINTED:
        assert printed == PRINTED[page]


def test_the_test_file_of_the_page_on_embedding_passes(tmp_path: Path) -> None:
    (example,) = [text for text in examples("docs/embedding.md") if "def test_" in text]
    (tmp_path / "test_example.py").write_text(example)

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_only_to_what_is_there(page: str) -> None:
    path = PROJECT / page
    links = [link for link in _LINK.findall(path.read_text()) if "://" not in link]

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_readme_has_a_place_for_the_benchmarks() -> None:
    text = (PROJECT / "README.md").read_text()

    assert text.index("<!-- bench:start -->") < text.index("<!-- bench:end -->")


@pytest.mark.parametrize("name", ["ls", "info", "verify", "cat", "repair", "compact", "import"])
def test_every_option_of_a_command_is_told_in_its_page(run: Run, name: str) -> None:
    page = (PROJECT / "docs" / "cli.md").read_text()
    options = re.findall(r"^  (--[a-z-]+)", run("store", name, "--help").out, re.MULTILINE)

    # cat's selections are plain in its help and its examples.
    told = {option for option in options if option in page}
    assert set(options) - told <= {"--first", "--last", "--subject", "--limit"}


@pytest.mark.parametrize("name", ["pub", "sub", "req", "reply"])
def test_every_option_of_talking_is_told_in_the_page(run: Run, name: str) -> None:
    page = (PROJECT / "docs" / "cli.md").read_text()
    options = re.findall(r"^ .*?(--[a-z-]+)", run(name, "--help").out, re.MULTILINE)

    assert len(options) > 12
    assert [option for option in options if option not in page and option != "--help"] == []
