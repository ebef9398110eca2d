"""Places in TOML documents: every key is found, in the line in which it is written."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from server.security.users.toml_source_map import TomlPath, make_source_map

DOCUMENT = '''# a document
title = "a # no comment [x]"  # one
a.b = 1979-05-27 07:32:00
empty = []

[one]
text = """
[no.header]
quote " and "" and \\""" and four """"
'other' = 'x = "y"'

["two dots".'x y']
list = [ 1, [2, 3],  # ]
  { k = 1, l = { m = [ "}" ] } },
]

[[rows]]
n = 1
[[rows.inner]]
k = \'\'\'
[[no]]\'\'\'
[rows.sub]
s = +1.5e-3
[[rows]]
n = 2
[[rows.inner]]
k = true
[[rows.inner]]
k = false'''


def places_of(value: object, place: TomlPath = ()) -> Iterator[TomlPath]:
    """The places of everything in a document, as it was read."""
    if place:
        yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places_of(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from places_of(inner, (*place, number))


def test_every_place_is_found() -> None:
    """What holds others need not be written by itself: tables in dotted keys, and arrays."""
    found = make_source_map(DOCUMENT)
    written = found.values.keys() | {table.key_path for table in found.tables}
    for place in places_of(tomllib.loads(DOCUMENT)):
        assert any(one[: len(place)] == place for one in written), place


def test_a_value_is_where_it_is_said_to_be() -> None:
    content = tomllib.loads(DOCUMENT)
    for place, (start, end) in make_source_map(DOCUMENT).values.items():
        value: object = content
        for step in place:
            value = value[step]  # type: ignore[index]  # the path leads there
        assert tomllib.loads(f"value = {DOCUMENT[start:end]}")["value"] == value, place


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("title",), 2),
        (("a", "b"), 3),
        (("one",), 6),
        (("one", "text"), 7),
        (("one", "other"), 10),
        (("two dots", "x y", "list", 1, 1), 13),
        (("two dots", "x y", "list", 2, "l", "m", 0), 14),
        (("rows",), 17),
        (("rows", 0, "inner", 0, "k"), 20),
        (("rows", 0, "sub", "s"), 23),
        (("rows", 1, "n"), 25),
        (("rows", 1, "inner", 1, "k"), 29),
        (("rows", 1, "inner", 1, "missing"), 28),
        (("missing",), 1),
    ],
)
def test_lines(place: TomlPath, line: int) -> None:
    assert make_source_map(DOCUMENT).line_of(place) == line
