"""docs/server.md tells every flag and every key; its examples and JetStream's are good."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config.flags import FLAGS
from penstock.config.options.declare import options_of
from penstock.config.options.server import ServerOptions
from penstock.testing.servers import BOTH, ask
from tests.security.made_certificates import Authority, rdns

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "server.md").read_text()
EXAMPLES = re.findall(
    r"^```conf\n(.*?)^```$",
    PAGE + (PROJECT / "docs" / "jetstream.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
WORDS = set(re.findall(r"`([^`\n]+)`", PAGE))


def named() -> set[str]:
    """Return what the page names in code, its flags and keys without their values."""
    return {word.split(" ")[0] for word in WORDS}


@pytest.mark.parametrize("flag", [name for flag in FLAGS for name in flag.names])
def test_every_flag_is_told(flag: str) -> None:
    assert flag in named()


@pytest.mark.parametrize(
    "keys", [info.keys for info in options_of(ServerOptions).values() if info.keys], ids=str
)
def test_every_key_is_told_under_one_of_its_names(keys: tuple[str, ...]) -> None:
    assert named() & set(keys)


def test_every_key_that_a_reload_may_change_is_told_there() -> None:
    section = PAGE.partition("\n## Reload\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([a-z_]+)`", section))
    without_effect = PAGE.partition("have no effect:")[2].partition("\n")[0]
    for name, info in options_of(ServerOptions).items():
        if info.reloadable and not any(f"`{key}`" in without_effect for key in info.keys):
            assert told & {name, *info.keys}, name


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("text", EXAMPLES)
@pytest.mark.parametrize("name", BOTH)
def test_the_examples_are_good_files_for_both_servers(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JETSTREAM_KEY", "s3cret")
    authority = Authority(tmp_path)
    made = authority.make(rdns("CN=localhost"), [])
    for file in ("server-cert.pem", "server-key.pem", "ca.pem"):
        source = {"server-cert.pem": made.cert_file, "server-key.pem": made.key_file}
        path = str(source.get(file, authority.ca_file))
        text = text.replace(f'"{file}"', f'"{path}"')
    config = tmp_path / "server.conf"
    config.write_text(text)

    answer = ask(name, "-t", "-c", str(config))

    assert "is valid" in answer.stderr, answer.stderr
    assert answer.returncode == 0


def test_the_page_links_only_to_what_is_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", PAGE) if "://" not in link]

    assert links
    assert [link for link in links if not (PROJECT / "docs" / link).exists()] == []
