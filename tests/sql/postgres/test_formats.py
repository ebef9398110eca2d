"""Columns in the text and binary formats of PostgreSQL, against what PostgreSQL 16 sends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from server.sql.postgres import formats, nested_formats, types
from server.sql.postgres.errors import FormatError
from server.sql.postgres.formats import encode_data_rows
from server.sql.postgres.pieces import ColumnFormat
from tests.sql.postgres.support import split

UTC_TIMES = pa.timestamp("us", "UTC")
DAY = 86_400_000_000


def encoded(array: pa.Array, type_oid: int, *, binary: bool = False) -> list[bytes | None]:
    """The values of one column."""
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    return [row[0] for row in rows(encode_data_rows(batch, [ColumnFormat(type_oid, binary)]))]


def rows(data: bytes) -> list[list[bytes | None]]:
    """The values in DataRow messages."""
    found = []
    for kind, content in split(data):
        assert kind == "D"
        (count,) = struct.unpack_from("!H", content)
        position, values = 2, []
        for _ in range(count):
            (size,) = struct.unpack_from("!i", content, position)
            position += 4
            values.append(None if size < 0 else content[position : position + size])
            position += max(size, 0)
        assert position == len(content)
        found.append(values)
    return found


def decimals(texts: Sequence[str], precision: int = 38, scale: int = 10) -> pa.Array:
    return pa.array([Decimal(text) for text in texts], pa.decimal128(precision, scale))


TEXTS: list[tuple[int, pa.Array, list[str | None]]] = [
    (types.BOOL, pa.array([True, False]), ["t", "f"]),
    (types.INT2, pa.array([-32768, 32767], pa.int16()), ["-32768", "32767"]),
    (types.INT8, pa.array([-(2**63), 0]), ["-9223372036854775808", "0"]),
    (types.OID, pa.array([4294967295], pa.int64()), ["4294967295"]),
    (
        types.FLOAT8,
        pa.array([0.0, -0.0, 1.0, 0.1, 1e-4, 1e-5, 1.25e-7, 1e10, 123456789012345.0, 1e15]),
        [
            "0",
            "-0",
            "1",
            "0.1",
            "0.0001",
            "1e-05",
            "1.25e-07",
            "10000000000",
            "123456789012345",
            "1e+15",
        ],
    ),
    (
        types.FLOAT8,
        pa.array([1.7976931348623157e308, 5e-324, float("nan"), float("inf"), -float("inf")]),
        ["1.7976931348623157e+308", "5e-324", "NaN", "Infinity", "-Infinity"],
    ),
    (types.FLOAT8, pa.array([-12345678901.5, -1e100]), ["-12345678901.5", "-1e+100"]),
    (
        types.FLOAT4,
        pa.array([1, 0.1, 100000, 1e6, 1234567, 1e-5, 3.4028235e38], pa.float32()),
        ["1", "0.1", "100000", "1e+06", "1.234567e+06", "1e-05", "3.4028235e+38"],
    ),
    (types.NUMERIC, decimals(["1.5", "-0.05", "0"], 10, 2), ["1.50", "-0.05", "0.00"]),
    (
        types.NUMERIC,
        decimals(["0", "1e-10", "-1e-10", "12345.5"]),
        ["0.0000000000", "0.0000000001", "-0.0000000001", "12345.5000000000"],
    ),
    (types.NUMERIC, decimals(["9" * 38, "-" + "9" * 38], 38, 0), ["9" * 38, "-" + "9" * 38]),
    (types.NUMERIC, pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (types.TEXT, pa.array(["", "é\n"]), ["", "é\n"]),
    (types.TEXT, pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    (types.TEXT, pa.array(["large"], pa.large_string()), ["large"]),
    (types.TEXT, pa.array(["view"], pa.string_view()), ["view"]),
    (types.TEXT, pa.array([1.5]), ["1.5"]),
    (types.NAME, pa.array(["orders"]), ["orders"]),
    (types.BYTEA, pa.array([b"", b"\x00\xab\\"]), ["\\x", "\\x00ab5c"]),
    (types.BYTEA, pa.array([b"ab", b"cd"], pa.binary(2)), ["\\x6162", "\\x6364"]),
    (
        types.TIMESTAMPTZ,
        pa.array([0, 1_500_000, -1, 100], UTC_TIMES),
        [
            "1970-01-01 00:00:00+00",
            "1970-01-01 00:00:01.5+00",
            "1969-12-31 23:59:59.999999+00",
            "1970-01-01 00:00:00.0001+00",
        ],
    ),
    (
        types.TIMESTAMPTZ,
        pa.array([2**63 - 1, -(2**63) + 1, 253_402_300_800 * 10**6, -62_135_596_800_000_001, 0])
        .view(pa.timestamp("us"))
        .view(UTC_TIMES),
        [
            "infinity",
            "-infinity",
            "10000-01-01 00:00:00+00",
            "0001-12-31 23:59:59.999999+00 BC",
            "1970-01-01 00:00:00+00",
        ],
    ),
    (
        types.TIMESTAMPTZ,
        pa.array([1], pa.timestamp("s", "Europe/Berlin")),
        ["1970-01-01 00:00:01+00"],
    ),
    (types.TIMESTAMP, pa.array([1_999], pa.timestamp("ns")), ["1970-01-01 00:00:00.000001"]),
    (
        types.DATE,
        pa.array([0, -1, 2**31 - 1, -(2**31) + 1, 2_932_897, -719_163], pa.int32()).view(
            pa.date32()
        ),
        ["1970-01-01", "1969-12-31", "infinity", "-infinity", "10000-01-01", "0001-12-31 BC"],
    ),
    (
        types.TIME,
        pa.array([0, 3_600_000_001, DAY], pa.int64()).view(pa.time64("us")),
        ["00:00:00", "01:00:00.000001", "24:00:00"],
    ),
    (
        types.INTERVAL,
        pa.array(
            [
                pa.MonthDayNano([0, 0, 0]),
                pa.MonthDayNano([14, 3, 14_706_789_000_000]),
                pa.MonthDayNano([-1, 1, -1_000_000_000]),
                pa.MonthDayNano([12, -1, 1_000_000_000]),
                pa.MonthDayNano([0, 0, 360_000_000_000_000]),
            ]
        ),
        [
            "00:00:00",
            "1 year 2 mons 3 days 04:05:06.789",
            "-1 mons +1 day -00:00:01",
            "1 year -1 days +00:00:01",
            "100:00:00",
        ],
    ),
    (
        types.UUID,
        pa.array(["123e4567-e89b-12d3-a456-426614174000"]),
        ["123e4567-e89b-12d3-a456-426614174000"],
    ),
    (
        types.UUID,
        pa.array([bytes(range(16))], pa.binary(16)),
        ["00010203-0405-0607-0809-0a0b0c0d0e0f"],
    ),
    (types.JSONB, pa.array(['{"a": 1}']), ['{"a": 1}']),
    (types.JSON, pa.array([{"a": 1, "b": None}]), ['{"a":1,"b":null}']),
    (
        types.JSON,
        pa.array([[("k", Decimal("1.50"))]], pa.map_(pa.string(), pa.decimal128(5, 2))),
        ['{"k":1.50}'],
    ),
    (types.JSON, pa.array([[[1], []]]), ["[[1],[]]"]),
    (types.REGCLASS, pa.array(["orders"]), ["orders"]),
    (types.REGCLASS, pa.array([16384]), ["16384"]),
    (types.CHAR, pa.array(["r"]), ["r"]),
    (types.VOID, pa.array([None, 1]), [None, ""]),
    (types.INT2VECTOR, pa.array([[1, 2], []], pa.list_(pa.int16())), ["1 2", ""]),
    (types.OIDVECTOR, pa.array([[25]], pa.list_(pa.int64())), ["25"]),
    (1007, pa.array([[1, None], []], pa.list_(pa.int32())), ["{1,NULL}", "{}"]),
    (
        1009,
        pa.array([["a", "b c", "", "null", '"', "\\", "{", "é"]]),
        [r'{a,"b c","","null","\"","\\","{",é}'],
    ),
    (
        1007,
        pa.array([[[1, 2], [3, None]], [[5], [6]], [[], []], []], pa.list_(pa.list_(pa.int32()))),
        ["{{1,2},{3,NULL}}", "{{5},{6}}", "{}", "{}"],
    ),
    (1009, pa.array([[[["a b"]]]], pa.list_(pa.list_(pa.list_(pa.string())))), ['{{{"a b"}}}']),
    (1185, pa.array([[0]], pa.list_(UTC_TIMES)), ['{"1970-01-01 00:00:00+00"}']),
    (1001, pa.array([[b"a"]]), [r'{"\\x61"}']),
    (1000, pa.array([[True]], pa.large_list(pa.bool_())), ["{t}"]),
    (1009, pa.array(["{a}"]), ["{a}"]),
    (types.RECORD, pa.array([{"a": 1, "b": 'x "y"', "c": None}]), ['(1,"x ""y""",)']),
]


