"""PostgreSQL's expressions as DuckDB's: casts, operators, functions of the catalogue, names.

sqlglot translates most of the syntax. The rest is here: types that name objects (`regclass`),
`OPERATOR(pg_catalog.~)`, texts with escapes, functions that tools call, and the names that
PostgreSQL gives to columns of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from sqlglot import exp

from server.sql.query import pg_types
from server.sql.query.errors import (
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    INVALID_TEXT_REPRESENTATION,
    SYNTAX_ERROR,
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
    SqlError,
)
from server.sql.query.names import NameResolver, TableReference, function_name
from server.sql.query.session import SqlSession
from server.sql.query.tables import SEARCH_PATH

MAX_ARRAY_LITERAL: Final = 100_000

_ROOTS: Final = (exp.Select, exp.SetOperation, exp.Values, exp.Subquery, exp.Table)

_FORBIDDEN: Final = (
    *(exp.DML, exp.DDL, exp.Command, exp.Into, exp.Copy, exp.Pragma, exp.Attach, exp.Detach),
    *(exp.Set, exp.Use, exp.Drop, exp.Kill, exp.Show, exp.Transaction, exp.Commit, exp.Rollback),
)

_FORBIDDEN_FUNCTIONS: Final = frozenset(
    {
        *("getenv", "getvariable", "write_log", "parse_duckdb_log_message", "query", "query_table"),
        *("nextval", "setval", "currval", "json_serialize_sql", "json_deserialize_sql"),
        *("json_serialize_plan", "json_execute_serialized_sql", "create_function", "sleep_ms"),
        *("current_query", "duckdb_secrets", "which_secret", "setseed", "stats", "invoke"),
        *("list_resize", "array_resize", "range", "file_exists", "glob", "pg_read_file"),
        *("pg_ls_dir", "pg_stat_file", "pg_sleep_for", "pg_sleep_until", "pg_reload_conf"),
        *("pg_read_binary_file", "lo_import", "lo_export", "dblink", "pg_terminate_backend"),
        *("bar", "printf", "format", "equi_width_bins", "unpivot_list", "bitstring"),
    }
)  # fmt: skip
"""Functions of DuckDB that read settings or files, or make results of any size from few bytes;
and those of PostgreSQL that do things to a server."""


def check_read_only(tree: exp.Expr) -> None:
    """Raise an error for anything but a query.

    Raises:
        SqlError: the tree writes, defines, locks or sets something.
    """
    if not isinstance(tree, _ROOTS):
        raise SqlError(SYNTAX_ERROR, "expected a query: SELECT, VALUES, TABLE or WITH")
    for node in tree.walk():
        if isinstance(node, _FORBIDDEN) and not isinstance(node, _ROOTS):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "SQL statements are read only",
                hint="Publish, update and delete with a client of the amps protocol.",
            )
        if isinstance(node, exp.Lock):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "queries take no locks",
                hint="Leave out FOR UPDATE: a query reads one consistent snapshot.",
            )
        if isinstance(node, exp.Placeholder | exp.SessionParameter):
            raise SqlError(SYNTAX_ERROR, "parameters are written $1, $2, ...")


def parameter_numbers(tree: exp.Expr) -> set[int]:
    """Return the numbers of all parameters.

    Raises:
        SqlError: a parameter has no number.
    """
    numbers: set[int] = set()
    for node in tree.find_all(exp.Parameter):
        text = node.this.name if isinstance(node.this, exp.Literal) else ""
        if not text.isdigit():
            raise SqlError(SYNTAX_ERROR, "parameters are written $1, $2, ...")
        numbers.add(int(text))
    return numbers


def fold_identifiers(tree: exp.Expr) -> None:
    """Fold identifiers without quotes to lower case, as PostgreSQL does, and quote all."""
    for node in tree.find_all(exp.Identifier):
        if not node.args.get("quoted"):
            node.set("this", node.this.lower())
            node.set("quoted", True)


# ---- types of parameters


def infer_parameters(
    tree: exp.Expr, references: Sequence[TableReference], declared: Sequence[int]
) -> tuple[int, ...]:
    """Return the OIDs of all parameters.

    Args:
        tree: the query, with folded identifiers.
        references: its tables.
        declared: the types that the client asks for; 0 where it leaves the choice.

    A parameter has the type that it is cast to, or that of the column that it is compared with;
    text if neither is known.
    """
    count = max(parameter_numbers(tree), default=0)
    found: dict[int, int] = {}
    for node in tree.find_all(exp.Parameter):
        number = int(node.this.name)
        oid = _oid_from_place(node, references)
        if oid is not None:
            found.setdefault(number, oid)
    result = []
    for number in range(1, count + 1):
        asked = declared[number - 1] if number <= len(declared) else 0
        result.append(asked if asked not in (0, 705) else found.get(number, 25))
    return tuple(result)


def _oid_from_place(node: exp.Expr, references: Sequence[TableReference]) -> int | None:
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        node, parent = parent, parent.parent
    if parent is None:
        return None
    if isinstance(parent, exp.Any) or function_name(parent) in ("any", "all"):
        comparison = parent.parent
        other = comparison.this if comparison is not None else None
        element = pg_types.BY_OID.get(_oid_of(other, references) or 25)
        return element.array_oid if element is not None else 1009
    match parent:
        case exp.Cast():
            oid = type_oid(parent.to)
            return 25 if oid in _NAMED_BY_TEXT else oid
        case exp.Limit() | exp.Offset() | exp.Fetch():
            return 20
        case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.RegexpILike() | exp.DPipe():
            return 25
        case exp.Between() | exp.In():
            return _oid_of(parent.this if parent.this is not node else None, references)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            other = parent.expression if parent.this is node else parent.this
            oid = _oid_of(other, references)
            return 1186 if oid in (1082, 1114, 1184) else oid or 20
        case exp.Binary():
            other = parent.expression if parent.this is node else parent.this
            return _oid_of(other, references)
        case exp.Func():
            name = function_name(parent)
            is_first = parent.this is node or (parent.expressions or [None])[0] is node
            return 23 if name in _COUNTED and not is_first else None
        case _:
            return None


_NAMED_BY_TEXT: Final = frozenset({24, 2202, 2205, 2206, 4089, 4096})
"""Types that name objects, whose values clients send as texts."""

_COUNTED: Final = frozenset(
    {
        *("array_size", "array_length", "array_upper", "array_lower", "generate_subscripts"),
        *("substring", "left", "right", "repeat", "pad", "round", "split_part"),
    }
)
"""Functions whose arguments after the first are integers."""


def _oid_of(  # noqa: C901 - one case for each kind of node
    node: exp.Expr | None, references: Sequence[TableReference]
) -> int | None:
    match node:
        case exp.Paren() | exp.Neg():
            return _oid_of(node.this, references)
        case exp.Cast():
            return type_oid(node.to)
        case exp.Column():
            for item in references:
                if not node.table or node.table == item.alias:
                    column = item.relation.column(node.name)
                    if column is not None:
                        return column.oid
            return None
        case exp.Literal():
            if node.is_string:
                return None
            return 23 if node.name.isdigit() else 701
        case exp.Sum() | exp.Avg():
            return 701
        case exp.Count() | exp.Length():
            return 20
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
            return _oid_of(node.this, references) or _oid_of(node.expression, references)
        case exp.Lower() | exp.Upper() | exp.Trim() | exp.DPipe() | exp.Substring():
            return 25
        case exp.CurrentTimestamp():
            return 1184
        case exp.Min() | exp.Max() | exp.Coalesce():
            return _oid_of(node.this, references)
        case _:
            return None


_TYPE_NAMES: Final = {
    "TEXT": "text", "VARCHAR": "varchar", "NVARCHAR": "varchar", "CHAR": "bpchar", "NAME": "name",
    "BPCHAR": "bpchar", "INT": "int4", "BIGINT": "int8", "SMALLINT": "int2", "TINYINT": "int2",
    "BOOLEAN": "bool", "DOUBLE": "float8", "FLOAT": "float4", "DECIMAL": "numeric",
    "TIMESTAMPTZ": "timestamptz", "TIMESTAMP": "timestamp", "DATE": "date", "TIME": "time",
    "TIMETZ": "timetz", "INTERVAL": "interval", "JSON": "json", "JSONB": "jsonb", "UUID": "uuid",
    "VARBINARY": "bytea", "BINARY": "bytea", "TIMESTAMPLTZ": "timestamptz", "INET": "inet",
}  # fmt: skip
"""sqlglot's types, by PostgreSQL's names."""


def type_name(data_type: exp.Expr) -> str | None:
    """Return the name of a type of a cast, in `pg_types`, with brackets for arrays."""
    if not isinstance(data_type, exp.DataType):
        return None
    if data_type.this == exp.DataType.Type.ARRAY:
        inner = data_type.expressions[0] if data_type.expressions else None
        name = type_name(inner) if inner is not None else None
        return None if name is None else f"{name}[]"
    if data_type.this == exp.DataType.Type.USERDEFINED:
        kind = data_type.args.get("kind")
        name = kind.name if isinstance(kind, exp.Expr) else str(kind or "")
        return name.lower()
    return _TYPE_NAMES.get(data_type.this.name)


def type_oid(data_type: exp.Expr) -> int | None:
    """Return the OID of the type of a cast; None if it is unknown."""
    name = type_name(data_type)
    return None if name is None else pg_types.find_oid(name)


# ---- names of results


def output_names(tree: exp.Expr) -> list[str] | None:
    """Return the names of the result's columns, as PostgreSQL gives them.

    None if a star hides them. Source: PostgreSQL's `FigureColname` in parse_target.c.
    """
    query: exp.Expr = tree
    while isinstance(query, exp.SetOperation | exp.Subquery):
        query = query.this
    if isinstance(query, exp.Values):
        row = query.expressions[0]
        count = len(row.expressions) if isinstance(row, exp.Tuple) else 1
        return [f"column{index + 1}" for index in range(count)]
    if not isinstance(query, exp.Select) or any(item.is_star for item in query.expressions):
        return None
    return [column_name(item) for item in query.expressions]


def column_name(node: exp.Expr) -> str:
    """Return the name of a column of a result."""
    return _figured_name(node) or "?column?"


def _figured_name(  # noqa: C901 - one case for each kind of node
    node: exp.Expr,
) -> str | None:
    match node:
        case exp.Alias():
            return str(node.alias)
        case exp.Column() | exp.Identifier():
            return str(node.name)
        case exp.Dot():
            return _figured_name(node.expression)
        case exp.Cast():
            value = node.this
            while isinstance(value, exp.Paren | exp.Bracket):
                value = value.this
            is_strong = isinstance(value, exp.Column | exp.Func | exp.Dot | exp.Subquery)
            if is_strong and not isinstance(value, exp.Cast | exp.Binary | exp.Case):
                return _figured_name(value)
            name = (type_name(node.to) or "?column?").removesuffix("[]")
            known = pg_types.find(name)
            return known.name if known is not None else name
        case exp.Paren() | exp.Bracket() | exp.Window() | exp.Filter() | exp.WithinGroup():
            return _figured_name(node.this)
        case exp.Collate() | exp.AtTimeZone():
            return _figured_name(node.this) if isinstance(node, exp.Collate) else "timezone"
        case exp.Subquery():
            names = output_names(node)
            return names[0] if names else None
        case exp.Case():
            return (
                _figured_name(node.args["default"]) if node.args.get("default") else None
            ) or "case"
        case exp.Exists():
            return "exists"
        case exp.Array():
            return "array"
        case exp.Boolean():
            return "bool"
        case exp.Interval():
            return "interval"
        case exp.Operator() | exp.Binary() | exp.Connector() | exp.Not() | exp.Neg():
            return None
        case exp.Func():
            name = function_name(node)
            return _FIGURED.get(name, name)
        case _:
            return None


_FIGURED: Final = {
    "current_version": "version", "explode": "unnest", "exploding_generate_series":
    "generate_series", "rand": "random", "timestamp_trunc": "date_trunc", "group_concat":
    "string_agg", "str_position": "position", "array_size": "array_length", "time_to_str":
    "to_char", "ceil": "ceil", "pad": "lpad", "logical_and": "bool_and", "logical_or": "bool_or",
    "json_array_agg": "json_agg", "current_timestamp": "now", "unix_to_time": "to_timestamp",
    "array_unique_agg": "array_agg", "stddev_samp": "stddev_samp", "str_to_time": "to_timestamp",
    "current_user": "current_user", "session_user": "session_user", "array_to_string":
    "array_to_string", "if": "case", "pow": "power",
}  # fmt: skip
"""The names of functions that sqlglot calls otherwise."""


def alias_inner_columns(tree: exp.Expr) -> None:
    """Give the columns of subqueries and common tables the names that PostgreSQL gives them."""
    for select in tree.find_all(exp.Select):
        if select is tree or select.parent is None:
            continue
        if not isinstance(select.parent, exp.Subquery | exp.CTE | exp.Lateral | exp.SetOperation):
            continue
        for item in list(select.expressions):
            if isinstance(item, exp.Alias | exp.Column) or item.is_star:
                continue
            name = column_name(item)
            item.replace(exp.alias_(item.copy(), name, quoted=True))
    for values in tree.find_all(exp.Values):
        alias = values.args.get("alias")
        if values.parent is None or (alias is not None and alias.columns):
            continue
        row = values.expressions[0]
        count = len(row.expressions) if isinstance(row, exp.Tuple) else 1
        columns = [exp.to_identifier(f"column{index + 1}", quoted=True) for index in range(count)]
        this = alias.this if alias is not None else exp.to_identifier("*VALUES*", quoted=True)
        values.set("alias", exp.TableAlias(this=this, columns=columns))


# ---- expressions


class ExpressionRewriter:
    """Rewrites the expressions of one query for DuckDB, in place.

    Functions of the catalogue may become subqueries, which read further tables; so tables are bound
    afterwards.
    """

    def __init__(
        self,
        session: SqlSession,
        names: NameResolver,
        parameters: Mapping[int, object] | None = None,
        *,
        is_execution: bool = False,
    ) -> None:
        self._session = session
        self._names = names
        self._parameters = parameters or {}
        self._is_execution = is_execution

    def rewrite(self, tree: exp.Expr) -> exp.Expr:
        """Return the tree with its expressions rewritten.

        Raises:
            SqlError: a type, an object or a function does not exist or is not allowed.
        """
        holder = exp.Paren(this=tree)
        for dot in list(holder.find_all(exp.Dot)):
            left, right = dot.this, dot.expression
            if isinstance(left, exp.Identifier) and isinstance(right, exp.Func):
                if left.name in ("pg_catalog", "information_schema"):
                    dot.replace(right)
                else:
                    name = f"{left.name}.{function_name(right)}"
                    raise SqlError(UNDEFINED_FUNCTION, f"function {name}() does not exist")
        nodes = list(holder.walk())
        for node in reversed(nodes):
            if node is holder:
                continue
            replacement = self._rewritten(node)
            if replacement is not None and replacement is not node:
                node.replace(replacement)
        result: exp.Expr = holder.this
        result.parent = None
        return result

    def _rewritten(  # noqa: C901 - one case for each kind of node
        self, node: exp.Expr
    ) -> exp.Expr | None:
        match node:
            case exp.Cast():
                return self._cast(node)
            case exp.ByteString():
                return exp.Literal.string(_unescape(node.name))
            case exp.Operator():
                return _operator(node)
            case exp.Collate():
                operand: exp.Expr = node.this
                return operand
            case exp.Like() | exp.ILike():
                return _with_escape(node)
            case exp.Any():
                return _array_operand(node)
            case exp.JSONBExtractScalar() | exp.JSONBExtract():
                return _json_path(node)
            case exp.WithinGroup() if isinstance(node.this, exp.Mode):
                term = node.expression.expressions[0]
                return exp.func("mode", term.this.copy())
            case exp.Column() if not node.table and node.name in ("user", "current_role"):
                return exp.Literal.string(self._session.user)
            case exp.Bracket() if _is_vector(node.this):
                (index,) = node.expressions if len(node.expressions) == 1 else (None,)
                if index is not None and not isinstance(index, exp.Slice):
                    following = exp.Add(
                        this=exp.Paren(this=index), expression=exp.Literal.number(1)
                    )
                    node.set("expressions", [following])
                return None
            case exp.Anonymous() if _subscripts_a_vector(node):
                return exp.Paren(this=exp.Sub(this=node.copy(), expression=exp.Literal.number(1)))
            case exp.Repeat() | exp.Pad():
                return _bounded_text(node)
            case exp.GenerateSeries() | exp.ExplodingGenerateSeries():
                if not isinstance(node.parent, exp.Table | exp.Lateral):
                    arguments = [node.args.get(key) for key in ("start", "end", "step")]
                    series = exp.func(
                        "amps_series", *[item or exp.Literal.number(1) for item in arguments]
                    )
                    return exp.Explode(this=series)
                return None
            case exp.Func():
                return self._function(node)
        return None

    # ---- casts

    def _cast(self, node: exp.Cast) -> exp.Expr | None:
        value = node.this
        name = type_name(node.to)
        if name is None:
            return None
        oid = pg_types.find_oid(name)
        if oid is None:
            raise SqlError(UNDEFINED_OBJECT, f'type "{name}" does not exist')
        if name in _OBJECT_TYPES:
            return self._object(value, name, self._is_shown(node))
        if value.meta.get("object") and oid in (25, 1043, 19):
            return self._object_name(value, value.meta["object"])
        if name in ("bpchar", "varchar") and node.to.expressions:
            return exp.func("left", _cast_to(value, "VARCHAR"), node.to.expressions[0].this)
        if name == "numeric" and node.to.expressions:
            return None
        duckdb = pg_types.duckdb_type(oid) or "VARCHAR"
        if duckdb.endswith("[]") and isinstance(value, exp.Literal) and value.is_string:
            value = _array_literal(value.name)
        if duckdb == pg_types.CHAR_ENUM:
            value = exp.func("left", _cast_to(value, "VARCHAR"), exp.Literal.number(1))
        if isinstance(node, exp.TryCast):
            return None
        return _cast_to(value, duckdb)

    @staticmethod
    def _is_shown(node: exp.Expr) -> bool:
        """Return whether a value of a type that names objects is a column of the result."""
        parent = node.parent
        while isinstance(parent, exp.Alias | exp.Paren):
            parent = parent.parent
        return isinstance(parent, exp.Select)

    def _object(self, value: exp.Expr, kind: str, is_shown: bool) -> exp.Expr:
        """Return the OID of an object for its name, or the OID as it is."""
        if isinstance(value, exp.Parameter):
            text = self._parameters.get(int(value.this.name))
            if isinstance(text, str):
                value = exp.Literal.string(text)
        if isinstance(value, exp.Literal) and value.is_string and not value.name.isdigit():
            oid = exp.Literal.number(self._object_oid(value.name, kind))
            if is_shown:
                return value
            named = _cast_to(oid, "UINTEGER")
            named.meta["object"] = kind
            return named
        if value.meta.get("object"):  # ::regclass::oid
            value.meta.pop("object")
            return value
        result = _cast_to(value, "UINTEGER")
        if kind == "oid":
            return result
        if is_shown:
            return self._object_name(result, kind)
        result.meta["object"] = kind
        return result

    def _object_oid(self, name: str, kind: str) -> int:
        if kind == "regtype":
            oid = pg_types.find_oid(name)
            if oid is None:
                raise SqlError(UNDEFINED_OBJECT, f'type "{name}" does not exist')
            return oid
        parts = [
            quoted.replace('""', '"') if plain == "" else plain.lower()
            for quoted, plain in re.findall(r'"((?:[^"]|"")+)"|([^".]+)', name)
        ]
        if kind == "regclass" and 1 <= len(parts) <= 2:
            oid = self._names.class_oid(parts[-2] if len(parts) == 2 else None, parts[-1])
            if oid is None:
                raise SqlError(UNDEFINED_TABLE, f'relation "{name}" does not exist')
            return oid
        if kind == "regnamespace":
            oid = self._names.namespace_oid(parts[0])
            if oid is not None:
                return oid
        if kind == "regrole":
            return 10
        if kind in ("regproc", "regprocedure"):
            return pg_types.PROCEDURES.get(parts[-1].partition("(")[0], 0)
        raise SqlError(
            INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type {kind}: "{name}"'
        )

    def _object_name(self, value: exp.Expr, kind: str) -> exp.Expr:
        """Return the name of an object for its OID."""
        value = value.copy()
        value.meta.pop("object", None)
        if kind == "regtype":
            return exp.func("amps_format_type", value, exp.null())
        if kind == "regclass":
            return _subquery(_SUBQUERIES["regclass"], value)
        if kind == "regnamespace":
            return _subquery(_SUBQUERIES["regnamespace"], value)
        if kind in ("regproc", "regprocedure"):
            return _subquery(_SUBQUERIES["regproc"], value)
        if kind == "regrole":
            return exp.Literal.string(self._session.user)
        return _cast_to(value, "VARCHAR")

    # ---- functions

    def _function(self, node: exp.Func) -> exp.Expr | None:
        name = function_name(node)
        if name in _FORBIDDEN_FUNCTIONS or name.startswith(("__internal", "duckdb_", "pragma_")):
            raise SqlError(
                UNDEFINED_FUNCTION, f"function {name}() does not exist", hint=_FORBIDDEN_HINT
            )
        if isinstance(node, exp.AggFunc | exp.Star):
            return self._aggregate(node, name)
        arguments = _arguments(node)
        if name in _CONSTANTS:
            return exp.maybe_parse(_CONSTANTS[name], dialect="duckdb")
        if name in _RENAMED:
            return exp.Anonymous(this=_RENAMED[name], expressions=arguments)
        if name in _SUBQUERIES and arguments:
            return _subquery(_SUBQUERIES[name], *arguments)
        method = self._METHODS.get(name)
        return None if method is None else method(self, arguments)

    @staticmethod
    def _aggregate(node: exp.Expr, name: str) -> exp.Expr | None:
        if name in ("json_array_agg", "json_arrayagg"):
            return exp.Anonymous(this="json_group_array", expressions=[node.this])
        return None

    def _current_setting(self, arguments: list[exp.Expr]) -> exp.Expr:
        name = self._text(arguments[0]) if arguments else ""
        missing_ok = len(arguments) > 1
        value = self._session.setting(name, missing_ok=missing_ok)
        return exp.null() if value is None else exp.Literal.string(value)

    def _set_config(self, arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) != 3:
            raise SqlError(UNDEFINED_FUNCTION, "set_config() has three arguments")
        name, value = self._text(arguments[0]), self._text(arguments[1])
        if self._is_execution:
            self._session.set(name, value)
        return exp.Literal.string(value)

    def _text(self, node: exp.Expr) -> str:
        while isinstance(node, exp.Cast | exp.Paren):
            node = node.this
        if isinstance(node, exp.Literal):
            return str(node.name)
        if isinstance(node, exp.Parameter):
            value = self._parameters.get(int(node.this.name))
            return str(value if value is not None else "")
        raise SqlError(FEATURE_NOT_SUPPORTED, "settings are named by a constant or a parameter")

    def _user(self, _arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Literal.string(self._session.user)

    def _database(self, _arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Literal.string(self._session.database)

    def _version(self, _arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Literal.string(self._session.version)

    def _schema(self, _arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Literal.string(SEARCH_PATH[0])

    def _schemas(self, _arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Array(expressions=[exp.Literal.string(name) for name in SEARCH_PATH])

    def _backend_pid(self, _arguments: list[exp.Expr]) -> exp.Expr:
        return exp.Literal.number(self._session.process_id)

    def _privilege(self, arguments: list[exp.Expr]) -> exp.Expr:
        wanted = arguments[-1] if arguments else None
        text = wanted.name.upper() if isinstance(wanted, exp.Literal) else "SELECT"
        return exp.Boolean(this=not _WRITE_PRIVILEGES.intersection(re.findall(r"\w+", text)))

    def _encode(self, arguments: list[exp.Expr]) -> exp.Expr | None:
        return _codec(arguments, {"hex": "SELECT lower(hex(?))", "base64": "SELECT base64(?)"})

    def _decode(self, arguments: list[exp.Expr]) -> exp.Expr | None:
        return _codec(arguments, {"hex": "SELECT unhex(?)", "base64": "SELECT from_base64(?)"})

    _METHODS: Final[
        dict[str, Callable[[ExpressionRewriter, list[exp.Expr]], exp.Expr | None]]
    ] = {
        "current_setting": _current_setting,
        "set_config": _set_config,
        "current_user": _user,
        "session_user": _user,
        "pg_get_userbyid": _user,
        "current_database": _database,
        "current_catalog": _database,
        "current_version": _version,
        "version": _version,
        "current_schema": _schema,
        "current_schemas": _schemas,
        "pg_backend_pid": _backend_pid,
        "encode": _encode,
        "decode": _decode,
        **dict.fromkeys(
            (
                *("has_table_privilege", "has_schema_privilege", "has_database_privilege"),
                *("has_column_privilege", "has_any_column_privilege", "has_function_privilege"),
                *("has_sequence_privilege", "has_type_privilege", "has_language_privilege"),
                *("has_tablespace_privilege", "has_server_privilege"),
            ),
            _privilege,
        ),
    }  # fmt: skip


def _codec(arguments: list[exp.Expr], known: dict[str, str]) -> exp.Expr | None:
    if len(arguments) != 2:
        return None
    template = known.get(arguments[1].name.lower())
    if template is None:
        raise SqlError(INVALID_PARAMETER_VALUE, f'unrecognized encoding: "{arguments[1].name}"')
    select: exp.Expr = exp.maybe_parse(template, dialect="duckdb")
    for place in list(select.find_all(exp.Placeholder)):
        place.replace(arguments[0].copy())
    result: exp.Expr = select.expressions[0]
    return result


_OBJECT_TYPES: Final = frozenset(
    {"oid", "regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"}
)

_WRITE_PRIVILEGES: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "CREATE", "MAINTAIN"}
)

_FORBIDDEN_HINT: Final = "Only functions that compute something from their arguments can be called."

_CONSTANTS: Final = {
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

_RENAMED: Final = {
    "format_type": "amps_format_type",
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
"""Functions of PostgreSQL that are macros here (`MACROS`), or that DuckDB calls otherwise."""

_DEFINITION: Final = (
    "SELECT min(_v) FROM (SELECT definition AS _v, oid AS _a FROM pg_catalog._definitions) AS _l "
    "WHERE _l._a = ?"
)

_SUBQUERIES: Final = {
    "pg_table_is_visible": "SELECT ? IN (SELECT oid FROM pg_catalog._visible)",
    "col_description": "SELECT min(_v) FROM (SELECT description AS _v, objoid AS _a, objsubid "
    "AS _b FROM pg_catalog.pg_description WHERE classoid = 1259) AS _l "
    "WHERE _l._a = ? AND _l._b = ?",
    "obj_description": "SELECT min(_v) FROM (SELECT description AS _v, objoid AS _a "
    "FROM pg_catalog.pg_description WHERE objsubid = 0) AS _l WHERE _l._a = ?",
    "pg_get_indexdef": _DEFINITION,
    "pg_get_indexdef/3": "SELECT min(_v) FROM (SELECT definition AS _v, oid AS _a, 0 AS _b FROM "
    "pg_catalog._definitions UNION ALL SELECT attname, attrelid, attnum FROM "
    "pg_catalog.pg_attribute) AS _l WHERE _l._a = ? AND _l._b = ?",
    "pg_get_constraintdef": _DEFINITION,
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

MAX_TEXT_RESULT: Final = 10_000_000
"""The number of characters that `repeat`, `lpad` and `rpad` may make: DuckDB's limit of memory does
not hold for them."""

MAX_SERIES: Final = 10_000_000
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
    yield (
        "CREATE MACRO amps_format_type(o, m) AS CASE WHEN o = 1043 AND m >= 4 THEN "
        "'character varying(' || (m - 4) || ')' ELSE CASE o "
        f"{cases} WHEN 0 THEN '-' ELSE CASE WHEN o IS NOT NULL THEN '???' END END END"
    )
    yield (
        "CREATE MACRO amps_quote_ident(x) AS CASE WHEN regexp_full_match(x, '[a-z_][a-z0-9_]*') "
        """THEN x ELSE '"' || replace(x, '"', '""') || '"' END"""
    )
    yield "CREATE MACRO amps_quote_literal(x) AS '''' || replace(x, '''', '''''') || ''''"
    yield (
        "CREATE MACRO amps_expand_array(x) AS "
        "unnest(list_transform(range(1, len(x) + 1), lambda i: {'x': x[i], 'n': i::INTEGER}))"
    )
    yield "CREATE MACRO amps_array_upper(x, d) AS CASE WHEN len(x) > 0 THEN len(x)::INTEGER END"
    yield "CREATE MACRO amps_array_lower(x, d) AS CASE WHEN len(x) > 0 THEN 1 END"
    yield "CREATE MACRO amps_parse_ident(x) AS string_split(replace(x, '\"', ''), '.')"
    yield "CREATE MACRO amps_div(x, y) AS trunc(x / y)"
    for name in ("lpad", "rpad"):
        yield (
            f"CREATE MACRO amps_{name}(x, n, f) AS CASE WHEN n > {MAX_TEXT_RESULT} "
            f"THEN error('the text is too long') ELSE {name}(x, n::INTEGER, f) END"
        )
    yield (
        "CREATE MACRO amps_repeat(x, n) AS CASE WHEN n > 0 AND strlen(x)::DOUBLE * n > "
        f"{MAX_TEXT_RESULT} THEN error('the text is too long') ELSE repeat(x, n) END"
    )
    yield (
        "CREATE MACRO amps_series(a, b, s) AS CASE WHEN abs((b::DOUBLE - a) / s) > "
        f"{MAX_SERIES} THEN error('the series is too long') ELSE generate_series(a, b, s) END"
    )


# ---- pieces


_VECTORS: Final = frozenset(
    {"indkey", "indclass", "indoption", "indcollation", "proargtypes", "tgattr", "partattrs"}
)
"""Columns of types int2vector and oidvector, whose elements are counted from 0."""


def _is_vector(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name in _VECTORS


def _subscripts_a_vector(node: exp.Anonymous) -> bool:
    is_function = str(node.this).lower() == "generate_subscripts"
    return is_function and bool(node.expressions) and _is_vector(node.expressions[0])


def _arguments(node: exp.Func) -> list[exp.Expr]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    arguments: list[exp.Expr] = []
    for value in node.args.values():
        if isinstance(value, exp.Expr):
            arguments.append(value)
        elif isinstance(value, list):
            arguments.extend(item for item in value if isinstance(item, exp.Expr))
    return arguments


def _cast_to(value: exp.Expr, duckdb: str) -> exp.Cast:
    return exp.Cast(this=value, to=exp.DataType.build(duckdb, dialect="duckdb", udt=True))


def _subquery(template: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a subquery of the catalogue with arguments for each `?`, the last for all others."""
    if len(arguments) >= 3 and template == _DEFINITION:
        template = _SUBQUERIES["pg_get_indexdef/3"]
        arguments = arguments[:2]
    select: exp.Expr = exp.maybe_parse(template, dialect="duckdb", copy=False)
    places = list(select.find_all(exp.Placeholder, bfs=False))
    for index_, place in enumerate(places):
        place.replace(arguments[min(index_, len(arguments) - 1)].copy())
    fold_identifiers(select)
    return exp.Subquery(this=select)


