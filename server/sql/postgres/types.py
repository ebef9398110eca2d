"""The types of PostgreSQL that results and parameters may have, with their OIDs.

Source: PostgreSQL 16, src/include/catalog/pg_type.dat. OIDs of built-in types never change, so
drivers have them compiled in.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

BOOL: Final = 16
BYTEA: Final = 17
CHAR: Final = 18
NAME: Final = 19
INT8: Final = 20
INT2: Final = 21
INT2VECTOR: Final = 22
INT4: Final = 23
REGPROC: Final = 24
TEXT: Final = 25
OID: Final = 26
TID: Final = 27
XID: Final = 28
CID: Final = 29
OIDVECTOR: Final = 30
JSON: Final = 114
FLOAT4: Final = 700
FLOAT8: Final = 701
UNKNOWN: Final = 705
BPCHAR: Final = 1042
VARCHAR: Final = 1043
DATE: Final = 1082
TIME: Final = 1083
TIMESTAMP: Final = 1114
TIMESTAMPTZ: Final = 1184
INTERVAL: Final = 1186
NUMERIC: Final = 1700
REGPROCEDURE: Final = 2202
REGCLASS: Final = 2205
REGTYPE: Final = 2206
RECORD: Final = 2249
VOID: Final = 2278
UUID: Final = 2950
JSONB: Final = 3802
REGNAMESPACE: Final = 4089
REGROLE: Final = 4096

VARIABLE_LENGTH: Final = -1
_C_STRING: Final = -2


class PostgresType(NamedTuple):
    """A row of pg_type, as far as clients read it.

    Attributes:
        oid: its OID.
        name: typname.
        length: typlen; -1 for a type of variable length, -2 for a C string.
        category: typcategory.
        array: the OID of the type of its arrays; 0 for a type without.
        element: the OID of the elements of an array; 0 for other types.
        kind: typtype: b for base types, p for pseudo-types.
        by_value: typbyval.
        alignment: typalign.
    """

    oid: int
    name: str
    length: int
    category: str
    array: int = 0
    element: int = 0
    kind: str = "b"
    by_value: bool = False
    alignment: str = "i"


_BASE_TYPES: Final = (
    PostgresType(BOOL, "bool", 1, "B", 1000, by_value=True, alignment="c"),
    PostgresType(BYTEA, "bytea", -1, "U", 1001),
    PostgresType(CHAR, "char", 1, "Z", 1002, by_value=True, alignment="c"),
    PostgresType(NAME, "name", 64, "S", 1003, CHAR, alignment="c"),
    PostgresType(INT8, "int8", 8, "N", 1016, by_value=True, alignment="d"),
    PostgresType(INT2, "int2", 2, "N", 1005, by_value=True, alignment="s"),
    PostgresType(INT2VECTOR, "int2vector", -1, "A", 1006, INT2),
    PostgresType(INT4, "int4", 4, "N", 1007, by_value=True),
    PostgresType(REGPROC, "regproc", 4, "N", 1008, by_value=True),
    PostgresType(TEXT, "text", -1, "S", 1009),
    PostgresType(OID, "oid", 4, "N", 1028, by_value=True),
    PostgresType(TID, "tid", 6, "U", 1010, alignment="s"),
    PostgresType(XID, "xid", 4, "U", 1011, by_value=True),
    PostgresType(CID, "cid", 4, "U", 1012, by_value=True),
    PostgresType(OIDVECTOR, "oidvector", -1, "A", 1013, OID),
    PostgresType(JSON, "json", -1, "U", 199),
    PostgresType(FLOAT4, "float4", 4, "N", 1021, by_value=True),
    PostgresType(FLOAT8, "float8", 8, "N", 1022, by_value=True, alignment="d"),
    PostgresType(UNKNOWN, "unknown", _C_STRING, "X", kind="p", alignment="c"),
    PostgresType(BPCHAR, "bpchar", -1, "S", 1014),
    PostgresType(VARCHAR, "varchar", -1, "S", 1015),
    PostgresType(DATE, "date", 4, "D", 1182, by_value=True),
    PostgresType(TIME, "time", 8, "D", 1183, by_value=True, alignment="d"),
    PostgresType(TIMESTAMP, "timestamp", 8, "D", 1115, by_value=True, alignment="d"),
    PostgresType(TIMESTAMPTZ, "timestamptz", 8, "D", 1185, by_value=True, alignment="d"),
    PostgresType(INTERVAL, "interval", 16, "T", 1187, alignment="d"),
    PostgresType(NUMERIC, "numeric", -1, "N", 1231),
    PostgresType(REGPROCEDURE, "regprocedure", 4, "N", 2207, by_value=True),
    PostgresType(REGCLASS, "regclass", 4, "N", 2210, by_value=True),
    PostgresType(REGTYPE, "regtype", 4, "N", 2211, by_value=True),
    PostgresType(RECORD, "record", -1, "P", 2287, kind="p", alignment="d"),
    PostgresType(VOID, "void", 4, "P", kind="p", by_value=True),
    PostgresType(UUID, "uuid", 16, "U", 2951, alignment="c"),
    PostgresType(JSONB, "jsonb", -1, "U", 3807),
    PostgresType(REGNAMESPACE, "regnamespace", 4, "N", 4090, by_value=True),
    PostgresType(REGROLE, "regrole", 4, "N", 4097, by_value=True),
)


def _array_of(element: PostgresType) -> PostgresType:
    pseudo = element.kind == "p"
    return PostgresType(
        element.array,
        f"_{element.name}",
        VARIABLE_LENGTH,
        "P" if pseudo else "A",
        element=element.oid,
        kind=element.kind,
        alignment="d" if element.alignment == "d" else "i",
    )


TYPES: Final[Mapping[int, PostgresType]] = MappingProxyType(
    {
        one.oid: one
        for base in _BASE_TYPES
        for one in ((base, _array_of(base)) if base.array else (base,))
    }
)
"""All types by their OIDs: base types, and arrays of them."""


class ResultColumn(NamedTuple):
    """A column of a result.

    Attributes:
        name: its name.
        type_oid: its type.
    """

    name: str
    type_oid: int


_OIDS_BY_ARROW_TYPE: Final[Mapping[pa.DataType, int]] = MappingProxyType(
    {
        pa.null(): TEXT,
        pa.bool_(): BOOL,
        pa.int8(): INT2,
        pa.uint8(): INT2,
        pa.int16(): INT2,
        pa.uint16(): INT4,
        pa.int32(): INT4,
        pa.uint32(): INT8,
        pa.int64(): INT8,
        pa.uint64(): NUMERIC,
        pa.float16(): FLOAT4,
        pa.float32(): FLOAT4,
        pa.float64(): FLOAT8,
        pa.string(): TEXT,
        pa.large_string(): TEXT,
        pa.string_view(): TEXT,
        pa.binary(): BYTEA,
        pa.large_binary(): BYTEA,
        pa.binary_view(): BYTEA,
        pa.date32(): DATE,
        pa.date64(): DATE,
        pa.month_day_nano_interval(): INTERVAL,
    }
)


def oid_of_arrow_type(arrow_type: pa.DataType) -> int:
    """Return the OID of the type that clients see for an Arrow type.

    Structs, maps and lists in lists are json: their text names the fields, and PostgreSQL has no
    arrays of arrays that differ in length. Unknown types are text.
    """
    found: int | None = _OIDS_BY_ARROW_TYPE.get(arrow_type)
    if found is not None:
        return found
    kinds = pa.types
    if kinds.is_dictionary(arrow_type):
        return oid_of_arrow_type(arrow_type.value_type)
    if kinds.is_decimal(arrow_type):
        return NUMERIC
    if kinds.is_timestamp(arrow_type):
        return TIMESTAMP if arrow_type.tz is None else TIMESTAMPTZ
    if kinds.is_time(arrow_type):
        return TIME
    if kinds.is_fixed_size_binary(arrow_type):
        return BYTEA
    if is_list(arrow_type):
        element = arrow_type.value_type
        while is_list(element):
            element = element.value_type
        return JSON if is_nested(element) else TYPES[oid_of_arrow_type(element)].array
    return JSON if is_nested(arrow_type) else TEXT


def is_list(arrow_type: pa.DataType) -> bool:
    """Return True for an Arrow type of lists."""
    kinds = pa.types
    return bool(
        kinds.is_list(arrow_type)
        or kinds.is_large_list(arrow_type)
        or kinds.is_fixed_size_list(arrow_type)
    )


def is_nested(arrow_type: pa.DataType) -> bool:
    """Return True for an Arrow type of lists, structs or maps."""
    kinds = pa.types
    return bool(is_list(arrow_type) or kinds.is_struct(arrow_type) or kinds.is_map(arrow_type))
