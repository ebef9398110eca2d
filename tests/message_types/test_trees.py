"""Paths read from parsed documents, as Compound Types in AMPS and Working With Arrays describe."""

from __future__ import annotations

import pytest

from server.message_types.base import Value
from server.message_types.paths import parse_path
from server.message_types.trees import Tree, read_path

COMPOUND: Tree = {
    "outer": {
        "array": ["a1", "a2", "a3"],
        "compound": {
            "A": "middle-A",
            "C": [{"C1": "first-C1", "D1": "first-D1"}, {"C1": "second-C1", "D1": "second-D1"}],
        },
    },
    "mixed": [{"x": 1}, 5, None, [6, [7]], {"x": [2, 3]}],
    "empty": [],
    "hollow": {},
    "null": None,
    "zero": 0,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/outer", None),
        ("/outer/compound", None),
        ("/outer/compound/A", "middle-A"),
        ("/outer/compound/A/deeper", None),
        ("/outer/compound/A[0]", "middle-A"),
        ("/outer/compound/A[1]", None),
        ("/outer/compound[0]/A", "middle-A"),
        ("/outer/array", ["a1", "a2", "a3"]),
        ("/outer/array[2]", "a3"),
        ("/outer/array[3]", None),
        ("/outer/compound/C", None),
        ("/outer/compound/C/C1", ["first-C1", "second-C1"]),
        ("/outer/compound/C/C1[1]", "second-C1"),
        ("/outer/compound/C[1]/C1", "second-C1"),
        ("/outer/compound/C[2]/C1", None),
        ("/mixed", [5, None, 6, 7]),
        ("/mixed/x", [1, 2, 3]),
        ("/mixed[0]", None),
        ("/mixed[0]/x", 1),
        ("/mixed[1]", 5),
        ("/mixed[2]", None),
        ("/mixed[3]", [6, 7]),
        ("/mixed[3][0]", 6),
        ("/mixed[3][1]", [7]),
        ("/mixed[3][1][0]", 7),
        ("/mixed[5]", None),
        ("/empty", None),
        ("/empty[0]", None),
        ("/hollow", None),
        ("/null", None),
        ("/null/a", None),
        ("/zero", 0),
        ("/absent/a/b[1]", None),
    ],
)
def test_value_of_path(path: str, value: Value) -> None:
    assert read_path(COMPOUND, parse_path(path)) == value


def test_very_deep_arrays_are_flattened() -> None:
    deep: Tree = 1
    for _ in range(100_000):
        deep = [deep]
    assert read_path({"a": deep}, ("a",)) == [1]
    while isinstance(deep, list):  # undo it gently: freeing a deep list at once recurses
        deep = deep.pop()