_OPERATORS: Final[dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]]] = {
    "~": lambda left, right: exp.RegexpLike(this=left, expression=right),
    "!~": lambda left, right: exp.Not(this=exp.RegexpLike(this=left, expression=right)),
    "~*": lambda left, right: exp.RegexpILike(this=left, expression=right),
    "!~*": lambda left, right: exp.Not(this=exp.RegexpILike(this=left, expression=right)),
    "~~": lambda left, right: exp.Like(this=left, expression=right),
    "!~~": lambda left, right: exp.Not(this=exp.Like(this=left, expression=right)),
    "=": lambda left, right: exp.EQ(this=left, expression=right),
    "<>": lambda left, right: exp.NEQ(this=left, expression=right),
    "<": lambda left, right: exp.LT(this=left, expression=right),
    "<=": lambda left, right: exp.LTE(this=left, expression=right),
    ">": lambda left, right: exp.GT(this=left, expression=right),
    ">=": lambda left, right: exp.GTE(this=left, expression=right),
    "+": lambda left, right: exp.Add(this=left, expression=right),
    "-": lambda left, right: exp.Sub(this=left, expression=right),
    "*": lambda left, right: exp.Mul(this=left, expression=right),
    "||": lambda left, right: exp.DPipe(this=left, expression=right),
}


