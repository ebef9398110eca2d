"""The message types fix and nvfix: fields, separators, and the order of merged fields."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.base import MessageTypeError, Value
from server.message_types.paths import Path, parse_path
from server.message_types.registry import create
from server.message_types.select_list import parse_selection
from tests.message_types.bodies import damaged, survives

FIX = create("fix", "fix", {})
CUSTOM = create(
    "fix-custom",
    "fix",
    {"FieldSeparator": ["124"], "HeaderSeparator": ["2"], "MessageSeparator": ["5"]},
)


def soh(text: str) -> bytes:
    return text.replace("|", "\x01").encode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("body", "path", "value"),
    [
        ("35=D|55=IBM|38=100|", "/55", "IBM"),
        ("35=D|55=IBM|38=100|", "/35", "D"),
        ("35=D|55=IBM|38=100", "/38", "100"),
        ("35=D|55=IBM|38=100|", "/5", None),
        ("155=x|55=IBM|", "/55", "IBM"),
        ("58=|55=IBM|", "/58", None),
        ("58=a=b|", "/58", "a=b"),
        ("448=A|447=D|448=B|", "/448", ["A", "B"]),
        ("448=A|447=D|448=B|", "/448[1]", "B"),
        ("448=A|448=|448=B|", "/448", ["A", None, "B"]),
        ("448=A|447=D|448=B|", "/448[2]", None),
        ("55=IBM|", "/55[0]", "IBM"),
        ("55=IBM|", "/55[1]", None),
        ("OrdStatus=2|Client Name=é|", "[/Client Name]", "é"),
        ("a/b=1|", "/a/b", "1"),
        ("58=\udcff|", "/58", "\udcff"),
        ("junk|=x|55=IBM|", "/55", "IBM"),
        ("", "/55", None),
        ("8=FIX.4.2;35=D;11=X", "/11", None),
    ],
)
def test_value_of_path(body: str, path: str, value: Value) -> None:
    assert FIX.extractor([parse_path(path)])(soh(body)) == (value,)


def test_several_paths_and_the_same_one_twice() -> None:
    read = FIX.extractor([("38",), ("55",), ("38",), ("1",)])
    assert read(soh("55=IBM|38=100|")) == ("100", "IBM", "100", None)
    assert FIX.extractor([])(b"55=IBM") == ()


def test_separators_of_the_configuration() -> None:
    body = b"8=FIX\x0235=D|55=A\x01B|58=x\x05"
    read = CUSTOM.extractor([("8",), ("35",), ("55",), ("58",)])
    assert read(body) == ("FIX", "D", "A\x01B", "x")
    assert CUSTOM.build([(("1",), "a|b\x02c"), (("2",), None)]) == b"1=a b c|2=|"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"FieldSeparator": ["SOH"]}, "ASCII code"),
        ({"FieldSeparator": ["61"]}, "other than '='"),
        ({"FieldSeparator": ["200"]}, "ASCII code"),
        ({"HeaderSeparator": ["-1"]}, "ASCII code"),
        ({"FieldSeperator": ["1"]}, "did you mean FieldSeparator"),
    ],
)
def test_option_that_is_wrong(options: dict[str, list[str]], message: str) -> None:
    with pytest.raises(MessageTypeError, match=message):
        create("mine", "nvfix", options)


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        (
            "35=D|11=1|55=IBM|38=100|40=2|",
            "35=G|11=2|41=1|38=50|",
            "35=G|11=2|41=1|38=50|55=IBM|40=2|",
        ),
        ("35=G|11=2|41=1|55=X|", "35=D|11=1|55=X|40=2|", "35=D|11=1|55=X|40=2|41=1|"),
        ("1=a|2=b|", "2=|", "1=a|2=b|"),
        ("1=a|", "2=|3=c|", "3=c|1=a|"),
        ("1=a|448=x|448=y|", "448=z|", "448=z|1=a|"),
        ("1=a|2=b", "2=c|", "2=c|1=a"),
        ("", "1=a|", "1=a|"),
    ],
)
def test_merge_puts_the_fields_of_the_delta_first(stored: str, delta: str, merged: str) -> None:
    assert FIX.merge(soh(stored), soh(delta)) == soh(merged)


@pytest.mark.parametrize(
    ("previous", "current", "difference"),
    [
        ("1=a|2=b|", "1=a|2=b|", None),
        ("1=a|2=b|", "2=b|1=a|", None),
        ("1=a|2=b|", "1=a|2=c|", "1=a|2=c|"),
        ("1=a|2=1.0|", "1=a|2=1.00", "1=a|2=1.00"),
        ("1=a|2=b|", "1=a|", None),
        ("1=a|", "1=b|", None),
        ("1=a|2=x|2=y|", "1=a|2=x|2=z|", "1=a|2=x|2=z|"),
    ],
)
def test_differ(previous: str, current: str, difference: str | None) -> None:
    found = FIX.differ(soh(previous), soh(current), [("1",)])
    assert found == (None if difference is None else soh(difference))


def test_select_keeps_order_and_repeated_tags() -> None:
    body = soh("35=D|448=x|55=IBM|448=y|58=")
    assert FIX.select(body, parse_selection("-/,+/448,+/58")) == soh("448=x|448=y|58=")
    assert FIX.select(body, parse_selection("-/448")) == soh("35=D|55=IBM|58=")


def test_build_and_update_write_text() -> None:
    fields: list[tuple[Path, Value]] = [
        (("1",), 16000.0),
        (("2",), True),
        (("3",), math.nan),
        (("4",), None),
        (("5",), ["x", 2]),
        (("a", "b"), "\udcff\x01"),
    ]
    assert FIX.build(fields) == soh("1=16000|2=1|3=0|4=|5=x|5=2|a/b=\udcff |")
    assert FIX.update(soh("9=z|4=q|1=x"), fields[:4]) == soh("9=z|4=|1=16000|2=1|3=0")


values = st.text(st.characters(exclude_characters="\x01=", exclude_categories=["Cs"]), min_size=1)
bodies = st.lists(st.tuples(st.sampled_from("abcde"), values), max_size=8).map(
    lambda pairs: "".join(f"{tag}={value}\x01" for tag, value in pairs).encode()
)


@given(bodies)
def test_agrees_with_splitting_into_a_dict(body: bytes) -> None:
    fields: dict[str, list[str]] = {}
    for text in body.decode().split("\x01")[:-1]:
        fields.setdefault(text[0], []).append(text[2:])
    expected = tuple(
        None if tag not in fields else fields[tag] if len(fields[tag]) > 1 else fields[tag][0]
        for tag in "abcdef"
    )
    assert FIX.extractor([(tag,) for tag in "abcdef"])(body) == expected


@given(bodies, bodies)
def test_difference_merges_back(previous: bytes, delta: bytes) -> None:
    current = FIX.merge(previous, delta)
    difference = FIX.differ(previous, current, [])
    rebuilt = FIX.merge(previous, difference) if difference else previous
    read = FIX.extractor([(tag,) for tag in "abcde"])
    assert read(rebuilt) == read(current)


@given(damaged(bodies), bodies)
def test_no_body_breaks_anything(body: bytes, other: bytes) -> None:
    survives(FIX, body, other)
    survives(CUSTOM, body, other)
