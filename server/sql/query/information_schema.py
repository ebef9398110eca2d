"""The relations of `information_schema`.

Source: PostgreSQL documentation, The Information Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from server.sql.query import pg_types
from server.sql.query.pg_relations import (
    INFORMATION_SCHEMA,
    LISTED,
    WELL_KNOWN_OIDS,
    tables_of_kind,
)
from server.sql.query.session import SqlSession
from server.sql.query.tables import Column, SqlType, Table, TableKind

_NUMERIC_PRECISION: Final = {
    SqlType.BIGINT: (64, 2, 0),
    SqlType.DOUBLE: (53, 2, None),
    SqlType.NUMERIC: (38, 10, 9),
}


class InformationSchema:
    """The relations of the tables that a user sees.

    Args:
        tables: the tables.
        schemas: the names of their schemas.
        session: the session, for the names of user and database.
    """

    def __init__(
        self, tables: Sequence[Table], schemas: Sequence[str], session: SqlSession
    ) -> None:
        self._tables = tables
        self._schemas = schemas
        self._session = session

    def rows(self, name: str) -> Iterable[dict[str, Any]]:
        """Return the rows of a relation; none if it is always empty here."""
        rows = getattr(self, f"_rows_of_{name}", None)
        return () if rows is None else rows()

    def _table_names(self, table: Table) -> dict[str, Any]:
        return {
            "table_catalog": self._session.database,
            "table_schema": table.schema,
            "table_name": table.name,
        }

    def _constraint_names(self, table: Table) -> dict[str, Any]:
        return {
            "constraint_catalog": self._session.database,
            "constraint_schema": table.schema,
            "constraint_name": f"{table.name}_pkey",
        }

    def _rows_of_tables(self) -> Iterator[dict[str, Any]]:
        for table in tables_of_kind(self._tables, "r", "v"):
            is_view = table.kind is TableKind.VIEW
            yield {
                **self._table_names(table),
                "table_type": "VIEW" if is_view else "BASE TABLE",
                "is_insertable_into": _yes_or_no("INSERT" in table.privileges),
                "is_typed": "NO",
            }
        # PostgreSQL omits these; tools would not find them.
        for table in tables_of_kind(self._tables, "m"):
            yield {
                **self._table_names(table),
                "table_type": "VIEW",
                "is_insertable_into": "NO",
                "is_typed": "NO",
            }
        for schema, names in (
            ("pg_catalog", LISTED),
            ("information_schema", INFORMATION_SCHEMA),
        ):
            for name in names:
                is_view = schema == "information_schema" or name not in WELL_KNOWN_OIDS
                yield {
                    "table_catalog": self._session.database,
                    "table_schema": schema,
                    "table_name": name,
                    "is_insertable_into": "NO",
                    "is_typed": "NO",
                    "table_type": "VIEW" if is_view else "BASE TABLE",
                }

    def _rows_of_columns(self) -> Iterator[dict[str, Any]]:
        database = self._session.database
        for table in self._tables:
            for number, column in enumerate(table.columns, 1):
                numeric = _NUMERIC_PRECISION.get(column.type, (None, None, None))
                yield {
                    **self._table_names(table),
                    "column_name": column.name,
                    "ordinal_position": number,
                    "is_nullable": "NO" if column.name in table.key else "YES",
                    "data_type": column.type.sql_name,
                    "numeric_precision": numeric[0],
                    "numeric_precision_radix": numeric[1],
                    "numeric_scale": numeric[2],
                    "datetime_precision": 6 if column.type is SqlType.TIMESTAMPTZ else None,
                    "udt_catalog": database,
                    "udt_schema": "pg_catalog",
                    "udt_name": pg_types.BY_OID[column.type.oid].name,
                    "dtd_identifier": str(number),
                    "is_self_referencing": "NO",
                    "is_identity": "NO",
                    "is_generated": "NEVER",
                    "is_updatable": _yes_or_no(_is_updatable(table, column)),
                }

    def _rows_of_schemata(self) -> Iterator[dict[str, Any]]:
        for name in ("pg_catalog", "information_schema", *self._schemas):
            yield {
                "catalog_name": self._session.database,
                "schema_name": name,
                "schema_owner": self._session.user,
            }

    def _rows_of_key_column_usage(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            for number, name in enumerate(table.key, 1):
                yield {
                    **self._constraint_names(table),
                    **self._table_names(table),
                    "column_name": name,
                    "ordinal_position": number,
                }

    def _rows_of_constraint_column_usage(self) -> Iterator[dict[str, Any]]:
        return self._rows_of_key_column_usage()

    def _rows_of_table_constraints(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            if table.key:
                yield {
                    **self._constraint_names(table),
                    **self._table_names(table),
                    "constraint_type": "PRIMARY KEY",
                    "is_deferrable": "NO",
                    "initially_deferred": "NO",
                    "enforced": "YES",
                }

    def _rows_of_views(self) -> Iterator[dict[str, Any]]:
        for table in tables_of_kind(self._tables, "v", "m"):
            yield {
                **self._table_names(table),
                "check_option": "NONE",
                "is_updatable": "NO",
                "is_insertable_into": "NO",
            }

    def _rows_of_table_privileges(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            for privilege in table.privileges:
                yield {
                    **self._table_names(table),
                    "grantor": self._session.user,
                    "grantee": self._session.user,
                    "privilege_type": privilege,
                    "is_grantable": "NO",
                    "with_hierarchy": "YES" if privilege == "SELECT" else "NO",
                }

    def _rows_of_role_table_grants(self) -> Iterator[dict[str, Any]]:
        return self._rows_of_table_privileges()

    def _rows_of_information_schema_catalog_name(self) -> Iterator[dict[str, Any]]:
        yield {"catalog_name": self._session.database}

    def _rows_of_enabled_roles(self) -> Iterator[dict[str, Any]]:
        yield {"role_name": self._session.user}


def _is_updatable(table: Table, column: Column) -> bool:
    is_fixed = column.is_metadata or column.name in table.key
    return not is_fixed and "UPDATE" in table.privileges


def _yes_or_no(value: bool) -> str:
    return "YES" if value else "NO"