def _operator(node: exp.Operator) -> exp.Expr:
    sign = str(node.args["operator"]).rpartition(".")[2]
    make = _OPERATORS.get(sign)
    if make is None:
        raise SqlError(UNDEFINED_FUNCTION, f"operator does not exist: {sign}")
    return make(node.this, node.expression)


def _with_escape(node: exp.Like | exp.ILike) -> exp.Expr | None:
    """Return LIKE with PostgreSQL's escape character, if the pattern may have it."""
    if isinstance(node.parent, exp.Escape):
        return None
    pattern = node.expression
    if isinstance(pattern, exp.Literal) and "\\" not in pattern.name:
        return None
    if isinstance(pattern, exp.Any):
        return None
    negate = node.args.get("negate")
    plain = node.copy()
    plain.set("negate", None)
    escaped = exp.Escape(this=plain, expression=exp.Literal.string("\\"))
    return exp.Not(this=exp.Paren(this=escaped)) if negate else escaped


def _bounded_text(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Repeat):
        return exp.func("amps_repeat", node.this, node.args["times"])
    name = "amps_lpad" if node.args.get("is_left") else "amps_rpad"
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    return exp.func(name, node.this, node.expression, fill)


def _array_operand(node: exp.Any) -> exp.Expr | None:
    operand = node.this
    inner = operand.this if isinstance(operand, exp.Paren) else operand
    if isinstance(inner, exp.Literal) and inner.is_string:
        return exp.Any(this=exp.Paren(this=_array_literal(inner.name)))
    return None


