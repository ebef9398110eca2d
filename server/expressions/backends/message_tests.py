"""Writers of comparisons and other tests as source text, inlined for likely types.

A test of a field against literals is inlined for the types that the literals make likely; other
values, including NULL, are passed to the function of `semantics`. The inlined test must have the
same result as that function, so it is limited to literals for which Python's own comparison agrees.

Each test has two writers: one for the bool "it is true" or "it is false", selected by `wanted`, and
one for its value, which may be None.
"""

from __future__ import annotations

from typing import Final

from server.expressions import semantics
from server.expressions.backends.python_source import SourceBuilder
from server.expressions.grammar import MIRRORED
from server.expressions.numerals import numeral
from server.expressions.regex.patterns import matcher
from server.expressions.semantics import EXACT_LIMIT, LiteralSet
from server.expressions.tree import (
    Affix,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
)

_PYTHON: Final = {"=": "==", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}

_ABOVE_EMPTY: Final = frozenset({"=", ">", ">="})
"""Comparisons with a text that are false for the empty text, so that it needs no test for NULL."""

_AFFIXES: Final = {"BEGINS WITH": semantics.begins_with, "ENDS WITH": semantics.ends_with}


def comparison(w: SourceBuilder, node: Comparison, *, wanted: bool) -> str:
    """Write `left operator right`."""
    sign, left, right = node.operator, node.left, node.right
    if isinstance(left, Literal):
        sign, left, right = MIRRORED[sign], right, left
    if isinstance(left, Literal) and isinstance(right, Literal):
        return str(semantics.COMPARATORS[sign](left.value, right.value) is wanted)
    if isinstance(left, Identifier) and isinstance(right, Literal):
        value = right.value
        if isinstance(value, int | float) and _exact_number(right):
            return _field_and_number(w, sign, left, value, wanted=wanted)
        if isinstance(value, str) and value and (value.isascii() or sign in ("=", "!=")):
            return _field_and_text(w, sign, left, value, wanted=wanted)
    general = w.name(semantics.COMPARATORS[sign])
    return f"({general}({w.value(left)}, {w.value(right)}) is {wanted})"


def _field_and_number(
    w: SourceBuilder, sign: str, field: Identifier, number: float, *, wanted: bool
) -> str:
    read, local = w.local(field)
    literal = w.constant(number)
    test = f"{local} {_PYTHON[sign]} {literal}"
    otherwise = f"{w.name(semantics.WITH_NUMBER[sign])}({local}, {literal}) is {wanted}"
    likely = type(number).__name__
    return _numeric_or(read, local, test if wanted else f"not {test}", otherwise, likely=likely)


def _field_and_text(
    w: SourceBuilder, sign: str, field: Identifier, text: str, *, wanted: bool
) -> str:
    read, local = w.local(field)
    literal = w.constant(text)
    test = f"{local} {_PYTHON[sign]} {literal}"
    test = test if wanted else f"not {test}"
    if (sign in _ABOVE_EMPTY) != wanted:
        test += f" and {local} != ''"
    number = numeral(text)
    if number is None:
        otherwise = f"{w.name(semantics.COMPARATORS[sign])}({local}, {literal})"
    else:
        general = w.name(semantics.WITH_NUMERAL[sign])
        otherwise = f"{general}({local}, {literal}, {w.constant(number)})"
    return f"({test} if type{read} is str else {otherwise} is {wanted})"


def comparison_value(w: SourceBuilder, node: Comparison) -> str:
    """Write `left operator right`, as a value."""
    general = w.name(semantics.COMPARATORS[node.operator])
    return f"{general}({w.value(node.left)}, {w.value(node.right)})"


def between(w: SourceBuilder, node: Between, *, wanted: bool) -> str:
    """Write `operand BETWEEN low AND high`."""
    operand, low, high = node.operand, node.low, node.high
    if not (isinstance(operand, Identifier) and _exact_number(low) and _exact_number(high)):
        return f"({between_value(w, node)} is {wanted})"
    read, local = w.local(operand)
    least, most = w.value(low), w.value(high)
    test = f"{least} <= {local} <= {most}"
    otherwise = f"{w.name(semantics.between)}({local}, {least}, {most}) is {wanted}"
    return _numeric_or(read, local, test if wanted else f"not {test}", otherwise, likely="int")


def between_value(w: SourceBuilder, node: Between) -> str:
    """Write `operand BETWEEN low AND high`, as a value."""
    arguments = ", ".join(w.value(child) for child in node.children())
    return f"{w.name(semantics.between)}({arguments})"


