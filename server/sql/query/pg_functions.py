"""Functions that a query may call, as tables: forbidden, constant, renamed, and lookups.

`rewrite` applies these tables. Other functions are DuckDB's, if they have the same name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from server.sql.query import pg_types

FORBIDDEN: Final = frozenset(
    {
        *("getenv", "getvariable", "write_log", "parse_duckdb_log_message", "query", "query_table"),
        *("nextval", "setval", "currval", "json_serialize_sql", "json_deserialize_sql"),
        *("json_serialize_plan", "json_execute_serialized_sql", "create_function", "sleep_ms"),
        *("current_query", "duckdb_secrets", "which_secret", "setseed", "stats", "invoke"),
        *("list_resize", "array_resize", "range", "file_exists", "glob", "pg_read_file"),
        *("pg_ls_dir", "pg_stat_file", "pg_sleep_for", "pg_sleep_until", "pg_reload_conf"),
        *("pg_read_binary_file", "lo_import", "lo_export", "dblink", "pg_terminate_backend"),
        *("sleep", "pg_sleep", "levenshtein", "editdist3", "damerau_levenshtein", "space"),
        *("jaro_similarity", "jaro_winkler_similarity", "randstr"),
        *("amps_notify", "bar", "printf", "format", "equi_width_bins", "unpivot_list", "bitstring"),
    }
)  # fmt: skip
"""Functions of DuckDB that read settings or files, that wait, that make results of any size from
few bytes, or whose time is the product of the lengths of two texts, when no cancellation ends them;
and those of PostgreSQL that do things to a server."""


FORBIDDEN_HINT: Final = "Only functions that compute something from their arguments can be called."

CONSTANTS: Final = {
    **dict.fromkeys(
        (
            *("pg_type_is_visible", "pg_function_is_visible", "pg_opclass_is_visible"),
            *("pg_collation_is_visible", "pg_operator_is_visible", "pg_conversion_is_visible"),
            *("pg_ts_config_is_visible", "pg_ts_dict_is_visible", "pg_opfamily_is_visible"),
            *("pg_ts_parser_is_visible", "pg_ts_template_is_visible", "pg_has_role"),
            "pg_statistics_obj_is_visible",
        ),
        "TRUE",
    ),
    **dict.fromkeys(
        (
            *("pg_is_in_recovery", "pg_is_wal_replay_paused", "pg_relation_is_publishable"),
            *("pg_is_other_temp_schema", "row_security_active"),
        ),
        "FALSE",
    ),
    **dict.fromkeys(
        (
            *("pg_relation_size", "pg_table_size", "pg_indexes_size", "pg_total_relation_size"),
            *("pg_database_size", "pg_tablespace_size", "pg_stat_get_numscans"),
        ),
        "CAST(0 AS BIGINT)",
    ),
    **dict.fromkeys(
        (
            *("pg_get_expr", "shobj_description", "pg_get_serial_sequence", "pg_get_viewdef"),
            *("pg_get_partkeydef", "pg_get_functiondef", "pg_get_function_result"),
            *("pg_get_function_arguments", "pg_get_function_identity_arguments"),
            *("pg_get_triggerdef", "pg_get_ruledef", "pg_get_statisticsobjdef_columns"),
            *("pg_tablespace_location", "pg_get_partition_constraintdef"),
            *("pg_get_function_sqlbody", "pg_get_statisticsobjdef"),
        ),
        "CAST(NULL AS VARCHAR)",
    ),
    "pg_encoding_to_char": "'UTF8'",
    "pg_client_encoding": "'UTF8'",
    "getdatabaseencoding": "'UTF8'",
    "pg_my_temp_schema": "CAST(0 AS UINTEGER)",
    "txid_current": "CAST(1 AS BIGINT)",
    "pg_current_xact_id": "CAST(1 AS BIGINT)",
    "clock_timestamp": "CURRENT_TIMESTAMP",
    "statement_timestamp": "CURRENT_TIMESTAMP",
    "pg_postmaster_start_time": "CURRENT_TIMESTAMP",
    "pg_conf_load_time": "CURRENT_TIMESTAMP",
    "inet_server_addr": "CAST(NULL AS VARCHAR)",
    "inet_client_addr": "CAST(NULL AS VARCHAR)",
    "inet_server_port": "CAST(NULL AS INTEGER)",
    "inet_client_port": "CAST(NULL AS INTEGER)",
}  # fmt: skip
"""Functions of PostgreSQL with one result here, as DuckDB's expressions."""

