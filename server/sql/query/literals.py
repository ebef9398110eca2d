"""Quoted literals beside columns: they take the column's type, as in PostgreSQL.

DuckDB would convert them as a cast does: `'1.5'` beside a bigint is 2 there, and an error in
PostgreSQL. Source: PostgreSQL documentation, 10.2 (Operators) and 8.1 (Numeric Types).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.query.names import TableReference, sources
from server.sql.query.tables import SqlType
from server.sql.sqlstate import INVALID_TEXT_REPRESENTATION, NUMERIC_VALUE_OUT_OF_RANGE

_COMPARISONS: Final = (
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.In, exp.Between),
)

_TYPES: Final = {kind.oid: kind for kind in (SqlType.BIGINT, SqlType.DOUBLE)}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?|\.[0-9]+(?:e[+-]?[0-9]+)?|inf(?:inity)?)|nan",
    re.IGNORECASE,
)
_SPACES: Final = " \t\n\r\f\v"
_INT64: Final = 1 << 63


def type_literals(tree: exp.Expr, references: Sequence[TableReference]) -> None:
    """Give quoted literals that are compared with columns of numbers the types of the columns.

    Raises:
        SqlError: a literal is no number, or out of range.
    """
    by_node = {id(item.node): item for item in references}
    for node in list(tree.find_all(*_COMPARISONS)):
        operands = _operands(node)
        literals = [item for item in operands if isinstance(item, exp.Literal) and item.is_string]
        if not literals:
            continue
        kinds = {_type_of(item, by_node) for item in operands if item not in literals}
        if len(kinds) == 1 and (kind := kinds.pop()) is not None:
            for literal in literals:
                literal.replace(_number(literal.name, kind))


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.In):
        values = [node.this, *node.expressions]
    elif isinstance(node, exp.Between):
        values = [node.this, node.args["low"], node.args["high"]]
    else:
        values = [node.this, node.expression]
    return [value.unnest() for value in values]


def _type_of(node: exp.Expr, by_node: dict[int, TableReference]) -> SqlType | None:
    """Return the type of a column of numbers; None for anything else."""
    if not isinstance(node, exp.Column):
        return None
    select = node.find_ancestor(exp.Select)
    tables = list(sources(select)) if isinstance(select, exp.Select) else []
    found = [
        column
        for item in (by_node.get(id(table)) for table in tables)
        if item is not None and node.table in ("", item.alias)
        if (column := item.relation.column(node.name)) is not None
    ]
    is_known = bool(node.table) or all(id(table) in by_node for table in tables)
    return _TYPES.get(found[0].oid) if len(found) == 1 and is_known else None


def _number(text: str, kind: SqlType) -> exp.Expr:
    word = text.strip(_SPACES)
    pattern = _INTEGER if kind is SqlType.BIGINT else _DOUBLE
    if pattern.fullmatch(word) is None:
        raise SqlError(
            INVALID_TEXT_REPRESENTATION,
            f'invalid input syntax for type {kind.sql_name}: "{text[:100]}"',
        )
    if kind is SqlType.DOUBLE:
        return exp.Cast(this=exp.Literal.string(word), to=exp.DataType.build("DOUBLE"))
    digits = word.lstrip("+-").lstrip("0") or "0"
    sign = -1 if word.startswith("-") else 1
    if len(digits) > 19 or not -_INT64 <= sign * int(digits) < _INT64:
        raise SqlError(
            NUMERIC_VALUE_OUT_OF_RANGE,
            f'value "{text[:100]}" is out of range for type {kind.sql_name}',
        )
    number = exp.Literal.number(digits)
    return number if sign > 0 else exp.Neg(this=number)
