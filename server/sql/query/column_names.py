"""The names that PostgreSQL gives to columns of a result and of a subquery."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from server.sql.query import pg_types
from server.sql.query.cast_types import type_name
from server.sql.query.names import function_name


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
