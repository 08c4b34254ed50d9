"""The configuration language, with generated documents and against the real server."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import limits
from penstock.config.language.parser import (
    INT64_MAX,
    INT64_MIN,
    ConfigMap,
    Value,
    parse_file,
    parse_text,
)
from penstock.config.load import config_digest
from penstock.errors import ConfigError, ConfigSyntaxError
from tests.config.reference import ask

KEYS = st.text("abcdefgh_", min_size=1, max_size=6).filter(lambda key: key.lower() != "include")
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
FLOATS = st.decimals(-(10**9), 10**9, places=3, allow_nan=False, allow_infinity=False)
PLAIN = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(INT64_MIN, INT64_MAX),
    FLOATS.map(lambda number: float(number)),
)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        PLAIN,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
        max_leaves=12,
    ),
    min_size=1,
    max_size=5,
)


class Writer:
    """Writes documents in the configuration language, in as many ways as it has."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def pick(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def document(self, values: dict[str, Any]) -> str:
        lines = [self.entry(key, value) for key, value in values.items()]
        text = "".join(line + self.pick("\n", ",\n", ";", " # note\n", "\r\n") for line in lines)
        return "{" + text + "\n}" if self._draw(st.booleans()) else text

    def entry(self, key: str, value: Any) -> str:
        shown = self.pick(key, f'"{key}"', f"'{key}'")
        return shown + self.pick(": ", " = ", " ", ":\t") + self.value(value)

    def value(self, value: Any) -> str:
        if isinstance(value, dict):
            ends = (",", "\n", ";", "\n// note\n")
            inner = "".join(self.entry(*item) + self.pick(*ends) for item in value.items())
            return "{" + self.pick("", " ", "\n") + inner + "}"
        if isinstance(value, list):
            # A number needs something between it and the bracket.
            return (
                "[" + "".join(self.value(one) + self.pick(",", "\n", " , ") for one in value) + "]"
            )
        if isinstance(value, bool):
            return self.pick("true", "YES", "on") if value else self.pick("False", "no", "off")
        if isinstance(value, str):
            return self.text(value)
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    def text(self, text: str) -> str:
        if text and set(text) <= set("abcdefgh.>") and text[0] != "." and self._draw(st.booleans()):
            return text
        if "'" not in text and self._draw(st.booleans()):
            return f"'{text}'"
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return '"' + escaped.replace("\n", self.pick("\\n", "\n", "\\x0a")) + '"'


