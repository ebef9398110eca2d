"""The tables of the statistics database, and the statements that create and write them.

Each resource has two, as in AMPS: X_STATIC has a row per life of an entry, with its fixed values,
X_DYNAMIC one per entry and sample. Rows of X_DYNAMIC are in the order of time, so that a sample is
appended at the end, old rows are contiguous, and so are all entries of one moment. One entry's
values over time are found through the list of samples (AMPERAGE_SAMPLES) and the time for which the
entry lived (AMPERAGE_LIVES), one look-up per sample. benchmarks/statistics_database.py compares
this with another order.

Source: AMPS Monitoring Guide, Table Reference.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from server.statistics.resources import RESOURCES
from server.statistics.schema import ColumnType, MeasurementKind, Resource, ResourceField
from server.util.file_lock import version_mismatch

APPLICATION_ID: Final = 0x414D5047
"""In the file's header: the file is a database of this program."""

FORMAT: Final = 1
"""Of the tables; a database with another number cannot be continued by this program."""

HEADER_SIZE: Final = 100
_HEADER: Final = struct.Struct(">16s44xI4xI")  # magic, user version, application id
_SQLITE: Final = b"SQLite format 3\0"

RECORDED: Final = tuple(resource for resource in RESOURCES if resource.table)

SAMPLES: Final = "AMPERAGE_SAMPLES"
LIVES: Final = "AMPERAGE_LIVES"

_OWN: Final = (
    f"CREATE TABLE IF NOT EXISTS {SAMPLES}(timestamp INTEGER PRIMARY KEY, tier INTEGER NOT NULL)",
    f"CREATE INDEX IF NOT EXISTS {SAMPLES}_TIER ON {SAMPLES}(tier, timestamp)",
    (
        f"CREATE TABLE IF NOT EXISTS {LIVES}(base TEXT, static_id INTEGER, first INTEGER,"
        " last INTEGER, PRIMARY KEY(base, static_id)) WITHOUT ROWID"
    ),
    f"CREATE INDEX IF NOT EXISTS {LIVES}_LAST ON {LIVES}(base, last)",
)


def later_version(header: bytes) -> str | None:
    """Return why a later version's file cannot be continued; None for any other file.

    Args:
        header: its first `HEADER_SIZE` bytes.

    Source: SQLite, Database File Format, 1.3 The Database Header.
    """
    version = version_of(header)
    is_later = version is not None and version > FORMAT
    return version_mismatch(version or 0, FORMAT) if is_later else None


def version_of(header: bytes) -> int | None:
    """Return the version of a statistics database; None for any other file.

    Args:
        header: its first `HEADER_SIZE` bytes.
    """
    if len(header) < HEADER_SIZE:
        return None
    magic, version, application = _HEADER.unpack_from(header)
    return int(version) if (magic, application) == (_SQLITE, APPLICATION_ID) else None


def static(resource: Resource) -> str:
    """Return the table of a resource's fixed values."""
    return f"{resource.table}_STATIC"


def dynamic(resource: Resource) -> str:
    """Return the table of a resource's values per sample."""
    return f"{resource.table}_DYNAMIC"


def quoted(name: str) -> str:
    """Return a name quoted for SQL, for any characters in it."""
    return '"' + name.replace('"', '""') + '"'


def statements(*, indexed: bool) -> Iterator[str]:
    """Yield the statements that create missing tables.

    Args:
        indexed: create an index on static_id, too, for the queries of other programs.

    Source: AMPS User Guide, Tuning (Statistics/Indexing/Enabled).
    """
    for resource in RECORDED:
        yield (
            f"CREATE TABLE IF NOT EXISTS {static(resource)}"
            f"(static_id INTEGER PRIMARY KEY, oid TEXT{_columns(resource.static_fields)})"
        )
        yield (
            f"CREATE INDEX IF NOT EXISTS AMPERAGE_{resource.table}_OID ON {static(resource)}(oid)"
        )
        yield (
            f"CREATE TABLE IF NOT EXISTS {dynamic(resource)}"
            f"(timestamp INTEGER, static_id INTEGER{_columns(resource.dynamic_fields)},"
            " PRIMARY KEY(timestamp, static_id)) WITHOUT ROWID"
        )
        if indexed:
            yield (
                f"CREATE INDEX IF NOT EXISTS AMPERAGE_{resource.table}_STATIC_ID"
                f" ON {dynamic(resource)}(static_id)"
            )
    yield from _OWN


def expected_columns(
    resource: Resource,
) -> Iterator[tuple[str, frozenset[str], tuple[ResourceField, ...]]]:
    """Yield, for both tables, the name, the columns that are required, and the others."""
    yield static(resource), frozenset({"static_id", "oid"}), resource.static_fields
    yield dynamic(resource), frozenset({"timestamp", "static_id"}), resource.dynamic_fields


def column(field: ResourceField) -> str:
    """Return the declaration of a column."""
    return f"{quoted(field.name)} {field.type.value}"


def insert_static(resource: Resource) -> str:
    """Return the statement that writes static_id, oid and the fixed values."""
    return _insert(static(resource), ("static_id", "oid"), resource.static_fields)


def insert_dynamic(resource: Resource) -> str:
    """Return the statement that writes timestamp, static_id and the moving values."""
    return _insert(dynamic(resource), ("timestamp", "static_id"), resource.dynamic_fields)


def average(resource: Resource) -> str | None:
    """Return the statement that turns averages of one moment into those of a time; None for none.

    Named values: first and last, the time; kept, the moment.
    """
    averages = [
        field for field in resource.dynamic_fields if field.kind is MeasurementKind.INTERVAL_AVERAGE
    ]
    if not averages:
        return None
    table = dynamic(resource)
    values = ", ".join(
        f"avg({quoted(resource_field.name)}) AS {quoted(resource_field.name)}"
        for resource_field in averages
    )
    columns = ", ".join(quoted(resource_field.name) for resource_field in resource.dynamic_fields)
    chosen = ", ".join(_averaged(resource_field) for resource_field in resource.dynamic_fields)
    return (
        f"INSERT OR REPLACE INTO {table}(timestamp, static_id, {columns})"
        f" SELECT kept.timestamp, kept.static_id, {chosen} FROM"
        f" (SELECT static_id, {values} FROM {table}"
        " WHERE timestamp BETWEEN :first AND :last GROUP BY static_id) AS span"
        f" CROSS JOIN {table} AS kept"
        " ON kept.timestamp = :kept AND kept.static_id = span.static_id"
    )


def _averaged(field: ResourceField) -> str:
    name = quoted(field.name)
    if field.kind is not MeasurementKind.INTERVAL_AVERAGE:
        return f"kept.{name}"
    if field.type is ColumnType.INTEGER:
        return f"CAST(round(span.{name}) AS INTEGER)"
    return f"span.{name}"


def _insert(table: str, keys: tuple[str, str], fields: Iterable[ResourceField]) -> str:
    """Return a statement; an empty text in a column of numbers is written as NULL."""
    fields = tuple(fields)
    names = ", ".join([*keys, *(quoted(field.name) for field in fields)])
    values = ", ".join(
        ["?", "?", *("?" if field.type is ColumnType.TEXT else "nullif(?, '')" for field in fields)]
    )
    return f"INSERT OR REPLACE INTO {table}({names}) VALUES({values})"


def _columns(fields: Iterable[ResourceField]) -> str:
    return "".join(f", {column(field)}" for field in fields)
