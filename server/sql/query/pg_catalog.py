"""The catalogue that tools read: `pg_catalog` and `information_schema`, made from the tables.

Relations are made when a query reads them, for the tables that the session's user sees. OIDs are
hashes of names, so that they are the same after a restart.

Relations that are always empty here (triggers, policies, foreign tables) have the columns that
tools read. Relations whose names begin with an underscore are not PostgreSQL's: functions of the
catalogue read them (`rewrite`).

Source: PostgreSQL documentation, System Catalogs, and The Information Schema.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from server.sql.query import pg_types
from server.sql.query.information_schema import InformationSchema
from server.sql.query.names import Relation, quote
from server.sql.query.pg_relations import (
    COLUMN_OIDS,
    INFORMATION_SCHEMA,
    LISTED,
    PG_CATALOG,
    RELKINDS,
    WELL_KNOWN_OIDS,
    arrow_table,
    columns_of,
    system_oid,
    tables_of_kind,
)
from server.sql.query.session import SqlSession
from server.sql.query.session_relations import (
    DATABASE_OID,
    OWNER_OID,
    session_activity,
    session_settings,
)
from server.sql.query.tables import AMPS_SCHEMA, SEARCH_PATH, Table

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_OID: Final = 16384
"""The least OID of objects that are not PostgreSQL's own."""

_LAST_OID: Final = 2**31 - 1

PG_CATALOG_OID: Final = 11
INFORMATION_SCHEMA_OID: Final = 13000
_HEAP_OID: Final = 2
_BTREE_OID: Final = 403