RENAMED: Final = {
    "format_type": "amps_format_type",
    "pg_typeof": "amps_typeof",
    "quote_ident": "amps_quote_ident",
    "quote_literal": "amps_quote_literal",
    "_pg_expandarray": "amps_expand_array",
    "array_upper": "amps_array_upper",
    "array_lower": "amps_array_lower",
    "every": "bool_and",
    "jsonb_agg": "json_group_array",
    "jsonb_object_agg": "json_group_object",
    "json_object_agg": "json_group_object",
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_build_array": "json_array",
    "jsonb_build_array": "json_array",
    "to_jsonb": "to_json",
    "jsonb_array_length": "json_array_length",
    "btrim": "trim",
    "div": "amps_div",
    "parse_ident": "amps_parse_ident",
}
"""Functions of PostgreSQL that are macros here, or that DuckDB calls otherwise."""

DEFINITION: Final = (
    "SELECT min(_v) FROM (SELECT definition AS _v, oid AS _a FROM pg_catalog._definitions) AS _l "
    "WHERE _l._a = ?"
)

LOOKUPS: Final = {
    "pg_table_is_visible": "SELECT ? IN (SELECT oid FROM pg_catalog._visible)",
    "col_description": "SELECT min(_v) FROM (SELECT description AS _v, objoid AS _a, objsubid "
    "AS _b FROM pg_catalog.pg_description WHERE classoid = 1259) AS _l "
    "WHERE _l._a = ? AND _l._b = ?",
    "obj_description": "SELECT min(_v) FROM (SELECT description AS _v, objoid AS _a "
    "FROM pg_catalog.pg_description WHERE objsubid = 0) AS _l WHERE _l._a = ?",
    "pg_get_indexdef": DEFINITION,
    "pg_get_indexdef/3": "SELECT min(_v) FROM (SELECT definition AS _v, oid AS _a, 0 AS _b FROM "
    "pg_catalog._definitions UNION ALL SELECT attname, attrelid, attnum FROM "
    "pg_catalog.pg_attribute) AS _l WHERE _l._a = ? AND _l._b = ?",
    "pg_get_constraintdef": DEFINITION,
    "select_privilege": "SELECT CASE WHEN ? IS NOT NULL AND coalesce(TRY_CAST(? AS UINTEGER) IN "
    "(SELECT oid FROM pg_catalog.pg_class), true) THEN true END",
    "privileges": "SELECT CASE WHEN ? IN (SELECT oid FROM pg_catalog.pg_class) "
    "THEN ? IN (SELECT oid FROM pg_catalog._privileges WHERE list_contains(?, privilege)) END",
    "to_regtype": "SELECT min(_v) FROM (SELECT oid AS _v, name AS _a "
    "FROM pg_catalog._type_names) AS _l WHERE _l._a = ?",
    "to_regclass": "SELECT min(_v) FROM (SELECT oid AS _v, relname AS _a FROM pg_catalog.pg_class "
    "WHERE oid IN (SELECT oid FROM pg_catalog._visible)) AS _l WHERE _l._a = ?",
    "to_regnamespace": "SELECT min(_v) FROM (SELECT oid AS _v, nspname AS _a "
    "FROM pg_catalog.pg_namespace) AS _l WHERE _l._a = ?",
    "regclass": "SELECT min(_v) FROM (SELECT relname AS _v, oid AS _a "
    "FROM pg_catalog.pg_class) AS _l WHERE _l._a = ?",
    "regnamespace": "SELECT min(_v) FROM (SELECT nspname AS _v, oid AS _a "
    "FROM pg_catalog.pg_namespace) AS _l WHERE _l._a = ?",
    "regproc": "SELECT coalesce(min(_v), '-') FROM (SELECT proname AS _v, oid AS _a "
    "FROM pg_catalog.pg_proc) AS _l WHERE _l._a = ?",
}
"""Functions of PostgreSQL that look something up; `?` are their arguments in order. Columns have
names of their own, so that those in arguments are the query's."""

MAX_TEXT_RESULT: Final = 256 * 1024
"""The number of characters that `repeat`, `lpad`, `rpad` and `replace` may make. DuckDB's limit of
memory does not hold for texts that functions make, and it makes 2,048 of them at a time."""

MAX_SERIES: Final = 1_000_000
"""The number of elements that `generate_series` may make outside of FROM, for the same reason."""


