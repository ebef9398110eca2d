"""Statements: split and classified, with the errors of those that are not supported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.sql.query.errors import SqlError
from server.sql.query.statement import CopyFormat, Statement, StatementKind
from server.sql.query.statement_parser import parse
from tests.support.chances import examples

KIND = StatementKind


@pytest.mark.parametrize(
    ("sql", "kind", "tag", "fields"),
    [
        ("select 1", KIND.SELECT, "SELECT", {}),
        ("table orders", KIND.SELECT, "SELECT", {}),
        ("(select 1) union select 2", KIND.SELECT, "SELECT", {}),
        ("values (1)", KIND.SELECT, "SELECT", {}),
        ("with x as (select 1) select $2 from x where $1", KIND.SELECT, "SELECT",
         {"parameter_count": 2}),
        ("explain select 1", KIND.EXPLAIN, "EXPLAIN", {"options": frozenset()}),
        ("explain analyze verbose select 1", KIND.EXPLAIN, "EXPLAIN",
         {"options": {"ANALYZE", "VERBOSE"}}),
        ("explain (analyze, verbose false) select 1", KIND.EXPLAIN, "EXPLAIN",
         {"options": {"ANALYZE"}}),
        ("set client_encoding to 'UTF8'", KIND.SET, "SET",
         {"name": "client_encoding", "value": "UTF8"}),
        ("SET extra_float_digits = 3", KIND.SET, "SET",
         {"name": "extra_float_digits", "value": "3"}),
        ("set statement_timeout = -1", KIND.SET, "SET", {"value": "-1"}),
        ("set local search_path to a, b", KIND.SET, "SET", {"value": "a, b", "is_local": True}),
        ("set x.y = default", KIND.SET, "SET", {"name": "x.y", "value": None}),
        ("set time zone 'UTC'", KIND.SET, "SET", {"name": "timezone", "value": "UTC"}),
        ("set names 'utf8'", KIND.SET, "SET", {"name": "client_encoding"}),
        (
            "set session characteristics as transaction read only",
            KIND.SET,
            "SET",
            {"name": "default_transaction_read_only", "value": "on"},
        ),
        ("set transaction read only", KIND.SET, "SET", {"options": frozenset({"READ ONLY"})}),
        ("begin read write", KIND.BEGIN, "BEGIN", {"options": frozenset()}),
        ("begin read only", KIND.BEGIN, "BEGIN", {"options": frozenset({"READ ONLY"})}),
        ("insert into orders (id) values ($1)", KIND.WRITE, "INSERT 0", {"parameter_count": 1}),
        ("update orders set a = $2", KIND.WRITE, "UPDATE", {"parameter_count": 2}),
        ("delete from orders", KIND.WRITE, "DELETE", {"parameter_count": 0}),
        ("set transaction isolation level serializable", KIND.SET, "SET", {"name": None}),
        ("set role none", KIND.SET, "SET", {}),
        ("show server_version", KIND.SHOW, "SHOW", {"name": "server_version"}),
        ("show all", KIND.SHOW, "SHOW", {"name": "ALL"}),
        ("show transaction isolation level", KIND.SHOW, "SHOW", {"name": "transaction_isolation"}),
        ("reset all", KIND.RESET, "RESET", {"name": "ALL"}),
        ("begin", KIND.BEGIN, "BEGIN", {}),
        ("begin transaction isolation level read committed read only", KIND.BEGIN, "BEGIN", {}),
        ("start transaction", KIND.BEGIN, "START TRANSACTION", {}),
        ("commit", KIND.COMMIT, "COMMIT", {}),
        ("end", KIND.COMMIT, "COMMIT", {}),
        ("rollback work", KIND.ROLLBACK, "ROLLBACK", {}),
        ("rollback to savepoint a", KIND.SAVEPOINT, "ROLLBACK", {"name": "a"}),
        ("savepoint a", KIND.SAVEPOINT, "SAVEPOINT", {"name": "a"}),
        ("release a", KIND.SAVEPOINT, "RELEASE", {"name": "a"}),
        ("discard all", KIND.DISCARD, "DISCARD ALL", {"name": "ALL"}),
        ("deallocate all", KIND.DEALLOCATE, "DEALLOCATE ALL", {"name": None}),
        ('deallocate prepare "X"', KIND.DEALLOCATE, "DEALLOCATE", {"name": "X"}),
        ("declare C cursor for select 1", KIND.DECLARE, "DECLARE CURSOR",
         {"name": "c", "options": frozenset()}),
        ('declare "C" binary no scroll cursor with hold for select $1', KIND.DECLARE,
         "DECLARE CURSOR", {"name": "C", "options": {"BINARY", "HOLD"}, "parameter_count": 1}),
        ("fetch forward 10 from c", KIND.FETCH, "FETCH", {"name": "c", "count": 10}),
        ("fetch 10 c", KIND.FETCH, "FETCH", {"name": "c", "count": 10}),
        ("fetch all in c", KIND.FETCH, "FETCH", {"name": "c", "count": None}),
        ("fetch c", KIND.FETCH, "FETCH", {"name": "c", "count": 1}),
        ("fetch forward all from c", KIND.FETCH, "FETCH", {"count": None}),
        ("move 5 from c", KIND.MOVE, "MOVE", {"count": 5}),
        ("close c", KIND.CLOSE, "CLOSE CURSOR", {"name": "c"}),
        ("close all", KIND.CLOSE, "CLOSE CURSOR", {"name": None}),
        ("unlisten *", KIND.UNLISTEN, "UNLISTEN", {"topic": None}),
        ("listen Orders", KIND.LISTEN, "LISTEN", {"topic": ("", "orders", 8)}),
        ("notify json.\"A b\", 'it''s'", KIND.NOTIFY, "NOTIFY",
         {"topic": ("json", "A b", 8), "value": "it's"}),
        ("copy (subscribe to orders with (snapshot = off, progress)) to stdout", KIND.COPY_OUT,
         "COPY", {"live": (("", "orders", 20), False, True, None), "tree": None}),
        ("declare c cursor for subscribe (select a from t where b = $1)", KIND.DECLARE,
         "DECLARE CURSOR", {"live": (None, True, False, None), "parameter_count": 1}),
        ("declare c cursor for subscribe to t as of $1 with (progress)", KIND.DECLARE,
         "DECLARE CURSOR", {"parameter_count": 1}),
        ("declare c cursor for subscribe (select $1 from t) with (progress) as of $2", KIND.DECLARE,
         "DECLARE CURSOR", {"parameter_count": 2}),
        ("fetch all c with (timeout = '500 ms')", KIND.FETCH, "FETCH",
         {"count": None, "timeout_s": 0.5}),
        ("copy (select 1) to stdout", KIND.COPY_OUT, "COPY", {"copy": CopyFormat()}),
        ("copy orders to stdout with csv header", KIND.COPY_OUT, "COPY",
         {"copy": CopyFormat("csv", ",", "", header=True)}),
        ("copy orders (id, qty) to stdout (format csv, delimiter ';', null 'x', header false)",
         KIND.COPY_OUT, "COPY", {"copy": CopyFormat("csv", ";", "x")}),
        ("copy (select 1) to stdout (format binary)", KIND.COPY_OUT, "COPY",
         {"copy": CopyFormat("binary")}),
        ("copy (select 1) to stdout binary", KIND.COPY_OUT, "COPY", {"copy": CopyFormat("binary")}),
    ],
)  # fmt: skip
def test_a_statement_is_classified(
    sql: str, kind: StatementKind, tag: str, fields: dict[str, Any]
) -> None:
    (statement,) = parse(sql)
    assert (statement.kind, statement.tag) == (kind, tag)
    for name, value in fields.items():
        assert getattr(statement, name) == value


def test_a_text_may_have_several_statements() -> None:
    text = "select ';' as \";\"; -- a ; in a comment\n begin ;; /* ; */ select $a$;$a$"
    statements = parse(text)
    assert [statement.kind.name for statement in statements] == ["SELECT", "BEGIN", "SELECT"]
    assert [text[item.offset :].startswith(item.text) for item in statements] == [True] * 3


@pytest.mark.parametrize("text", ["", ";", " ; ; ", "-- nothing", "/* nothing */"])
def test_an_empty_text_has_no_statement(text: str) -> None:
    assert parse(text) == []


@pytest.mark.parametrize(
    ("sql", "sqlstate", "position"),
    [
        ("selec 1", "42601", 1),
        ("select 1 +", "42601", None),
        ("select * from", "42601", None),
        ("select 1; select * from where", "42601", 25),
        ("select 'abc", "42601", None),
        ('select "abc', "42601", None),
        ("select (1", "42601", None),
        ("set", "42601", None),
        ("show a b", "42601", 8),
        ("explain", "42601", None),
        ("fetch 1 from c extra", "42601", 16),
        ("select @x", "42601", None),
        ("select $0", "42P02", None),
        ("explain delete from orders", "0A000", 1),
        ("with x as (delete from orders returning *) select * from x", "0A000", None),
        ("select * into x from orders", "0A000", None),
        ("select * from orders for update", "0A000", None),
        ("create table x (a int)", "0A000", 1),
        ("drop table orders", "0A000", 1),
        ("set role bob", "0A000", None),
        ("set session authorization bob", "0A000", None),
        ("copy orders from stdin", "0A000", 1),
        ("copy orders to '/tmp/x'", "0A000", None),
        ("copy orders to program 'rm'", "0A000", None),
        ("copy orders to stdout (format xml)", "22023", None),
        ("copy orders to stdout (quoting 'x')", "22023", None),
        ("fetch prior from c", "0A000", None),
        ("subscribe to orders", "0A000", 1),
        ("listen orders x", "42601", 15),
        ("notify orders 'x'", "42601", 15),
        ("copy (subscribe) to stdout", "42601", 27),
        ("copy (subscribe to a with (x = 1)) to stdout", "22023", None),
        ("fetch c with (timeout = 'soon')", "22023", None),
        ("declare c cursor for subscribe (select a from t limit 1)", "0A000", 55),
        ("prepare x as select 1", "0A000", 1),
        ("pragma version", "0A000", 1),
        ("attach 'x.db'", "0A000", 1),
        ("install httpfs", "0A000", 1),
        ("load httpfs", "0A000", 1),
        ("export database 'x'", "0A000", 1),
        ("call pragma_version()", "0A000", 1),
        ("select " + "(" * 200 + "1" + ")" * 200, "54001", None),
        ("select 1" + " + 1" * 30000, "54001", None),
        (";".join(["select 1"] * 1500), "54001", None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_statement_is_refused(sql: str, sqlstate: str, position: int | None) -> None:
    with pytest.raises(SqlError) as caught:
        parse(sql)
    assert caught.value.sqlstate == sqlstate
    if position is not None:
        assert caught.value.position == position
    if sqlstate == "0A000":
        assert caught.value.hint


def outcome(text: str) -> str | list[Statement]:
    try:
        return parse(text)
    except SqlError as error:
        return error.sqlstate


@pytest.mark.parametrize(
    "sql",
    [
        "select " + "not " * 5000 + "true",
        "select " + "- " * 5000 + "1",
        "select 1" + " || 'a'" * 8000,
        "select " + "case when true then " * 90 + "1" + " end" * 90,
        "/*" * 400_000,
        "$a$b" * 200_000,
        "select " + "'" * 900_001,
        "x" * 1_000_001,
    ],
    ids=lambda value: value[:20],
)
def test_a_deep_or_long_statement_is_an_error_and_not_the_end(sql: str) -> None:
    found = outcome(sql)
    assert isinstance(found, list) or found in ("54001", "42601")


_WORDS = [
    *("select", "from", "where", "orders", "(", ")", ",", ";", "'a'", "$1", "*", "=", "set", "to"),
    *("copy", "declare", "cursor", "for", "fetch", "explain", '"', "'", "--", "/*", "$$", "E'\\"),
    *("show", "begin", "with", "as", "1", "group by", "order by", "case", "end", "::", "[", "]"),
]


@settings(max_examples=examples(300, 50), deadline=None)
@given(
    st.one_of(st.lists(st.sampled_from(_WORDS), max_size=15).map(" ".join), st.text(max_size=40))
)
def test_random_text_raises_only_the_error_of_statements(text: str) -> None:
    found = outcome(text)
    if isinstance(found, str):
        assert len(found) == 5
    else:
        assert all(statement.text for statement in found)
