"""The message types composite-local, composite-global and binary."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.base import BodyError, Capabilities, MessageTypeError, Value
from server.message_types.paths import parse_path
from server.message_types.registry import MessageTypes, create
from server.message_types.select_list import parse_selection
from tests.message_types.bodies import DOCUMENTS, damaged, survives

PARTS = {"MessageType": ["json", "json", "binary"]}
LOCAL = create("images", "composite-local", PARTS)
GLOBAL = create("images", "composite-global", PARTS)
BINARY = create("binary", "binary", {})


def compose(*parts: bytes, payload: bytes = b"") -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts) + payload


EXAMPLE = compose(
    b'{"id":1,"data":"sample","message":"part one message","tags":[1,2]}',
    b'{"message":"another part","customer":"Awesome Amalgamated, Ltd."}',
    b"\xde\xea\x09\x34",
    payload=b'{"id":"not looked at"}',
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/0/id", 1),
        ("/0/message", "part one message"),
        ("/1/message", "another part"),
        ("/1/customer", "Awesome Amalgamated, Ltd."),
        ("/0/tags[1]", 2),
        ("/1/id", None),
        ("/2/id", None),
        ("/3/id", None),
        ("/id", None),
        ("/0", None),
        ("/-1/id", None),
        ("/\u0661/customer", None),
        ("/01/customer", None),
    ],
)
def test_local_paths_begin_with_the_number_of_a_part(path: str, value: Value) -> None:
    assert LOCAL.extractor([parse_path(path), ("0", "data")])(EXAMPLE) == (value, "sample")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/id", 1),
        ("/data", "sample"),
        ("/message", ["part one message", "another part"]),
        ("/message[1]", "another part"),
        ("/message[2]", None),
        ("/customer", "Awesome Amalgamated, Ltd."),
        ("/tags", [1, 2]),
        ("/tags[1]", 2),
        ("/id[0]", 1),
        ("/0/id", None),
        ("/missing", None),
    ],
)
def test_global_paths_are_looked_up_in_every_part(path: str, value: Value) -> None:
    assert GLOBAL.extractor([parse_path(path), ("data",)])(EXAMPLE) == (value, "sample")


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (compose(b'{"a":1}', b'{"a":2}', b""), (1, 2)),
        (compose(b'{"a":1}'), (1, None)),
        (compose(b"", b'{"a":2}'), (None, 2)),
        (compose(b"{broken", b'{"a":2}', b""), (None, 2)),
        (compose(b'{"a":1}') + b"\x00\x00", (1, None)),
        (compose(b'{"a":1}') + b"\x00\x00\x01\x00{}", (1, None)),
        (b"", (None, None)),
    ],
)
def test_parts_that_cannot_be_read_are_skipped(body: bytes, values: tuple[Value, ...]) -> None:
    assert LOCAL.extractor([("0", "a"), ("1", "a")])(body) == values
    found = [value for value in values if value is not None]
    expected = found if len(found) > 1 else found[0] if found else None
    assert GLOBAL.extractor([("a",)])(body) == (expected,)


@pytest.mark.parametrize(
    ("delta", "merged"),
    [
        (compose(b"", b"", b""), compose(b'{"a":1}', b'{"b":2}', b"BIN", payload=b"rest")),
        (compose(b'{"x":3}'), compose(b'{"a":1,"x":3}', b'{"b":2}', b"BIN", payload=b"rest")),
        (compose(b"", b"", b"NEW"), compose(b'{"a":1}', b'{"b":2}', b"NEW", payload=b"rest")),
        (
            compose(b"", b'{"b":5}', b"", payload=b"new"),
            compose(b'{"a":1}', b'{"b":5}', b"BIN", payload=b"new"),
        ),
    ],
)
def test_merge_leaves_stored_parts_where_the_delta_has_empty_ones(
    delta: bytes, merged: bytes
) -> None:
    assert LOCAL.merge(compose(b'{"a":1}', b'{"b":2}', b"BIN", payload=b"rest"), delta) == merged


@pytest.mark.parametrize(
    ("current", "difference"),
    [
        (compose(b'{"id":1,"a":1}', b'{"b":2}', b"BIN", payload=b"other"), None),
        (compose(b'{"id":1,"a":3}', b'{"b":2}', b"BIN"), compose(b'{"id":1,"a":3}', b"", b"")),
        (compose(b'{"id":1,"a":1}', b'{"b":4}', b"BIN"), compose(b'{"id":1}', b'{"b":4}', b"")),
        (compose(b'{"id":1,"a":1}', b'{"b":2}', b"NEW"), compose(b'{"id":1}', b"", b"NEW")),
        (compose(b'{"id":1,"a":1}', b"", b""), None),
    ],
)
def test_differ_sends_changed_parts_and_keys(current: bytes, difference: bytes | None) -> None:
    previous = compose(b'{"id":1,"a":1}', b'{"b":2}', b"BIN", payload=b"rest")
    assert LOCAL.differ(previous, current, [("0", "id")]) == difference


def test_differ_of_a_part_that_was_empty() -> None:
    current = compose(b'{"a":1}', b"", b"")
    assert LOCAL.differ(compose(b"", b"", b""), current, []) == current


@pytest.mark.parametrize(
    ("selection", "local"),
    [
        ("+/", compose(b'{"a":1,"b":2}', b'{"a":3}', b"BIN", payload=b"rest")),
        ("-/,+/0/a", compose(b'{"a":1}', b"", b"")),
        ("-/1", compose(b'{"a":1,"b":2}', b"", b"BIN", payload=b"rest")),
        ("-/,+/1,+/2", compose(b"", b'{"a":3}', b"BIN")),
        ("-/0/a", compose(b'{"b":2}', b'{"a":3}', b"BIN", payload=b"rest")),
    ],
)
def test_select_in_local_parts(selection: str, local: bytes) -> None:
    body = compose(b'{"a":1,"b":2}', b'{"a":3}', b"BIN", payload=b"rest")
    assert LOCAL.select(body, parse_selection(selection)) == local


def test_select_in_global_parts() -> None:
    body = compose(b'{"a":1,"b":2}', b'{"a":3,"c":4}', b"BIN", payload=b"rest")
    only_a = GLOBAL.select(body, parse_selection("-/,+/a"))
    assert only_a == compose(b'{"a":1}', b'{"a":3}', b"")
    without_a = GLOBAL.select(body, parse_selection("-/a"))
    assert without_a == compose(b'{"b":2}', b'{"c":4}', b"BIN", payload=b"rest")


def test_build_and_update_local_parts() -> None:
    built = LOCAL.build([(("0", "a"), 1), (("1", "b", "c"), "x"), (("0", "d"), None)])
    assert built == compose(b'{"a":1,"d":null}', b'{"b":{"c":"x"}}', b"")
    body = compose(b'{"a":1.00}', b"", b"BIN", payload=b"rest")
    assert LOCAL.update(body, [(("1", "x"), 2), (("0", "b"), 3)]) == compose(
        b'{"a":1.00,"b":3}', b'{"x":2}', b"BIN", payload=b"rest"
    )
    for path in (("2", "x"), ("3", "x"), ("x",), ("0",)):
        with pytest.raises(BodyError):
            LOCAL.update(body, [(path, 1)])


def test_what_composite_and_binary_types_cannot_do() -> None:
    assert LOCAL.capabilities == Capabilities(events=False)
    assert GLOBAL.capabilities == Capabilities(delta=False, build=False, events=False)
    assert BINARY.capabilities == Capabilities(fields=False, delta=False, build=False, select=False)
    for kind in (GLOBAL, BINARY):
        assert kind.merge(EXAMPLE, b"delta") == b"delta"
        assert kind.differ(EXAMPLE, b"current", []) == b"current"
        with pytest.raises(BodyError):
            kind.build([(("a",), 1)])
        with pytest.raises(BodyError):
            kind.update(EXAMPLE, [(("a",), 1)])
    assert BINARY.extractor([("a",), ("b",)])(b'{"a":1}') == (None, None)
    assert BINARY.select(b"any", parse_selection("-/")) == b"any"


@pytest.mark.parametrize(
    "operation",
    [
        lambda body: LOCAL.merge(body, EXAMPLE),
        lambda body: LOCAL.differ(EXAMPLE, body, []),
        lambda body: LOCAL.select(body, parse_selection("+/")),
        lambda body: GLOBAL.select(body, parse_selection("+/")),
    ],
)
def test_a_part_that_is_cut_off_cannot_be_rebuilt(operation: Callable[[bytes], object]) -> None:
    for body in (EXAMPLE[:30], EXAMPLE[:2], compose(b"{}") + b"\xff\xff\xff\xff"):
        with pytest.raises(BodyError, match="composite"):
            operation(body)


def test_parts_may_be_composite_themselves_and_defined_before() -> None:
    types = MessageTypes()
    types.define("pipes", "nvfix", {"FieldSeparator": ["124"]})
    types.define("inner", "composite-local", {"MessageType": ["pipes", "xml"]})
    outer = types.define("outer", "composite-local", {"MessageType": ["inner", "json"]})
    body = outer.build([(("0", "0", "a"), 1), (("0", "1", "x", "@y"), 2), (("1", "z"), 3)])
    assert body == compose(compose(b"a=1|", b'<x y="2"/>'), b'{"z":3}')
    assert outer.extractor([("0", "1", "x", "@y"), ("0", "0", "a")])(body) == ("2", "1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "at least one part"),
        ({"MessageType": ["jsn"]}, "'jsn' is not defined; did you mean json"),
        ({"MessageType": ["json"], "Name": ["x"]}, "no such option"),
    ],
)
def test_option_that_is_wrong(options: dict[str, list[str]], message: str) -> None:
    for module in ("composite-local", "composite-global"):
        with pytest.raises(MessageTypeError, match=message):
            create("mine", module, options)


documents = DOCUMENTS.map(lambda document: json.dumps(document).encode())
documents = documents.map(lambda body: body.replace(b"Infinity", b"1e999"))
bodies = st.builds(
    lambda first, second, binary, payload: compose(first, second, binary, payload=payload),
    documents | st.just(b""),
    documents | st.just(b""),
    st.binary(max_size=8),
    st.binary(max_size=8),
)


@given(bodies, bodies)
def test_difference_merges_back(previous: bytes, delta: bytes) -> None:
    current = LOCAL.merge(previous, delta)
    difference = LOCAL.differ(previous, current, [])
    rebuilt = LOCAL.merge(previous, difference) if difference else previous
    read = LOCAL.extractor([(part, name) for part in "01" for name in ("a", "b", "c", "id")])
    assert read(rebuilt) == read(current)


@given(damaged(bodies), bodies)
def test_no_body_breaks_anything(body: bytes, other: bytes) -> None:
    survives(LOCAL, body, other)
    assert len(GLOBAL.extractor([("a",), ("b", 0)])(body)) == 2
    assert BINARY.extractor([("a",)])(body) == (None,)
