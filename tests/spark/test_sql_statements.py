"""SQL text: where statements end, what they mention, and whether they only read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.sql.statements import (
    lowered,
    names,
    only_reads,
    reads_whole_rows,
    split,
    tokens,
)


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("select 1", [], "select 1"),
        ("select 1;", ["select 1"], ""),
        ("select 1; select 2; sel", ["select 1", "select 2"], " sel"),
        ("select ';' , \"a;b\", `c;d`;", ["select ';' , \"a;b\", `c;d`"], ""),
        ("select 'it\\'s; fine';", ["select 'it\\'s; fine'"], ""),
        ("select r'\\';", ["select r'\\'"], ""),
        ("select 1 -- one; two\n;", ["select 1 -- one; two"], ""),
        ("select /* ; */ 1;", ["select /* ; */ 1"], ""),
        (";;  ; -- nothing\n;", [], ""),
        ("select 'never ends;", [], "select 'never ends;"),
        ("select /* never ends;", [], "select /* never ends;"),
        ("select `never ends;", [], "select `never ends;"),
    ],
)
def test_statements_end_at_semicolons_that_stand_for_themselves(
    text: str, statements: list[str], rest: str
) -> None:
    assert split(text) == (statements, rest)


@given(st.text(alphabet="ab '\"`;-/*\\\n"))
def test_no_letter_of_a_text_gets_lost(text: str) -> None:
    found = list(tokens(text))

    assert [text[each.start : each.start + len(each.text)] for each in found] == [
        each.text for each in found
    ]
    statements, rest = split(text)
    assert all(each in text for each in statements)
    assert text.endswith(rest)


def test_names_are_those_outside_of_texts_and_comments() -> None:
    statement = "SELECT `odd-one`.x, 'quoted' FROM Orders -- hidden\n WHERE `a``b` > 1"

    assert names(statement) == {"SELECT", "odd-one", "x", "FROM", "Orders", "WHERE", "a`b", "1"}
    assert "orders" in lowered(names(statement))


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("select 1", True),
        ("  /* why */ WITH o AS (SELECT 1) SELECT * FROM o", True),
        ("(select 1) union (select 2)", True),
        ("explain select 1", True),
        ("WITH o AS (SELECT 1) INSERT INTO t SELECT * FROM o", False),
        ("from a insert into b select *", False),
        ("create temporary view v as select 1", False),
        ("drop table t", False),
        ("set x=1", False),
        ("", False),
    ],
)
def test_a_statement_that_may_change_something_is_told(statement: str, answer: bool) -> None:
    assert only_reads(statement) is answer


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("select a from t", False),
        ("select count(*) from t", False),
        ("select COUNT ( * ), a from t group by a", False),
        ("select extract(year from a) from t", False),
        ("select * from t", True),
        ("select t.* from t", True),
        ("select a*2 from t", True),
        ("select sum(*) from t", True),
        ("select a from (from t)", True),
        ("from t", True),
        ("select 1 union all from t", True),
        ("with o as (from t) select a from o", True),
        ("select a from t natural join u", True),
        ("select a from t pivot (count(b) for c in (1))", True),
        ("select identifier('a') from t", True),
        ("table t", True),
        ("describe t", True),
        ("select a from t |> where b > 1", True),
    ],
)
def test_a_statement_that_may_read_columns_unnamed_is_told(statement: str, answer: bool) -> None:
    assert reads_whole_rows(statement) is answer
