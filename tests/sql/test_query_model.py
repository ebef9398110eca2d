"""Random queries of random records give the rows of a model in plain Python, by all routes.

A query goes as a text, which a scan may answer alone; over a common table expression, which DuckDB
answers; with parameters in text and in binary; and through Flight SQL.
"""

from __future__ import annotations

import json
import operator
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from tests.sql.flight.support import TRANSPORT as FLIGHT_TRANSPORT
from tests.sql.flight.support import FlightServer
from tests.sql.support import TRANSPORT, SqlServer
from tests.support.chances import chance_of, examples
from tests.support.server import free_port, running_server

TOPICS = """
<SOW>
  <Topic>
    <Name>things</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>parts</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
"""

Row = dict[str, Any]
Condition = Callable[[Row], bool | None]

NUMBERS: Final = [0, 1, 2, 3, -1, 5, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES: Final = [0.5, 1.5, 2, -2.5, 0.1, 1e300, 5e-324, -0.0, 1e16]
TEXTS: Final = ["", "a", "b", "ab", "B", "ä", "€𝄞", "it's", "a\\b", "5", " a", 'q"', "日本"]
MIXED: Final = [1, "1", "x", 2.5, "true", True, -7]
HUGE: Final = [1, 10**20, -(10**30), 3.5]
LISTS: Final = [["a", "b"], [1, 2.5, None], [True], []]

VALUES: Final[dict[str, list[Any]]] = {
    "n": NUMBERS,
    "d": DOUBLES,
    "t": TEXTS,
    "b": [True, False],
    "m": MIXED,
    "h": HUGE,
    "o.x": [1, 2, -3],
    "tags": LISTS,
}
COMPARED: Final = ("id", "n", "d", "t", "b", "m", "h", "o.x")
"""The columns of conditions, groups and orders."""


def make_records(chance: random.Random, count: int) -> list[Row]:
    """Records; the first ones have each value of a field, so that all types are seen."""
    records: list[Row] = []
    for index in range(count):
        record: Row = {"id": index}
        for name, values in VALUES.items():
            if index < len(values):
                value = values[index]
            elif chance.random() < 0.2:
                if chance.random() < 0.5:
                    continue  # the field is missing
                value = None
            else:
                value = chance.choice(values)
            if name == "o.x":
                record["o"] = {"x": value, "y": {"z": [index]}}
            else:
                record[name] = value
        records.append(record)
    return records


def as_row(record: Row) -> Row:
    """The row of a record: types are those that hold all values of the column."""
    row: Row = {name: record.get(name) for name in ("id", *VALUES)}
    row["o.x"] = record.get("o", {}).get("x")
    for name in ("d", "h"):
        row[name] = None if row[name] is None else float(row[name])
    mixed = row["m"]
    if mixed is not None and not isinstance(mixed, str):
        row["m"] = json.dumps(mixed)
    row["t"] = row["t"] or None
    row["tags"] = row["tags"] or None
    return row


class Text:
    """The text of a query, in parts, with constants between them."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def render(self, constant: Callable[[Any], str]) -> str:
        return "".join(
            part.render(constant)
            if isinstance(part, Text)
            else part
            if isinstance(part, str)
            else constant(part)
            for part in self.parts
        )


class Constant(NamedTuple):
    value: Any


def literal(constant: Constant) -> str:
    match constant.value:
        case str() as text:
            return "'" + text.replace("'", "''") + "'"
        case bool() as flag:
            return str(flag).lower()
        case number:
            return repr(number)


# ---- conditions

OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def constant_for(chance: random.Random, name: str) -> Any:
    if name == "id":
        return chance.randrange(40)
    if name == "m":
        return chance.choice(["1", "x", "true", "2.5", "-7"])
    if name == "n":
        return chance.choice([*NUMBERS, 4, 10**20])
    value = chance.choice([one for one in VALUES[name] if one != ""])
    return float(value) if name in ("d", "h") else value


def make_condition(chance: random.Random, column: Callable[[str], str], depth: int) -> Any:
    """The text of a condition, and a function that decides it: None stands for NULL."""
    kind = chance.randrange(10)
    if depth and kind < 4:
        left, decide_left = make_condition(chance, column, depth - 1)
        right, decide_right = make_condition(chance, column, depth - 1)
        if kind == 0:
            return Text("NOT (", left, ")"), lambda row: negated(decide_left(row))
        word, decided = ("AND", False) if kind < 3 else ("OR", True)
        return (
            Text("(", left, f" {word} ", right, ")"),
            lambda row: joined(decide_left(row), decide_right(row), decided),
        )
    name = chance.choice(COMPARED)
    text = column(name)
    if kind < 5:
        return Text(f"{text} IS NULL"), lambda row: row[name] is None
    if kind < 6:
        return Text(f"{text} IS NOT NULL"), lambda row: row[name] is not None
    first, second = constant_for(chance, name), constant_for(chance, name)
    if kind < 7 and name != "b":
        wanted = {first, second}
        parts = Text(f"{text} IN (", Constant(first), ", ", Constant(second), ")")
        return parts, lambda row: None if row[name] is None else row[name] in wanted
    if kind < 8 and name != "b":
        parts = Text(f"{text} BETWEEN ", Constant(first), " AND ", Constant(second))
        return parts, lambda row: None if row[name] is None else first <= row[name] <= second
    if kind < 9 and name == "t":
        parts = Text(f"{text} LIKE ", Constant("%a"))
        return parts, lambda row: None if row["t"] is None else row["t"].endswith("a")
    sign = chance.choice(list(OPERATORS))
    compare = OPERATORS[sign]
    parts = Text(f"{text} {sign} ", Constant(first))
    return parts, lambda row: None if row[name] is None else compare(row[name], first)


def negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def joined(left: bool | None, right: bool | None, decided: bool) -> bool | None:
    """AND, which is decided by False, or OR, which is decided by True."""
    if left is decided or right is decided:
        return decided
    return None if left is None or right is None else not decided


# ---- queries


class Query(NamedTuple):
    """A query.

    Attributes:
        text: its text; {things} stands for the table.
        rows: the rows of the model.
        is_ordered: whether their order is given.
    """

    text: Text
    rows: list[tuple[Any, ...]]
    is_ordered: bool


def total(values: list[Any]) -> Any:
    return sum(values) if values else None


def average(values: list[Any]) -> Any:
    return float(Fraction(sum(values), len(values))) if values else None


def least(values: list[Any]) -> Any:
    return min(values, default=None)


def largest(values: list[Any]) -> Any:
    return max(values, default=None)


AGGREGATES: Final[list[tuple[str, tuple[str, ...], Callable[[list[Any]], Any]]]] = [
    ("count", COMPARED, len),
    ("sum", ("id", "n", "o.x"), total),
    ("avg", ("id", "n", "o.x"), average),
    ("min", ("id", "n", "d", "t", "m", "h", "o.x"), least),
    ("max", ("id", "n", "d", "t", "m", "h", "o.x"), largest),
]


def make_query(chance: random.Random, things: list[Row], parts: list[Row]) -> Query:
    rows = things
    source = "{things} x"
    kind = chance.choice(["", "", "", "JOIN", "LEFT JOIN"])
    if kind:
        by = chance.choice(["n", "t", "b", "o.x"])
        source = f'{source} {kind} parts p ON x."{by}" = p."{by}"'
        rows = []
        for row in things:
            matches = [one for one in parts if row[by] is not None and row[by] == one[by]]
            rows += [{**row, "p": one["id"]} for one in matches]
            if kind == "LEFT JOIN" and not matches:
                rows.append({**row, "p": None})
    where: object = ""
    if chance.random() < 0.8:
        condition, decide = make_condition(chance, lambda name: f'x."{name}"', 2)
        where = Text(" WHERE ", condition)
        rows = [row for row in rows if decide(row)]
    if chance.random() < 0.4:
        columns, tail, outputs = make_groups(chance, rows)
    else:
        names = chance.sample([*COMPARED, "tags"], chance.randint(1, 4))
        columns = [f'x."{name}"' for name in names]
        outputs = [tuple(row[name] for name in names) for row in rows]
        if kind:
            columns.append("p.id")
            outputs = [(*output, row["p"]) for output, row in zip(outputs, rows, strict=True)]
        tail = ""
    is_distinct = 'x."tags"' not in columns and chance.random() < 0.3
    if is_distinct:
        outputs = list(dict.fromkeys(outputs))
    select = "SELECT DISTINCT " if is_distinct else "SELECT "
    named = ", ".join(f"{column} AS c{index}" for index, column in enumerate(columns))
    is_ordered = 'x."tags"' not in columns and chance.random() < 0.6
    if is_ordered:
        order, outputs = make_order(chance, len(columns), outputs)
        tail += order
    return Query(Text(f"{select}{named} FROM {source}", where, tail), outputs, is_ordered)


def make_groups(chance: random.Random, rows: list[Row]) -> tuple[list[str], str, list[Any]]:
    names = chance.sample(COMPARED, chance.randrange(3))
    groups: dict[tuple[Any, ...], list[Row]] = {} if names else {(): []}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    columns = [f'x."{name}"' for name in names]
    outputs: dict[tuple[Any, ...], tuple[Any, ...]] = dict.fromkeys(groups, ())
    chosen = [(word, chance.choice(known), f) for word, known, f in chance.sample(AGGREGATES, 3)]
    for word, name, function in chosen:
        columns.append(f'{word}(x."{name}")')
        for key, members in groups.items():
            values = [row[name] for row in members if row[name] is not None]
            outputs[key] += (function(values),)
    tail = " GROUP BY " + ", ".join(columns[: len(names)]) if names else ""
    kept = list(groups)
    if names and chance.random() < 0.3:
        tail += " HAVING count(*) > 1"
        kept = [key for key in kept if len(groups[key]) > 1]
    return columns, tail, [(*key, *outputs[key]) for key in kept]


def make_order(
    chance: random.Random, count: int, rows: list[tuple[Any, ...]]
) -> tuple[str, list[tuple[Any, ...]]]:
    """An order by all columns, so that it is total, and a part of the rows."""
    terms = []
    for index in chance.sample(range(count), count):
        is_descending = chance.random() < 0.5
        nulls = chance.choice(["", " NULLS FIRST", " NULLS LAST"])
        nulls_first = is_descending if nulls == "" else nulls == " NULLS FIRST"
        terms.append((index, is_descending, nulls, nulls_first))
    for index, is_descending, _, nulls_first in reversed(terms):
        nulls_only = [row for row in rows if row[index] is None]
        others = [row for row in rows if row[index] is not None]
        others.sort(key=operator.itemgetter(index), reverse=is_descending)
        rows = nulls_only + others if nulls_first else others + nulls_only
    text = ", ".join(
        f"{index + 1}{' DESC' if is_descending else ''}{nulls}"
        for index, is_descending, nulls, _ in terms
    )
    start = chance.choice([0, 0, 1, 5])
    limit = chance.choice([None, 0, 1, 3, 10])
    offset = f" OFFSET {start}" if start else ""
    size = "" if limit is None else f" LIMIT {limit}"
    end = None if limit is None else start + limit
    return f" ORDER BY {text}{size}{offset}", rows[start:end]


# ---- routes


class Routes(NamedTuple):
    """A server with records, and the rows of the model."""

    sql: SqlServer
    flight: FlightServer
    things: list[Row]
    parts: list[Row]


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routes]:
    chance = chance_of("records")
    port, flight_port = free_port(), free_port()
    transports = TRANSPORT.format(port=port, type="tcp", elements="")
    transports += FLIGHT_TRANSPORT.format(port=flight_port, elements="")
    things, parts = make_records(chance, 60), make_records(chance, 25)
    directory = tmp_path_factory.mktemp("sql")
    with running_server(directory, elements=TOPICS, transports=transports) as server:
        sql = SqlServer(server, port)
        sql.publish("things", *things)
        sql.publish("parts", *parts)
        flight = FlightServer(SqlServer(server, flight_port), "grpc")
        yield Routes(
            sql, flight, [as_row(record) for record in things], [as_row(record) for record in parts]
        )


def comparable(value: Any) -> Any:
    match value:
        case bool():
            return value
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case float():
            return float(f"{value:.10e}") + 0.0  # no -0.0, which is 0.0
        case list():
            return json.dumps(value)
        case str() if value.startswith("["):
            return json.dumps(json.loads(value))
    return value


def shown(rows: list[tuple[Any, ...]], is_ordered: bool) -> list[tuple[Any, ...]]:
    converted = [tuple(map(comparable, row)) for row in rows]
    return converted if is_ordered else sorted(converted, key=repr)


def with_parameters(text: Text, mark: str) -> tuple[str, list[Any]]:
    values: list[Any] = []

    def take(constant: Constant) -> str:
        values.append(constant.value)
        return mark

    return text.render(take), values


@pytest.mark.long
def test_random_queries_give_the_rows_of_the_model(routes: Routes) -> None:
    with (
        routes.sql.connect() as connection,
        routes.flight.connect() as flight,
        flight.cursor() as flight_cursor,
    ):
        for number in range(examples(200)):
            query = make_query(chance_of(number), routes.things, routes.parts)
            expected = shown(query.rows, query.is_ordered)
            plain = query.text.render(literal)
            text = plain.format(things="things")
            common = "WITH w AS (SELECT * FROM things) " + plain.format(things="w")
            in_text, values = with_parameters(query.text, "%t")
            in_binary, _ = with_parameters(query.text, "%b")
            run = connection.execute
            types = set()
            for execute in (
                partial(run, text),
                partial(run, common),
                partial(run, in_text.format(things="things"), values),
                partial(run, in_binary.format(things="things"), values, binary=True),
            ):
                cursor = execute()
                assert shown(cursor.fetchall(), query.is_ordered) == expected, execute.args
                types.add(tuple(column.type_code for column in cursor.description or ()))
            assert len(types) == 1, (text, types)
            flight_cursor.execute(text)
            rows = [tuple(row) for row in flight_cursor.fetchall()]
            assert shown(rows, query.is_ordered) == expected, text
