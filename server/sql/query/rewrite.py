"""PostgreSQL's expressions as DuckDB's: casts, operators, functions of the catalogue.

sqlglot translates most of the syntax. The rest is here: types that name objects (`regclass`),
`OPERATOR(pg_catalog.~)`, texts with escapes, and functions that tools call (`pg_functions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from server.sql.query import pg_types
from server.sql.query.array_literals import array_elements, array_literal, array_operand
from server.sql.query.cast_types import cast_to, type_name
from server.sql.query.duckdb_functions import ALLOWED
from server.sql.query.errors import SqlError
from server.sql.query.names import NameResolver, function_name
from server.sql.query.operators import rewrite_operator
from server.sql.query.pg_functions import (
    CONSTANTS,
    DEFINITION,
    FORBIDDEN,
    FORBIDDEN_HINT,
    LOOKUPS,
    RENAMED,
    VECTORS,
)
from server.sql.query.processes.protocol import NOTIFY_FUNCTION
from server.sql.query.session import UNKNOWN_SETTING, SqlSession
from server.sql.query.tables import SEARCH_PATH
from server.sql.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER_VALUE,
    INVALID_TEXT_REPRESENTATION,
    UNDEFINED_FUNCTION,
    UNDEFINED_OBJECT,
    UNDEFINED_TABLE,
)

_WITHOUT_QUOTES: Final = "without_quotes"
"""Identifiers that were written so have this in their `meta`: some of them are functions."""


def fold_identifiers(tree: exp.Expr) -> None:
    """Fold identifiers without quotes to lower case, as PostgreSQL does, and quote all."""
    for node in tree.find_all(exp.Identifier):
        if not node.args.get("quoted"):
            node.set("this", node.this.lower())
            node.set("quoted", True)
            node.meta[_WITHOUT_QUOTES] = True


_TYPE_FUNCTIONS: Final = frozenset({"typinput", "typoutput", "typreceive", "typsend"})
"""Columns of `pg_type` that are OIDs, and names of functions where they are shown."""


def _is_type_function(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Column) or node.name not in _TYPE_FUNCTIONS:
        return False
    query = node.find_ancestor(exp.Select)
    return query is not None and any(table.name == "pg_type" for table in query.find_all(exp.Table))


# ---- expressions


class ExpressionRewriter:
    """Rewrites the expressions of one query for DuckDB, in place.

    Functions of the catalogue may become subqueries, which read further tables; so tables are bound
    afterwards.

    Args:
        session: the client's session.
        names: resolves names of relations.
        parameters: the values of parameters, as far as they are known.
        refused_functions: returns the functions of DuckDB that may not be called.
        is_execution: whether the query is executed, not described.
    """

    def __init__(
        self,
        session: SqlSession,
        names: NameResolver,
        parameters: Mapping[int, object],
        refused_functions: Callable[[], frozenset[str]],
        *,
        is_execution: bool = False,
    ) -> None:
        self._session = session
        self._names = names
        self._parameters = parameters
        self._refused_functions = refused_functions
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
                return exp.Literal.string(node.name)
            case exp.Operator():
                return rewrite_operator(node)
            case exp.Collate():
                operand: exp.Expr = node.this
                return operand
            case exp.Like() | exp.ILike():
                return _with_escape(node)
            case exp.Any():
                return array_operand(node)
            case exp.JSONBExtractScalar() | exp.JSONBExtract():
                return _json_path(node)
            case exp.WithinGroup() if isinstance(node.this, exp.Mode):
                term = node.expression.expressions[0]
                return exp.func("mode", term.this.copy())
            case exp.Column() if (
                not node.table
                and node.name in ("user", "current_role")
                and node.this.meta.get(_WITHOUT_QUOTES)
            ):
                return exp.Literal.string(self._session.user)
            case exp.Column() if _is_type_function(node) and self._is_result(node):
                return exp.alias_(self._object_name(node, "regproc"), node.name, quoted=True)
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
            case exp.Replace() | exp.RegexpReplace():
                return _bounded_replacement(node)
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
        if _is_type_function(value) and oid in (25, 1043):
            return self._object_name(value, "regproc")
        if value.meta.get("object") and oid in (25, 1043, 19):
            return self._object_name(value, value.meta["object"])
        if name in ("bpchar", "varchar") and node.to.expressions:
            return exp.func("left", cast_to(value, "VARCHAR"), node.to.expressions[0].this)
        if name == "numeric" and node.to.expressions:
            return None
        duckdb = pg_types.duckdb_type(oid) or "VARCHAR"
        if duckdb.endswith("[]") and isinstance(value, exp.Literal) and value.is_string:
            value = array_literal(value.name)
        if duckdb == pg_types.CHAR_ENUM:
            value = exp.func("left", cast_to(value, "VARCHAR"), exp.Literal.number(1))
        if isinstance(node, exp.TryCast):
            return None
        return cast_to(value, duckdb)

    @staticmethod
    def _is_shown(node: exp.Expr) -> bool:
        """Return whether a value of a type that names objects is a column of the result."""
        parent = node.parent
        while isinstance(parent, exp.Alias | exp.Paren):
            parent = parent.parent
        return isinstance(parent, exp.Select)

    @staticmethod
    def _is_result(node: exp.Expr) -> bool:
        """Return whether an expression without an alias is a column of the whole query."""
        return isinstance(node.parent, exp.Select) and node.find_ancestor(exp.Query) is (
            node.root().find(exp.Query)
        )

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
            named = cast_to(oid, "UINTEGER")
            named.meta["object"] = kind
            return named
        if value.meta.get("object"):  # ::regclass::oid
            value.meta.pop("object")
            return value
        result = cast_to(value, "UINTEGER")
        if kind == "oid":
            return result
        if is_shown:
            return self._object_name(result, kind)
        result.meta["object"] = kind
        return result

    def _object_oid(self, name: str, kind: str) -> int:
        shown = name[:100]  # in errors
        if kind == "regtype":
            oid = pg_types.find_oid(name)
            if oid is None:
                raise SqlError(UNDEFINED_OBJECT, f'type "{shown}" does not exist')
            return oid
        parts = [
            quoted.replace('""', '"') if plain == "" else plain.lower()
            for quoted, plain in re.findall(r'"((?:[^"]|"")+)"|([^".\s]+)', name)
        ]
        if kind == "regclass" and 1 <= len(parts) <= 2:
            oid = self._names.class_oid(parts[-2] if len(parts) == 2 else None, parts[-1])
            if oid is None:
                raise SqlError(UNDEFINED_TABLE, f'relation "{shown}" does not exist')
            return oid
        if kind == "regnamespace" and parts:
            oid = self._names.namespace_oid(parts[0])
            if oid is not None:
                return oid
        if kind == "regrole":
            return 10
        if kind in ("regproc", "regprocedure") and parts:
            return pg_types.PROCEDURES.get(parts[-1].partition("(")[0], 0)
        raise SqlError(
            INVALID_TEXT_REPRESENTATION, f'invalid input syntax for type {kind}: "{shown}"'
        )

    def _object_name(self, value: exp.Expr, kind: str) -> exp.Expr:
        """Return the name of an object for its OID."""
        value = value.copy()
        value.meta.pop("object", None)
        if kind == "regtype":
            return exp.func("amps_format_type", value, exp.null())
        if kind == "regclass":
            return _subquery(LOOKUPS["regclass"], value)
        if kind == "regnamespace":
            return _subquery(LOOKUPS["regnamespace"], value)
        if kind in ("regproc", "regprocedure"):
            return _subquery(LOOKUPS["regproc"], value)
        if kind == "regrole":
            return exp.Literal.string(self._session.user)
        return cast_to(value, "VARCHAR")

    # ---- functions

    def _function(self, node: exp.Func) -> exp.Expr | None:
        name = function_name(node)
        is_defined = name in CONSTANTS or name in RENAMED or name in LOOKUPS
        is_ours = is_defined or name in self._METHODS or _is_in_from(node)
        is_internal = name.startswith(("__", "duckdb_", "pragma_"))
        if name in FORBIDDEN or is_internal or (not is_ours and self._is_refused(name)):
            raise SqlError(
                UNDEFINED_FUNCTION, f"function {name}() does not exist", hint=FORBIDDEN_HINT
            )
        if isinstance(node, exp.AggFunc | exp.Star):
            return self._aggregate(node, name)
        arguments = _arguments(node)
        if name in CONSTANTS:
            return exp.maybe_parse(CONSTANTS[name], dialect="duckdb")
        if name in RENAMED:
            return exp.Anonymous(this=RENAMED[name], expressions=arguments)
        if name in LOOKUPS and arguments:
            return _subquery(LOOKUPS[name], *arguments)
        method = self._METHODS.get(name)
        return None if method is None else method(self, arguments)

    def _is_refused(self, name: str) -> bool:
        return name not in ALLOWED and name in self._refused_functions()

    @staticmethod
    def _aggregate(node: exp.Expr, name: str) -> exp.Expr | None:
        if name in ("json_array_agg", "json_arrayagg"):
            return exp.Anonymous(this="json_group_array", expressions=[node.this])
        return None

    def _current_setting(self, arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) not in (1, 2):
            raise SqlError(UNDEFINED_FUNCTION, "current_setting() has one or two arguments")
        flag = self._text(arguments[1]) if len(arguments) > 1 else "false"
        missing_ok = flag is None or flag in _TRUE_TEXTS  # None: a parameter without a value yet
        if not _is_constant(arguments[0]):
            return self._setting_of(arguments[0], missing_ok=missing_ok)
        name = self._text(arguments[0])
        if name is None:
            return cast_to(exp.null(), "VARCHAR")
        value = self._session.setting(name, missing_ok=missing_ok)
        return exp.null() if value is None else exp.Literal.string(value)

    def _setting_of(self, name: exp.Expr, *, missing_ok: bool) -> exp.Expr:
        """Return the value of a setting that each row names."""
        text = cast_to(name, "VARCHAR")
        values = exp.Case(this=exp.Lower(this=text))
        for key, value, _ in self._session.settings():
            values = values.when(exp.Literal.string(key.lower()), exp.Literal.string(value))
        if missing_ok:
            return values
        begin, end = exp.Literal.string(f'{UNKNOWN_SETTING} "'), exp.Literal.string('"')
        message = exp.Concat(expressions=[begin, text.copy(), end])
        unknown = exp.Anonymous(this="error", expressions=[message])
        is_null = exp.Is(this=text.copy(), expression=exp.null())
        return exp.Case().when(is_null, exp.null()).else_(values.else_(unknown))

    def _set_config(self, arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) != 3:
            raise SqlError(UNDEFINED_FUNCTION, "set_config() has three arguments")
        name, value = self._text(arguments[0]), self._text(arguments[1])
        if self._is_execution:
            if name is None:
                raise SqlError(INVALID_PARAMETER_VALUE, "SET requires parameter name")
            self._session.set(name, value)
            value = self._session.setting(name, missing_ok=True)
        return cast_to(exp.null() if value is None else exp.Literal.string(value), "VARCHAR")

    def _text(self, node: exp.Expr) -> str | None:
        """Return a constant text; None for NULL, and for parameters without a value yet."""
        while isinstance(node, exp.Cast | exp.Paren):
            node = node.this
        if isinstance(node, exp.Literal):
            return str(node.name)
        if isinstance(node, exp.Boolean):
            return str(node.this).lower()
        if isinstance(node, exp.Parameter):
            value = self._parameters.get(int(node.this.name))
            if isinstance(value, bool):
                return str(value).lower()
            return None if value is None else str(value)
        if isinstance(node, exp.Null):
            return None
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

    def _notify(self, arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) != 2:
            raise SqlError(UNDEFINED_FUNCTION, "pg_notify() has two arguments")
        texts = [cast_to(argument, "VARCHAR") for argument in arguments]
        return exp.Anonymous(this=NOTIFY_FUNCTION, expressions=texts)

    def _table_privilege(self, arguments: list[exp.Expr]) -> exp.Expr:
        """Return whether the user has one of the privileges for a table: ([user,] table, names).

        A privilege for columns is one for their table.
        """
        if len(arguments) < 2 or not isinstance(arguments[-1], exp.Literal):
            return self._privilege(arguments)
        wanted = set(re.findall(r"[A-Z]+", arguments[-1].name.upper()))
        table = arguments[-2]
        if isinstance(table, exp.Cast) and type_name(table.to) in ("text", "varchar"):
            table = table.this
        is_text = isinstance(table, exp.Literal) and table.is_string
        if is_text or isinstance(table, exp.Parameter):
            table = self._object(table, "regclass", is_shown=False)
        if "SELECT" in wanted:
            return _subquery(LOOKUPS["select_privilege"], table)
        names = [exp.Literal.string(name) for name in _WRITES if name in wanted]
        return _subquery(LOOKUPS["privileges"], table, table, exp.Array(expressions=names))

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
        "pg_notify": _notify,
        "encode": _encode,
        "decode": _decode,
        **dict.fromkeys(
            (
                *("has_schema_privilege", "has_database_privilege", "has_function_privilege"),
                *("has_sequence_privilege", "has_type_privilege", "has_language_privilege"),
                *("has_tablespace_privilege", "has_server_privilege"),
            ),
            _privilege,
        ),
        "has_table_privilege": _table_privilege,
        "has_any_column_privilege": _table_privilege,
        "has_column_privilege": lambda self, arguments: self._table_privilege(
            [*arguments[:-2], *arguments[-1:]]
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


_TRUE_TEXTS: Final = frozenset({"t", "true", "y", "yes", "on", "1"})

_OBJECT_TYPES: Final = frozenset(
    {"oid", "regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"}
)

_WRITES: Final = ("INSERT", "UPDATE", "DELETE")
_WRITE_PRIVILEGES: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "CREATE", "MAINTAIN"}
)

# ---- pieces


def _is_constant(node: exp.Expr) -> bool:
    """Return whether a text is known before the query runs: a constant or a parameter."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return isinstance(node, exp.Literal | exp.Parameter | exp.Null)


