"""Filters that find records by keys and hash indexes, for columns of numbers.

Keys and hash indexes are looked up for texts only, since in a filter the number 5 also equals the
texts '5.0' and '05', of which there are too many to look up. A column of numbers has no such texts:
a value that is a text makes it a column of texts. And a text that represents a number equals the
numbers of the same value. So in conditions on such a column, the number becomes its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from server.expressions.tree import And, Comparison, Expr, Identifier, In, Literal, conjuncts
from server.sql.query.tables import SqlType

if TYPE_CHECKING:
    from server.message_types.paths import Path
    from server.storage.sow.record_table import RecordTable

_NUMBERS: Final = (SqlType.BIGINT, SqlType.DOUBLE)
_MAX_EXACT: Final = 2**53 - 1
"""The magnitude up to which integers and doubles of the same value are equal in either form."""


def with_key_texts(filter_: Expr, table: RecordTable, types: Mapping[Path, SqlType]) -> Expr:
    """Return a filter, with texts for the numbers by which keys or an index can be looked up.

    Args:
        filter_: the filter.
        table: the records.
        types: the types of the columns by their fields.
    """
    terms = conjuncts(filter_)
    fields = [_field(term, types) for term in terms]
    known = {field for field in fields if field is not None}
    looked_up: set[Path] = set()
    if table.key_hash is not None and known.issuperset(table.options.key_fields):
        looked_up.update(table.options.key_fields)
    for index in table.hash_indexes:
        if known.issuperset(index.fields):
            looked_up.update(index.fields)
    if not looked_up:
        return filter_
    replaced = tuple(
        _with_texts(term) if field in looked_up else term
        for term, field in zip(terms, fields, strict=True)
    )
    return And(replaced) if isinstance(filter_, And) else replaced[0]


def _field(term: Expr, types: Mapping[Path, SqlType]) -> Path | None:
    """Return the field that a term restricts to texts, or to numbers that can be texts."""
    match term:
        case Comparison(operator="=", left=Identifier() as field, right=Literal() as literal):
            literals: tuple[Expr, ...] = (literal,)
        case In(operand=Identifier() as field, items=literals):
            pass
        case _:
            return None
    if all(isinstance(one, Literal) and isinstance(one.value, str) for one in literals):
        return field.path
    is_number = types.get(field.path) in _NUMBERS
    return field.path if is_number and all(map(_is_exact, literals)) else None


def _is_exact(literal: Expr) -> bool:
    return (
        isinstance(literal, Literal)
        and type(literal.value) is int
        and abs(literal.value) <= _MAX_EXACT
    )


def _with_texts(term: Expr) -> Expr:
    match term:
        case Comparison(left=field, right=Literal() as literal):
            return Comparison("=", field, _as_text(literal))
        case In(operand=field, items=literals):
            return In(field, tuple(map(_as_text, literals)))
        case _:
            return term


def _as_text(literal: Expr) -> Literal:
    assert isinstance(literal, Literal)  # noqa: S101 - see `_field`
    return Literal(str(literal.value))
