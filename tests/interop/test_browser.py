"""A real browser: a page talks to the real server and to ours over WebSocket, and sees the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.servers import Pair
from tests.interop.node_scripts import FOLDER, WAIT_S, installed_node, websocket_port

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

PAGE = '<!doctype html><meta charset="utf-8"><title>A page</title><script src="page.js"></script>'
COOKIES = {"name": "all", "word": "p"}


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder's files; give the origin of its pages."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietHandler, directory=str(folder))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def bundle_page(folder: Path) -> None:
    """Write the page and its script, with the client library in it."""
    subprocess.run(
        [
            FOLDER / "node_modules" / ".bin" / "esbuild",
            "page.mjs",
            "--bundle",
            "--log-level=error",
            f"--outfile={folder / 'page.js'}",
        ],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=WAIT_S,
    )
    (folder / "index.html").write_text(PAGE)


def visit(folder: Path, visits: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the browser saw on each visit."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no browser: tools/install_browser.sh installs one")
    settings = {"executable": browser, "profile": str(folder), "visits": visits}
    done = subprocess.run(
        [installed_node(), "browser.mjs", json.dumps(settings)],
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_a_page_sees_the_same_of_both_servers(tmp_path: Path) -> None:
    installed_node()
    pages = tmp_path / "pages"
    pages.mkdir()
    bundle_page(pages)
    with ExitStack() as stack:
        allowed, other = (stack.enter_context(serving(pages)) for _ in range(2))
        websocket = f"""
        authorization {{ users: [ {{ user: all, password: p }} ] }}
        websocket {{
          host: "127.0.0.1", port: -1, no_tls: true, compression: true
          allowed_origins: ["{allowed}"], user_cookie: name, pass_cookie: word
        }}
        """
        pair = stack.enter_context(Pair(tmp_path, websocket))
        visits = {
            f"{server}: {what}": {
                "page": f"{origin}/index.html",
                "server": f"ws://127.0.0.1:{websocket_port(running)}",
                "cookies": cookies,
            }
            for server, running in (("real", pair.reference), ("ours", pair.ours))
            for what, origin, cookies in (
                ("from an allowed origin", allowed, COOKIES),
                ("from another origin", other, COOKIES),
                ("without cookies", allowed, {}),
                ("with a wrong cookie", allowed, COOKIES | {"word": "wrong"}),
            )
        }
        seen = visit(tmp_path, visits)

    real = {what.partition(": ")[2]: end for what, end in seen.items() if what[:4] == "real"}
    ours = {what.partition(": ")[2]: end for what, end in seen.items() if what[:4] == "ours"}
    assert ours == real
    assert len(real["from an allowed origin"]["many"]) == 500
    assert [each for each in real if "refused" in real[each]] == [
        "from another origin",
        "without cookies",
        "with a wrong cookie",
    ]
