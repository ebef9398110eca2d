"""Values of parameters in both formats; what the encoder of columns writes is read back."""

from __future__ import annotations

import string
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.sql.postgres import types
from server.sql.postgres.errors import FormatError
from server.sql.postgres.parameters import decode_parameter
from server.sql.postgres.time_parameters import IntervalValue
from server.sql.postgres.types import TYPES
from tests.sql.postgres.test_formats import encoded
from tests.support.chances import examples

TEXTS: list[tuple[int, str, Any]] = [
    (types.BOOL, " TRUE ", True),
    (types.BOOL, "off", False),
    (types.INT4, " -7 ", -7),
    (types.OID, "4294967295", 4294967295),
    (types.REGCLASS, "16384", 16384),
    (types.REGCLASS, "orders", "orders"),
    (types.FLOAT8, "1.5e3", 1500.0),
    (types.FLOAT8, "-Infinity", float("-inf")),
    (types.NUMERIC, "-1.50", Decimal("-1.50")),
    (types.TEXT, "é", "é"),
    (0, "anything", "anything"),
    (99_999, "anything", "anything"),
    (types.BYTEA, "\\x00Ff", b"\x00\xff"),
    (types.BYTEA, "a\\\\b\\001", b"a\\b\x01"),
    (types.UUID, "{123E4567e89b12d3a456426614174000}", "123e4567-e89b-12d3-a456-426614174000"),
    (types.DATE, "2026-11-29", date(2026, 11, 29)),
    (types.DATE, "infinity", date.max),
    (types.TIME, "09:05", time(9, 5)),
    (types.TIME, "09:05:01.0000005", time(9, 5, 1, 1)),
    (types.TIME, "24:00:00", time(23, 59, 59, 999_999)),
    (types.TIMESTAMP, "2026-11-29 21:30:00.25+02", datetime(2026, 11, 29, 19, 30, 0, 250_000)),
    (types.TIMESTAMPTZ, "2026-11-29T21:30:00Z", datetime(2026, 11, 29, 21, 30, tzinfo=UTC)),
    (types.TIMESTAMPTZ, "2026-11-29 21:30-01:30", datetime(2026, 11, 29, 23, 0, tzinfo=UTC)),
    (types.TIMESTAMPTZ, "2026-11-29", datetime(2026, 11, 29, tzinfo=UTC)),
    (types.TIMESTAMPTZ, "-infinity", datetime.min.replace(tzinfo=UTC)),
    (types.INTERVAL, "1 year 2 mons -3 days 04:05:06.5", IntervalValue(14, -3, 14_706_500_000)),
    (types.INTERVAL, "@ 1 day ago", IntervalValue(0, -1, 0)),
    (types.INTERVAL, "1.5 months", IntervalValue(1, 15, 0)),
    (types.INTERVAL, "-00:00:01", IntervalValue(0, 0, -1_000_000)),
    (types.INTERVAL, "P1Y2M3DT4H5M6.5S", IntervalValue(14, 3, 14_706_500_000)),
    (1007, "{1, NULL ,3}", [1, None, 3]),
    (1007, " {} ", []),
    (1007, "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
    (1009, r'{a b,"c,\"d\\",null,"NULL",""}', ["a b", 'c,"d\\', None, "NULL", ""]),
    (1009, '{"}",{}}', ["}", []]),
]


@pytest.mark.parametrize(("oid", "text", "expected"), TEXTS)
def test_text(oid: int, text: str, expected: object) -> None:
    value = decode_parameter(text.encode(), oid, binary=False)
    assert value == expected
    assert type(value) is type(expected)


BINARIES: list[tuple[int, str, Any]] = [
    (types.BOOL, "01", True),
    (types.INT2, "ffff", -1),
    (types.OID, "ffffffff", 4294967295),
    (types.FLOAT4, "3fc00000", 1.5),
    (types.NUMERIC, "0003 0001 4000 0003 0001 0929 1a7c", Decimal("-12345.678")),
    (types.NUMERIC, "0001 fffe 0000 0008 0001", Decimal("0.00000001")),
    (types.NUMERIC, "0001 0002 0000 0000 0001", Decimal(100_000_000)),
    (types.NUMERIC, "0000 0000 0000 0002", Decimal("0.00")),
    (types.TEXT, "c3a9", "é"),
    (types.JSONB, "017b7d", "{}"),
    (types.UUID, "123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    (types.DATE, "7fffffff", date.max),
    (types.TIMESTAMP, "8000000000000000", datetime.min),
    (types.TIMESTAMPTZ, "0000000000000001", datetime(2000, 1, 1, 0, 0, 0, 1, UTC)),
    (types.INTERVAL, "0000000000000003 00000002 00000001", IntervalValue(1, 2, 3)),
    (1007, "00000000 00000000 00000017", []),
]


@pytest.mark.parametrize(("oid", "data", "expected"), BINARIES)
def test_binary(oid: int, data: str, expected: object) -> None:
    assert decode_parameter(bytes.fromhex(data), oid, binary=True) == expected


def test_special_numbers() -> None:
    value = decode_parameter(bytes.fromhex("0000 0000 c000 0000"), types.NUMERIC, binary=True)
    assert isinstance(value, Decimal)
    assert value.is_nan()
    assert decode_parameter(None, types.INT8, binary=True) is None


@pytest.mark.parametrize(
    ("oid", "text", "code"),
    [
        (types.BOOL, "maybe", "22P02"),
        (types.INT2, "32768", "22003"),
        (types.INT8, "1_0", "22P02"),
        (types.INT8, "1.0", "22P02"),
        (types.FLOAT8, "1_0.5", "22P02"),
        (types.NUMERIC, "1e99999", "22003"),
        (types.NUMERIC, "9" * 1001, "54000"),
        (types.NUMERIC, "", "22P02"),
        (types.FLOAT8, "1" * 1001, "54000"),
        (types.UUID, "123", "22P02"),
        (types.BYTEA, "\\xabc", "22P02"),
        (types.BYTEA, "\\9", "22P02"),
        (types.DATE, "tomorrow", "22007"),
        (types.DATE, "2026-02-30", "22008"),
        (types.TIMESTAMPTZ, "2026-02-01 25:00", "22008"),
        (types.TIMESTAMPTZ, "2026-02-01 12:00 Europe/Berlin", "22007"),
        (types.TIMESTAMPTZ, "9999-12-31 23:59:59-15", "22008"),
        (types.TIME, "24:00:01", "22008"),
        (types.INTERVAL, "1 fortnight", "22P02"),
        (types.INTERVAL, "9999999999 days", "22008"),
        (types.TEXT, "a\0b", "22021"),
        (1007, "{1,}", "22P02"),
        (1007, "{1} ", None),
        (1007, "{1}x", "22P02"),
        (1007, "{,1}", "22P02"),
        (1007, "{1 2}", "22P02"),
        (1007, "1", "22P02"),
        (1007, "{{{{{{{1}}}}}}}", "22P02"),
        (1007, '{"1"2}', "22P02"),
    ],
)
def test_wrong_texts(oid: int, text: str, code: str | None) -> None:
    if code is None:
        decode_parameter(text.encode(), oid, binary=False)
        return
    with pytest.raises(FormatError) as caught:
        decode_parameter(text.encode(), oid, binary=False)
    assert caught.value.sqlstate == code


@pytest.mark.parametrize(
    ("oid", "data", "code"),
    [
        (types.INT8, "00", "22P03"),
        (types.BOOL, "", "22P03"),
        (types.TEXT, "ff", "22021"),
        (types.NUMERIC, "0002 0000 0000 0000 0001", "22P03"),
        (types.NUMERIC, "0001 0000 1234 0000 0001", "22P03"),
        (types.NUMERIC, "0001 7fff 0000 0000 0001", "54000"),
        (types.NUMERIC, "0001 0000 0000 0000 2710", "22P03"),
        (types.JSONB, "027b7d", "22P03"),
        (types.DATE, "7ffffffe", "22008"),
        (types.TIMESTAMPTZ, "7ffffffffffffffe", "22008"),
        (types.TIME, "ffffffffffffffff", "22008"),
        (1007, "00000001 00000000 00000017 7fffffff 00000001", "22P03"),
        (1007, "00000001 00000000 00000019 00000000 00000001", "22P03"),
        (1007, "00000001 00000000 00000017 00000001 00000001 00000004 0000", "22P03"),
        (1007, "00000002 00000000 00000017 00000000 00000001 00000000 00000001", "0A000"),
        (1007, "00000000 00000000 00000017 00", "22P03"),
    ],
)
def test_wrong_binaries(oid: int, data: str, code: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode_parameter(bytes.fromhex(data), oid, binary=True)
    assert caught.value.sqlstate == code


# Round trips

SAFE_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
DAYS = st.integers(-(2**31), 2**31 - 1)


def to_arrow_interval(value: IntervalValue) -> pa.MonthDayNano:
    return pa.MonthDayNano([value.months, value.days, value.microseconds * 1000])


def same(value: Any) -> Any:
    return value


ROUND_TRIPS: list[tuple[int, pa.DataType, st.SearchStrategy[Any], Callable[[Any], Any]]] = [
    (types.BOOL, pa.bool_(), st.booleans(), same),
    (types.INT2, pa.int16(), st.integers(-(2**15), 2**15 - 1), same),
    (types.INT4, pa.int32(), st.integers(-(2**31), 2**31 - 1), same),
    (types.INT8, pa.int64(), st.integers(-(2**63), 2**63 - 1), same),
    (types.OID, pa.uint32(), st.integers(0, 2**32 - 1), same),
    (types.FLOAT4, pa.float32(), st.floats(width=32, allow_nan=False), same),
    (types.FLOAT8, pa.float64(), st.floats(allow_nan=False), same),
    (types.NUMERIC, pa.decimal128(38, 0), st.decimals(-(10**37), 10**37, places=0), same),
    (types.NUMERIC, pa.decimal128(38, 3), st.decimals(-(10**34), 10**34, places=3), same),
    (types.NUMERIC, pa.decimal128(38, 9), st.decimals(-(10**28), 10**28, places=9), same),
    (types.NUMERIC, pa.decimal256(76, 20), st.decimals(-(10**50), 10**50, places=20), same),
    (types.TEXT, pa.string(), SAFE_TEXT, same),
    (types.VARCHAR, pa.large_string(), SAFE_TEXT, same),
    (types.JSONB, pa.string(), SAFE_TEXT, same),
    (types.BYTEA, pa.binary(), st.binary(max_size=20), same),
    (types.UUID, pa.string(), st.uuids().map(str), same),
    (types.DATE, pa.date32(), st.dates(), same),
    (types.TIME, pa.time64("us"), st.times(), same),
    (types.TIMESTAMP, pa.timestamp("us"), MOMENTS, same),
    (
        types.TIMESTAMPTZ,
        pa.timestamp("us", "UTC"),
        MOMENTS.map(lambda one: one.replace(tzinfo=UTC)),
        same,
    ),
    (
        types.INTERVAL,
        pa.month_day_nano_interval(),
        st.builds(IntervalValue, DAYS, DAYS, st.integers(-(2**53), 2**53)),
        to_arrow_interval,
    ),
]
IDS = [TYPES[oid].name + str(number) for number, (oid, *_) in enumerate(ROUND_TRIPS)]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("oid", "arrow_type", "values", "convert"), ROUND_TRIPS, ids=IDS)
@settings(max_examples=examples(200, 5), deadline=None)
@given(data=st.data())
def test_round_trip(
    oid: int,
    arrow_type: pa.DataType,
    values: st.SearchStrategy[Any],
    convert: Callable[[Any], Any],
    binary: bool,
    data: st.DataObject,
) -> None:
    column = data.draw(st.lists(st.none() | values, max_size=5))
    skipped = data.draw(st.integers(0, len(column)))
    array = pa.array([one if one is None else convert(one) for one in column], arrow_type)
    array = array.slice(skipped)
    found = [
        decode_parameter(one, oid, binary=binary) for one in encoded(array, oid, binary=binary)
    ]
    assert found == column[skipped:]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("oid", "arrow_type", "values", "convert"), ROUND_TRIPS, ids=IDS)
@settings(max_examples=examples(200, 5), deadline=None)
@given(data=st.data())
def test_round_trip_of_arrays(
    oid: int,
    arrow_type: pa.DataType,
    values: st.SearchStrategy[Any],
    convert: Callable[[Any], Any],
    binary: bool,
    data: st.DataObject,
) -> None:
    lists = st.lists(st.none() | values, max_size=4)
    column = data.draw(st.lists(st.none() | lists, max_size=4))
    skipped = data.draw(st.integers(0, len(column)))
    rows = [
        row if row is None else [one if one is None else convert(one) for one in row]
        for row in column
    ]
    array = pa.array(rows, pa.list_(arrow_type)).slice(skipped)
    array_oid = TYPES[oid].array
    data_rows = encoded(array, array_oid, binary=binary)
    assert [decode_parameter(one, array_oid, binary=binary) for one in data_rows] == column[
        skipped:
    ]


@pytest.mark.parametrize("binary", [False, True])
@given(oid=st.sampled_from(sorted(TYPES)), data=st.binary(max_size=40))
def test_arbitrary_bytes(binary: bool, oid: int, data: bytes) -> None:
    """Bytes that mean nothing are an error of the value, if they are no value."""
    with suppress(FormatError):
        decode_parameter(data, oid, binary=binary)


@given(
    oid=st.sampled_from(sorted(TYPES)),
    data=st.text(string.digits + '+-.:eEx{}"\\, TZPYMWDHSNULinftyagodm\u0660', max_size=40),
)
def test_arbitrary_texts(oid: int, data: str) -> None:
    with suppress(FormatError):
        decode_parameter(data.encode(), oid, binary=False)


def test_the_text_of_an_interval() -> None:
    value = IntervalValue(14, -3, -timedelta(hours=1) // timedelta(microseconds=1))
    assert str(value) == "14 months -3 days -01:00:00"
    assert decode_parameter(str(value).encode(), types.INTERVAL, binary=False) == value
