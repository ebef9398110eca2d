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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from server.sql.query import pg_types
from server.sql.query.names import Relation, quote
from server.sql.query.session import SqlSession
from server.sql.query.tables import AMPS_SCHEMA, SEARCH_PATH, SqlType, Table, TableKind

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_OID: Final = 16384
"""The least OID of objects that are not PostgreSQL's own."""

_LAST_OID: Final = 2**31 - 1

PG_CATALOG_OID: Final = 11
INFORMATION_SCHEMA_OID: Final = 13000
OWNER_OID: Final = 10
_DATABASE_OID: Final = 5
_HEAP_OID: Final = 2
_BTREE_OID: Final = 403

_RELKINDS: Final = {TableKind.VIEW: "v", TableKind.CONFLATED: "m"}
"""`pg_class.relkind` of kinds other than tables: view, and materialized view."""

# Types of columns: oid, name, text, char, boolean, integers, float4, and arrays.
_OIDS: Final = {
    "o": 26, "n": 19, "t": 25, "c": 18, "b": 16, "2": 21, "4": 23, "8": 20, "f": 700, "x": 28,
    "o[]": 30, "2[]": 22, "t[]": 1009, "c[]": 1002, "oo": 1028, "z": 1184, "n[]": 1003, "r": 24,
}  # fmt: skip