def macros() -> Iterator[str]:
    """Yield the statements that create DuckDB's enumeration and macros for rewritten functions."""
    characters = ", ".join("'{}'".format(chr(code).replace("'", "''")) for code in range(32, 127))
    yield f"CREATE TYPE {pg_types.CHAR_ENUM} AS ENUM ('', {characters})"
    cases = " ".join(
        f"WHEN {item.oid} THEN '{item.sql_name}' "
        + (f"WHEN {item.array_oid} THEN '{item.sql_name}[]'" if item.array_oid else "")
        for item in pg_types.TYPES
    )
    yield _macro(
        "amps_format_type",
        "o, m",
        "CASE WHEN r.o = 1043 AND r.m >= 4 THEN 'character varying(' || (r.m - 4) || ')' "
        f"ELSE CASE r.o {cases} WHEN 0 THEN '-' "
        "ELSE CASE WHEN r.o IS NOT NULL THEN '???' END END END",
    )
    yield _macro(
        "amps_quote_ident",
        "x",
        "CASE WHEN regexp_full_match(r.x, '[a-z_][a-z0-9_]*') "
        """THEN r.x ELSE '"' || replace(r.x, '"', '""') || '"' END""",
    )
    yield "CREATE MACRO amps_quote_literal(x) AS '''' || replace(x, '''', '''''') || ''''"
    yield (
        "CREATE MACRO amps_expand_array(x) AS "
        "unnest(list_transform(range(1, len(x) + 1), lambda i: {'x': x[i], 'n': i::INTEGER}))"
    )
    yield _macro(
        "amps_typeof",
        "x",
        f"CASE regexp_replace(typeof(r.x), '[(\\[].*', '') {_type_names()} "
        "ELSE lower(typeof(r.x)) END || CASE WHEN typeof(r.x) LIKE '%[]' THEN '[]' ELSE '' END",
    )
    yield "CREATE MACRO amps_array_upper(x, d) AS nullif(len(x), 0)::INTEGER"
    yield "CREATE MACRO amps_array_lower(x, d) AS CASE WHEN len(x) > 0 THEN 1 END"
    yield "CREATE MACRO amps_parse_ident(x) AS string_split(replace(x, '\"', ''), '.')"
    yield "CREATE MACRO amps_div(x, y) AS trunc(x / y)"
    for name in ("lpad", "rpad"):
        yield _macro(
            f"amps_{name}",
            "x, n, f",
            _limited(f"r.n > {MAX_TEXT_RESULT}", "text", f"{name}(r.x, r.n::INTEGER, r.f)"),
        )
    yield _macro(
        "amps_repeat",
        "x, n",
        _limited(
            f"r.n > 0 AND strlen(r.x)::DOUBLE * r.n > {MAX_TEXT_RESULT}", "text", "repeat(r.x, r.n)"
        ),
    )
    is_long = f"strlen(r.z) > 1 AND strlen(r.x)::DOUBLE * strlen(r.z) > {MAX_TEXT_RESULT}"
    yield _macro("amps_replace", "x, y, z", _limited(is_long, "text", "replace(r.x, r.y, r.z)"))
    yield _macro(
        "amps_regexp_replace",
        "x, y, z",
        _limited(is_long, "text", "regexp_replace(r.x, r.y, r.z, o)"),
        constants="o",
    )
    yield _macro(
        "amps_series",
        "a, b, s",
        _limited(
            f"abs((r.b::DOUBLE - r.a) / r.s) > {MAX_SERIES}",
            "series",
            "generate_series(r.a, r.b, r.s)",
        ),
    )


def _type_names() -> str:
    """Return cases of DuckDB's types, with PostgreSQL's names for them."""
    names = {
        item.duckdb.partition("(")[0]: item.sql_name
        for item in reversed(pg_types.TYPES)
        if item.category != "P"
    }
    names |= {"VARCHAR": "text", "JSON": "jsonb", "UINTEGER": "oid", "HUGEINT": "numeric"}
    names |= {"TIMESTAMP WITH TIME ZONE": names.pop("TIMESTAMPTZ"), '"NULL"': "unknown"}
    return " ".join(f"WHEN '{duckdb}' THEN '{name}'" for duckdb, name in names.items())


def _macro(name: str, arguments: str, body: str, *, constants: str = "") -> str:
    """Return the statement that creates a macro whose body names arguments more than once.

    A lambda binds them once. Else nested calls would double in size with each level, and DuckDB
    would fold constants in branches that are not taken.

    Args:
        name: the name of the macro.
        arguments: the names of its arguments, with commas.
        body: the expression, in which `r` has them.
        constants: further arguments, which have to be constants; the body names them directly.
    """
    fields = ", ".join(f"'{one}': {one}" for one in arguments.split(", "))
    given = ", ".join(filter(None, (arguments, constants)))
    return f"CREATE MACRO {name}({given}) AS list_transform([{{{fields}}}], lambda r: {body})[1]"


def _limited(condition: str, what: str, call: str) -> str:
    """Return a call that is an error under a condition."""
    return f"CASE WHEN {condition} THEN error('the {what} is too long') ELSE {call} END"


VECTORS: Final = frozenset(
    {"indkey", "indclass", "indoption", "indcollation", "proargtypes", "tgattr", "partattrs"}
)
"""Columns of types int2vector and oidvector, whose elements are counted from 0."""
