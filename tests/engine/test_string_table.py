"""The table of texts, against a dictionary."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.util.string_table import StringTable
from tests.support.chances import examples

TEXTS = st.text(alphabet="ab\N{LATIN SMALL LETTER E WITH ACUTE}\N{SNOWMAN}\0", max_size=3)
KEYS = TEXTS | st.none() | st.integers(0, 3) | st.sampled_from([1.0, 2.5, True]) | st.tuples(TEXTS)
STEPS = st.lists(st.tuples(st.sampled_from(["set", "delete"]), KEYS, st.integers()), max_size=200)
ASKED = st.lists(KEYS, max_size=150)


@settings(max_examples=examples(300, 16), deadline=None)
@given(STEPS, ASKED)
def test_it_has_what_a_dictionary_has(
    steps: list[tuple[str, Hashable, int]], asked: list[Hashable]
) -> None:
    table: StringTable[int] = StringTable()
    model: dict[Hashable, int] = {}
    for step, key, value in steps:
        if step == "set":
            table[key] = model[key] = value
        elif key in model:
            del table[key], model[key]
        else:
            with pytest.raises(KeyError):
                del table[key]
        assert len(table) == len(model)
    table.expect(asked)
    assert list(table.get_all(asked)) == [model.get(one) for one in asked]
    assert [table.get(one) for one in asked] == [model.get(one) for one in asked]
    assert {key: table[key] for key in model} == model


def test_many_of_them_come_and_go() -> None:
    table: StringTable[int] = StringTable()
    for kept in (100_000, 10, 50_000, 0):
        for number in range(100_000):
            table[str(number)] = number
        for number in range(kept, 100_000):
            del table[str(number)]
        assert len(table) == kept
        asked = [str(number) for number in range(100_000)]
        assert table.get_all(asked) == [*range(kept), *[None] * (100_000 - kept)]


@pytest.mark.parametrize("value", [[], {}])
def test_what_has_no_hash_is_refused(value: object) -> None:
    table: StringTable[int] = StringTable()
    table["a"] = 1
    for ask in (table.get, lambda one: table.get_all(["a", one, "a"])):
        with pytest.raises(TypeError):
            ask(value)
    with pytest.raises(KeyError):
        table["b"]


def test_a_circle_through_it_is_found() -> None:
    class Owner:
        def __init__(self) -> None:
            self.table: StringTable[Owner] = StringTable()
            self.table["self"] = self

    left = weakref.ref(Owner())
    gc.collect()
    assert left() is None