_RELATIONS: Final[dict[str, str]] = {
    "pg_class": "oid:o relname:n relnamespace:o reltype:o reloftype:o relowner:o relam:o "
    "relfilenode:o reltablespace:o relpages:4 reltuples:f relallvisible:4 reltoastrelid:o "
    "relhasindex:b relisshared:b relpersistence:c relkind:c relnatts:2 relchecks:2 relhasrules:b "
    "relhastriggers:b relhassubclass:b relrowsecurity:b relforcerowsecurity:b relispopulated:b "
    "relreplident:c relispartition:b relrewrite:o relfrozenxid:x relminmxid:x relacl:t[] "
    "reloptions:t[] relpartbound:t",
    "pg_attribute": "attrelid:o attname:n atttypid:o attlen:2 attnum:2 attcacheoff:4 atttypmod:4 "
    "attndims:2 attbyval:b attalign:c attstorage:c attcompression:c attnotnull:b atthasdef:b "
    "atthasmissing:b attidentity:c attgenerated:c attisdropped:b attislocal:b attinhcount:2 "
    "attstattarget:2 attcollation:o attacl:t[] attoptions:t[] attfdwoptions:t[] attmissingval:t",
    "pg_type": "oid:o typname:n typnamespace:o typowner:o typlen:2 typbyval:b typtype:c "
    "typcategory:c typispreferred:b typisdefined:b typdelim:c typrelid:o typsubscript:r typelem:o "
    "typarray:o typinput:r typoutput:r typreceive:r typsend:r typmodin:r typmodout:r "
    "typanalyze:r typalign:c typstorage:c typnotnull:b typbasetype:o typtypmod:4 typndims:4 "
    "typcollation:o typdefaultbin:t typdefault:t typacl:t[]",
    "pg_namespace": "oid:o nspname:n nspowner:o nspacl:t[]",
    "pg_database": "oid:o datname:n datdba:o encoding:4 datlocprovider:c datistemplate:b "
    "datallowconn:b datconnlimit:4 datfrozenxid:x datminmxid:x dattablespace:o datcollate:t "
    "datctype:t daticulocale:t daticurules:t datcollversion:t datacl:t[]",
    "pg_roles": "rolname:n rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b "
    "rolreplication:b rolconnlimit:4 rolpassword:t rolvaliduntil:z rolbypassrls:b rolconfig:t[] "
    "oid:o",
    "pg_user": "usename:n usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t "
    "valuntil:z useconfig:t[]",
    "pg_settings": "name:t setting:t unit:t category:t short_desc:t extra_desc:t context:t "
    "vartype:t source:t min_val:t max_val:t enumvals:t[] boot_val:t reset_val:t sourcefile:t "
    "sourceline:4 pending_restart:b",
    "pg_description": "objoid:o classoid:o objsubid:4 description:t",
    "pg_index": "indexrelid:o indrelid:o indnatts:2 indnkeyatts:2 indisunique:b "
    "indnullsnotdistinct:b indisprimary:b indisexclusion:b indimmediate:b indisclustered:b "
    "indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:2[] "
    "indcollation:o[] indclass:o[] indoption:2[] indexprs:t indpred:t",
    "pg_constraint": "oid:o conname:n connamespace:o contype:c condeferrable:b condeferred:b "
    "convalidated:b conrelid:o contypid:o conindid:o conparentid:o confrelid:o confupdtype:c "
    "confdeltype:c confmatchtype:c conislocal:b coninhcount:2 connoinherit:b conkey:2[] "
    "confkey:2[] conpfeqop:oo conppeqop:oo conffeqop:oo confdelsetcols:2[] conexclop:oo conbin:t",
    "pg_am": "oid:o amname:n amhandler:r amtype:c",
    "pg_proc": "oid:o proname:n pronamespace:o proowner:o prolang:o procost:f prorows:f "
    "provariadic:o prosupport:r prokind:c prosecdef:b proleakproof:b proisstrict:b proretset:b "
    "provolatile:c proparallel:c pronargs:2 pronargdefaults:2 prorettype:o proargtypes:o[] "
    "proallargtypes:oo proargmodes:c[] proargnames:t[] proargdefaults:t protrftypes:oo prosrc:t "
    "probin:t prosqlbody:t proconfig:t[] proacl:t[]",
    "pg_collation": "oid:o collname:n collnamespace:o collowner:o collprovider:c "
    "collisdeterministic:b collencoding:4 collcollate:t collctype:t colliculocale:t "
    "collicurules:t collversion:t",
    "pg_tables": "schemaname:n tablename:n tableowner:n tablespace:n hasindexes:b hasrules:b "
    "hastriggers:b rowsecurity:b",
    "pg_views": "schemaname:n viewname:n viewowner:n definition:t",
    "pg_matviews": "schemaname:n matviewname:n matviewowner:n tablespace:n hasindexes:b "
    "ispopulated:b definition:t",
    "pg_indexes": "schemaname:n tablename:n indexname:n tablespace:n indexdef:t",
    "pg_tablespace": "oid:o spcname:n spcowner:o spcacl:t[] spcoptions:t[]",
    "pg_language": "oid:o lanname:n lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o "
    "laninline:o lanvalidator:o lanacl:t[]",
    "pg_stat_activity": "datid:o datname:n pid:4 leader_pid:4 usesysid:o usename:n "
    "application_name:t client_addr:t client_hostname:t client_port:4 backend_start:z "
    "xact_start:z query_start:z state_change:z wait_event_type:t wait_event:t state:t "
    "backend_xid:x backend_xmin:x query_id:8 query:t backend_type:t",
    # These are always empty.
    "pg_attrdef": "oid:o adrelid:o adnum:2 adbin:t",
    "pg_enum": "oid:o enumtypid:o enumsortorder:f enumlabel:n",
    "pg_range": "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o "
    "rngcanonical:r rngsubdiff:r",
    "pg_auth_members": "oid:o roleid:o member:o grantor:o admin_option:b inherit_option:b "
    "set_option:b",
    "pg_authid": "oid:o rolname:n rolsuper:b rolcanlogin:b",
    "pg_group": "groname:n grosysid:o grolist:oo",
    "pg_cast": "oid:o castsource:o casttarget:o castfunc:o castcontext:c castmethod:c",
    "pg_depend": "classid:o objid:o objsubid:4 refclassid:o refobjid:o refobjsubid:4 deptype:c",
    "pg_shdepend": "dbid:o classid:o objid:o objsubid:4 refclassid:o refobjid:o deptype:c",
    "pg_shdescription": "objoid:o classoid:o description:t",
    "pg_seclabel": "objoid:o classoid:o objsubid:4 provider:t label:t",
    "pg_event_trigger": "oid:o evtname:n evtevent:n evtowner:o evtfoid:o evtenabled:c evttags:t[]",
    "pg_extension": "oid:o extname:n extowner:o extnamespace:o extrelocatable:b extversion:t "
    "extconfig:oo extcondition:t[]",
    "pg_available_extensions": "name:n default_version:t installed_version:t comment:t",
    "pg_foreign_data_wrapper": "oid:o fdwname:n fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:t[] "
    "fdwoptions:t[]",
    "pg_foreign_server": "oid:o srvname:n srvowner:o srvfdw:o srvtype:t srvversion:t srvacl:t[] "
    "srvoptions:t[]",
    "pg_foreign_table": "ftrelid:o ftserver:o ftoptions:t[]",
    "pg_user_mappings": "umid:o srvid:o srvname:n umuser:o usename:n umoptions:t[]",
    "pg_inherits": "inhrelid:o inhparent:o inhseqno:4 inhdetachpending:b",
    "pg_locks": "locktype:t database:o relation:o page:4 tuple:2 virtualxid:t transactionid:x "
    "classid:o objid:o objsubid:2 virtualtransaction:t pid:4 mode:t granted:b fastpath:b "
    "waitstart:z",
    "pg_opclass": "oid:o opcmethod:o opcname:n opcnamespace:o opcowner:o opcfamily:o opcintype:o "
    "opcdefault:b opckeytype:o",
    "pg_operator": "oid:o oprname:n oprnamespace:o oprowner:o oprkind:c oprcanmerge:b "
    "oprcanhash:b oprleft:o oprright:o oprresult:o oprcom:o oprnegate:o oprcode:r oprrest:r "
    "oprjoin:r",
    "pg_partitioned_table": "partrelid:o partstrat:c partnatts:2 partdefid:o partattrs:2[] "
    "partclass:o[] partcollation:o[] partexprs:t",
    "pg_policy": "oid:o polname:n polrelid:o polcmd:c polpermissive:b polroles:oo polqual:t "
    "polwithcheck:t",
    "pg_policies": "schemaname:n tablename:n policyname:n permissive:t roles:n[] cmd:t qual:t "
    "with_check:t",
    "pg_publication": "oid:o pubname:n pubowner:o puballtables:b pubinsert:b pubupdate:b "
    "pubdelete:b pubtruncate:b pubviaroot:b",
    "pg_publication_rel": "oid:o prpubid:o prrelid:o prqual:t prattrs:2[]",
    "pg_publication_namespace": "oid:o pnpubid:o pnnspid:o",
    "pg_publication_tables": "pubname:n schemaname:n tablename:n attnames:n[] rowfilter:t",
    "pg_subscription": "oid:o subdbid:o subname:n subowner:o subenabled:b",
    "pg_rewrite": "oid:o rulename:n ev_class:o ev_type:c ev_enabled:c is_instead:b ev_qual:t "
    "ev_action:t",
    "pg_rules": "schemaname:n tablename:n rulename:n definition:t",
    "pg_sequence": "seqrelid:o seqtypid:o seqstart:8 seqincrement:8 seqmax:8 seqmin:8 seqcache:8 "
    "seqcycle:b",
    "pg_sequences": "schemaname:n sequencename:n sequenceowner:n data_type:o start_value:8 "
    "min_value:8 max_value:8 increment_by:8 cycle:b cache_size:8 last_value:8",
    "pg_statistic_ext": "oid:o stxrelid:o stxname:n stxnamespace:o stxowner:o stxstattarget:4 "
    "stxkeys:2[] stxkind:c[] stxexprs:t",
    "pg_stats": "schemaname:n tablename:n attname:n inherited:b null_frac:f avg_width:4 "
    "n_distinct:f correlation:f",
    "pg_stat_user_tables": "relid:o schemaname:n relname:n seq_scan:8 seq_tup_read:8 idx_scan:8 "
    "n_live_tup:8 n_dead_tup:8 last_vacuum:z last_analyze:z",
    "pg_stat_all_tables": "relid:o schemaname:n relname:n seq_scan:8 n_live_tup:8 n_dead_tup:8",
    "pg_stat_database": "datid:o datname:n numbackends:4 xact_commit:8 xact_rollback:8",
    "pg_trigger": "oid:o tgrelid:o tgparentid:o tgname:n tgfoid:o tgtype:2 tgenabled:c "
    "tgisinternal:b tgconstrrelid:o tgconstrindid:o tgconstraint:o tgdeferrable:b "
    "tginitdeferred:b tgnargs:2 tgattr:2[] tgargs:t tgqual:t tgoldtable:n tgnewtable:n",
    "pg_ts_config": "oid:o cfgname:n cfgnamespace:o cfgowner:o cfgparser:o",
    "pg_ts_dict": "oid:o dictname:n dictnamespace:o dictowner:o dicttemplate:o",
    "pg_prepared_xacts": "transaction:x gid:t prepared:z owner:n database:n",
    "pg_prepared_statements": "name:t statement:t prepare_time:z parameter_types:t[] from_sql:b",
    "pg_cursors": "name:t statement:t is_holdable:b is_binary:b is_scrollable:b creation_time:z",
    "pg_timezone_names": "name:t abbrev:t utc_offset:t is_dst:b",
    "pg_db_role_setting": "setdatabase:o setrole:o setconfig:t[]",
    "pg_default_acl": "oid:o defaclrole:o defaclnamespace:o defaclobjtype:c defaclacl:t[]",
    "pg_aggregate": "aggfnoid:r aggkind:c aggnumdirectargs:2 aggtranstype:o",
    "pg_conversion": "oid:o conname:n connamespace:o conowner:o",
    # Functions of the catalogue read these, and no catalogue lists them.
    "_visible": "oid:o",
    "_definitions": "oid:o definition:t",
    "_type_names": "oid:o name:t",
}
"""Columns of the relations of `pg_catalog` with their types."""