@st.composite
def written_documents(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    values = draw(DOCUMENTS)
    return values, Writer(draw).document(values)


def plain(value: Value | ConfigMap) -> Any:
    inner = value.value if isinstance(value, Value) else value
    if isinstance(inner, dict):
        return {key: plain(one) for key, one in inner.items()}
    return [plain(one) for one in inner] if isinstance(inner, list) else inner


def read_or_refuse(path: str) -> tuple[ConfigMap | None, str]:
    """Return what a file holds, or why it cannot be read."""
    try:
        return parse_file(path, {}), ""
    except ConfigError as error:
        return None, str(error)


def parse(text: str, **environ: str) -> Any:
    return plain(parse_text(text, environ))


@pytest.mark.slow
@given(written_documents())
def test_a_written_document_reads_back_as_it_was(written: tuple[dict[str, Any], str]) -> None:
    values, text = written

    assert parse(text) == values


@pytest.mark.slow
@pytest.mark.oracle
@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(written=written_documents())
def test_the_real_server_reads_the_same_values(
    written: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    # A resolver does not look at keys that it does not know, so that any value may stand there.
    values = {"resolver": {"type": "MEM", "any": written[0]}}
    inner = written[1] if not written[1].startswith("{") else written[1][1:-1]
    config = tmp_path / "any.conf"
    text = f"resolver {{ type: MEM\nany: {{\n{inner}\n}} }}\n"
    config.write_bytes(text.encode())

    assert parse(text) == values
    digest = config_digest(parse_file(str(config), {}))
    assert ask("-t", "-c", str(config)).errors.endswith(f"is valid ({digest})\n")


PIECES = st.sampled_from(
    ["port", "a", '"q k"', "'z'", ":", "=", " ", "\n", "\t", ",", ";", "{", "}", "[", "]", "(", ")",
     "\n)\n", "1", "42", "-1", "1.5", "1k", "3kbb", "127.0.0.1:4222", "2020-01-02T03:04:05Z",
     "true", "$a", "$2a$11$xyz", '"a\\tb"', "\\n", "#c\n", "//d\n", "/", "é", "\u00a0", "30s", "1m",
     "include x", "..", '"', "'", "\\", "1e5", "\x7f"]
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.oracle
@settings(
    max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(pieces=st.lists(PIECES, min_size=1, max_size=12))
def test_garbage_is_rejected_in_the_words_of_the_real_server(
    pieces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("any.conf").write_bytes("".join(pieces).encode())

    answer = ask("-t", "-c", "any.conf")
    values, reason = read_or_refuse("any.conf")

    if values is None:
        assert answer.errors == f"nats-server: {reason}\n"
    else:
        # It was read: what is left to say is about options, at the places of their keys.
        places = {f"any.conf:{one.location.line}:{one.location.column}" for one in values.values()}
        assert "Parse error" not in answer.errors
        assert answer.places <= places


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=60) | st.lists(PIECES).map(lambda pieces: "".join(pieces).encode()))
def test_any_bytes_are_read_or_refused_and_never_break(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any.conf"
    path.write_bytes(data)

    values, reason = read_or_refuse(str(path))

    assert bool(reason) == (values is None)
    if values is not None:
        assert config_digest(values).startswith("sha256:")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1k", 1000), ("1kb", 1024), ("1Ki", 1024), ("1KiB", 1024), ("64MB", 64 * 1024**2),
        ("1Gb", 1024**3), ("2t", 2 * 1000**4), ("1pb", 1024**5), ("1e", 1000**6),
        ("-3m", -3_000_000), ("30s", "30s"), ("1h30m", "1h30m"), ("1m30s", "1m30s"),
        ("10.5", 10.5), ("1.2.3.4", "1.2.3.4"),
        ("127.0.0.1:-1", "127.0.0.1:-1"), ("yes", True), ("OFF", False), ("foo.>", "foo.>"),
        ("'$x'", "$x"), ('"\\x41\\xc3\\xa9"', "Aé"), ("$2a$11$abc", "$2a$11$abc"),
    ],
)  # fmt: skip
def test_a_value_is_what_it_looks_like(written: str, value: object) -> None:
    found = parse(f"x: {written}")["x"]

    assert found == value
    assert type(found) is type(value)


def test_a_date_is_in_utc() -> None:
    found = parse("x: 2016-05-04T18:53:41Z")["x"]

    assert isinstance(found, datetime)
    assert found.isoformat() == "2016-05-04T18:53:41+00:00"


def test_a_block_string_keeps_its_lines() -> None:
    assert parse("x: (\n one )\n two\n)\ny: 1") == {"x": "\n one )\n two\n", "y": 1}


def test_a_variable_is_the_nearest_key_of_that_name() -> None:
    text = "a: 1\nb { a: 2, c: $a, d { e: $a } }\nf: $a"

    assert parse(text) == {"a": 1, "b": {"a": 2, "c": 2, "d": {"e": 2}}, "f": 1}


def test_a_variable_of_the_environment_is_read_as_a_value() -> None:
    found = parse("a: $A\nb: $B\nc: $C", A="4222", B="[1, x ]", C="$A")

    assert found == {"a": 4222, "b": [1, "x"], "c": 4222}


def test_variables_that_refer_to_one_another_are_refused() -> None:
    with pytest.raises(ConfigSyntaxError, match="variable reference cycle for 'A'"):
        parse("x: $A", A="$B", B="$A")


def test_an_include_is_relative_to_the_file_that_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.conf").write_text("port: 1\nouter { include ./sub/b.conf }\n")
    (tmp_path / "sub" / "b.conf").write_text("include 'c.conf'\nb: $c\n")
    (tmp_path / "sub" / "c.conf").write_text("\n  c: 3\n")

    values = parse_file(str(tmp_path / "a.conf"), {})

    assert plain(values) == {"port": 1, "outer": {"c": 3, "b": 3}}
    outer = values["outer"].value
    assert isinstance(outer, dict)
    assert (Path(outer["c"].location.file).name, outer["c"].location.line) == ("c.conf", 2)


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include 'a.conf'\n")

    with pytest.raises(ConfigError, match="too deeply"):
        parse_file(str(tmp_path / "a.conf"), {})


@pytest.mark.parametrize("opening", ["[", "{a:", "{"])
def test_nesting_has_a_bound(opening: str) -> None:
    depth = limits.CONFIG_DEPTH_MAX + 1

    with pytest.raises(ConfigSyntaxError, match="too deeply"):
        parse("x: " + opening * depth if opening != "{" else opening * depth)


def test_variables_cannot_multiply_without_end() -> None:
    doubling = "".join(f"v{n}: [$v{n - 1}, $v{n - 1}\n]\n" for n in range(1, 40))

    with pytest.raises(ConfigSyntaxError, match="too many values"):
        parse("v0: x\n" + doubling)


def test_a_file_has_a_bound(tmp_path: Path) -> None:
    path = tmp_path / "large.conf"
    with path.open("wb") as file:
        file.truncate(limits.CONFIG_FILE_BYTES_MAX + 1)

    with pytest.raises(ConfigError, match="longer than"):
        parse_file(str(path), {})


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigSyntaxError, match="out of the range"):
        parse("x: 9223372036854775808")
    with pytest.raises(ConfigSyntaxError, match="out of the range"):
        parse("x: 9223372036854775807k")


def test_a_value_stands_where_its_key_stands_and_an_element_where_it_stands_itself() -> None:
    values = parse_text("a: 1\n  b: [ x,\n    y ]", {})

    elements = values["b"].value
    assert isinstance(elements, list)
    assert [(one.location.line, one.location.column) for one in (values["a"], values["b"])] == [
        (1, 0),
        (2, 3),
    ]
    assert [(one.location.line, one.location.column) for one in elements] == [(2, 8), (3, 5)]


def test_columns_count_bytes() -> None:
    values = parse_text("é: 1; b: 2", {})

    assert values["b"].location.column == len("é: 1; ".encode())


def test_the_digest_does_not_depend_on_order_and_spelling() -> None:
    one = config_digest(parse_text('a: 1kb\nb { c: "x" } # note', {}))
    other = config_digest(parse_text("{b = {'c': x}, a: 1024\n}", {}))

    assert one == other
    assert one != config_digest(parse_text("a: 1024", {}))
