"""Whatever happens to topics, views over them are what a database makes of the same records.

Random views over three topics, with joins of any shape and views over views; random publishes,
deltas, deletions and expirations. After each, DuckDB answers the same questions from scratch, and a
subscriber who has heard of every change knows what a query gives. In the end all of it is made anew
from the records, as at a start.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config_schema.spec import ViewSpec
from tests.engine.support import Core, CorePeer
from tests.storage.views.support import bodies, records, restarted, topic, view
from tests.support.chances import examples

TOPICS = ("a", "b", "c")
KEYS = ("k", "m")
"""Fields of each topic that are joined and grouped by, besides its id; `x` and `y` are numbers."""

Records = dict[str, dict[str, dict[str, Any]]]
"""Of each topic, by id."""


@dataclass(frozen=True)
class Question:
    """A view, and how SQL asks for the same."""

    spec: ViewSpec
    sql: str


AGGREGATES = {
    "n": ("COUNT({y})", "count({y})"),
    "s": ("SUM({x} * {y})", "sum({x} * {y})"),
    "m": ("AVG({x})", "avg({x})"),
    "d": ("COUNT_DISTINCT({y})", "count(DISTINCT {y})"),
    "lo": ("MIN({x})", "min({x})"),
    "hi": ("MAX({y})", "max({y})"),
    "v": ("STDDEV_POP({x})", "stddev_pop({x})"),
    "r": ("SUM({x}) / COUNT({x})", "sum({x}) / nullif(count({x}), 0)"),
    "i": ("SUM(IF({x} > 2, {y}, NULL))", "sum(CASE WHEN {x} > 2 THEN {y} END)"),
    "p": ("IF(SUM({x}) > 5, SUM({x}), 0)", "CASE WHEN sum({x}) > 5 THEN sum({x}) ELSE 0 END"),
}

fields = st.sampled_from(("id", *KEYS))
numbers = st.sampled_from(("x", "y"))


@st.composite
def questions(draw: st.DrawFn, name: str) -> Question:
    """A view over one topic, or over some that are joined."""
    count = draw(st.integers(1, 3))
    topics = draw(st.permutations(TOPICS))[:count]
    joins: list[str] = []
    sql = topics[0]
    for place in range(1, count):
        pairs = draw(
            st.lists(
                st.tuples(st.integers(0, place - 1), fields, fields),
                min_size=1, max_size=2, unique_by=lambda pair: pair[2],
            )
        )  # fmt: skip
        conditions = []
        for other, theirs, own in pairs:
            sides = [f"[{topics[other]}]./{theirs}", f"[{topics[place]}]./{own}"]
            turned = bool(joins) and draw(st.booleans())
            joins.append(" = ".join(sides[::-1] if turned else sides))
            conditions.append(f"{topics[other]}.{theirs} = {topics[place]}.{own}")
        sql += f" LEFT JOIN {topics[place]} ON {' AND '.join(conditions)}"
    grouping = draw(
        st.lists(st.tuples(st.sampled_from(topics), fields), min_size=1, max_size=2, unique=True)
    )
    projection = [f"[{topic}]./{field} AS /g{i}" for i, (topic, field) in enumerate(grouping)]
    selected = [f"{topic}.{field} AS g{i}" for i, (topic, field) in enumerate(grouping)]
    x, y = draw(st.tuples(*2 * [st.tuples(st.sampled_from(topics), numbers)]))
    for field, (ours, theirs) in AGGREGATES.items():
        projection.append(
            ours.format(x=f"[{x[0]}]./{x[1]}", y=f"[{y[0]}]./{y[1]}") + f" AS /{field}"
        )
        selected.append(theirs.format(x=f"{x[0]}.{x[1]}", y=f"{y[0]}.{y[1]}") + f" AS {field}")
    filter_ = "/x > 1" if not joins and draw(st.booleans()) else None
    spec = view(
        name,
        joins or topics[0],
        "; ".join(projection),
        "; ".join(f"[{topic}]./{field}" for topic, field in grouping),
        filter_=filter_,
        inline=draw(st.integers(0, 3)) == 0,
    )
    where = " WHERE x > 1" if filter_ else ""
    by = ", ".join(f"{topic}.{field}" for topic, field in grouping)
    return Question(spec, f"SELECT {', '.join(selected)} FROM {sql}{where} GROUP BY {by}")


OVER_VIEWS = Question(
    view(
        "over",
        ["[v1]./g0 = [v2]./g0"],
        "[v1]./g0 AS /g; COUNT([v2]./n) AS /n; SUM([v1]./s) AS /s; MAX([v2]./hi) AS /hi",
        "[v1]./g0",
    ),
    "SELECT v1.g0 AS g, count(v2.n) AS n, sum(v1.s) AS s, max(v2.hi) AS hi"
    " FROM v1 LEFT JOIN v2 ON v1.g0 = v2.g0 GROUP BY v1.g0",
)
"""Both views may change with one record: the diamond."""

Step = tuple[str, str, str, dict[str, Any]]
"""A command, the topic, the id, and what is published."""

few = st.sampled_from(["1", "2", "3"])
key = st.one_of(st.none(), few)
number = st.one_of(st.none(), st.sampled_from([0, 1, 2, 3.5, 7, 0.25]))
record = st.fixed_dictionaries({"k": key, "m": key, "x": number, "y": number})
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(TOPICS), few, record),
    st.tuples(st.just("delta_publish"), st.sampled_from(TOPICS), few, record),
    st.tuples(st.just("sow_delete"), st.sampled_from(TOPICS), few, st.just({})),
    st.tuples(st.just("expire"), st.sampled_from(TOPICS), few, record),
)


@settings(max_examples=examples(20, 5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    questions("v1"),
    questions("v2"),
    st.lists(st.lists(steps, min_size=1, max_size=5), min_size=2, max_size=6),
)
def test_views_are_what_a_database_makes_of_the_records(
    first: Question, second: Question, happenings: list[list[Step]]
) -> None:
    asked = [first, second, OVER_VIEWS]
    topics, specs = [topic(name) for name in TOPICS], [one.spec for one in asked]
    core = Core()
    core.keep(*topics)
    core.derive(*specs)
    peer = core.log_on()
    for spec in specs:
        peer.send(
            {"c": "subscribe", "cid": spec.name, "sub_id": spec.name, "t": spec.name, "o": "oof"}
        )
    peer.take_frames()
    known: dict[str, dict[str, bytes]] = {spec.name: {} for spec in specs}
    state: Records = {name: {} for name in TOPICS}
    with duckdb.connect() as database:
        for batch in happenings:
            for step in batch:
                happen(core, peer, state, step)
                most = hear(peer, known)
                if not first.spec.inline_conflation and not second.spec.inline_conflation:
                    assert most <= (2 if step[0] == "expire" else 1)  # one change makes one
                for spec in specs:
                    assert bodies(core, spec.name) == known[spec.name]
            for one, rows in zip(asked, answers(database, asked, state), strict=True):
                same_rows(records(core, one.spec.name), rows)
        again = restarted(core, topics, specs)
        for one, rows in zip(asked, answers(database, asked, state), strict=True):
            same_rows(records(again, one.spec.name), rows)


def happen(core: Core, peer: CorePeer, state: Records, step: Step) -> None:
    """Do something, and note what becomes of the records."""
    command, name, ident, values = step
    there = state[name]
    message = {"id": ident} | {field: value for field, value in values.items() if value is not None}
    body = json.dumps(message).encode()
    if command == "sow_delete":
        peer.send({"c": command, "cid": "d", "t": name, "f": f"/id = '{ident}'"})
        there.pop(ident, None)
    elif command == "expire":
        peer.send({"c": "publish", "t": name, "e": 1}, body)
        core.clock.advance(2)
        there.pop(ident, None)
    else:
        peer.send({"c": command, "t": name}, body)
        before = there.get(ident, {}) if command == "delta_publish" else {}
        there[ident] = before | message
    core.clock.advance(0)


def hear(peer: CorePeer, known: dict[str, dict[str, bytes]]) -> int:
    """Take note of what a subscriber is told of views; how often it was told of one record."""
    heard: Counter[tuple[str, str]] = Counter()
    for header, body in peer.take_frames():
        if header["c"] not in ("p", "oof"):
            continue
        heard[header["t"], header["k"]] += 1
        if header["c"] == "p":
            known[header["t"]][header["k"]] = body
        else:
            del known[header["t"]][header["k"]]
    return max(heard.values(), default=0)


def answers(
    database: duckdb.DuckDBPyConnection, asked: list[Question], state: Records
) -> list[list[dict[str, Any]]]:
    """What the database makes of the records."""
    tables = ", ".join(f"{name} AS ({table(list(state[name].values()))})" for name in TOPICS)
    views = ", ".join(f"{one.spec.name} AS ({one.sql})" for one in asked)
    found = []
    for one in asked:
        cursor = database.execute(f"WITH {tables}, {views} SELECT * FROM {one.spec.name}")
        names = [column[0] for column in cursor.description or ()]
        found.append([dict(zip(names, row, strict=True)) for row in cursor.fetchall()])
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """A query that gives some records."""
    columns = ("id", *KEYS, "x", "y")
    casts = ", ".join(
        f"{name}::{'DOUBLE' if name in 'xy' else 'VARCHAR'} AS {name}" for name in columns
    )
    values = [[literal(row.get(name)) for name in columns] for row in rows]
    listed = ", ".join(f"({', '.join(row)})" for row in values)
    none = ", ".join(["NULL"] * len(columns))
    where = "" if rows else " WHERE false"
    return f"SELECT {casts} FROM (VALUES {listed or f'({none})'}) t({', '.join(columns)}){where}"


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else repr(value)


def same_rows(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """The same rows, in any order, their numbers but for the rounding of the judge."""

    def sort_key(row: dict[str, Any]) -> list[str]:
        return [str(row[name]) for name in row if name.startswith("g")]

    assert len(ours) == len(theirs)
    for one, other in zip(sorted(ours, key=sort_key), sorted(theirs, key=sort_key), strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            expected = other[name]
            if isinstance(expected, float | int):
                assert value == pytest.approx(expected, rel=1e-9, abs=1e-9), (name, one, other)
            else:
                assert value == expected, (name, one, other)
