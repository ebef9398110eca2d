"""Parameters of queries, `$1` and so on: their numbers and types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from server.sql.query import pg_types
from server.sql.query.cast_types import cast_to, type_oid
from server.sql.query.errors import SqlError
from server.sql.query.names import TableReference, function_name
from server.sql.sqlstate import SYNTAX_ERROR, UNDEFINED_PARAMETER

_MAX_DIGITS: Final = 20


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
        if len(text) > _MAX_DIGITS:  # int() refuses thousands of digits with another error
            raise SqlError(UNDEFINED_PARAMETER, f"there is no parameter ${text[:_MAX_DIGITS]}...")
        numbers.add(int(text))
    return numbers


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
    if _is_any_or_all(parent):
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


def _is_any_or_all(node: exp.Expr) -> bool:
    if isinstance(node, exp.Any | exp.All):
        return True
    # Of other nodes, the name is their SQL: rendering a list for each of its items is quadratic.
    return isinstance(node, exp.Func) and function_name(node) in ("any", "all")


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


_DECIMAL: Final = "DECIMAL(38, 9)"
"""DuckDB's type for `numeric`. It would round parameters to 9 decimals; columns are doubles."""


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
        duckdb = duckdb.replace(_DECIMAL, "DOUBLE")
        node.replace(cast_to(exp.null() if as_null else node.copy(), duckdb))
