"""Copies the contents of one database to another: `main` to `target`, on one connection.

The entries get new rows there; entries of the target that are still alive end with its last sample.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from server.statistics import layout
from server.statistics.resources import LIFETIMES
from server.statistics.schema import Resource

_SHIFTED_ID: Final = "static_id + ?"

SqlStatement: TypeAlias = tuple[str, tuple[Any, ...]]
"""With its values."""


def statements(connection: sqlite3.Connection) -> Iterator[SqlStatement]:
    """Yield the statements, which have to be executed one by one."""
    samples, lives = layout.SAMPLES, layout.LIVES
    newest = f"SELECT max(timestamp) FROM target.{samples}"
    ended = f"UPDATE target.{lives} SET last = max(first, ({newest})) WHERE last IS NULL"
    yield ended, ()
    for resource in layout.RECORDED:
        [offset] = connection.execute(
            f"SELECT coalesce(max(static_id), 0) FROM target.{layout.static(resource)}"
        ).fetchone()
        yield _static(resource, offset)
        yield _dynamic(resource, offset)
        lived = f"SELECT base, {_SHIFTED_ID}, first, last FROM main.{lives} WHERE base = ?"
        yield f"INSERT INTO target.{lives} {lived}", (offset, resource.table)
    yield f"INSERT OR REPLACE INTO target.{samples} SELECT timestamp, tier FROM main.{samples}", ()


def _static(resource: Resource, offset: int) -> SqlStatement:
    table = layout.static(resource)
    static_columns = "".join(f", {layout.quoted(field.name)}" for field in resource.static_fields)
    is_numbered = resource == LIFETIMES
    oid = f"CAST({_SHIFTED_ID} AS TEXT)" if is_numbered else "oid"
    selection = f"SELECT {_SHIFTED_ID}, {oid}{static_columns} FROM main.{table}"
    values = (offset, offset) if is_numbered else (offset,)
    return f"INSERT INTO target.{table}(static_id, oid{static_columns}) {selection}", values


def _dynamic(resource: Resource, offset: int) -> SqlStatement:
    table = layout.dynamic(resource)
    dynamic_columns = "".join(f", {layout.quoted(field.name)}" for field in resource.dynamic_fields)
    selection = f"SELECT timestamp, {_SHIFTED_ID}{dynamic_columns} FROM main.{table}"
    into = f"INSERT OR REPLACE INTO target.{table}(timestamp, static_id{dynamic_columns})"
    return f"{into} {selection}", (offset,)