def _json_path(node: exp.Expr) -> exp.Expr | None:
    if not isinstance(node.expression, exp.Literal):
        return None
    steps = [str(item) for item in array_elements(node.expression.name)]
    path = "$" + "".join(
        f"[{step}]" if step.isdigit() else '."{}"'.format(step.replace('"', "")) for step in steps
    )
    name = "json_extract_string" if isinstance(node, exp.JSONBExtractScalar) else "json_extract"
    return exp.Anonymous(this=name, expressions=[node.this, exp.Literal.string(path)])


def array_elements(text: str) -> list[str | None]:
    """Return the elements of a literal of a one-dimensional array, such as `{a,"b c",NULL}`.

    Source: PostgreSQL documentation, Array Value Input.

    Raises:
        SqlError: the text is none.
    """
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise SqlError(INVALID_TEXT_REPRESENTATION, f'malformed array literal: "{text[:100]}"')
    body = body[1:-1]
    if not body.strip():
        return []
    elements: list[str | None] = []
    item = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|((?:[^",{}\\]|\\.)*?))\s*(,|$)', re.DOTALL)
    position = 0
    while True:
        match = item.match(body, position)
        if match is None or len(elements) > MAX_ARRAY_LITERAL:
            raise SqlError(INVALID_TEXT_REPRESENTATION, f'malformed array literal: "{text[:100]}"')
        quoted, plain, separator = match.groups()
        if quoted is not None:
            elements.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            elements.append(None if plain.upper() == "NULL" else re.sub(r"\\(.)", r"\1", plain))
        if not separator:
            return elements
        position = match.end()


def _array_literal(text: str) -> exp.Expr:
    if re.fullmatch(r"\s*-?\d+(\s+-?\d+)*\s*", text):  # int2vector, oidvector
        return exp.Array(expressions=[exp.Literal.number(item) for item in text.split()])
    return exp.Array(
        expressions=[
            exp.null() if item is None else exp.Literal.string(item)
            for item in array_elements(text)
        ]
    )


_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{1,3})|(.))", re.DOTALL
)


def _unescape(text: str) -> str:
    """Return the value of a text with C-style escapes, E'...'."""

    def value(match: re.Match[str]) -> str:
        hexadecimal = match[1] or match[2] or match[3]
        if hexadecimal:
            return chr(min(int(hexadecimal, 16), 0x10FFFF))
        if match[4]:
            return chr(int(match[4], 8) & 0xFF)
        return _ESCAPES.get(match[5], match[5])

    return _ESCAPE.sub(value, text)


def type_parameters(tree: exp.Expr, oids: Sequence[int], *, as_null: bool = False) -> None:
    """Give each parameter its type, or replace it by a NULL of its type.

    Args:
        tree: the query.
        oids: the types of the parameters.
        as_null: replace them, to describe the result without values.
    """
    for node in list(tree.find_all(exp.Parameter)):
        oid = oids[int(node.this.name) - 1]
        duckdb = pg_types.duckdb_type(oid) or "VARCHAR"
        if duckdb == pg_types.CHAR_ENUM:
            duckdb = "VARCHAR"
        node.replace(_cast_to(exp.null() if as_null else node.copy(), duckdb))