@pytest.mark.parametrize(("oid", "array", "expected"), TEXTS)
def test_text(oid: int, array: pa.Array, expected: list[str | None]) -> None:
    values = [None if one is None else one.encode() for one in expected]
    assert encoded(array, oid) == values
    with_null = pa.concat_arrays([pa.nulls(1, array.type), array, pa.nulls(1, array.type)])
    if not isinstance(array, pa.DictionaryArray):
        assert encoded(with_null, oid)[1:-1] == values
        assert encoded(with_null, oid)[0] is encoded(with_null, oid)[-1] is None
        assert encoded(with_null.slice(2), oid) == [*values[1:], None]


NUMERIC_ONE = "0001 0000 0000 0000 0001"

BINARIES: list[tuple[int, pa.Array, list[str]]] = [
    (types.BOOL, pa.array([True, False]), ["01", "00"]),
    (types.INT2, pa.array([-2], pa.int16()), ["fffe"]),
    (types.INT4, pa.array([258], pa.int32()), ["00000102"]),
    (types.INT8, pa.array([-(2**63)]), ["8000000000000000"]),
    (types.OID, pa.array([4294967295], pa.int64()), ["ffffffff"]),
    (types.FLOAT4, pa.array([1.5], pa.float32()), ["3fc00000"]),
    (types.FLOAT8, pa.array([1.5, float("inf")]), ["3ff8000000000000", "7ff0000000000000"]),
    (
        types.NUMERIC,
        decimals(["1", "0", "-1"], 5, 0),
        [NUMERIC_ONE, "0000 0000 0000 0000", "0001 0000 4000 0000 0001"],
    ),
    (types.NUMERIC, decimals(["12345.678"], 10, 3), ["0003 0001 0000 0003 0001 0929 1a7c"]),
    (
        types.NUMERIC,
        decimals(["0.0001", "10000"], 20, 10),
        ["0001 ffff 0000 000a 0001", "0001 0001 0000 000a 0001"],
    ),
    (types.NUMERIC, decimals(["0.00000001"], 8, 8), ["0001 fffe 0000 0008 0001"]),
    (types.NUMERIC, decimals(["0"], 8, 8), ["0000 0000 0000 0008"]),
    (types.NUMERIC, decimals(["9" * 38], 38, 0), ["000a 0009 0000 0000 0063" + " 270f" * 9]),
    (types.NUMERIC, pa.array([1], pa.int64()), [NUMERIC_ONE]),
    (types.TEXT, pa.array(["é"]), ["c3a9"]),
    (types.CHAR, pa.array(["r"]), ["72"]),
    (types.BYTEA, pa.array([b"\x00\xff"]), ["00ff"]),
    (types.JSONB, pa.array(["{}"]), ["017b7d"]),
    (types.JSON, pa.array(["{}"]), ["7b7d"]),
    (
        types.UUID,
        pa.array(["123e4567-e89b-12d3-a456-426614174000"]),
        ["123e4567e89b12d3a456426614174000"],
    ),
    (
        types.DATE,
        pa.array([10_957, 0, 2**31 - 1, -(2**31) + 1], pa.int32()).view(pa.date32()),
        ["00000000", "ffffd533", "7fffffff", "80000000"],
    ),
    (types.TIME, pa.array([1], pa.time64("us")), ["0000000000000001"]),
    (
        types.TIMESTAMPTZ,
        pa.array([946_684_800_000_001, 0, 2**63 - 1, -(2**63) + 1])
        .view(pa.timestamp("us"))
        .view(UTC_TIMES),
        [
            "0000000000000001",
            f"{(-946_684_800_000_000) & (2**64 - 1):016x}",
            "7fffffffffffffff",
            "8000000000000000",
        ],
    ),
    (
        types.INTERVAL,
        pa.array([pa.MonthDayNano([1, 2, 3000])]),
        ["0000000000000003 00000002 00000001"],
    ),
    (types.REGCLASS, pa.array([16384]), ["00004000"]),
    (types.VOID, pa.array([1]), [""]),
    (
        types.INT2VECTOR,
        pa.array([[1]], pa.list_(pa.int16())),
        ["00000001 00000000 00000015 00000001 00000000 00000002 0001"],
    ),
    (
        types.OIDVECTOR,
        pa.array([[25]], pa.list_(pa.int64())),
        ["00000001 00000000 0000001a 00000001 00000000 00000004 00000019"],
    ),
    (
        1007,
        pa.array([[1, None], [], [2]], pa.list_(pa.int32())),
        [
            "00000001 00000001 00000017 00000002 00000001 00000004 00000001 ffffffff",
            "00000000 00000000 00000017",
            "00000001 00000000 00000017 00000001 00000001 00000004 00000002",
        ],
    ),
    (
        1009,
        pa.array([["a", ""]]),
        ["00000001 00000000 00000019 00000002 00000001 00000001 61 00000000"],
    ),
    (
        1231,
        pa.array([[Decimal(1)]], pa.list_(pa.decimal128(5, 0))),
        [f"00000001 00000000 000006a4 00000001 00000001 0000000a {NUMERIC_ONE}"],
    ),
    (1016, pa.array([[], []], pa.list_(pa.int64())), ["00000000 00000000 00000014"] * 2),
    (
        types.RECORD,
        pa.array([{"a": 1, "b": None}], pa.struct({"a": pa.int64(), "b": pa.string()})),
        ["00000002 00000014 00000008 0000000000000001 00000019 ffffffff"],
    ),
]


