"""The message type json: the values of paths, also in odd and broken bodies, and rebuilding."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.expressions.backends.columns import Column, column_of, column_of_raw
from server.message_types.base import BodyError, MessageTypeError, Value
from server.message_types.bulk import BulkMessageType, bulk_extractor, bulk_selector, join
from server.message_types.json_read import scanning_extractor
from server.message_types.paths import Path, parse_path
from server.message_types.raw_trees import RawTreeType
from server.message_types.registry import create
from server.message_types.select_list import parse_selection
from server.message_types.trees import Tree, read_path
from tests.message_types.bodies import DOCUMENTS, damaged, paths_of, survives

FIRST = create("json", "json", {})
LAST = create("json", "json", {"EarlyTerminationOptimization": ["false"]})

VALUES = st.sampled_from(
    [None, True, 0, -5, 1.5, math.nan, math.inf, "", "x", '"\u00e9', "\udcff", [1, "x"]]
)

ORDER = b"""{"id": 7, "px": 102.00, "note": null, "empty": "", "live": true,
 "quote": {"bid": 1.10, "ask": {"px": 2}}, "tags": ["a", "b"], "none": [], "hollow": {},
 "legs": [{"px": 1, "q": 5}, {"px": 2}], "text": "\\u00e9\\ud83d\\ude00\\n"}"""


def texts(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode()


def extract(body: bytes, *paths: str, last: bool = False) -> tuple[Value, ...]:
    kind = LAST if last else FIRST
    return kind.extractor([parse_path(path) for path in paths])(body)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/id", 7),
        ("/px", 102.0),
        ("/note", None),
        ("/empty", ""),
        ("/live", True),
        ("/quote", None),
        ("/quote/bid", 1.1),
        ("/quote/ask/px", 2),
        ("/quote/ask/px/deeper", None),
        ("/quote/missing", None),
        ("/missing/too", None),
        ("/tags", ["a", "b"]),
        ("/tags[1]", "b"),
        ("/tags[2]", None),
        ("/none", None),
        ("/hollow", None),
        ("/legs", None),
        ("/legs/px", [1, 2]),
        ("/legs/px[1]", 2),
        ("/legs[1]/px", 2),
        ("/legs/q", [5]),
        ("/id[0]", 7),
        ("/text", "é😀\n"),
    ],
)
def test_value_of_path(path: str, value: Value, last: bool) -> None:
    assert extract(ORDER, path, "/id", last=last) == (value, 7)


@pytest.mark.parametrize(
    ("body", "first", "last"),
    [
        (b'{"code":1,"data":"x","code":2}', 1, 2),
        (b'{"\\u0063ode":1,"code":2}', 1, 2),
        (b'{"code":null,"code":2}', None, 2),
        (b'{"code":{"x":1},"code":2}', None, 2),
        (b'{"other":{"code":9},"code":1}', 1, 1),
        (b'{"code":[1],"code":2}', [1], 2),
        (b'{"code":1,"code":2', 1, None),
        (b'{"code":1} trailing', 1, None),
        (b'{"code":1,"bad":}', 1, None),
        (b'{"bad":tru,"code":1}', None, None),
        (b'{"bad" 1,"code":1}', None, None),
        (b'{"bad":"\n","code":1}', 1, 1),
        (b'\xef\xbb\xbf{"code":1}', 1, 1),
        (b'[{"code":1},{"code":2}]', [1, 2], [1, 2]),
        (b'{"code":18446744073709551615}', 2**64 - 1, 2**64 - 1),
        (b'{"code":18446744073709551616}', 2.0**64, 2.0**64),
        (b'{"code":-9223372036854775808}', -(2**63), -(2**63)),
        (b'{"code":-9223372036854775809}', -(2.0**63), -(2.0**63)),
        (b'{"code":' + b"9" * 5000 + b"}", math.inf, math.inf),
        (b'{"code":[1,' + b"9" * 30 + b"]}", [1, 1e30], [1, 1e30]),
        (b'{"code":1e999}', math.inf, math.inf),
        (b'{"code":-1e999}', -math.inf, -math.inf),
        (b'{"code":1e-999}', 0.0, 0.0),
        (b'{"code":Infinity}', math.inf, math.inf),
        (b'{"x":NaN,"code":1}', 1, 1),
        (b'{"code":"\xff"}', "\udcff", "\udcff"),
        (b'{"x":"\xff","code":1}', 1, 1),
        (b'{"code":"a\\ud800b"}', "a\ufffdb", "a\ufffdb"),
        (b'{"code":"a\\u0000b"}', "a\0b", "a\0b"),
        (b'{"code":[[1,[2]],3]}', [1, 2, 3], [1, 2, 3]),
        (b'{"code":[1,{"x":2},null]}', [1, None], [1, None]),
        (b'{"x":' + b"[" * 200_000 + b'],"code":1}', None, None),
        (b'{"x":' + b"[" * 2000 + b"]" * 2000 + b',"code":1}', 1, 1),
        (b'{"code":' + b'{"code":' * 5000, None, None),
        (b"", None, None),
        (b"null", None, None),
        (b"5", None, None),
        (b'"code"', None, None),
        (b'{"code"', None, None),
        (b'{"code":', None, None),
        (b"\x00\x01", None, None),
    ],
)
def test_odd_bodies(body: bytes, first: Value, last: Value) -> None:
    assert extract(body, "/code") == (first,)
    assert extract(body, "/code", last=True) == (last,)


def test_malformed_bytes_behind_the_wanted_fields_are_not_noticed() -> None:
    body = b'{"a":1,"b":{"c":2},"d":[3, oops'
    assert extract(body, "/b/c", "/a") == (2, 1)
    assert extract(body, "/a", "/d", "/e") == (1, [3], None)


def test_paths_that_are_often_missing_are_read_all_the_same() -> None:
    paths = [parse_path(path) for path in ("/a", "/b", "/c/d", "/l/x")]
    read = FIRST.extractor(paths)
    for round_ in range(60):
        body: dict[str, object] = {"a": round_, "l": [{"x": 1}, {"x": round_}]}
        if round_ % 7 == 0:
            body |= {"b": "here", "c": {"d": round_}}
        expected = (round_, body.get("b"), round_ if "c" in body else None, [1, round_])
        assert read(texts(body)) == expected


@pytest.mark.parametrize(
    "name", ['"', "\\", "\n", "é", "", " ", "a b", "'", "__class__", "field_0"]
)
@pytest.mark.parametrize("kind", [FIRST, LAST])
def test_any_name_can_be_read(name: str, kind: object) -> None:
    read = (FIRST if kind is FIRST else LAST).extractor([(name,), ("x", name), ("y",)])
    document = {name: 1, "x": {name: 2}}
    for _ in range(20):
        assert read(texts(document)) == (1, 2, None)


def test_no_paths() -> None:
    assert FIRST.extractor([])(ORDER) == ()
    assert LAST.extractor([])(ORDER) == ()


@given(DOCUMENTS)
def test_every_path_reads_what_the_json_module_wrote(document: dict[str, Tree]) -> None:
    body = texts(document)
    paths = paths_of(document)
    values = tuple(read_path(json.loads(body), path) for path in paths)
    for kind in (FIRST, LAST):
        assert kind.extractor(paths)(body) == values
    for first_wins in (True, False):
        assert scanning_extractor(paths, first_wins=first_wins)(body) == values


scalars: st.SearchStrategy[bytes] = st.sampled_from(
    [b"1", b"2.50", b'"x"', b"null", b"[1,2]", b"[]", b'[{"a":1,"a":2}]']
)
members: st.SearchStrategy[bytes] = st.deferred(
    lambda: st.lists(st.tuples(st.sampled_from("abc"), scalars | members), max_size=5).map(
        lambda pairs: b"{" + b",".join(b'"%b":%b' % (n.encode(), v) for n, v in pairs) + b"}"
    )
)


def first_of(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    return dict(reversed(pairs))


@given(members)
def test_equal_names_at_any_depth(body: bytes) -> None:
    paths: list[Path] = [("a",), ("b",), ("a", "b"), ("c", "a", "b"), ("a", "a")]
    first = json.loads(body, object_pairs_hook=first_of)
    assert FIRST.extractor(paths)(body) == tuple(read_path(first, path) for path in paths)
    last = json.loads(body)
    assert LAST.extractor(paths)(body) == tuple(read_path(last, path) for path in paths)


@given(members, members)
def test_rebuilding_keeps_what_reading_finds(stored: bytes, delta: bytes) -> None:
    paths: list[Path] = [("a",), ("b",), ("a", "b"), ("c", "a", "b")]
    for kind in (FIRST, LAST):
        read = kind.extractor(paths)
        assert read(kind.merge(stored, b"{}")) == read(stored)
        assert read(kind.select(stored, parse_selection("+/"))) == read(stored)


@given(damaged(DOCUMENTS.map(texts)), DOCUMENTS.map(texts))
def test_no_body_breaks_anything(body: bytes, other: bytes) -> None:
    survives(FIRST, body, other)
    survives(LAST, body, other)


PIECES = [
    b'{"a":', b'"b":{', b'"c":[', b',"id":', b'"a" : ', b"}", b"]", b",", b":", b'"', b"\\", b" ",
    b"\n\t", b'"x"', b'"\\""', b'"\\\\"', b'"\\ud800"', b'"\\u0061"', b'"\xc3\xa9"', b'"\xff"',
    b'"eightbytes"', b"\0", b"1", b"-0", b"1.5", b"-1e-7", b"007", b"1.", b"+1", b"1e999",
    b"18446744073709551616", b"true", b"nul", b"null", b"false", b"NaN", b"-Infinity",
    b"\xef\xbb\xbf",
]  # fmt: skip
patchwork = st.lists(st.sampled_from(PIECES), max_size=16).map(
    lambda all_: b'{"a":' + b"".join(all_)
)


@given(
    damaged(DOCUMENTS.map(texts)) | patchwork,
    st.lists(
        st.lists(st.sampled_from(["a", "b", "c", "id", "a", 0, 1]), max_size=3).map(
            lambda steps: tuple(steps) if steps and isinstance(steps[0], str) else ("a", *steps)
        ),
        max_size=5,
    ),
)
def test_fast_reading_and_scanning_agree_on_bodies_of_any_quality(
    body: bytes, paths: list[Path]
) -> None:
    scanned = scanning_extractor(paths, first_wins=True)(body)
    assert repr(FIRST.extractor(paths)(body)) == repr(scanned)


@given(st.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,5})?", fullmatch=True))
def test_numbers_are_read_exactly(text: str) -> None:
    (value,) = FIRST.extractor([("a",)])(b'{"a":%b}' % text.encode())
    is_integer = text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**64
    assert repr(value) == repr(int(text) if is_integer else float(text))


@given(
    st.lists(
        damaged(DOCUMENTS.map(texts)) | members | st.just(b'{"a":1,"b":{"c":"x"},"id":{"a":2}}'),
        min_size=1,
        max_size=80,
    ),
    st.lists(
        st.sampled_from([("a",), ("b",), ("b", "c"), ("id", "a"), ("a", 0), ("c",)]), max_size=4
    ),
)
def test_many_bodies_at_once_read_as_one_by_one(bodies: list[bytes], paths: list[Path]) -> None:
    for kind in (FIRST, LAST):
        expected = zip(*map(kind.extractor(paths), bodies), strict=True)
        found = bulk_extractor(kind, paths)(bodies)
        assert repr(list(map(tuple, found))) == repr(list(expected))


def read_columns(bodies: Sequence[bytes], paths: Sequence[Path], joined: int = 7) -> list[Column]:
    """The columns of bodies, of which so many come at once."""
    assert isinstance(FIRST, BulkMessageType)
    read = FIRST.column_reader(paths)
    assert read is not None
    parts = [join(bodies[start : start + joined]) for start in range(0, len(bodies), joined)]
    return list(map(column_of_raw, read(parts, len(bodies))))


SCALARS = (
    st.sampled_from(
        [b"null", b"true", b"false", b"NaN", b"-Infinity", b'""', b'"\xff"', b'"\\ud800"']
    )
    | st.sampled_from(
        [b"[1,2]", b"[]", b"{}", b"1e400", b"-0", b"-0.0", b"9007199254740993.0", b"-"]
    )
    | st.integers(-(2**65), 2**65).map(texts)
    | st.floats(allow_nan=False).map(texts)
    | st.text(max_size=5).map(texts)
)
BODIES = st.dictionaries(st.sampled_from(["a", "b", "\u00e9", "c" * 30, "\\u0061"]), SCALARS).map(
    lambda members: b"{%b}" % b", ".join(b'"%b" :%b' % (k.encode(), v) for k, v in members.items())
)


@given(
    st.lists(BODIES | damaged(BODIES) | damaged(DOCUMENTS.map(texts)), min_size=1, max_size=60)
    | st.lists(
        st.sampled_from([b'{"a":1}', b'{"a":2.5}', b'{"b":1,"a":-7}', b"", b'{"a":"x"}']),
        min_size=1,
    )
    | st.lists(
        st.integers(-(2**63), 2**63 - 1).map(lambda n: b'{"b":"%d","a":%d}' % (n, n)), min_size=1
    ),
    st.lists(
        st.sampled_from([("a",), ("b",), ("b", "c"), ("\u00e9",), ("c" * 30,), ("a", 0)]),
        max_size=4,
    ),
)
def test_columns_read_from_joined_bodies_are_those_of_values(
    bodies: list[bytes], paths: list[Path]
) -> None:
    expected = [
        column_of(values) for values in zip(*map(FIRST.extractor(paths), bodies), strict=True)
    ]
    found = read_columns(bodies, paths)
    for one, other in zip(expected, found, strict=True):
        values = [None if value == "" else value for value in one.to_values()]
        assert repr([None if value == "" else value for value in other.to_values()]) == repr(values)
        assert type(one) is type(other) or not any(values)


def test_joined_bodies_have_to_be_what_they_are_said_to_be() -> None:
    assert isinstance(FIRST, BulkMessageType)
    read = FIRST.column_reader([("a",)])
    assert read is not None
    good = join([b'{"a":1}', b"{}"])
    for count in (1, 3):
        with pytest.raises(ValueError, match="bodies"):
            read([good], count)
    for ends in ([7, 11], [7, 6], [6, 10], [-1, 10]):
        with pytest.raises(ValueError, match="a body"):
            read([good._replace(ends=array("q", ends))], 2)


def test_a_few_odd_bodies_among_many() -> None:
    plain = [texts({"a": number, "b": str(number)}) for number in range(200)]
    odd = [b"{}", b'{"a":[1,2],"b":{}}', b'{"a":7,"b":', b'{"b":"x","a":1,"a":2}', b"\xff"]
    huge = texts({"a": 1, "b": "x" * (1 << 20)})
    for extra in (odd, [*odd, huge]):
        bodies = list(plain)
        for position, body in enumerate(extra):
            bodies[position * 31 : position * 31] = [body, body]
        bodies.append(odd[1])
        paths: list[Path] = [("a",), ("b",)]
        expected = list(zip(*map(FIRST.extractor(paths), bodies), strict=True))
        assert list(bulk_extractor(FIRST, paths)(bodies)) == expected
        found = [column.to_values() for column in read_columns(bodies, paths)]
        assert found == list(map(list, expected))


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        (b'{"a":1,"b":2}', b'{"b":3}', b'{"a":1,"b":3}'),
        (b'{"px":102.00,"n":1E2}', b'{"q":1.50}', b'{"px":102.00,"n":1E2,"q":1.50}'),
        (b'{"q":{"bid":1.10,"ask":2}}', b'{"q":{"ask":3}}', b'{"q":{"bid":1.10,"ask":3}}'),
        (b'{"a":[1,2]}', b'{"a":[{"b":3}]}', b'{"a":[{"b":3}]}'),
        (b'{"a":1}', b'{"a":null,"b":null}', b'{"a":1}'),
        (b'{"a":1}', b'{"a":""}', b'{"a":1}'),
        (b'{"a":1}', b'{"b":{"c":null,"d":1}}', b'{"a":1,"b":{"d":1}}'),
        (b'{"a":{"b":1}}', b'{"a":5}', b'{"a":5}'),
        (b'{"a":5}', b'{"a":{"b":1}}', b'{"a":{"b":1}}'),
        (b'{ "a" : [1, 2] }', b'{ "b" : "x y" }', b'{"a":[1, 2],"b":"x y"}'),
        (b'{"a":"\xff\\u00e9"}', b'{"b":1e999}', b'{"a":"\xff\\u00e9","b":1e999}'),
        (b'{"a":1,"a":2}', b'{"b":1}', b'{"a":1,"b":1}'),
    ],
)
def test_merge(stored: bytes, delta: bytes, merged: bytes) -> None:
    assert FIRST.merge(stored, delta) == merged


def test_example_of_incremental_updates() -> None:
    stored = b'{"id":42, "contents":{"packages":[{"box":"chocolates"},{"bowl":"noodles"}]}}'
    delta = b'{"id":42, "contents":{"packages":[{"basket":"eggs"}]}}'
    assert json.loads(FIRST.merge(stored, delta)) == json.loads(delta)


@pytest.mark.parametrize(
    ("previous", "current", "difference"),
    [
        (b'{"id":1,"a":1}', b'{"id":1,"a":1}', None),
        (b'{"id":1,"a":1}', b'{ "a":1, "id":1 }', None),
        (b'{"id":1,"a":1}', b'{"a":2,"id":1}', b'{"a":2,"id":1}'),
        (b'{"id":1,"a":1.0}', b'{"id":1,"a":1.00}', b'{"id":1,"a":1.00}'),
        (b'{"id":1,"a":{"x":1,"y":2}}', b'{"id":1,"a":{"x":1,"y":3}}', b'{"id":1,"a":{"y":3}}'),
        (b'{"id":1,"a":1}', b'{"id":1}', None),
        (b'{"id":1}', b'{"id":2,"a":[1]}', b'{"id":2,"a":[1]}'),
        (b'{"id":1}', b'{"id":2}', None),
    ],
)
def test_differ(previous: bytes, current: bytes, difference: bytes | None) -> None:
    assert FIRST.differ(previous, current, [("id",)]) == difference


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ("-/,+/id,+/px", b'{"id":7,"px":102.00}'),
        ("-/,+/quote/ask", b'{"quote":{"ask":{"px":2}}}'),
        ("-/,+/legs/q", b'{"legs":[{"q":5}]}'),
        ("-/,+/legs,-/legs/px,+/none", b'{"none":[],"legs":[{"q":5},{}]}'),
        ("-/,+/missing", b"{}"),
    ],
)
def test_select(selection: str, selected: bytes) -> None:
    assert FIRST.select(ORDER, parse_selection(selection)) == selected


BODIES = damaged(DOCUMENTS.map(texts)) | DOCUMENTS.map(texts) | members | patchwork
KEPT: list[list[Path]] = [[], [("a",)], [("id",), ("c",)], [("a", "b")], [("\u00fc",)]]


def result_of(call: Callable[[], bytes | None]) -> bytes | str | None:
    """The body that a call makes, or its error."""
    try:
        return call()
    except BodyError as error:
        return str(error)


@given(BODIES, BODIES, st.sampled_from(KEPT), st.booleans())
def test_bodies_are_rebuilt_in_c_as_by_trees(
    one: bytes, other: bytes, keep: list[Path], nulls: bool
) -> None:
    for kind in (FIRST, LAST):
        assert isinstance(kind, RawTreeType)
        assert result_of(partial(kind.differ, one, other, keep)) == result_of(
            partial(RawTreeType.differ, kind, one, other, keep)
        )
        assert result_of(partial(kind.merge, one, other, nulls=nulls)) == result_of(
            partial(RawTreeType.merge, kind, one, other, nulls=nulls)
        )


@given(BODIES, st.lists(st.tuples(st.sampled_from(["a", "b", "\u00fc"]), VALUES), max_size=3))
def test_fields_are_set_in_c_as_in_trees(body: bytes, values: list[tuple[str, Value]]) -> None:
    fields: list[tuple[Path, Value]] = [((name,), value) for name, value in values]
    for kind in (FIRST, LAST):
        assert isinstance(kind, RawTreeType)
        assert result_of(partial(kind.update, body, fields)) == result_of(
            partial(RawTreeType.update, kind, body, fields)
        )


@pytest.mark.parametrize("count", [128, 129])
def test_bodies_of_many_members_are_rebuilt(count: int) -> None:
    body = texts({f"n{number}": number for number in range(count)})
    more = texts({"n0": None, "more": 1})
    assert json.loads(FIRST.merge(body, more)) == json.loads(body) | {"more": 1}
    difference = FIRST.differ(body, texts(json.loads(body) | {"n5": 6}), [("n1",)])
    assert difference == b'{"n1":1,"n5":6}'


SELECTIONS = ["-/,+/a", "-/,+/id,+/a,+/c", "-/", "-/,+/a/b", "-/a", "+/", "-/,+[/\u00fc],+/b"]


@given(
    st.lists(damaged(DOCUMENTS.map(texts)) | DOCUMENTS.map(texts) | members | patchwork),
    st.sampled_from(SELECTIONS),
)
def test_selecting_from_many_bodies_at_once_is_as_from_one(
    bodies: list[bytes], selection: str
) -> None:
    for kind in (FIRST, LAST):
        parsed = parse_selection(selection)
        selector = bulk_selector(kind, parsed)
        assert selector is not None
        for body, selected in zip(bodies, selector(bodies), strict=True):
            assert selected is None or selected == kind.select(body, parsed)


@pytest.mark.parametrize(
    ("body", "selected"),
    [
        (ORDER, b'{"id":7,"note":null,"tags":["a", "b"]}'),
        (b' {"tags" : [1, {"x":{}}], "t":{"id":[[-0.5e3]]},"id":"\\"" } ',
         b'{"tags":[1, {"x":{}}],"id":"\\""}'),
        (b"{}", b"{}"),
        (b'{"idx":1}', b"{}"),
        (b'{"id":1,"id":2}', None),
        (b'{"id":{}}', None),
        (b'{"i\\u0064":1}', None),
        (b'{"x":01}', None),
        (b'{"x":1', None),
        (b'{"x":[1,]}', None),
        (b'{"x":1}}', None),
        (b"[]", None),
        (b'{"x":%b1%b}' % (b"[" * 16, b"]" * 16), None),
    ],
)  # fmt: skip
def test_members_of_plain_bodies_are_selected_in_c(body: bytes, selected: bytes | None) -> None:
    selector = bulk_selector(FIRST, parse_selection("-/,+/id,+/note,+/tags"))
    assert selector is not None
    assert selector([body, body]) == [selected, selected]


def test_update_sets_fields_and_leaves_the_others() -> None:
    body = b'{"px":102.00,"q":{"a":1.10},"l":[1, 2]}'
    fields: list[tuple[Path, Value]] = [
        (("q", "b"), 16000.0),
        (("q", "a"), None),
        (("new", "x"), '\udcff\u00e9"'),
        (("l",), [1, "x", None]),
        (("nan",), math.nan),
    ]
    assert FIRST.update(body, fields) == (
        b'{"px":102.00,"q":{"a":null,"b":16000.0},"l":[1,"x",null],'
        b'"new":{"x":"\xff\xc3\xa9\\""},"nan":null}'
    )


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"5", b'{"a":1', b'{"a":1} x', b'{"a":{"b":}}', b'{"a":' * 500, b"\xff"]
)
def test_a_body_that_cannot_be_rebuilt(body: bytes) -> None:
    operations: list[Callable[[], object]] = [
        lambda: FIRST.merge(b"{}", body),
        lambda: FIRST.differ(b"{}", body, []),
        lambda: FIRST.select(body, parse_selection("+/")),
        lambda: FIRST.update(body, []),
    ]
    for operation in operations:
        with pytest.raises(BodyError, match="JSON"):
            operation()


@pytest.mark.parametrize(
    ("options", "option", "message"),
    [
        ({"EarlyTerminationOptimization": ["maybe"]}, "EarlyTerminationOptimization", "'maybe'"),
        (
            {"EarlyTerminationOptimisation": ["true"]},
            "EarlyTerminationOptimisation",
            "did you mean",
        ),
        ({"AMPSVersionCompliance": ["3"]}, "AMPSVersionCompliance", "2, 4, 5"),
        (
            {"EarlyTerminationOptimization": ["true", "true"]},
            "EarlyTerminationOptimization",
            "once",
        ),
    ],
)
def test_option_that_is_wrong(options: dict[str, list[str]], option: str, message: str) -> None:
    with pytest.raises(MessageTypeError, match=message) as caught:
        create("mine", "json", options)
    assert caught.value.option == option