def _is_vector(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name in VECTORS


def _subscripts_a_vector(node: exp.Anonymous) -> bool:
    is_function = function_name(node) == "generate_subscripts"
    return is_function and bool(node.expressions) and _is_vector(node.expressions[0])


def _is_in_from(node: exp.Expr) -> bool:
    """Return whether a function is called in FROM, which has a list of its own."""
    return isinstance(node.parent, exp.Table | exp.Lateral) and node.arg_key == "this"


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


def _subquery(template: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a subquery of the catalogue with arguments for each `?`, the last for all others."""
    if len(arguments) >= 3 and template == DEFINITION:
        template = LOOKUPS["pg_get_indexdef/3"]
        arguments = arguments[:2]
    select: exp.Expr = exp.maybe_parse(template, dialect="duckdb", copy=False)
    places = list(select.find_all(exp.Placeholder, bfs=False))
    for index_, place in enumerate(places):
        place.replace(arguments[min(index_, len(arguments) - 1)].copy())
    fold_identifiers(select)
    return exp.Subquery(this=select)


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


def _bounded_replacement(node: exp.Expr) -> exp.Expr:
    """Return a replacement that is an error if the result might be too long."""
    by = node.args.get("replacement") or exp.Literal.string("")
    if isinstance(node, exp.Replace):
        return exp.func("amps_replace", node.this, node.expression, by)
    modifiers = node.args.get("modifiers") or exp.Literal.string("")
    return exp.func("amps_regexp_replace", node.this, node.expression, by, modifiers)


def _json_path(node: exp.Expr) -> exp.Expr | None:
    if not isinstance(node.expression, exp.Literal):
        return None
    steps = [str(item) for item in array_elements(node.expression.name)]
    path = "$" + "".join(
        f"[{step}]" if step.isdigit() else '."{}"'.format(step.replace('"', "")) for step in steps
    )
    name = "json_extract_string" if isinstance(node, exp.JSONBExtractScalar) else "json_extract"
    return exp.Anonymous(this=name, expressions=[node.this, exp.Literal.string(path)])
