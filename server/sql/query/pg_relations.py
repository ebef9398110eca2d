"""Relations of `pg_catalog` and `information_schema` with their columns, and their OIDs.

Source: PostgreSQL documentation, System Catalogs, and The Information Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from server.sql.query.tables import Table, TableKind

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN_OIDS: Final = {
    "o": 26, "n": 19, "t": 25, "c": 18, "b": 16, "2": 21, "4": 23, "8": 20, "f": 700, "x": 28,
    "o[]": 30, "2[]": 22, "t[]": 1009, "c[]": 1002, "oo": 1028, "z": 1184, "n[]": 1003, "r": 24,
}  # fmt: skip
"""Types of columns: oid, name, text, char, boolean, integers, float4, and arrays."""

PG_CATALOG: Final[dict[str, str]] = {
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
    "_privileges": "oid:o privilege:t",
    "_definitions": "oid:o definition:t",
    "_type_names": "oid:o name:t",
}
"""Columns of the relations of `pg_catalog` with their types."""

LISTED: Final = {name: text for name, text in PG_CATALOG.items() if not name.startswith("_")}

INFORMATION_SCHEMA: Final[dict[str, str]] = {
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

WELL_KNOWN_OIDS: Final = {
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


def system_oid(name: str) -> int:
    """Return the OID of a relation of the catalogue: PostgreSQL's, or one that no table has."""
    known = WELL_KNOWN_OIDS.get(name)
    if known is not None:
        return known
    return _FIRST_UNKNOWN_OID + _ORDER[name]


_FIRST_UNKNOWN_OID: Final = 14000
_ORDER: Final = {
    name: number
    for number, name in enumerate(
        [*PG_CATALOG, *(f"information_schema.{view}" for view in INFORMATION_SCHEMA)]
    )
}


def columns_of(specification: str) -> list[tuple[str, str]]:
    """Return the names and types of the columns of a relation."""
    return [tuple(item.split(":")) for item in specification.split()]  # type: ignore[misc]  # pairs, as written above


RELKINDS: Final = {TableKind.VIEW: "v", TableKind.CONFLATED: "m"}
"""`pg_class.relkind` of kinds other than tables: view, and materialized view."""


def tables_of_kind(tables: Iterable[Table], *kinds: str) -> Iterable[Table]:
    """Return the tables of the kinds, given as `pg_class.relkind`."""
    return (table for table in tables if RELKINDS.get(table.kind, "r") in kinds)


def arrow_table(columns: list[tuple[str, str]], rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return the rows of a relation, given its columns as of `columns_of`."""
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
