"""Writers of comparisons and other tests as source text, inlined for likely types.

A test of a field against literals is inlined for the types that the literals make likely; other
values, including NULL, are passed to the function of `semantics`. The inlined test must have the
same result as that function, so it is limited to literals for which Python's own comparison agrees.

Each test has two writers: one for the bool "it is true" or "it is false", selected by `truth`, and
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
    FormParameter,
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


def comparison(builder: SourceBuilder, node: Comparison, *, truth: bool) -> str:
    """Write `left operator right`."""
    sign, left, right = node.operator, node.left, node.right
    if isinstance(left, Literal):
        sign, left, right = MIRRORED[sign], right, left
    if isinstance(left, Literal) and isinstance(right, Literal):
        return str(semantics.COMPARATORS[sign](left.value, right.value) is truth)
    if isinstance(left, Identifier) and isinstance(right, Literal):
        value = right.value
        if isinstance(value, int | float) and _exact_number(right):
            return _field_and_number(builder, sign, left, right, value, truth=truth)
        if isinstance(value, str) and value and (value.isascii() or sign in ("=", "!=")):
            return _field_and_text(builder, sign, left, right, value, truth=truth)
    general = builder.name(semantics.COMPARATORS[sign])
    return f"({general}({builder.value(left)}, {builder.value(right)}) is {truth})"


def _field_and_number(
    builder: SourceBuilder,
    sign: str,
    field: Identifier,
    node: Literal,
    number: float,
    *,
    truth: bool,
) -> str:
    read, local = builder.local(field)
    literal = builder.literal(node)
    test = f"{local} {_PYTHON[sign]} {literal}"
    otherwise = f"{builder.name(semantics.WITH_NUMBER[sign])}({local}, {literal}) is {truth}"
    likely = type(number).__name__
    return _numeric_or(read, local, test if truth else f"not {test}", otherwise, likely=likely)


def _field_and_text(
    builder: SourceBuilder,
    sign: str,
    field: Identifier,
    node: Literal,
    text: str,
    *,
    truth: bool,
) -> str:
    read, local = builder.local(field)
    literal = builder.literal(node)
    test = f"{local} {_PYTHON[sign]} {literal}"
    test = test if truth else f"not {test}"
    if (sign in _ABOVE_EMPTY) != truth:
        test += f" and {local} != ''"
    number = numeral(text)
    if number is None or isinstance(node, FormParameter):
        otherwise = f"{builder.name(semantics.COMPARATORS[sign])}({local}, {literal})"
    else:
        general = builder.name(semantics.WITH_NUMERAL[sign])
        otherwise = f"{general}({local}, {literal}, {builder.constant(number)})"
    return f"({test} if type{read} is str else {otherwise} is {truth})"


def comparison_value(builder: SourceBuilder, node: Comparison) -> str:
    """Write `left operator right`, as a value."""
    general = builder.name(semantics.COMPARATORS[node.operator])
    return f"{general}({builder.value(node.left)}, {builder.value(node.right)})"


def between(builder: SourceBuilder, node: Between, *, truth: bool) -> str:
    """Write `operand BETWEEN low AND high`."""
    operand, low, high = node.operand, node.low, node.high
    if not (isinstance(operand, Identifier) and _exact_number(low) and _exact_number(high)):
        return f"({between_value(builder, node)} is {truth})"
    read, local = builder.local(operand)
    lowest, highest = builder.value(low), builder.value(high)
    test = f"{lowest} <= {local} <= {highest}"
    otherwise = f"{builder.name(semantics.between)}({local}, {lowest}, {highest}) is {truth}"
    return _numeric_or(read, local, test if truth else f"not {test}", otherwise, likely="int")


def between_value(builder: SourceBuilder, node: Between) -> str:
    """Write `operand BETWEEN low AND high`, as a value."""
    arguments = ", ".join(builder.value(child) for child in node.children())
    return f"{builder.name(semantics.between)}({arguments})"


def is_in(builder: SourceBuilder, node: In, *, truth: bool) -> str:
    """Write `operand IN (items)`."""
    members = _members(node)
    if members is None or not isinstance(node.operand, Identifier):
        return f"({in_value(builder, node)} is {truth})"
    if members.has_null and not truth:
        return "False"
    read, local = builder.local(node.operand)
    otherwise = f"{builder.constant(members.contains)}({local}) is {truth}"
    if members.only_texts:
        test = f"{local} in {builder.constant(members.texts)}"
        test = test if truth else f"not {test} and {local} != ''"
        return f"({test} if type{read} is str else {otherwise})"
    if members.only_numbers:
        test = f"{local} in {builder.constant(members.numbers)}"
        return _numeric_or(read, local, test if truth else f"not {test}", otherwise, likely="int")
    return f"({builder.constant(members.contains)}({builder.value(node.operand)}) is {truth})"


def in_value(builder: SourceBuilder, node: In) -> str:
    """Write `operand IN (items)`, as a value."""
    members = _members(node)
    operand = builder.value(node.operand)
    if members is not None:
        return f"{builder.constant(members.contains)}({operand})"
    items = ", ".join(builder.value(item) for item in node.items)
    return f"{builder.name(semantics.is_in)}({operand}, ({items},))"


def like(builder: SourceBuilder, node: Like, *, truth: bool) -> str:
    """Write `operand LIKE pattern`."""
    if not isinstance(node.operand, Identifier):
        return f"({like_value(builder, node)} is {truth})"
    read, local = builder.local(node.operand)
    matches = builder.constant(matcher(node.pattern, builder.search_counter))
    test = f"{matches}({local}) is {truth}"
    otherwise = f"{builder.name(semantics.like)}({local}, {matches}) is {truth}"
    return f"({test} if type{read} is str and {local} else {otherwise})"


def like_value(builder: SourceBuilder, node: Like) -> str:
    """Write `operand LIKE pattern`, as a value."""
    matches = builder.constant(matcher(node.pattern, builder.search_counter))
    return f"{builder.name(semantics.like)}({builder.value(node.operand)}, {matches})"


def affix(builder: SourceBuilder, node: Affix) -> str:
    """Write `operand BEGINS WITH (items)` or `operand ENDS WITH (items)`, as a test for true."""
    items = [item.value for item in node.items if isinstance(item, Literal)]
    affixes = tuple(text for item in items if (text := semantics.text(item)) is not None)
    literal = len(items) == len(node.items) and "".join(affixes).isascii()
    if not (isinstance(node.operand, Identifier) and literal):
        return f"({affix_value(builder, node)} is True)"
    read, local = builder.local(node.operand)
    constant = builder.constant(affixes)
    method = "startswith" if node.operator == "BEGINS WITH" else "endswith"
    return (
        f"({local}.{method}({constant}) if type{read} is str and {local}"
        f" else {builder.name(_AFFIXES[node.operator])}({local}, {constant}) is True)"
    )


def affix_value(builder: SourceBuilder, node: Affix) -> str:
    """Write `operand BEGINS WITH (items)` or `operand ENDS WITH (items)`, as a value."""
    items = ", ".join(builder.value(item) for item in node.items)
    return f"{builder.name(_AFFIXES[node.operator])}({builder.value(node.operand)}, ({items},))"


def null(builder: SourceBuilder, node: IsNull, *, truth: bool) -> str:
    """Write `operand IS NULL`."""
    if not isinstance(node.operand, Identifier):
        return f"({null_value(builder, node)} is {truth})"
    read, local = builder.local(node.operand)
    test = f"{builder.name(semantics.is_null)}({local}) is {truth}"
    return f"({test} if not {read} or type({local}) is list else {not truth})"


def null_value(builder: SourceBuilder, node: IsNull) -> str:
    """Write `operand IS NULL`, as a value."""
    return f"{builder.name(semantics.is_null)}({builder.value(node.operand)})"


def nan_value(builder: SourceBuilder, node: IsNan) -> str:
    """Write `operand IS NAN`, as a value."""
    return f"{builder.name(semantics.is_nan)}({builder.value(node.operand)})"


def _exact_number(node: Expr) -> bool:
    """Return whether a node is a number that Python compares with others as the language does."""
    value = node.value if isinstance(node, Literal) else None
    return isinstance(value, int | float) and abs(value) < EXACT_LIMIT


def _numeric_or(read: str, local: str, test: str, otherwise: str, *, likely: str) -> str:
    """Write a test that is inlined for integers and doubles, the likely type first."""
    unlikely = "int" if likely == "float" else "float"
    return f"({test} if type{read} is {likely} or type({local}) is {unlikely} else {otherwise})"


def _members(node: In) -> LiteralSet | None:
    """Return the items of an IN if all are literals; otherwise None."""
    literals = [item.value for item in node.items if isinstance(item, Literal)]
    return LiteralSet(literals) if len(literals) == len(node.items) else None
