"""The types of PostgreSQL that clients may name, with their OIDs, and DuckDB's types for them.

Source: PostgreSQL's `src/include/catalog/pg_type.dat`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class PgType(NamedTuple):
    """A type.

    Attributes:
        oid: the OID.
        name: `pg_type.typname`.
        sql_name: the name that `format_type` prints.
        duckdb: the type in DuckDB.
        length: `typlen`; -1 for variable length.
        category: `typcategory`.
        array_oid: the OID of arrays of it; 0 if there are none.
        kind: `typtype`.
    """

    oid: int
    name: str
    sql_name: str
    duckdb: str
    length: int
    category: str
    array_oid: int
    kind: str = "b"


CHAR_ENUM: Final = "pg_char"
"""The enumeration of DuckDB that stands for PostgreSQL's type "char", so that results tell it."""

TYPES: Final = (
    PgType(16, "bool", "boolean", "BOOLEAN", 1, "B", 1000),
    PgType(17, "bytea", "bytea", "BLOB", -1, "U", 1001),
    PgType(18, "char", '"char"', CHAR_ENUM, 1, "Z", 1002),
    PgType(19, "name", "name", "VARCHAR", 64, "S", 1003),
    PgType(20, "int8", "bigint", "BIGINT", 8, "N", 1016),
    PgType(21, "int2", "smallint", "SMALLINT", 2, "N", 1005),
    PgType(22, "int2vector", "int2vector", "SMALLINT[]", -1, "A", 1006),
    PgType(23, "int4", "integer", "INTEGER", 4, "N", 1007),
    PgType(24, "regproc", "regproc", "UINTEGER", 4, "N", 1008),
    PgType(25, "text", "text", "VARCHAR", -1, "S", 1009),
    PgType(26, "oid", "oid", "UINTEGER", 4, "N", 1028),
    PgType(27, "tid", "tid", "VARCHAR", 6, "U", 1010),
    PgType(28, "xid", "xid", "UINTEGER", 4, "U", 1011),
    PgType(29, "cid", "cid", "UINTEGER", 4, "U", 1012),
    PgType(30, "oidvector", "oidvector", "UINTEGER[]", -1, "A", 1013),
    PgType(114, "json", "json", "JSON", -1, "U", 199),
    PgType(700, "float4", "real", "FLOAT", 4, "N", 1021),
    PgType(701, "float8", "double precision", "DOUBLE", 8, "N", 1022),
    PgType(705, "unknown", "unknown", "VARCHAR", -2, "X", 0, "p"),
    PgType(869, "inet", "inet", "VARCHAR", -1, "I", 1041),
    PgType(650, "cidr", "cidr", "VARCHAR", -1, "I", 651),
    PgType(829, "macaddr", "macaddr", "VARCHAR", 6, "U", 1040),
    PgType(1042, "bpchar", "character", "VARCHAR", -1, "S", 1014),
    PgType(1043, "varchar", "character varying", "VARCHAR", -1, "S", 1015),
    PgType(1082, "date", "date", "DATE", 4, "D", 1182),
    PgType(1083, "time", "time without time zone", "TIME", 8, "D", 1183),
    PgType(1114, "timestamp", "timestamp without time zone", "TIMESTAMP", 8, "D", 1115),
    PgType(1184, "timestamptz", "timestamp with time zone", "TIMESTAMPTZ", 8, "D", 1185),
    PgType(1186, "interval", "interval", "INTERVAL", 16, "T", 1187),
    PgType(1266, "timetz", "time with time zone", "TIMETZ", 12, "D", 1270),
    PgType(1700, "numeric", "numeric", "DECIMAL(38, 9)", -1, "N", 1231),
    PgType(2202, "regprocedure", "regprocedure", "UINTEGER", 4, "N", 2207),
    PgType(2205, "regclass", "regclass", "UINTEGER", 4, "N", 2210),
    PgType(2206, "regtype", "regtype", "UINTEGER", 4, "N", 2211),
    PgType(2249, "record", "record", "VARCHAR", -1, "P", 2287, "p"),
    PgType(2278, "void", "void", "VARCHAR", 4, "P", 0, "p"),
    PgType(2277, "anyarray", "anyarray", "VARCHAR", -1, "P", 0, "p"),
    PgType(2950, "uuid", "uuid", "UUID", 16, "U", 2951),
    PgType(3802, "jsonb", "jsonb", "JSON", -1, "U", 3807),
    PgType(4089, "regnamespace", "regnamespace", "UINTEGER", 4, "N", 4090),
    PgType(4096, "regrole", "regrole", "UINTEGER", 4, "N", 4097),
)

_ALIASES: Final = {
    "boolean": "bool",
    "bigint": "int8",
    "int": "int4",
    "integer": "int4",
    "smallint": "int2",
    "real": "float4",
    "double": "float8",
    "double precision": "float8",
    "float": "float8",
    "decimal": "numeric",
    "character varying": "varchar",
    "character": "bpchar",
    "string": "text",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "time without time zone": "time",
    "time with time zone": "timetz",
    # The domains of information_schema.
    "sql_identifier": "name",
    "character_data": "varchar",
    "cardinal_number": "int4",
    "yes_or_no": "varchar",
    "time_stamp": "timestamptz",
}