def is_in(w: SourceBuilder, node: In, *, wanted: bool) -> str:
    """Write `operand IN (items)`."""
    members = _members(node)
    if members is None or not isinstance(node.operand, Identifier):
        return f"({in_value(w, node)} is {wanted})"
    if members.has_null and not wanted:
        return "False"
    read, local = w.local(node.operand)
    otherwise = f"{w.constant(members.contains)}({local}) is {wanted}"
    if members.only_texts:
        test = f"{local} in {w.constant(members.texts)}"
        test = test if wanted else f"not {test} and {local} != ''"
        return f"({test} if type{read} is str else {otherwise})"
    if members.only_numbers:
        test = f"{local} in {w.constant(members.numbers)}"
        return _numeric_or(read, local, test if wanted else f"not {test}", otherwise, likely="int")
    return f"({w.constant(members.contains)}({w.value(node.operand)}) is {wanted})"


def in_value(w: SourceBuilder, node: In) -> str:
    """Write `operand IN (items)`, as a value."""
    members = _members(node)
    operand = w.value(node.operand)
    if members is not None:
        return f"{w.constant(members.contains)}({operand})"
    items = ", ".join(w.value(item) for item in node.items)
    return f"{w.name(semantics.is_in)}({operand}, ({items},))"


def like(w: SourceBuilder, node: Like, *, wanted: bool) -> str:
    """Write `operand LIKE pattern`."""
    if not isinstance(node.operand, Identifier):
        return f"({like_value(w, node)} is {wanted})"
    read, local = w.local(node.operand)
    matches = w.constant(matcher(node.pattern, w.search_counter))
    test = f"{matches}({local}) is {wanted}"
    otherwise = f"{w.name(semantics.like)}({local}, {matches}) is {wanted}"
    return f"({test} if type{read} is str and {local} else {otherwise})"


def like_value(w: SourceBuilder, node: Like) -> str:
    """Write `operand LIKE pattern`, as a value."""
    matches = w.constant(matcher(node.pattern, w.search_counter))
    return f"{w.name(semantics.like)}({w.value(node.operand)}, {matches})"


def affix(w: SourceBuilder, node: Affix) -> str:
    """Write `operand BEGINS WITH (items)` or `operand ENDS WITH (items)`, as a test for true."""
    items = [item.value for item in node.items if isinstance(item, Literal)]
    affixes = tuple(text for item in items if (text := semantics.text(item)) is not None)
    literal = len(items) == len(node.items) and "".join(affixes).isascii()
    if not (isinstance(node.operand, Identifier) and literal):
        return f"({affix_value(w, node)} is True)"
    read, local = w.local(node.operand)
    given = w.constant(affixes)
    method = "startswith" if node.operator == "BEGINS WITH" else "endswith"
    return (
        f"({local}.{method}({given}) if type{read} is str and {local}"
        f" else {w.name(_AFFIXES[node.operator])}({local}, {given}) is True)"
    )


def affix_value(w: SourceBuilder, node: Affix) -> str:
    """Write `operand BEGINS WITH (items)` or `operand ENDS WITH (items)`, as a value."""
    items = ", ".join(w.value(item) for item in node.items)
    return f"{w.name(_AFFIXES[node.operator])}({w.value(node.operand)}, ({items},))"


def null(w: SourceBuilder, node: IsNull, *, wanted: bool) -> str:
    """Write `operand IS NULL`."""
    if not isinstance(node.operand, Identifier):
        return f"({null_value(w, node)} is {wanted})"
    read, local = w.local(node.operand)
    test = f"{w.name(semantics.is_null)}({local}) is {wanted}"
    return f"({test} if not {read} or type({local}) is list else {not wanted})"


def null_value(w: SourceBuilder, node: IsNull) -> str:
    """Write `operand IS NULL`, as a value."""
    return f"{w.name(semantics.is_null)}({w.value(node.operand)})"


def nan_value(w: SourceBuilder, node: IsNan) -> str:
    """Write `operand IS NAN`, as a value."""
    return f"{w.name(semantics.is_nan)}({w.value(node.operand)})"


def _exact_number(node: Expr) -> bool:
    """Return whether a node is a number that Python compares with others as the language does."""
    value = node.value if isinstance(node, Literal) else None
    return isinstance(value, int | float) and abs(value) < EXACT_LIMIT


def _numeric_or(read: str, local: str, test: str, otherwise: str, *, likely: str) -> str:
    """Write a test that is inlined for integers and doubles, the likely type first."""
    other = "int" if likely == "float" else "float"
    return f"({test} if type{read} is {likely} or type({local}) is {other} else {otherwise})"


def _members(node: In) -> LiteralSet | None:
    """Return the items of an IN if all are literals; otherwise None."""
    literals = [item.value for item in node.items if isinstance(item, Literal)]
    return LiteralSet(literals) if len(literals) == len(node.items) else None
