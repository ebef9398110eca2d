"""Groups: rows come, change and go, and each group is what its rows make of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions import BUILTINS, ContextKind, parse_field, parse_identifier
from server.expressions.message_context import MessageContext
from server.message_types.base import Value
from server.storage.views.groups import Group, GroupTable
from server.storage.views.projection import Projection, ProjectionRow
from tests.support.chances import examples


def projection(fields: str, grouping: str = "/sym") -> Projection:
    return Projection(
        [parse_field(text, ContextKind.PROJECTION) for text in fields.split("; ")],
        [parse_identifier(text, ContextKind.GROUPING) for text in grouping.split("; ")],
        BUILTINS,
    )


def row(shape: Projection, **values: Any) -> ProjectionRow:
    return tuple(values.get(str(reference.path[0])) for reference in shape.inputs)


def shown(grouping: GroupTable, group: Group) -> dict[str, Value]:
    return {"/".join(map(str, path)): value for path, value in grouping.compute_fields(group)}


EXPOSURE = (
    "/sym; COUNT(/id) AS /orders; SUM(/qty * /px) / SUM(/qty) AS /vwap; MAX(/px) AS /top/px; "
    "/note; IF(SUM(/qty) > 0, SUM(/qty * /px) / SUM(/qty), 0) AS /safe"
)


def test_each_expression_is_aggregated_once() -> None:
    """SUM(/qty) stands there three times, and is kept once; AVG shares what SUM keeps."""
    shape = projection(EXPOSURE + "; AVG(/qty) AS /mean")
    assert len(shape.compute_arguments(row(shape))) == 4  # /id, /qty * /px, /qty, /px
    assert len(shape.accumulator_specs) == 4


def test_a_group_through_its_life() -> None:
    """Rows come, change, move to another group and go; what stood last stays."""
    shape = projection(EXPOSURE)
    grouping = GroupTable(shape, "v")
    one = row(shape, sym="A", id=1, qty=10, px=2.5, note="x")
    other = row(shape, sym="A", id=2, qty=30, px=4.5, note="y")
    grouping.add_row(one)
    group = grouping.add_row(other)
    expected = {"sym": "A", "orders": 2, "vwap": 4.0, "top/px": 4.5, "note": "y", "safe": 4.0}
    assert shown(grouping, group) == expected
    grouping.remove_row(other)
    assert grouping.remove_if_empty(group)
    assert shown(grouping, group) == {
        "sym": "A", "orders": 1, "vwap": 2.5, "top/px": 2.5, "note": "y", "safe": 2.5,
    }  # fmt: skip
    (same,) = grouping.replace_row(one, changed := row(shape, sym="A", id=1, qty=0, px=2.5))
    assert same is group
    (before, after) = (
        shown(grouping, group),
        grouping.replace_row(changed, moved := row(shape, sym="B", id=1, qty=5, px=1)),
    )
    assert math.isnan(before["vwap"])  # type: ignore[arg-type]  # 0 / 0
    assert before["safe"] == 0
    assert [grouping.remove_if_empty(each) for each in after] == [False, True]
    assert len(grouping) == 1
    assert shown(grouping, after[1])["vwap"] == 1.0
    assert not grouping.remove_if_empty(grouping.remove_row(moved))
    assert len(grouping) == 0


def test_groups_are_told_apart_by_texts() -> None:
    """1 and "1" are one group, "007" and "7" are two; NULLs and missing fields are one."""
    shape = projection("/sym; COUNT(/id) AS /n", "/sym; /side")
    grouping = GroupTable(shape, "v")
    values: list[tuple[Value, Value]] = [
        (1, "b"), ("1", "b"), ("7", None), ("007", None), ("7", ""), (["7"], []),
    ]  # fmt: skip
    groups = [grouping.add_row(row(shape, sym=sym, id=1, side=side)) for sym, side in values]
    assert groups[0] is groups[1]
    assert groups[2] is groups[4] is groups[5]
    assert len(grouping) == 3
    assert len({group.sow_key for group in groups}) == 3


def test_functions_of_the_message_tell_of_the_last_one() -> None:
    """Within aggregates they tell of each message, outside of the one that came last."""
    shape = projection("/sym; MESSAGE_SIZE() AS /size; SUM(MESSAGE_SIZE()) AS /sizes")
    assert shape.arguments_need_context
    assert shape.fields_need_context
    assert not projection("/sym; SUM(MESSAGE_SIZE()) AS /sizes").fields_need_context
    grouping = GroupTable(shape, "v")
    contexts = [MessageContext(), MessageContext()]
    for size, context in enumerate(contexts, 10):
        context.message_size = size
        group = grouping.add_row(row(shape, sym="A"), context)
    assert shown(grouping, group) == {"sym": "A", "size": 11, "sizes": 21.0}
    grouping.remove_row(row(shape, sym="A"), contexts[1])
    assert shown(grouping, group) == {"sym": "A", "size": 11, "sizes": 10.0}


def test_where_the_grouping_stands_in_the_result() -> None:
    """Only a plain copy shows it."""
    shape = projection("/a AS /x/a; UPPER(/b) AS /b", "/a; /b")
    assert shape.shown_grouping(lambda one, other: one == other) == [("x", "a"), None]


@settings(max_examples=examples(150, 20), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6),
            st.sampled_from([None, "A", "B", "C"]),
            st.sampled_from([None, 0, 1, 7, 0.1, 2.5, "3", "x"]),
            st.sampled_from([None, 1, 0.25, 1e16]),
        ),
        max_size=40,
    )
)
def test_any_life_gives_what_the_rows_give(
    steps: list[tuple[int, str | None, Value, Value]],
) -> None:
    """After each step, all groups are as if their rows had just come."""
    shape = projection(EXPOSURE + "; STDDEV_SAMP(/qty) AS /dev; MIN(/qty) AS /low")
    grouping = GroupTable(shape, "v")
    rows: dict[int, ProjectionRow] = {}
    found: dict[Any, Group] = {}
    for number, sym, qty, px in steps:
        before = rows.pop(number, None)
        changed: tuple[Group, ...]
        if sym is None:
            changed = () if before is None else (grouping.remove_row(before),)
        else:
            after = row(shape, id=number, sym=sym, qty=qty, px=px)
            changed = (
                (grouping.add_row(after),)
                if before is None
                else grouping.replace_row(before, after)
            )
            rows[number] = after
        for group in changed:
            if grouping.remove_if_empty(group):
                found[group.key] = group
            else:
                del found[group.key]
        anew = GroupTable(shape, "v")
        again = {group.key: group for group in map(anew.add_row, rows.values())}
        assert again.keys() == found.keys()
        for key, group in again.items():
            group.latest_row = found[key].latest_row
            assert repr(grouping.compute_fields(found[key])) == repr(anew.compute_fields(group))


@pytest.mark.parametrize("text", ["GROUP_CONCAT(/a, /b) AS /c", "SUM(SUM(/a)) AS /c"])
def test_what_cannot_be_projected(text: str) -> None:
    with pytest.raises(ValueError, match=r"literal|nest"):
        parse_field(text, ContextKind.PROJECTION)