BY_OID: Final = {item.oid: item for item in TYPES}
BY_NAME: Final = {item.name: item for item in TYPES}
BY_ARRAY_OID: Final = {item.array_oid: item for item in TYPES if item.array_oid}


_RECEIVERS: Final = """
    bool:2436 bytea:2412 char:2434 name:2422 int8:2408 int2:2404 int2vector:2410 int4:2406
    regproc:2444 text:2414 oid:2418 tid:2438 xid:2440 cid:2442 oidvector:2420 float4:2424
    float8:2426 unknown:2416 bpchar:2430 varchar:2432 regprocedure:2446 regclass:2452 regtype:2454
    regnamespace:4087 regrole:4094 json_:324 inet_:2496 cidr_:2498 macaddr_:2494 date_:2468
    time_:2470 timestamp_:2474 timestamptz_:2476 interval_:2478 timetz_:2472 numeric_:2460
    record_:2402 void_:3120 anyarray_:2502 uuid_:2961 jsonb_:3805
"""
_RECEIVE_OIDS: Final = {
    name: int(oid) for name, _, oid in (word.partition(":") for word in _RECEIVERS.split())
}
"""The functions that read binary values: the beginning of the name, before `recv`, and the OID."""

RECEIVERS: Final = {name.rstrip("_"): oid for name, oid in _RECEIVE_OIDS.items()}
"""These functions by the names of their types."""

PROCEDURES: Final = {
    "array_in": 750,
    "array_out": 751,
    "array_recv": 2400,
    "array_send": 2401,
    **{f"{name}recv": oid for name, oid in _RECEIVE_OIDS.items()},
}
"""The functions that tell types from others, for tools."""


_MAX_TYPE_NAME: Final = 100
"""Longer texts name no type; it is many times the length of the longest name with modifiers."""


def names() -> list[str]:
    """Return all names of types and of their arrays."""
    known = [*BY_NAME, *_ALIASES, *(item.sql_name for item in TYPES)]
    arrays = [f"{name}[]" for name in known] + [f"_{name}" for name in BY_NAME]
    return [name for name in dict.fromkeys([*known, *arrays]) if find_oid(name) is not None]


def find(name: str) -> PgType | None:
    """Return the type of a name, without an array's brackets; None if there is none."""
    if len(name) > _MAX_TYPE_NAME:
        return None
    name = " ".join(name.lower().replace('"', "").split()).removeprefix("pg_catalog.")
    name = re.sub(r"\([^()]*\)", "", name).strip()
    return BY_NAME.get(_ALIASES.get(name, name))


def find_oid(name: str) -> int | None:
    """Return the OID of a type or array type by its name; None if there is none."""
    is_array = name.rstrip().endswith("[]")
    element = name.rstrip().removesuffix("[]")
    if not is_array and element.startswith("_") and find(element) is None:
        is_array, element = True, element[1:]
    found = find(element)
    if found is None:
        return None
    return (found.array_oid or None) if is_array else found.oid


def duckdb_type(oid: int) -> str | None:
    """Return DuckDB's type for an OID; None if it is unknown."""
    if oid in BY_OID:
        return BY_OID[oid].duckdb
    if oid in BY_ARRAY_OID:
        return f"{BY_ARRAY_OID[oid].duckdb}[]"
    return None


_RESULT_OIDS: Final = {
    "BOOLEAN": 16,
    "TINYINT": 21,
    "SMALLINT": 21,
    "INTEGER": 23,
    "BIGINT": 20,
    "HUGEINT": 1700,
    "UTINYINT": 21,
    "USMALLINT": 23,
    "UINTEGER": 26,
    "UBIGINT": 1700,
    "UHUGEINT": 1700,
    "FLOAT": 700,
    "DOUBLE": 701,
    "VARCHAR": 25,
    "BLOB": 17,
    "DATE": 1082,
    "TIME": 1083,
    "TIMESTAMP": 1114,
    "TIMESTAMP_S": 1114,
    "TIMESTAMP_MS": 1114,
    "TIMESTAMP_NS": 1114,
    "TIMESTAMP WITH TIME ZONE": 1184,
    "TIMESTAMPTZ": 1184,
    "INTERVAL": 1186,
    "JSON": 3802,
    "UUID": 2950,
}


COMPOSITE_TYPES: Final = ("STRUCT", "TUPLE", "MAP", "UNION")
"""The beginnings of the names of DuckDB's types with values that are shown as JSON."""


def result_oid(duckdb_name: str) -> int:
    """Return the OID that a client is told for DuckDB's type of a result.

    Types that PostgreSQL does not have are json (structures, maps, and arrays of them) or text.
    Arrays of arrays have the type of their elements' array, whatever the number of dimensions.
    """
    element = duckdb_name
    while element.endswith("[]"):
        element = element[:-2]
    if element.startswith(COMPOSITE_TYPES) or element.endswith("]"):
        return 114
    oid = _result_oid_of_element(element)
    return oid if element == duckdb_name else BY_OID[oid].array_oid


def _result_oid_of_element(duckdb_name: str) -> int:
    if duckdb_name.startswith("DECIMAL"):
        return 1700
    if duckdb_name.startswith("ENUM"):
        return 18 if "'i'" in duckdb_name else 25
    return _RESULT_OIDS.get(duckdb_name, 25)
