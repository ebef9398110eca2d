"""The properties of the server and its types, as CommandGetSqlInfo and CommandGetXdbcTypeInfo ask.

Source: FlightSql.proto of Apache Arrow, SqlInfo and CommandGetXdbcTypeInfo.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import pyarrow as pa

from config_schema.version import VERSION

_STRING, _BOOL, _BIGINT, _BITMASK, _STRING_LIST, _LIST_MAP = range(6)
"""The members of the union of values, by their type codes."""

_MEMBERS: Final = (
    pa.field("string_value", pa.string()),
    pa.field("bool_value", pa.bool_()),
    pa.field("bigint_value", pa.int64()),
    pa.field("int32_bitmask", pa.int32()),
    pa.field("string_list", pa.list_(pa.string())),
    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
)

SQL_INFO_SCHEMA: Final = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field("value", pa.dense_union(_MEMBERS), nullable=False),
    ]
)

_NO_TRANSACTIONS: Final = 0
_NULLS_SORTED_HIGH: Final = 0

_SQL_INFO: Final[dict[int, tuple[int, object]]] = {
    0: (_STRING, "Amperage"),  # FLIGHT_SQL_SERVER_NAME
    1: (_STRING, VERSION),  # FLIGHT_SQL_SERVER_VERSION
    2: (_STRING, pa.__version__),  # FLIGHT_SQL_SERVER_ARROW_VERSION
    3: (_BOOL, False),  # FLIGHT_SQL_SERVER_READ_ONLY
    4: (_BOOL, True),  # FLIGHT_SQL_SERVER_SQL
    5: (_BOOL, False),  # FLIGHT_SQL_SERVER_SUBSTRAIT
    8: (_BITMASK, _NO_TRANSACTIONS),  # FLIGHT_SQL_SERVER_TRANSACTION
    9: (_BOOL, True),  # FLIGHT_SQL_SERVER_CANCEL
    10: (_BOOL, False),  # FLIGHT_SQL_SERVER_BULK_INGESTION
    100: (_BITMASK, 0),  # FLIGHT_SQL_SERVER_STATEMENT_TIMEOUT
    101: (_BITMASK, 0),  # FLIGHT_SQL_SERVER_TRANSACTION_TIMEOUT
    500: (_BOOL, False),  # SQL_DDL_CATALOG
    501: (_BOOL, False),  # SQL_DDL_SCHEMA
    502: (_BOOL, False),  # SQL_DDL_TABLE
    504: (_STRING, '"'),  # SQL_IDENTIFIER_QUOTE_CHAR
    506: (_BOOL, False),  # SQL_ALL_TABLES_ARE_SELECTABLE
    507: (_BIGINT, _NULLS_SORTED_HIGH),  # SQL_NULL_ORDERING
}
"""The type code and the value of each property, by its number."""


def sql_info(wanted: Collection[int]) -> pa.Table:
    """Return properties of the server; all of them if none are named."""
    numbers = [number for number in _SQL_INFO if not wanted or number in wanted]
    values: list[list[object]] = [[] for _ in _MEMBERS]
    codes, offsets = [], []
    for number in numbers:
        code, value = _SQL_INFO[number]
        codes.append(code)
        offsets.append(len(values[code]))
        values[code].append(value)
    union = pa.UnionArray.from_dense(
        pa.array(codes, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(one, member.type) for one, member in zip(values, _MEMBERS, strict=True)],
        [member.name for member in _MEMBERS],
    )
    return pa.Table.from_arrays([pa.array(numbers, pa.uint32()), union], schema=SQL_INFO_SCHEMA)


class _TypeInfo(NamedTuple):
    """A type, as ODBC describes it.

    Attributes:
        name: the name in SQL.
        code: the number of the type in ODBC.
        size: the number of digits or characters; None where it does not apply.
        prefix: the beginning of a literal.
        suffix: its end.
        is_unsigned: None for types that are no numbers.
        max_scale: of numbers.
        radix: of numbers.
    """

    name: str
    code: int
    size: int | None
    prefix: str | None = None
    suffix: str | None = None
    is_unsigned: bool | None = None
    max_scale: int | None = None
    radix: int | None = None


_TYPES: Final = (
    _TypeInfo("boolean", -7, 1),
    _TypeInfo("bigint", -5, 19, is_unsigned=False, max_scale=0, radix=10),
    _TypeInfo("bytea", -3, None, "'\\x", "'"),
    _TypeInfo("numeric", 2, 38, is_unsigned=False, max_scale=38, radix=10),
    _TypeInfo("integer", 4, 10, is_unsigned=False, max_scale=0, radix=10),
    _TypeInfo("smallint", 5, 5, is_unsigned=False, max_scale=0, radix=10),
    _TypeInfo("real", 7, 24, is_unsigned=False, radix=2),
    _TypeInfo("double precision", 8, 53, is_unsigned=False, radix=2),
    _TypeInfo("text", 12, None, "'", "'"),
    _TypeInfo("jsonb", 12, None, "'", "'"),
    _TypeInfo("date", 91, 10, "'", "'"),
    _TypeInfo("time", 92, 15, "'", "'"),
    _TypeInfo("timestamp", 93, 26, "'", "'"),
    _TypeInfo("timestamp with time zone", 93, 32, "'", "'"),
)

_NULLABLE: Final = 1
_SEARCHABLE: Final = 3

XDBC_SCHEMA: Final = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)


def xdbc_types(code: int | None) -> pa.Table:
    """Return the types that values may have; those of a number in ODBC, or all for None."""
    rows = [
        {
            "type_name": one.name,
            "data_type": one.code,
            "column_size": one.size,
            "literal_prefix": one.prefix,
            "literal_suffix": one.suffix,
            "nullable": _NULLABLE,
            "case_sensitive": one.prefix is not None,
            "searchable": _SEARCHABLE,
            "unsigned_attribute": one.is_unsigned,
            "fixed_prec_scale": False,
            "auto_increment": None if one.is_unsigned is None else False,
            "local_type_name": one.name,
            "minimum_scale": None if one.max_scale is None else 0,
            "maximum_scale": one.max_scale,
            "sql_data_type": one.code,
            "num_prec_radix": one.radix,
        }
        for one in _TYPES
        if code in (None, one.code)
    ]
    return pa.Table.from_pylist(rows, schema=XDBC_SCHEMA)
