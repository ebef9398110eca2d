"""Random statements give the records, and the counts, of a model in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.support import SqlServer
from tests.sql.write.support import bodies, write_server
from tests.support.chances import examples

Row = dict[str, Any]
Records = dict[int, Row]

FIELDS = ("n", "t", "deep.x")
KEYS = st.integers(0, 7)
NUMBERS = st.one_of(st.none(), st.integers(-5, 5))
TEXTS = st.one_of(st.none(), st.sampled_from(["a", "b'", '"c"', "d\\", "é"]))
VALUES = {"n": NUMBERS, "t": TEXTS, "deep.x": NUMBERS}


def fields(optional: bool) -> st.SearchStrategy[Row]:
    if optional:
        return st.fixed_dictionaries({}, optional=VALUES)
    return st.fixed_dictionaries(VALUES)


STATEMENTS = st.one_of(
    st.tuples(st.just("insert"), st.lists(st.tuples(KEYS, fields(False)), min_size=1, max_size=4)),
    st.tuples(st.just("upsert"), st.tuples(KEYS, fields(True))),
    st.tuples(
        st.just("update"), st.tuples(fields(True).filter(bool), st.integers(-5, 5), st.booleans())
    ),
    st.tuples(st.just("add"), st.tuples(st.integers(-2, 2), KEYS)),
    st.tuples(st.just("delete"), st.one_of(st.integers(-5, 5), TEXTS)),
)


@pytest.fixture(scope="module")
def connection(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[psycopg.Connection[Any]]:
    with write_server(tmp_path_factory.mktemp("sql")) as sql, open_typed(sql) as connection:
        yield connection


def open_typed(sql: SqlServer) -> psycopg.Connection[Any]:
    """A connection, after all columns have had a value."""
    connection = sql.connect()
    connection.execute("""INSERT INTO orders (id, n, t, "deep.x") VALUES (1, 1, 'a', 1)""")
    return connection


def execute(connection: psycopg.Connection[Any], records: Records, kind: str, terms: Any) -> None:
    """Execute a statement, and do the same to the model; compare the counts."""
    if kind == "insert":
        texts, values = [], []
        for key, row in terms:
            texts.append("(%s, %s, %s, %s)")
            values += [key, *(row[name] for name in FIELDS)]
            records[key] = {name: value for name, value in row.items() if value is not None}
        names = ", ".join(f'"{name}"' for name in FIELDS)
        text = f"INSERT INTO orders (id, {names}) VALUES {', '.join(texts)}"
        count = len(terms)
    elif kind == "upsert":
        key, row = terms
        names = "".join(f', "{name}"' for name in row)
        sets = ", ".join(f'"{name}" = EXCLUDED."{name}"' for name in ("id", *row))
        marks = ", %s" * len(row)
        text = (
            f"INSERT INTO orders (id{names}) VALUES (%s{marks})"
            f" ON CONFLICT (id) DO UPDATE SET {sets}"
        )
        values = [key, *row.values()]
        records[key] = {**records.get(key, {}), **row}
        count = 1
    elif kind == "update":
        row, limit, is_less = terms
        sets = ", ".join(f'"{name}" = %s' for name in row)
        text = f"UPDATE orders SET {sets} WHERE n {'<' if is_less else '>='} %s"
        values = [*row.values(), limit]
        matching = [
            own
            for own in records.values()
            if own.get("n") is not None and (own["n"] < limit) == is_less
        ]
        for own in matching:
            own.update(row)
        count = len(matching)
    elif kind == "add":
        number, key = terms
        text = """UPDATE orders SET n = n + %s, "deep.x" = n WHERE id < %s AND t IS NOT NULL"""
        values = [number, key]
        matching = [own for one, own in records.items() if one < key and own.get("t") is not None]
        for own in matching:
            before = own.get("n")
            own["n"], own["deep.x"] = None if before is None else before + number, before
        count = len(matching)
    else:
        column = "t" if isinstance(terms, str) else "n"
        text, values = f"DELETE FROM orders WHERE {column} = %s", [terms]
        keys = [
            key for key, own in records.items() if terms is not None and own.get(column) == terms
        ]
        for key in keys:
            del records[key]
        count = len(keys)
    assert connection.execute(text, values).rowcount == count, text


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(STATEMENTS, max_size=12))
def test_statements_give_the_records_of_the_model(
    connection: psycopg.Connection[Any], statements: list[tuple[str, Any]]
) -> None:
    connection.execute("DELETE FROM orders")
    records: Records = {}
    for kind, terms in statements:
        execute(connection, records, kind, terms)
    found = {}
    for body in bodies(connection, "orders"):
        key, deep = body.pop("id"), body.pop("deep", {})
        found[key] = present({**body, **{f"deep.{name}": deep[name] for name in deep}})
    assert found == {key: present(row) for key, row in records.items()}


def present(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
