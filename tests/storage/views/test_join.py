"""Joins: the rows after any changes are those that loops over all records find."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from server.storage.sow.records import Record, RecordChange
from server.storage.views.join import JoinedFields, JoinedTopic, TopicJoin
from server.storage.views.projection import ProjectionRow
from tests.storage.sow.support import json_type
from tests.support.chances import examples

FIELDS = ("a", "b")

Values = dict[str, Any]


@st.composite
def shapes(draw: st.DrawFn) -> list[JoinedFields]:
    """What joins some topics: each to one before it, some to several, on one field or two."""
    fields = []
    for right in range(1, draw(st.integers(2, 4))):
        for left in draw(
            st.lists(st.integers(0, right - 1), min_size=1, max_size=2, unique=draw(st.booleans()))
        ):
            one, other = draw(st.tuples(st.sampled_from(FIELDS), st.sampled_from(FIELDS)))
            fields.append(JoinedFields(left, (one,), right, (other,)))
    return fields


values = st.sampled_from(["x", "y", 1, "1", "x", "1.0", None, ""])
records = st.one_of(
    st.none(), st.fixed_dictionaries({"v": st.integers(0, 9), "a": values, "b": values})
)
steps = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("pqr"), records), min_size=10, max_size=30
)


def text(value: Any) -> str | None:
    return None if value in (None, "") else str(value)


def rows_of(
    shape: list[JoinedFields], topics: list[dict[str, Values]], *, nulls_match: bool
) -> Counter[ProjectionRow]:
    """The rows, the long way round."""
    rows: list[tuple[Values | None, ...]] = [(record,) for record in topics[0].values()]
    for place in range(1, len(topics)):
        fits = [fields for fields in shape if fields.right_topic == place]
        grown: list[tuple[Values | None, ...]] = []
        for row in rows:
            matching: list[Values | None] = []
            for record in topics[place].values():
                pairs = [
                    (
                        left,
                        text(left[str(one.left_field[0])]) if left else None,
                        text(record[str(one.right_field[0])]),
                    )
                    for one in fits
                    for left in [row[one.left_topic]]
                ]
                if all(
                    left is not None and one == other and (nulls_match or one is not None)
                    for left, one, other in pairs
                ):
                    matching.append(record)
            grown += [(*row, record) for record in (matching or [None])]
        rows = grown
    return Counter(tuple(record["v"] if record else None for record in row) for row in rows)


@settings(max_examples=examples(200, 20), deadline=None)
@given(shapes(), steps, st.booleans())
def test_rows_are_kept_right(
    shape: list[JoinedFields], happenings: list[tuple[int, str, Values | None]], nulls_match: bool
) -> None:
    count = max(fields.right_topic for fields in shape) + 1
    join = TopicJoin([JoinedTopic(json_type(), [("v",)])] * count, shape, nulls_match=nulls_match)
    topics: list[dict[str, Values]] = [{} for _ in range(count)]
    stored: dict[tuple[int, str], Record] = {}
    rows: Counter[ProjectionRow] = Counter()
    for place, key, values in happenings:
        place %= count
        previous = stored.pop((place, key), None)
        if values is None:
            topics[place].pop(key, None)
            record = None
        else:
            topics[place][key] = values
            record = stored[place, key] = Record(key, json.dumps(values).encode(), "t")
        for before, after in join.row_changes(place, RecordChange(key, "t", previous, record)):
            if before is not None:
                rows[before] -= 1
            if after is not None:
                rows[after] += 1
        assert +rows == rows_of(shape, topics, nulls_match=nulls_match)
        assert min(rows.values(), default=0) >= 0


def test_a_change_costs_as_much_as_the_rows_that_it_changes() -> None:
    """A record among thousands with the same joined value changes its own row only."""
    shape = [JoinedFields(0, ("a",), 1, ("a",))]
    join = TopicJoin([JoinedTopic(json_type(), [("v",)])] * 2, shape, nulls_match=False)

    def put(place: int, key: str, previous: Record | None, **values: Any) -> tuple[int, Record]:
        record = Record(key, json.dumps(values).encode(), "t")
        return len(list(join.row_changes(place, RecordChange(key, "t", previous, record)))), record

    for number in range(1000):
        assert put(0, str(number), None, v=number, a="x")[0] == 1
    changed, company = put(1, "c", None, v=1, a="x")
    assert changed == 2000  # the NULLs go from each row, and the company comes
    assert put(1, "c", company, v=2, a="x")[0] == 1000
    assert put(0, "7", Record("7", b'{"v":7,"a":"x"}', "t"), v=8, a="x")[0] == 1


def test_the_rows_of_a_chain_come_in_one_piece() -> None:
    """A record in the middle brings and takes what depends on it."""
    shape = [JoinedFields(0, ("a",), 1, ("a",)), JoinedFields(1, ("b",), 2, ("b",))]
    join = TopicJoin([JoinedTopic(json_type(), [("v",)])] * 3, shape, nulls_match=False)

    def change(place: int, key: str, before: Record | None, after: Record | None) -> list[Any]:
        return list(join.row_changes(place, RecordChange(key, "t", before, after)))

    first, middle, last = (
        Record(key, body, "t")
        for key, body in product(
            "k", [b'{"v":1,"a":"x"}', b'{"v":2,"a":"x","b":"y"}', b'{"v":3,"b":"y"}']
        )
    )
    assert change(2, "k", None, last) == []
    assert change(0, "k", None, first) == [(None, (1, None, None))]
    assert change(1, "k", None, middle) == [((1, None, None), None), (None, (1, 2, 3))]
    assert change(1, "k", middle, None) == [((1, 2, 3), None), (None, (1, None, None))]
