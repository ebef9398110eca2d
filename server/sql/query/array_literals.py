"""Literals of arrays, as PostgreSQL writes them: `{a,"b c",NULL}`."""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

from server.sql.query.errors import SqlError
from server.sql.sqlstate import INVALID_TEXT_REPRESENTATION

MAX_ARRAY_LITERAL: Final = 100_000
"""Elements of a literal."""

# Possessive quantifiers give nothing back, so that the time is linear: a regular expression that
# backtracks holds the interpreter's lock, and with it the whole server. Spaces belong to an element
# without quotes only if more of it follows.
_ARRAY_ITEM: Final = re.compile(
    r'\s*+(?:"((?:[^"\\]|\\.)*+)"|((?:[^\s",{}\\]|\\.|\s++(?=[^\s,]))*+))\s*+(,|$)', re.DOTALL
)
_NUMBERS: Final = re.compile(r"\s*+(?:-?[0-9]++(?:\s++|$))++")


def array_operand(node: exp.Any) -> exp.Expr | None:
    """Return `ANY ('{1,2}')` with an array; None if its operand is no literal."""
    operand = node.this
    inner = operand.this if isinstance(operand, exp.Paren) else operand
    if isinstance(inner, exp.Literal) and inner.is_string:
        return exp.Any(this=exp.Paren(this=array_literal(inner.name)))
    return None


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
    position = 0
    while True:
        match = _ARRAY_ITEM.match(body, position)
        if match is None or len(elements) > MAX_ARRAY_LITERAL:
            raise SqlError(INVALID_TEXT_REPRESENTATION, f'malformed array literal: "{text[:100]}"')
        quoted, plain, separator = match.groups()
        if quoted is not None:
            elements.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            is_null = len(plain) == 4 and plain.upper() == "NULL"
            elements.append(None if is_null else re.sub(r"\\(.)", r"\1", plain, flags=re.DOTALL))
        if not separator:
            return elements
        position = match.end()


def array_literal(text: str) -> exp.Expr:
    """Return the array that a literal stands for.

    Raises:
        SqlError: the text is none.
    """
    if _NUMBERS.fullmatch(text):  # int2vector, oidvector
        numbers = text.split()
        if len(numbers) > MAX_ARRAY_LITERAL:
            raise SqlError(INVALID_TEXT_REPRESENTATION, f'malformed array literal: "{text[:100]}"')
        return exp.Array(expressions=[exp.Literal.number(item) for item in numbers])
    return exp.Array(
        expressions=[
            exp.null() if item is None else exp.Literal.string(item)
            for item in array_elements(text)
        ]
    )
