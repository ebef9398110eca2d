"""Fields of BSON, MessagePack and NVFIX that are something else than the column."""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pipeline.errors import UnfitError
from pipeline.fields import read_fields
from tests.pipeline.bodies import packed

NUMBER: Final = IntegerType()
NUMBERS: Final = ArrayType(NUMBER)
BY_NAME: Final = MapType(StringType(), NUMBER)
POINT: Final = StructType([StructField("x", NUMBER)])
SINGLE: Final = (NUMBER, StringType(), BinaryType(), TimestampType())


def bson(value: object) -> bytes:
    """A value with its kind in front, as it is behind a name."""
    match value:
        case None:
            return b"\x0a"
        case int():
            return b"\x10" + struct.pack("<i", value)
        case dict():
            fields, kind = dict(value), b"\x03"
        case list():
            fields, kind = {str(place): one for place, one in enumerate(value)}, b"\x04"
        case _:
            raise TypeError(value)
    parts = ((name.encode(), bson(one)) for name, one in fields.items())
    inner = b"".join(part[:1] + name + b"\0" + part[1:] for name, part in parts)
    return kind + struct.pack("<i", len(inner) + 5) + inner + b"\0"


def written(message_type: str, document: dict[str, Any]) -> bytes:
    return bson(document)[1:] if message_type == "bson" else msgspec.msgpack.encode(document)


def read(message_type: str, kind: DataType, *bodies: bytes) -> list[Any]:
    reader = read_fields(StructType([StructField("a", kind)]), message_type)
    return list(reader.columns(packed(bodies))["a"].to_pylist())


@pytest.mark.parametrize("message_type", ["bson", "msgpack"])
@pytest.mark.parametrize(
    ("value", "kinds", "got"),
    [
        ({"x": 1}, (*SINGLE, NUMBERS), "object|x"),
        ({}, (*SINGLE, NUMBERS), r"object|\{\}"),
        ([1, 2], (NUMBER, StringType(), TimestampType(), POINT, BY_NAME), r"array|\[1, 2\]"),
        ([], (NUMBER, StringType(), TimestampType(), POINT, BY_NAME), r"array|\[\]"),
        (5, (NUMBERS, POINT, BY_NAME), "5"),
        ({"x": 1}, (StructType([StructField("x", POINT)]),), "'a.x'.*1"),
    ],
)
def test_what_is_no_such_value_does_not_fit(
    message_type: str, value: object, kinds: tuple[DataType, ...], got: str
) -> None:
    """It is said which message, and what it has there."""
    bodies = [written(message_type, {"a": None}), written(message_type, {"b": 0, "a": value})]
    for kind in kinds:
        with pytest.raises(UnfitError, match=got) as caught:
            read(message_type, kind, *bodies)
        assert caught.value.number == 1


@pytest.mark.parametrize("message_type", ["bson", "msgpack"])
@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (NUMBER, [5, None], [5, None]),
        (NUMBERS, [[1, 2], [], None], [[1, 2], [], None]),
        (POINT, [{"x": 1}, {"y": 1}, {}, None], [{"x": 1}, {"x": None}, {"x": None}, None]),
        (BY_NAME, [{"x": 1}, {}, None], [[("x", 1)], [], None]),
    ],
)
def test_what_is_empty_is_not_null(
    message_type: str, kind: DataType, values: list[object], expected: list[object]
) -> None:
    """As of JSON: an empty array is one, and so is an object without the members."""
    bodies = [written(message_type, {"a": value}) for value in values]
    assert read(message_type, kind, *bodies, written(message_type, {"b": 1})) == [*expected, None]


@pytest.mark.parametrize("message_type", ["bson", "msgpack"])
@pytest.mark.parametrize("kind", [NUMBER, NUMBERS, POINT, BY_NAME])
def test_a_message_that_is_cut_does_not_fit(message_type: str, kind: DataType) -> None:
    body = written(message_type, {"b": 1, "a": 5})
    with pytest.raises(UnfitError, match="does not fit"):
        read(message_type, kind, body[: -1 if message_type == "msgpack" else -3])


@pytest.mark.parametrize("kind", [NUMBER, DecimalType(20, 0), ArrayType(NUMBER)])
@pytest.mark.parametrize(
    "text", ["1_000", "\u0663", " 1", "1 ", "1\n", "0x10", "1_0.0", "x", "--1"]
)
def test_texts_that_only_python_takes_for_numbers_do_not_fit(kind: DataType, text: str) -> None:
    several = "a=1\x01" if isinstance(kind, ArrayType) else ""
    with pytest.raises(UnfitError, match="does not fit"):
        read("nvfix", kind, f"{several}a={text}\x01".encode())


@pytest.mark.parametrize("text", ["12", "+12", "-12", "12.0", "1.2e1", "012"])
@pytest.mark.parametrize("kind", [NUMBER, DecimalType(20, 0)])
def test_texts_that_are_numbers_are_read(kind: DataType, text: str) -> None:
    assert [abs(one) for one in read("nvfix", kind, f"a={text}\x01".encode())] == [12]


@pytest.mark.parametrize("message_type", ["bson", "msgpack"])
def test_arrays_in_arrays(message_type: str) -> None:
    """They stay apart; to the server's filters, they are one array."""
    values: list[Any] = [[[1, None], [], None, [2]], [], [[]], None]
    bodies = [written(message_type, {"b": {"a": 1}, "a": value}) for value in values]
    assert read(message_type, ArrayType(NUMBERS), *bodies) == values
    deep = [written(message_type, {"a": [value]}) for value in values]
    assert read(message_type, ArrayType(ArrayType(NUMBERS)), *deep) == [[one] for one in values]
    with pytest.raises(UnfitError, match=r"got `int` - at `\$\[1\]`"):
        read(message_type, ArrayType(NUMBERS), written(message_type, {"a": [[1], 2]}))