class PgCatalog:
    """The catalogue of the tables that a user sees.

    Args:
        tables: the tables.
        session: the session, for the names of user and database and for its settings.
    """

    def __init__(self, tables: Sequence[Table], session: SqlSession) -> None:
        self._session = session
        self._tables = tuple(tables)
        self._data: dict[tuple[str, str], pa.Table] = {}
        self._oids: dict[tuple[str, ...], int] = {}
        self._taken: set[int] = set()
        self._schemas = sorted({AMPS_SCHEMA, *(table.schema for table in tables)})
        for schema in self._schemas:
            self._assign("schema", schema)
        for table in sorted(self._tables, key=lambda item: (item.schema, item.name)):
            self._assign("table", table.schema, table.name)
            if table.key:
                self._assign("index", table.schema, table.name)
                self._assign("constraint", table.schema, table.name)

    def is_of(self, tables: tuple[Table, ...], session: SqlSession) -> bool:
        """Return whether this is the catalogue of the tables, for a session's user."""
        own = self._session
        is_same = (own.user, own.database) == (session.user, session.database)
        return is_same and tables == self._tables

    def _assign(self, *key: str) -> None:
        """Assign an OID: a hash of the name, or the next one that is free."""
        text = "\0".join(key).encode()
        oid = FIRST_OID + zlib.crc32(text) % (_LAST_OID - FIRST_OID)
        while oid in self._taken:
            oid = oid + 1 if oid < _LAST_OID else FIRST_OID
        self._taken.add(oid)
        self._oids[key] = oid

    def namespace_oid(self, name: str) -> int | None:
        """Return the OID of a schema."""
        if name == "pg_catalog":
            return PG_CATALOG_OID
        if name == "information_schema":
            return INFORMATION_SCHEMA_OID
        return self._oids.get(("schema", name))

    def class_oid(self, schema: str | None, name: str) -> int | None:
        """Return the OID of a table, index or relation of the catalogue."""
        for place in (schema,) if schema else SEARCH_PATH:
            if place == "pg_catalog" and name in PG_CATALOG:
                return system_oid(name)
            if place == "information_schema" and name in INFORMATION_SCHEMA:
                return system_oid(f"information_schema.{name}")
            oid = self._oids.get(("table", place, name))
            if oid is None and name.endswith("_pkey"):
                oid = self._oids.get(("index", place, name.removesuffix("_pkey")))
            if oid is not None:
                return oid
        return None

    def relation(self, schema: str, name: str, session: SqlSession) -> Relation | None:
        """Return a relation with its rows; None if there is no such name.

        The relations of settings and activity are those of the given session.
        """
        names = PG_CATALOG if schema == "pg_catalog" else INFORMATION_SCHEMA
        specification = names.get(name)
        if specification is None:
            return None
        columns = columns_of(specification)
        data = self._data.get((schema, name))
        if data is None:
            if name == "pg_settings":
                data = arrow_table(columns, session_settings(session))
            elif name == "pg_stat_activity":
                data = arrow_table(columns, session_activity(session))
            else:
                data = arrow_table(columns, self._rows(schema, name))
                self._data[schema, name] = data
        described = [
            (column, COLUMN_OIDS[kind], pg_types.CHAR_ENUM if kind == "c" else None)
            for column, kind in columns
        ]
        return Relation(schema, name, described, data=data)

    def _rows(self, schema: str, name: str) -> Iterable[dict[str, Any]]:
        """Return the rows of a relation that does not depend on the session."""
        if schema == "information_schema":
            return InformationSchema(self._tables, self._schemas, self._session).rows(name)
        rows = getattr(self, f"_pg_catalog_{name}", None)
        return () if rows is None else rows()

    # ---- pg_catalog

    def _pg_catalog_pg_namespace(self) -> Iterator[dict[str, Any]]:
        names = [(PG_CATALOG_OID, "pg_catalog"), (INFORMATION_SCHEMA_OID, "information_schema")]
        names += [(self._oids["schema", name], name) for name in self._schemas]
        for oid, name in names:
            yield {"oid": oid, "nspname": name, "nspowner": OWNER_OID}

    def _pg_catalog_pg_class(self) -> Iterator[dict[str, Any]]:
        common = {
            "reltype": 0,
            "reloftype": 0,
            "relowner": OWNER_OID,
            "reltablespace": 0,
            "relpages": 0,
            "reltuples": -1.0,
            "relallvisible": 0,
            "reltoastrelid": 0,
            "relhasindex": False,
            "relisshared": False,
            "relpersistence": "p",
            "relchecks": 0,
            "relhasrules": False,
            "relhastriggers": False,
            "relhassubclass": False,
            "relrowsecurity": False,
            "relforcerowsecurity": False,
            "relispopulated": True,
            "relreplident": "d",
            "relispartition": False,
            "relrewrite": 0,
            "relam": 0,
            "relfrozenxid": 0,
            "relminmxid": 0,
            "relfilenode": 0,
        }
        for table in self._tables:
            schema = self._oids["schema", table.schema]
            kind = RELKINDS.get(table.kind, "r")
            yield {
                **common,
                "oid": self._oids["table", table.schema, table.name],
                "relname": table.name,
                "relnamespace": schema,
                "relam": 0 if kind == "v" else _HEAP_OID,
                "relkind": kind,
                "relnatts": len(table.columns),
                "relhasindex": bool(table.key),
            }
            if table.key:
                yield {
                    **common,
                    "oid": self._oids["index", table.schema, table.name],
                    "relname": f"{table.name}_pkey",
                    "relnamespace": schema,
                    "relam": _BTREE_OID,
                    "relkind": "i",
                    "relnatts": len(table.key),
                    "relreplident": "n",
                }
        for name, specification in LISTED.items():
            yield {
                **common,
                "oid": system_oid(name),
                "relname": name,
                "relnamespace": PG_CATALOG_OID,
                "relam": _HEAP_OID,
                "relkind": "r" if name in WELL_KNOWN_OIDS else "v",
                "relnatts": len(columns_of(specification)),
            }
        for name, specification in INFORMATION_SCHEMA.items():
            yield {
                **common,
                "oid": system_oid(f"information_schema.{name}"),
                "relname": name,
                "relnamespace": INFORMATION_SCHEMA_OID,
                "relkind": "v",
                "relnatts": len(columns_of(specification)),
            }

    def _pg_catalog_pg_attribute(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            oid = self._oids["table", table.schema, table.name]
            for number, column in enumerate(table.columns, 1):
                yield _attribute(
                    oid, number, column.name, column.type.oid, column.name in table.key
                )
            if table.key:
                types = {column.name: column.type.oid for column in table.columns}
                index = self._oids["index", table.schema, table.name]
                for number, name in enumerate(table.key, 1):
                    yield _attribute(index, number, name, types.get(name, 25), False)
        for prefix, names in (("", LISTED), ("information_schema.", INFORMATION_SCHEMA)):
            for name, specification in names.items():
                oid = system_oid(prefix + name)
                for number, (label, kind) in enumerate(columns_of(specification), 1):
                    yield _attribute(oid, number, label, COLUMN_OIDS[kind], False)

    @staticmethod
    def _pg_catalog_pg_type() -> Iterator[dict[str, Any]]:
        common = {
            "typnamespace": PG_CATALOG_OID,
            "typowner": OWNER_OID,
            "typispreferred": False,
            "typisdefined": True,
            "typdelim": ",",
            "typrelid": 0,
            "typreceive": 0,
            "typsend": 0,
            "typmodin": 0,
            "typmodout": 0,
            "typanalyze": 0,
            "typstorage": "p",
            "typnotnull": False,
            "typbasetype": 0,
            "typtypmod": -1,
            "typndims": 0,
            "typcollation": 0,
            "typsubscript": 0,
            "typalign": "i",
        }
        for item in pg_types.TYPES:
            yield {
                **common,
                "oid": item.oid,
                "typname": item.name,
                "typlen": item.length,
                "typbyval": 0 < item.length <= 8,
                "typtype": item.kind,
                "typcategory": item.category,
                "typelem": {22: 21, 30: 26}.get(item.oid, 0),
                "typarray": item.array_oid,
                "typinput": 0,
                "typoutput": 0,
                "typreceive": pg_types.RECEIVERS.get(item.name, 0),
                "typcollation": 100 if item.category == "S" else 0,
            }
            if item.array_oid:
                yield {
                    **common,
                    "oid": item.array_oid,
                    "typname": f"_{item.name}",
                    "typlen": -1,
                    "typbyval": False,
                    "typtype": "b",
                    "typcategory": "A",
                    "typelem": item.oid,
                    "typarray": 0,
                    "typinput": pg_types.PROCEDURES["array_in"],
                    "typoutput": pg_types.PROCEDURES["array_out"],
                    "typreceive": pg_types.PROCEDURES["array_recv"],
                    "typsend": pg_types.PROCEDURES["array_send"],
                }

    def _pg_catalog_pg_database(self) -> Iterator[dict[str, Any]]:
        yield {
            "oid": DATABASE_OID,
            "datname": self._session.database,
            "datdba": OWNER_OID,
            "encoding": 6,
            "datlocprovider": "c",
            "datistemplate": False,
            "datallowconn": True,
            "datconnlimit": -1,
            "dattablespace": 1663,
            "datcollate": "C",
            "datctype": "C.UTF-8",
            "datfrozenxid": 0,
            "datminmxid": 0,
        }

    def _pg_catalog_pg_roles(self) -> Iterator[dict[str, Any]]:
        yield {
            "rolname": self._session.user,
            "rolsuper": False,
            "rolinherit": True,
            "rolcreaterole": False,
            "rolcreatedb": False,
            "rolcanlogin": True,
            "rolreplication": False,
            "rolconnlimit": -1,
            "rolpassword": "********",
            "rolbypassrls": False,
            "oid": OWNER_OID,
        }

    def _pg_catalog_pg_authid(self) -> Iterator[dict[str, Any]]:
        return self._pg_catalog_pg_roles()

    def _pg_catalog_pg_user(self) -> Iterator[dict[str, Any]]:
        yield {
            "usename": self._session.user,
            "usesysid": OWNER_OID,
            "usecreatedb": False,
            "usesuper": False,
            "userepl": False,
            "usebypassrls": False,
            "passwd": "********",
        }

    def _pg_catalog_pg_description(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            oid = self._oids["table", table.schema, table.name]
            common = {"objoid": oid, "classoid": WELL_KNOWN_OIDS["pg_class"]}
            yield {**common, "objsubid": 0, "description": table.kind.value}
            for number, column in enumerate(table.columns, 1):
                if column.description:
                    yield {**common, "objsubid": number, "description": column.description}

    def _pg_catalog_pg_index(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            if not table.key:
                continue
            names = [column.name for column in table.columns]
            yield {
                "indexrelid": self._oids["index", table.schema, table.name],
                "indrelid": self._oids["table", table.schema, table.name],
                "indnatts": len(table.key),
                "indnkeyatts": len(table.key),
                "indisunique": True,
                "indnullsnotdistinct": False,
                "indisprimary": True,
                "indisexclusion": False,
                "indimmediate": True,
                "indisclustered": False,
                "indisvalid": True,
                "indcheckxmin": False,
                "indisready": True,
                "indislive": True,
                "indisreplident": False,
                "indkey": [names.index(name) + 1 for name in table.key if name in names],
                "indcollation": [0] * len(table.key),
                "indclass": [0] * len(table.key),
                "indoption": [0] * len(table.key),
            }

    def _pg_catalog_pg_constraint(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            if not table.key:
                continue
            names = [column.name for column in table.columns]
            yield {
                "oid": self._oids["constraint", table.schema, table.name],
                "conname": f"{table.name}_pkey",
                "contype": "p",
                "condeferrable": False,
                "connamespace": self._oids["schema", table.schema],
                "condeferred": False,
                "convalidated": True,
                "contypid": 0,
                "conparentid": 0,
                "confrelid": 0,
                "conrelid": self._oids["table", table.schema, table.name],
                "conindid": self._oids["index", table.schema, table.name],
                "confupdtype": " ",
                "confdeltype": " ",
                "confmatchtype": " ",
                "conislocal": True,
                "coninhcount": 0,
                "connoinherit": True,
                "conkey": [names.index(name) + 1 for name in table.key if name in names],
            }

    def _pg_catalog__visible(self) -> Iterator[dict[str, Any]]:
        for (kind, schema, *_), oid in self._oids.items():
            if kind in ("table", "index") and schema in SEARCH_PATH:
                yield {"oid": oid}
        for name in LISTED:
            yield {"oid": system_oid(name)}

    def _pg_catalog__privileges(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            for privilege in table.privileges:
                oid = self._oids["table", table.schema, table.name]
                yield {"oid": oid, "privilege": privilege}

    def _pg_catalog__definitions(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            if table.key:
                index = self._oids["index", table.schema, table.name]
                yield {"oid": index, "definition": _index_definition(table)}
                columns = ", ".join(quote(name) for name in table.key)
                constraint = self._oids["constraint", table.schema, table.name]
                yield {"oid": constraint, "definition": f"PRIMARY KEY ({columns})"}

    @staticmethod
    def _pg_catalog__type_names() -> Iterator[dict[str, Any]]:
        for name in pg_types.names():
            yield {"oid": pg_types.find_oid(name), "name": name}

    @staticmethod
    def _pg_catalog_pg_proc() -> Iterator[dict[str, Any]]:
        for name, oid in pg_types.PROCEDURES.items():
            yield {
                "oid": oid,
                "proname": name,
                "pronamespace": PG_CATALOG_OID,
                "proowner": 10,
                "prolang": 12,
                "procost": 1.0,
                "prorows": 0.0,
                "provariadic": 0,
                "prokind": "f",
                "prosecdef": False,
                "proleakproof": False,
                "proretset": False,
                "proisstrict": True,
                "provolatile": "i",
                "proparallel": "s",
                "pronargs": 1,
                "pronargdefaults": 0,
                "prorettype": 2277,
                "proargtypes": [2277],
                "prosrc": name,
            }

    @staticmethod
    def _pg_catalog_pg_am() -> Iterator[dict[str, Any]]:
        yield {"oid": _HEAP_OID, "amname": "heap", "amhandler": 0, "amtype": "t"}
        yield {"oid": _BTREE_OID, "amname": "btree", "amhandler": 0, "amtype": "i"}

    @staticmethod
    def _pg_catalog_pg_collation() -> Iterator[dict[str, Any]]:
        for oid, name in ((100, "default"), (950, "C"), (951, "POSIX")):
            yield {
                "oid": oid,
                "collname": name,
                "collnamespace": PG_CATALOG_OID,
                "collowner": OWNER_OID,
                "collprovider": "c",
                "collisdeterministic": True,
                "collencoding": -1,
                "collcollate": "C",
                "collctype": "C",
            }

    @staticmethod
    def _pg_catalog_pg_tablespace() -> Iterator[dict[str, Any]]:
        yield {"oid": 1663, "spcname": "pg_default", "spcowner": OWNER_OID}

    @staticmethod
    def _pg_catalog_pg_language() -> Iterator[dict[str, Any]]:
        yield {
            "oid": 12,
            "lanname": "internal",
            "lanowner": OWNER_OID,
            "lanispl": False,
            "lanpltrusted": False,
            "lanplcallfoid": 0,
            "laninline": 0,
            "lanvalidator": 0,
        }

    def _pg_catalog_pg_tables(self) -> Iterator[dict[str, Any]]:
        for table in tables_of_kind(self._tables, "r"):
            yield {
                "schemaname": table.schema,
                "tablename": table.name,
                "tableowner": self._session.user,
                "hasindexes": bool(table.key),
                "hasrules": False,
                "hastriggers": False,
                "rowsecurity": False,
            }

    def _pg_catalog_pg_views(self) -> Iterator[dict[str, Any]]:
        for table in tables_of_kind(self._tables, "v"):
            yield {
                "schemaname": table.schema,
                "viewname": table.name,
                "viewowner": self._session.user,
            }

    def _pg_catalog_pg_matviews(self) -> Iterator[dict[str, Any]]:
        for table in tables_of_kind(self._tables, "m"):
            yield {
                "schemaname": table.schema,
                "matviewname": table.name,
                "ispopulated": True,
                "matviewowner": self._session.user,
                "hasindexes": bool(table.key),
            }

    def _pg_catalog_pg_indexes(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            if table.key:
                yield {
                    "schemaname": table.schema,
                    "tablename": table.name,
                    "indexname": f"{table.name}_pkey",
                    "indexdef": _index_definition(table),
                }


def _index_definition(table: Table) -> str:
    columns = ", ".join(quote(name) for name in table.key)
    return (
        f"CREATE UNIQUE INDEX {quote(f'{table.name}_pkey')} ON "
        f"{quote(table.schema)}.{quote(table.name)} USING btree ({columns})"
    )


def _attribute(
    relation: int, number: int, name: str, type_oid: int, is_key: bool
) -> dict[str, Any]:
    kind = pg_types.BY_OID.get(type_oid)
    return {
        "attrelid": relation,
        "attname": name,
        "atttypid": type_oid,
        "attnum": number,
        "attlen": kind.length if kind else -1,
        "attcacheoff": -1,
        "atttypmod": -1,
        "attndims": 0,
        "attbyval": False,
        "attalign": "i",
        "attstorage": "p",
        "attcompression": "",
        "attnotnull": is_key,
        "atthasdef": False,
        "atthasmissing": False,
        "attidentity": "",
        "attgenerated": "",
        "attisdropped": False,
        "attislocal": True,
        "attinhcount": 0,
        "attstattarget": -1,
        "attcollation": 100 if kind and kind.category == "S" else 0,
    }
