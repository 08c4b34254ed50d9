"""Charts are whole SVG documents, whose bars are as long as their factors say."""

from __future__ import annotations

from xml.etree import ElementTree as Xml

import pytest

from benchmarks.charts import BAD, GOOD, Bar, bar_chart

SVG = "{http://www.w3.org/2000/svg}"


def parsed(*bars: Bar, more_is_better: bool = True) -> Xml.Element:
    return Xml.fromstring(bar_chart("A <title>", "a note", bars, more_is_better=more_is_better))


def spans(chart: Xml.Element) -> list[tuple[float, float]]:
    """Return where each bar begins and ends."""
    return [
        (float(bar.attrib["x"]), float(bar.attrib["x"]) + float(bar.attrib["width"]))
        for bar in chart.iter(f"{SVG}rect")
    ]


def test_a_chart_shows_every_label_and_value_as_text() -> None:
    chart = parsed(Bar("a & b", 4.0), Bar("c", 0.5), Bar("d", 160.0))

    texts = [each.text for each in chart.iter(f"{SVG}text")]
    assert texts == [
        "A <title>", "a note", "1x", "a & b", "4.00x", "c", "0.50x", "d", "160x"
    ]  # fmt: skip


def test_equal_factors_up_and_down_are_equally_long_on_either_side() -> None:
    (left, right), (other_left, other_right) = spans(parsed(Bar("up", 4.0), Bar("down", 0.25)))

    assert left == pytest.approx(other_right, abs=0.2)
    assert right - left == pytest.approx(other_right - other_left, abs=0.2)


def test_a_factor_squared_is_twice_as_long() -> None:
    (left, right), (_, far_right) = spans(parsed(Bar("a", 3.0), Bar("b", 9.0)))

    assert far_right - left == pytest.approx(2 * (right - left), abs=0.3)


@pytest.mark.parametrize(("more_is_better", "colours"), [(True, [GOOD, BAD]), (False, [BAD, GOOD])])
def test_what_is_worse_has_another_colour(more_is_better: bool, colours: list[str]) -> None:
    chart = parsed(Bar("more", 2.0), Bar("less", 0.5), more_is_better=more_is_better)

    assert [bar.attrib["fill"] for bar in chart.iter(f"{SVG}rect")] == colours


def test_the_text_follows_the_colour_scheme() -> None:
    (style,) = parsed(Bar("a", 2.0)).iter(f"{SVG}style")

    assert "prefers-color-scheme: dark" in (style.text or "")


@pytest.mark.parametrize("bars", [[], [Bar("a", 0.0)], [Bar("a", -1.0)]])
def test_without_a_factor_above_zero_there_is_no_chart(bars: list[Bar]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        bar_chart("t", "n", bars, more_is_better=True)