_LISTED: Final = {name: text for name, text in _RELATIONS.items() if not name.startswith("_")}

_INFORMATION_SCHEMA: Final[dict[str, str]] = {
    "tables": "table_catalog:t table_schema:t table_name:t table_type:t "
    "self_referencing_column_name:t reference_generation:t user_defined_type_catalog:t "
    "user_defined_type_schema:t user_defined_type_name:t is_insertable_into:t is_typed:t "
    "commit_action:t",
    "columns": "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:4 "
    "column_default:t is_nullable:t data_type:t character_maximum_length:4 "
    "character_octet_length:4 numeric_precision:4 numeric_precision_radix:4 numeric_scale:4 "
    "datetime_precision:4 interval_type:t interval_precision:4 character_set_catalog:t "
    "character_set_schema:t character_set_name:t collation_catalog:t collation_schema:t "
    "collation_name:t domain_catalog:t domain_schema:t domain_name:t udt_catalog:t udt_schema:t "
    "udt_name:t scope_catalog:t scope_schema:t scope_name:t maximum_cardinality:4 "
    "dtd_identifier:t is_self_referencing:t is_identity:t identity_generation:t "
    "identity_start:t identity_increment:t identity_maximum:t identity_minimum:t "
    "identity_cycle:t is_generated:t generation_expression:t is_updatable:t",
    "schemata": "catalog_name:t schema_name:t schema_owner:t default_character_set_catalog:t "
    "default_character_set_schema:t default_character_set_name:t sql_path:t",
    "key_column_usage": "constraint_catalog:t constraint_schema:t constraint_name:t "
    "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:4 "
    "position_in_unique_constraint:4",
    "table_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t "
    "table_catalog:t table_schema:t table_name:t constraint_type:t is_deferrable:t "
    "initially_deferred:t enforced:t nulls_distinct:t",
    "constraint_column_usage": "table_catalog:t table_schema:t table_name:t column_name:t "
    "constraint_catalog:t constraint_schema:t constraint_name:t",
    "views": "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t "
    "is_updatable:t is_insertable_into:t",
    "table_privileges": "grantor:t grantee:t table_catalog:t table_schema:t table_name:t "
    "privilege_type:t is_grantable:t with_hierarchy:t",
    "role_table_grants": "grantor:t grantee:t table_catalog:t table_schema:t table_name:t "
    "privilege_type:t is_grantable:t with_hierarchy:t",
    "information_schema_catalog_name": "catalog_name:t",
    "enabled_roles": "role_name:t",
    "applicable_roles": "grantee:t role_name:t is_grantable:t",
    # These are always empty.
    "referential_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t "
    "unique_constraint_catalog:t unique_constraint_schema:t unique_constraint_name:t "
    "match_option:t update_rule:t delete_rule:t",
    "check_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t "
    "check_clause:t",
    "routines": "specific_catalog:t specific_schema:t specific_name:t routine_catalog:t "
    "routine_schema:t routine_name:t routine_type:t data_type:t type_udt_name:t "
    "routine_definition:t external_language:t",
    "parameters": "specific_catalog:t specific_schema:t specific_name:t ordinal_position:4 "
    "parameter_mode:t parameter_name:t data_type:t",
    "sequences": "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t "
    "start_value:t minimum_value:t maximum_value:t increment:t cycle_option:t",
    "triggers": "trigger_catalog:t trigger_schema:t trigger_name:t event_manipulation:t "
    "event_object_schema:t event_object_table:t action_statement:t action_timing:t",
    "domains": "domain_catalog:t domain_schema:t domain_name:t data_type:t",
    "element_types": "object_catalog:t object_schema:t object_name:t object_type:t "
    "collection_type_identifier:t data_type:t",
}
"""Columns of the views of `information_schema` with their types."""

