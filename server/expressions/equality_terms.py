"""Terms that a hash can answer: a field compared for equality with literals.

An index over many filters needs to know which filters a value satisfies without asking each. For a
term `/field = literal` or `/field IN (literals)` this module says exactly which values satisfy it:

    a text            is in `texts`, or is a number that is in `numbers`
    a number          is in `numbers` or in `text_numbers`; true is 1, false is 0
    an array          any of its elements does
    NULL, NaN         never

Thus "1" satisfies `= 1` and `= '1'` but not `= '1.0'`, while the number 1 satisfies all three.
Python's hash of numbers agrees with the language here: 1, 1.0 and True are one key. Terms with a
literal of 2^53 or more have no such description, for there an integer and a double may be equal
without being the same.

An index keeps a table for each of the three sets and looks a value up under `keys(value)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from server.expressions.arrays import elements
from server.expressions.numerals import numeral
from server.expressions.semantics import EXACT_LIMIT, Membership
from server.expressions.tree import Comparison, Expr, Identifier, In, Literal, Reference
from server.message_types.base import Value

Number: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class EqualityTerm:
    """One field, and the values that satisfy the term: if and only if, so nothing is left to test.

    Attributes:
        reference: the field.
        texts: texts that satisfy it.
        numbers: numbers that satisfy it, and so do texts that stand for them.
        text_numbers: numbers that satisfy it, but not texts that stand for them.
    """

    reference: Reference
    texts: frozenset[str]
    numbers: frozenset[Number]
    text_numbers: frozenset[Number]


@dataclass(frozen=True, slots=True)
class Keys:
    """Under what a value is looked up in an index of terms.

    Attributes:
        texts: to be looked up among `texts`.
        numbers: to be looked up among `numbers`.
        text_numbers: to be looked up among `text_numbers`.
    """

    texts: tuple[str, ...]
    numbers: tuple[Number, ...]
    text_numbers: tuple[Number, ...]


def equality_term(expr: Expr) -> EqualityTerm | None:
    """Describe a term by the values that satisfy it; None if it is of another kind.

    Args:
        expr: a conjunct of a filter.
    """
    operand, literals = _parts(expr)
    if not isinstance(operand, Identifier) or literals is None:
        return None
    members = Membership(literals)
    if members.large:
        return None
    return EqualityTerm(operand.reference, members.texts, members.numbers, members.text_numbers)


def keys(value: Value) -> Keys:
    """What to look a value up under: it satisfies exactly the terms that have one of the keys."""
    texts: list[str] = []
    numbers: list[Number] = []
    text_numbers: list[Number] = []
    for element in elements(value):
        if isinstance(element, str):
            if element:
                texts.append(element)
                number = numeral(element)
                if number is not None and abs(number) < EXACT_LIMIT:
                    numbers.append(number)
        elif isinstance(element, int | float) and abs(element) < EXACT_LIMIT:
            numbers.append(element)
            text_numbers.append(element)
    return Keys(tuple(texts), tuple(numbers), tuple(text_numbers))


def _parts(expr: Expr) -> tuple[Expr | None, list[int | float | str | None] | None]:
    """The operand and the literals of an equality or an IN."""
    if isinstance(expr, Comparison) and expr.operator == "=":
        if isinstance(expr.right, Literal):
            return expr.left, [expr.right.value]
        if isinstance(expr.left, Literal):
            return expr.right, [expr.left.value]
    if isinstance(expr, In):
        literals = [item.value for item in expr.items if isinstance(item, Literal)]
        if len(literals) == len(expr.items):
            return expr.operand, literals
    return None, None
