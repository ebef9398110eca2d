"""What holds of every message type, as far as its capabilities go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.message_types.base import MessageType, Value
from server.message_types.paths import Path
from server.message_types.registry import MessageTypes
from server.message_types.select_list import parse_selection
from tests.support.chances import examples

_TYPES = MessageTypes()
_TYPES.define("local", "composite-local", {"MessageType": ["json", "nvfix", "binary"]})
_TYPES.define("global", "composite-global", {"MessageType": ["json", "nvfix", "binary"]})
_TYPES.define("last", "json", {"EarlyTerminationOptimization": ["false"]})
_TYPES.define("pipes", "fix", {"FieldSeparator": ["124"]})
_TYPES.define(
    "struct", "struct", {"Field": ["/id = i", "/px = d", "/name = 8S", "/more = h", "/x = 4x"]}
)

NAMES = ["bflat", "bson", "fix", "json", "last", "local", "msgpack", "nvfix", "pipes", "xml"]
REBUILDING = [_TYPES.get(name) for name in NAMES]
LITERAL = [_TYPES.get(name) for name in ("binary", "global", "struct")]
TEXT_ONLY = ("fix", "nvfix", "pipes", "xml", "local")
"""Types whose values are all text; the part of the composite that the tests use is nvfix."""
NO_BOOLEANS = (*TEXT_ONLY, "bflat")
"""Types that write booleans as 1 and 0."""

rebuilding = pytest.mark.parametrize("kind", REBUILDING, ids=NAMES)


def at(kind: MessageType, *names: str) -> Path:
    """A path, below the root element or in the part that a type demands."""
    above = {"xml": ("doc",), "local": ("1",)}.get(kind.name, ())
    return (*above, *names)


def as_read(kind: MessageType, value: Value) -> Value:
    """What a value is read as after it has been written."""
    if isinstance(value, list):
        return [as_read(kind, element) for element in value]
    if isinstance(value, bool) and kind.name in NO_BOOLEANS:
        value = int(value)
    if value is None or kind.name not in TEXT_ONLY:
        return value
    # A whole number has no decimal point, double or not.
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


characters = st.characters(
    codec="utf-8", exclude_categories=["Cc"], exclude_characters="|=\ufffe\uffff"
)
texts = st.text(characters, min_size=1, max_size=12)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
scalars: st.SearchStrategy[Value] = st.one_of(st.booleans(), integers, floats, texts)
arrays: st.SearchStrategy[Value] = st.one_of(
    [st.lists(elements, min_size=2, max_size=4) for elements in (integers, floats, texts)]
)
documents = st.dictionaries(st.sampled_from(["id", "px", "name", "more"]), scalars | arrays)


def build(kind: MessageType, document: dict[str, Value]) -> bytes:
    return kind.build([(at(kind, name), value) for name, value in document.items()])


def read(kind: MessageType, body: bytes) -> dict[str, Value]:
    names = ["id", "px", "name", "more"]
    values = kind.extractor([at(kind, name) for name in names])(body)
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def expected(kind: MessageType, document: dict[str, Value]) -> dict[str, Value]:
    return {name: as_read(kind, value) for name, value in document.items()}


@rebuilding
@settings(max_examples=examples(40, 8))
@given(document=documents)
def test_what_is_built_is_read_again(kind: MessageType, document: dict[str, Value]) -> None:
    assert read(kind, build(kind, document)) == expected(kind, document)


@rebuilding
def test_values_keep_their_kind_where_the_format_has_one(kind: MessageType) -> None:
    document: dict[str, Value] = {"id": 1, "px": 16000.0, "name": "x", "more": True}
    values = read(kind, build(kind, document))
    assert values == expected(kind, document)
    assert [type(value) for value in values.values()] == [
        type(value) for value in expected(kind, document).values()
    ]


@rebuilding
def test_null_and_absent_fields_read_as_null(kind: MessageType) -> None:
    body = build(kind, {"id": 1, "name": None})
    paths = [at(kind, name) for name in ("name", "px", "id")]
    assert kind.extractor(paths)(body) == (None, None, as_read(kind, 1))


@rebuilding
def test_subscripts_pick_elements(kind: MessageType) -> None:
    body = build(kind, {"id": ["a", "b"], "px": "c"})
    paths: list[Path] = [(*at(kind, "id"), 1), (*at(kind, "id"), 2), (*at(kind, "px"), 0)]
    assert kind.extractor(paths)(body) == ("b", None, "c")


@rebuilding
def test_a_null_counts_in_a_delta_only_where_it_is_to(kind: MessageType) -> None:
    """A publisher cannot take a value away; of two differences, the later one does."""
    stored, delta = build(kind, {"id": "a", "px": "b"}), build(kind, {"px": None})
    paths: list[Path] = [at(kind, "id"), at(kind, "px")]
    assert kind.extractor(paths)(kind.merge(stored, delta)) == ("a", "b")
    assert kind.extractor(paths)(kind.merge(stored, delta, nulls=True)) == ("a", None)


@rebuilding
@settings(max_examples=examples(40, 8))
@given(stored=documents, delta=documents)
def test_merge_overwrites_and_keeps(
    kind: MessageType, stored: dict[str, Value], delta: dict[str, Value]
) -> None:
    merged = kind.merge(build(kind, stored), build(kind, delta))
    assert read(kind, merged) == expected(kind, {**stored, **delta})


@rebuilding
@settings(max_examples=examples(40, 8))
@given(previous=documents, delta=documents)
def test_difference_holds_just_what_changed_and_merges_back(
    kind: MessageType, previous: dict[str, Value], delta: dict[str, Value]
) -> None:
    before = build(kind, previous)
    after = kind.merge(before, build(kind, delta))
    difference = kind.differ(before, after, [])
    if difference is None:
        assert read(kind, after) == read(kind, before)
    else:
        assert read(kind, kind.merge(before, difference)) == read(kind, after)
        assert set(read(kind, difference)) <= set(delta)


@rebuilding
def test_difference_holds_the_keys(kind: MessageType) -> None:
    before = build(kind, {"id": 1, "px": 2, "name": "a"})
    after = build(kind, {"id": 1, "px": 3, "name": "a"})
    key = [at(kind, "id")]
    difference = kind.differ(before, after, key)
    assert difference is not None
    assert read(kind, difference) == expected(kind, {"id": 1, "px": 3})
    assert kind.differ(before, before, key) is None
    assert kind.differ(before, build(kind, {"id": 2, "px": 2, "name": "a"}), key) is None


@rebuilding
@settings(max_examples=examples(40, 8))
@given(document=documents, changes=documents)
def test_updated_fields_are_read_and_the_others_untouched(
    kind: MessageType, document: dict[str, Value], changes: dict[str, Value]
) -> None:
    fields = [(at(kind, name), value) for name, value in changes.items()]
    updated = kind.update(build(kind, document), fields)
    assert read(kind, updated) == expected(kind, {**document, **changes})


@rebuilding
def test_update_with_null_makes_null(kind: MessageType) -> None:
    body = kind.update(build(kind, {"id": 1, "px": 2}), [(at(kind, "px"), None)])
    assert read(kind, body) == expected(kind, {"id": 1})


@rebuilding
def test_select_list(kind: MessageType) -> None:
    body = build(kind, {"id": 1, "px": 2, "name": "a"})
    prefix = "".join(f"/{step}" for step in at(kind))
    chosen = kind.select(body, parse_selection(f"-/,+{prefix}/px,+{prefix}/id"))
    assert read(kind, chosen) == expected(kind, {"id": 1, "px": 2})
    rest = kind.select(body, parse_selection(f"-{prefix}/px"))
    assert read(kind, rest) == expected(kind, {"id": 1, "name": "a"})


@pytest.mark.parametrize("kind", LITERAL, ids=lambda kind: str(kind.name))
def test_types_without_deltas_pass_bodies_on(kind: MessageType) -> None:
    assert not kind.capabilities.delta
    assert not kind.capabilities.build
    assert kind.merge(b"stored", b"delta") == b"delta"
    assert kind.differ(b"previous", b"current", [("id",)]) == b"current"


@pytest.mark.parametrize("kind", [*REBUILDING, *LITERAL], ids=lambda kind: str(kind.name))
@given(body=st.binary(max_size=80))
def test_no_bytes_make_an_extractor_raise(kind: MessageType, body: bytes) -> None:
    paths: list[Path] = [("id",), ("0", "id"), ("1", "id"), ("doc", "id"), ("id", 1), ("px", "x")]
    assert len(kind.extractor(paths)(body)) == len(paths)


@pytest.mark.parametrize("kind", [*REBUILDING, *LITERAL], ids=lambda kind: str(kind.name))
@pytest.mark.parametrize(
    "make",
    [
        lambda: b"[" * 1_000_000,
        lambda: b'{"a":' * 200_000,
        lambda: b"<a>" * 200_000,
        lambda: b"\x81\xa1a" * 300_000,
        lambda: b"\x91" * 1_000_000,
        lambda: b"\xff" * 1_000_000,
        lambda: b"\x00\x00\x00\x01[" * 200_000,
        lambda: b"a=" * 500_000,
        lambda: b'"' * 1_000_000,
        lambda: b'{"id":"' + b"\\" * 1_000_000,
    ],
    ids=range(10),
)
def test_large_hostile_bodies_end_soon(kind: MessageType, make: Callable[[], bytes]) -> None:
    paths: list[Path] = [("id",), ("1", "id"), ("a", "a", "a"), ("doc", "id", 3)]
    assert len(kind.extractor(paths)(make())) == len(paths)