@pytest.mark.parametrize(("oid", "array", "expected"), BINARIES)
def test_binary(oid: int, array: pa.Array, expected: list[str]) -> None:
    values = [bytes.fromhex(one) for one in expected]
    assert encoded(array, oid, binary=True) == values
    with_null = pa.concat_arrays([pa.nulls(1, array.type), array, pa.nulls(1, array.type)])
    assert encoded(with_null, oid, binary=True) == [None, *values, None]
    assert encoded(with_null.slice(2), oid, binary=True) == [*values[1:], None]


@pytest.mark.parametrize(
    ("array", "oid", "binary", "code"),
    [
        (pa.array([32768]), types.INT2, False, "22003"),
        (pa.array([-1]), types.OID, True, "22003"),
        (pa.array(["x"]), types.INT8, False, "22003"),
        (pa.array([1.5]), types.INT8, False, "22003"),
        (pa.array([{"a": 1}]), types.INT8, False, "42846"),
        (pa.array([1.5]), types.NUMERIC, True, "42846"),
        (pa.array(["orders"]), types.REGCLASS, True, "22003"),
        (pa.array(["x"]), types.UUID, True, "42846"),
        (pa.array(["x"]), 99_999, True, "0A000"),
        (pa.array(["{1}"]), 1007, True, "0A000"),
    ],
)
def test_values_that_do_not_fit(array: pa.Array, oid: int, binary: bool, code: str) -> None:
    with pytest.raises(FormatError) as caught:
        encoded(array, oid, binary=binary)
    assert caught.value.sqlstate == code


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("oid", sorted(types.TYPES))
def test_a_column_of_nothing_but_nulls(oid: int, binary: bool) -> None:
    assert encoded(pa.nulls(2), oid, binary=binary) == [None, None]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("lists", [[[1], [2, 3]], [[1], None], [[1], []]])
