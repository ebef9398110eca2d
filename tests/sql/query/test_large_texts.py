"""Texts of 100,000 characters, in time that grows with their length.

A regular expression that backtracks holds the interpreter's lock, so that neither a cancellation
nor a timeout ends it. A test of one that is quadratic hangs.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from server.security import scram
from server.sql.postgres import parameters, protocol
from server.sql.query import dialect, duckdb_errors, pg_types, rewrite
from server.sql.query.array_literals import array_elements
from server.sql.query.errors import DuckDbError, SqlError
from server.sql.query.query_engine import QueryEngine
from server.sql.query.statement_parser import parse
from tests.sql.query.memory_source import run
from tests.support.long_form import spread

pytestmark = pytest.mark.process


SIZE = 100_000
SPACES = " " * SIZE

PARTS = (
    *(" ", "\n", "\n ", "\t x", "(", ")", "()", "{", "}", '"', '""', '"x"', '\\"', "\\", "\\ "),
    *("'", "''", "e'", "$", "$$", "$a$", "$a", "$1", "/*", "*/", "--", "a", "a.", '"a".', ","),
    *(", ", "0", "1 ", "-", "+", "-1 ", "1.", ".", "1e", "00:", "0000-", "1 a", "n=,", ",p="),
    *("c=,r=,", ":", "-c", "-c ", "--a", "=", "column ", 'column "'),
    *("must appear in the GROUP BY", "x Error: "),
)  # fmt: skip
"""What texts are made of: each many times, alone and around something else."""

PATTERNS = [
    (name, pattern)
    for module in (parameters, protocol, scram, dialect, rewrite)
    for name, pattern in vars(module).items()
    if isinstance(pattern, re.Pattern)
]

SEARCHED = {"_WORD", "_LEXEME", "_ESCAPE", "_ESCAPED_BYTE", "_ESCAPED_CHARACTER"}
"""The patterns that are looked for anywhere; the others have to match at one place."""


def large_texts() -> list[str]:
    """All parts, repeated, with beginnings and ends that make a match fail late."""
    return [
        f"{before}{(part * SIZE)[:SIZE]}{after}"
        for part in PARTS
        for before, after in (("", '"x'), ('"', "!"), ("{", "}"))
    ]


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=[name for name, _ in PATTERNS])
def test_patterns_take_linear_time(name: str, pattern: re.Pattern[Any]) -> None:
    for text in large_texts():
        subject = text.encode() if isinstance(pattern.pattern, bytes) else text
        assert pattern.match(subject) is None or pattern.match(subject) is not None
        assert pattern.fullmatch(subject) is None or pattern.groups >= 0
        if name in SEARCHED:
            assert len(pattern.sub(subject[:0], subject)) <= len(subject)


@pytest.mark.parametrize("part", PARTS)
def test_errors_of_any_length_are_translated(part: str) -> None:
    error = duckdb_errors.translate(DuckDbError(("InvalidInputException",), part * SIZE), None)
    assert error.sqlstate in ("22000", "42703", "57014")
    assert len(error.message) <= 500


def test_names_of_columns_are_found_in_errors() -> None:
    for name in ("a", "Two Words", "é"):
        text = f'Binder Error: column "{name}" must appear in the GROUP BY clause or must be part'
        error = duckdb_errors.translate(DuckDbError(("BinderException",), text), None)
        assert (error.sqlstate, f'column "{name}" must' in error.message) == ("42803", True)
    text = "Binder Error: column a must appear in the GROUP BY clause or be used"
    error = duckdb_errors.translate(DuckDbError(("BinderException",), text), None)
    assert 'column "a" must' in error.message


@pytest.mark.parametrize("part", PARTS)
def test_long_names_are_no_types(part: str) -> None:
    assert pg_types.find_oid((part * SIZE)[:SIZE]) is None


def test_modifiers_of_types_are_ignored() -> None:
    assert pg_types.find_oid("numeric(10, 2)") == 1700
    assert pg_types.find_oid(" character varying (10)[] ") == 1015


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("{}", []),
        (" { } ", []),
        ("{a, b c ,NULL,null}", ["a", "b c", None, None]),
        ('{"NULL", "a""b"}', None),
        ('{ "a,b" , "c\\"d" }', ["a,b", 'c"d']),
        ("{a\\ , \\,}", ["a ", ","]),
        ('{" x "}', [" x "]),
        ("{a,}", ["a", ""]),
        ("{{1}}", None),
        ('{a "x"}', None),
        ('{"a}', None),
        (f"{{{SPACES}}}", []),
        (f"{{{SPACES}a{SPACES}}}", ["a"]),
        (f"{{a{SPACES}b}}", [f"a{SPACES}b"]),
        (f'{{{SPACES}"x}}', None),
        (f'{{{SPACES}"x"{SPACES}y}}', None),
        (f"{{{chr(92) * SIZE}}}", ["\\" * (SIZE // 2)]),
        (f'{{"{chr(92) * SIZE}}}', None),
        (f'{{{"a " * SIZE}"}}', None),
    ],
    ids=lambda value: f"{str(value)[:20]}",
)
def test_arrays_are_read(text: str, elements: list[str | None] | None) -> None:
    if elements is not None:
        assert array_elements(text) == elements
    else:
        with pytest.raises(SqlError, match="malformed array"):
            array_elements(text)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        (f"select '{{{SPACES}\"x}}'::text[]", "malformed array literal"),
        (f"select '{{{SPACES}x}}'::text[]", [(["x"],)]),
        (f"select '{'1 ' * 1000}'::int[]", [([1] * 1000,)]),
        (f"select '{'1 ' * SIZE}x'::int[]", "malformed array literal"),
        (f"select '{'1 ' * (SIZE + 1)}'::int[]", "malformed array literal"),
        (f"select error(repeat('column ', {SIZE // 7}))", "column column"),
        (f"select '{'(' * SIZE}'::regtype", "does not exist"),
        (f"select '{'()' * SIZE}'::regtype::oid", "does not exist"),
        (f"select '{'.' * SIZE}'::regclass", "invalid input syntax"),
        ("select '" + '"' * SIZE + "'::regclass", "does not exist"),
        (f"select '{'a.' * SIZE}'::regproc::oid", [(0,)]),
        ('select \'"\'::regnamespace', "invalid input syntax"),
        (f"select '{'a' * SIZE}'::regclass", "does not exist"),
        (f"select has_table_privilege('orders', '{'a ' * SIZE}')", [(False,)]),
        ("select E'" + "\\x" * SIZE + "' = ''", [(False,)]),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_long_texts_in_queries(engine: QueryEngine, sql: str, rows: Any) -> None:
    if isinstance(rows, str):
        with pytest.raises(SqlError, match=rows) as raised:
            run(engine, sql)
        assert len(raised.value.message) < 600
    else:
        assert run(engine, sql)[1] == rows


@pytest.mark.parametrize(
    ("sql", "query"),
    [
        (f"copy a{SPACES}b to stdout", "SELECT * FROM a AS b"),
        (f"copy a{SPACES}(b) to stdout", "SELECT b FROM a"),
        (f"copy a ({SPACES}b, c{SPACES}) to stdout", "SELECT b, c FROM a"),
        ("copy a(b)to stdout", "SELECT b FROM a"),
        ('copy "a(b)" to stdout', 'SELECT * FROM "a(b)"'),
        ('copy x."(" ("c)") to stdout', 'SELECT "c)" FROM x."("'),
        ('copy "(" to stdout', 'SELECT * FROM "("'),
        ("copy (select 1) to stdout", "SELECT 1"),
    ],
    ids=lambda value: value[:20],
)
def test_the_table_of_copy_is_read(sql: str, query: str) -> None:
    (statement,) = parse(sql)
    assert statement.tree is not None
    assert statement.tree.sql(dialect="postgres") == query


@pytest.mark.parametrize("part", spread(PARTS, 18))
def test_texts_of_any_kind_are_tokenized(part: str) -> None:
    try:
        dialect.tokenize(f"select {part * (SIZE // len(part))}")
    except SqlError as error:
        assert error.sqlstate in ("42601", "54001")  # noqa: PT017 - many of them are none


def test_parameters_with_many_digits_are_refused() -> None:
    with pytest.raises(SqlError, match="there is no parameter") as raised:
        parse(f"select ${'1' * SIZE}")
    assert raised.value.sqlstate == "42P02"