_WELL_KNOWN: Final = {
    "pg_type": 1247, "pg_attribute": 1249, "pg_proc": 1255, "pg_class": 1259, "pg_database": 1262,
    "pg_authid": 1260, "pg_auth_members": 1261, "pg_tablespace": 1213, "pg_description": 2609,
    "pg_namespace": 2615, "pg_constraint": 2606, "pg_index": 2610, "pg_attrdef": 2604,
    "pg_am": 2601, "pg_trigger": 2620, "pg_rewrite": 2618, "pg_enum": 3501, "pg_range": 3541,
    "pg_collation": 3456, "pg_extension": 3079, "pg_language": 2612, "pg_operator": 2617,
    "pg_opclass": 2616, "pg_inherits": 2611, "pg_depend": 2608, "pg_shdescription": 2396,
    "pg_foreign_table": 3118, "pg_foreign_server": 1417, "pg_foreign_data_wrapper": 2328,
    "pg_policy": 3256, "pg_event_trigger": 3466, "pg_sequence": 2224, "pg_cast": 2605,
    "pg_partitioned_table": 3350, "pg_aggregate": 2600, "pg_conversion": 2607,
}  # fmt: skip
"""OIDs of PostgreSQL's relations, which tools know as numbers or by `::regclass`."""

_DOMAINS: Final = frozenset({"sql_identifier", "character_data", "cardinal_number", "yes_or_no"})


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
        """Return whether this is the catalogue of some tables, for a session's user."""
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
            if place == "pg_catalog" and name in _RELATIONS:
                return _system_oid(name)
            if place == "information_schema" and name in _INFORMATION_SCHEMA:
                return _system_oid(f"information_schema.{name}")
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
        names = _RELATIONS if schema == "pg_catalog" else _INFORMATION_SCHEMA
        specification = names.get(name)
        if specification is None:
            return None
        columns = _columns(specification)
        data = self._data.get((schema, name))
        if data is None:
            if name == "pg_settings":
                data = _arrow(columns, _settings(session))
            elif name == "pg_stat_activity":
                data = _arrow(columns, _activity(session))
            else:
                rows = getattr(self, f"_{schema}_{name}", None)
                data = _arrow(columns, rows() if rows is not None else ())
                self._data[schema, name] = data
        described = [
            (column, _OIDS[kind], pg_types.CHAR_ENUM if kind == "c" else None)
            for column, kind in columns
        ]
        return Relation(schema, name, described, data=data)

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
            kind = _RELKINDS.get(table.kind, "r")
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
        for name, specification in _LISTED.items():
            yield {
                **common,
                "oid": _system_oid(name),
                "relname": name,
                "relnamespace": PG_CATALOG_OID,
                "relam": _HEAP_OID,
                "relkind": "r" if name in _WELL_KNOWN else "v",
                "relnatts": len(_columns(specification)),
            }
        for name, specification in _INFORMATION_SCHEMA.items():
            yield {
                **common,
                "oid": _system_oid(f"information_schema.{name}"),
                "relname": name,
                "relnamespace": INFORMATION_SCHEMA_OID,
                "relkind": "v",
                "relnatts": len(_columns(specification)),
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
        for prefix, names in (("", _LISTED), ("information_schema.", _INFORMATION_SCHEMA)):
            for name, specification in names.items():
                oid = _system_oid(prefix + name)
                for number, (label, kind) in enumerate(_columns(specification), 1):
                    yield _attribute(oid, number, label, _OIDS[kind], False)

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
            "oid": _DATABASE_OID,
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
            common = {"objoid": oid, "classoid": _WELL_KNOWN["pg_class"]}
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
        for name in _LISTED:
            yield {"oid": _system_oid(name)}

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

    def _of_kind(self, *kinds: str) -> Iterable[Table]:
        return (table for table in self._tables if _RELKINDS.get(table.kind, "r") in kinds)

    def _pg_catalog_pg_tables(self) -> Iterator[dict[str, Any]]:
        for table in self._of_kind("r"):
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
        for table in self._of_kind("v"):
            yield {
                "schemaname": table.schema,
                "viewname": table.name,
                "viewowner": self._session.user,
            }

    def _pg_catalog_pg_matviews(self) -> Iterator[dict[str, Any]]:
        for table in self._of_kind("m"):
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

    # ---- information_schema

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

    def _information_schema_tables(self) -> Iterator[dict[str, Any]]:
        for table in self._of_kind("r", "v"):
            is_view = table.kind is TableKind.VIEW
            yield {
                **self._table_names(table),
                "table_type": "VIEW" if is_view else "BASE TABLE",
                "is_insertable_into": "NO",
                "is_typed": "NO",
            }
        for table in self._of_kind("m"):  # PostgreSQL omits them; tools would not find them
            yield {
                **self._table_names(table),
                "table_type": "VIEW",
                "is_insertable_into": "NO",
                "is_typed": "NO",
            }
        for schema, names in (
            ("pg_catalog", _LISTED),
            ("information_schema", _INFORMATION_SCHEMA),
        ):
            for name in names:
                is_view = schema == "information_schema" or name not in _WELL_KNOWN
                yield {
                    "table_catalog": self._session.database,
                    "table_schema": schema,
                    "table_name": name,
                    "is_insertable_into": "NO",
                    "is_typed": "NO",
                    "table_type": "VIEW" if is_view else "BASE TABLE",
                }

    def _information_schema_columns(self) -> Iterator[dict[str, Any]]:
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
                    "is_updatable": "NO",
                }

    def _information_schema_schemata(self) -> Iterator[dict[str, Any]]:
        for name in ("pg_catalog", "information_schema", *self._schemas):
            yield {
                "catalog_name": self._session.database,
                "schema_name": name,
                "schema_owner": self._session.user,
            }

    def _information_schema_key_column_usage(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            for number, name in enumerate(table.key, 1):
                yield {
                    **self._constraint_names(table),
                    **self._table_names(table),
                    "column_name": name,
                    "ordinal_position": number,
                }

    def _information_schema_constraint_column_usage(self) -> Iterator[dict[str, Any]]:
        return self._information_schema_key_column_usage()

    def _information_schema_table_constraints(self) -> Iterator[dict[str, Any]]:
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

    def _information_schema_views(self) -> Iterator[dict[str, Any]]:
        for table in self._of_kind("v", "m"):
            yield {
                **self._table_names(table),
                "check_option": "NONE",
                "is_updatable": "NO",
                "is_insertable_into": "NO",
            }

    def _information_schema_table_privileges(self) -> Iterator[dict[str, Any]]:
        for table in self._tables:
            yield {
                **self._table_names(table),
                "grantor": self._session.user,
                "grantee": self._session.user,
                "privilege_type": "SELECT",
                "is_grantable": "NO",
                "with_hierarchy": "YES",
            }

    def _information_schema_role_table_grants(self) -> Iterator[dict[str, Any]]:
        return self._information_schema_table_privileges()

    def _information_schema_information_schema_catalog_name(self) -> Iterator[dict[str, Any]]:
        yield {"catalog_name": self._session.database}

    def _information_schema_enabled_roles(self) -> Iterator[dict[str, Any]]:
        yield {"role_name": self._session.user}


def _settings(session: SqlSession) -> Iterator[dict[str, Any]]:
    for name, value, description in session.settings():
        yield {
            "name": name,
            "setting": value,
            "short_desc": description,
            "context": "user",
            "category": "Client",
            "vartype": "string",
            "source": "default",
            "boot_val": value,
            "reset_val": value,
            "pending_restart": False,
        }


def _activity(session: SqlSession) -> Iterator[dict[str, Any]]:
    yield {
        "datid": _DATABASE_OID,
        "datname": session.database,
        "pid": session.process_id,
        "usesysid": OWNER_OID,
        "usename": session.user,
        "state": "active",
        "application_name": session.setting("application_name"),
        "backend_type": "client backend",
    }


_NUMERIC_PRECISION: Final = {
    SqlType.BIGINT: (64, 2, 0),
    SqlType.DOUBLE: (53, 2, None),
    SqlType.NUMERIC: (38, 10, 9),
}


def _system_oid(name: str) -> int:
    """Return the OID of a relation of the catalogue: PostgreSQL's, or a hash below `FIRST_OID`."""
    known = _WELL_KNOWN.get(name)
    if known is not None:
        return known
    order = [*_RELATIONS, *(f"information_schema.{view}" for view in _INFORMATION_SCHEMA)]
    return 14000 + order.index(name)


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


def _columns(specification: str) -> list[tuple[str, str]]:
    return [tuple(item.split(":")) for item in specification.split()]  # type: ignore[misc]


def _arrow(columns: list[tuple[str, str]], rows: Iterable[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    types: dict[str, Callable[[], pa.DataType]] = {
        "o": pa.uint32,
        "r": pa.uint32,
        "x": pa.uint32,
        "b": pa.bool_,
        "2": pa.int16,
        "4": pa.int32,
        "8": pa.int64,
        "f": pa.float32,
        "z": lambda: pa.timestamp("us", tz="UTC"),
        "o[]": lambda: pa.list_(pa.uint32()),
        "2[]": lambda: pa.list_(pa.int16()),
        "oo": lambda: pa.list_(pa.uint32()),
        "t[]": lambda: pa.list_(pa.string()),
        "c[]": lambda: pa.list_(pa.string()),
        "n[]": lambda: pa.list_(pa.string()),
    }
    materialized = list(rows)
    return pa.table(
        {
            name: pa.array([row.get(name) for row in materialized], types.get(kind, pa.string)())
            for name, kind in columns
        }
    )