def test_lists_of_other_lengths_are_no_array(lists: list[Any], *, binary: bool) -> None:
    array = pa.array([[[1], [2]], lists], pa.list_(pa.list_(pa.int32())))
    with pytest.raises(FormatError, match="matching dimensions") as caught:
        encoded(array, 1007, binary=binary)
    assert caught.value.sqlstate == "2202E"


def test_arrays_of_too_many_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_formats, "MAX_ENCODED_ELEMENTS", 3)
    with pytest.raises(FormatError, match="4 elements"):
        encoded(pa.array([[1, 2], [3, 4]]), 1016)


def test_rows_of_several_columns() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": [1, None, 3], "b": ["x", "y", None], "c": [[1.5], None, []]}
    )
    columns = [ColumnFormat(types.INT8, binary=True), ColumnFormat(types.TEXT), ColumnFormat(1022)]
    data = encode_data_rows(batch, columns)
    assert data.startswith(b"D\0\0\0\x20\0\3\0\0\0\x08\0\0\0\0\0\0\0\1\0\0\0\1x\0\0\0\5{1.5}")
    assert rows(data)[1:] == [[None, b"y", None], [(3).to_bytes(8, "big"), None, b"{}"]]
    assert encode_data_rows(batch.slice(1, 1), columns) == encode_data_rows(
        batch.take([1]), columns
    )
    assert encode_data_rows(batch.slice(0, 0), columns) == b""


def test_rows_without_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]}).select([])
    assert encode_data_rows(batch, []) == b"D\0\0\0\6\0\0" * 2


def test_large_batches_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x" * 100] * 100})
    whole = encode_data_rows(batch, [ColumnFormat(types.TEXT)])
    monkeypatch.setattr(formats, "MAX_ENCODED_BATCH", 1000)
    assert encode_data_rows(batch, [ColumnFormat(types.TEXT)]) == whole
    monkeypatch.setattr(formats, "MAX_ENCODED_BATCH", 1_000_000)
    monkeypatch.setattr(formats, "MAX_ENCODED_SIZE", 500)
    assert encode_data_rows(batch, [ColumnFormat(types.TEXT)]) == whole
    monkeypatch.setattr(formats, "MAX_ENCODED_SIZE", 50)
    with pytest.raises(FormatError):
        encode_data_rows(batch, [ColumnFormat(types.TEXT)])
    monkeypatch.setattr(formats, "MAX_ENCODED_BATCH", 50)
    with pytest.raises(FormatError) as caught:
        encode_data_rows(batch, [ColumnFormat(types.TEXT)])
    assert caught.value.sqlstate == "54000"


@pytest.mark.parametrize(
    ("arrow_type", "oid"),
    [
        (pa.int32(), types.INT4),
        (pa.uint8(), types.INT2),
        (pa.uint64(), types.NUMERIC),
        (pa.decimal128(38, 0), types.NUMERIC),
        (UTC_TIMES, types.TIMESTAMPTZ),
        (pa.timestamp("s"), types.TIMESTAMP),
        (pa.list_(pa.string()), 1009),
        (pa.list_(pa.int64()), 1016),
        (pa.list_(pa.list_(pa.int64())), 1016),
        (pa.list_(pa.struct({"a": pa.int64()})), types.JSON),
        (pa.struct({"a": pa.int64()}), types.JSON),
        (pa.dictionary(pa.int8(), pa.string()), types.TEXT),
        (pa.null(), types.TEXT),
        (pa.duration("us"), types.TEXT),
    ],
)
def test_types_of_columns(arrow_type: pa.DataType, oid: int) -> None:
    assert types.oid_of_arrow_type(arrow_type) == oid


def test_every_type_of_arrow_has_a_text() -> None:
    values: list[Any] = [
        pa.array([timedelta(seconds=1)]),
        pa.array([1], pa.time32("s")),
        pa.array([1.5], pa.float16()),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC)]),
        pa.array([1], pa.date64()),
        pa.nulls(1),
        pa.array([Decimal("1.5")], pa.decimal256(50, 10)),
    ]
    for array in values:
        assert len(encoded(array, types.oid_of_arrow_type(array.type))) == 1
        assert len(encoded(array, types.TEXT)) == 1
