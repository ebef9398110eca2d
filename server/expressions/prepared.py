"""Filters that clients send again and again, with other constants in them each time.

What a filter says is known from its *form*, the text without the numbers and strings in it, once a
filter of the same form has been parsed: `/symbol = 'IBM'` differs from `/symbol = 'AAPL'` by a
literal of the tree. Forms are kept if nothing but literals depends on the constants: patterns and
the arguments of functions are looked at while they are parsed, so filters with those are only kept
as they are.

Constants are cut out by one regular expression, which reads strings right in texts without
backslashes and double quotes: there a string ends at the next quote, whatever is in it. That they
are constants, and not parts of a name or a pattern, is seen from the tree: its literals have to
stand where they were cut out, and have their values. What is around them is the same for all texts
of a form, and reads the same; integers, doubles and texts make different forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from server.expressions.functions.registry import Functions
from server.expressions.kinds import Kind
from server.expressions.parser import SizeLimits, parse
from server.expressions.tree import (
    And,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    walk,
)

_LONGEST: Final = 256
"""Characters of a filter that is worth keeping."""
_KEPT: Final = 2048
"""Forms that are kept, and texts; some 10 MB at most."""

_CONSTANT: Final = re.compile(
    r"('[^']*'|(?<![\w./:@\[\]-])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w./:\[-]))"
)
"""A string, or a number that a double holds exactly enough to be read in two ways."""

_REPLACEABLE: Final = And | Or | Not | Comparison | Between | In | IsNull | Identifier | Literal

_Constant: TypeAlias = int | float | str
_Build: TypeAlias = Callable[[Sequence[_Constant]], Expr]
"""Makes a tree of the constants of its text."""


class FilterParser:
    """Parses filters as `parse` does, and keeps what it has learnt.

    Args:
        functions: the functions that filters may call.
        limits: how large a filter may be. See `parse`.

    Attributes:
        limits: see above.
    """

    def __init__(self, functions: Functions, limits: SizeLimits | None = None) -> None:
        self.limits: Final = limits
        self._functions: Final = functions
        self._forms: dict[Hashable, _Build] = {}
        self._parse: Final = lru_cache(maxsize=_KEPT)(self._parse_anew)

    def parse(self, text: str) -> Expr:
        """Read a filter.

        Raises:
            ExpressionError: the text is no filter.
        """
        if len(text) > _LONGEST:
            return self._parse_anew(text)
        if "\\" in text or '"' in text:
            return self._parse(text)
        if text.count("'") == 2:  # if that is a text's only constant, it is cut out in this way
            before, string, after = text.split("'")
            build = self._forms.get((before, after, str))
            if build is not None:
                return build((string,))
        pieces = _CONSTANT.split(text)
        if len(pieces) == 1:
            return self._parse(text)
        constants = [_value(piece) for piece in pieces[1::2]]
        form = *pieces[::2], *map(type, constants)
        build = self._forms.get(form)
        if build is not None:
            return build(constants)
        expr = self._parse(text)
        places = _places(pieces)
        if _literals_stand_at(places, constants, expr):
            if len(self._forms) == _KEPT:
                self._forms.clear()
            self._forms[form] = _builder(expr, places)
        return expr

    def _parse_anew(self, text: str) -> Expr:
        return parse(text, Kind.FILTER, self._functions, self.limits)


def _value(constant: str) -> _Constant:
    """What a constant stands for."""
    if constant[0] == "'":
        return constant[1:-1]
    return float(constant) if "." in constant else int(constant)


def _places(pieces: Sequence[str]) -> Mapping[int, int]:
    """Which constant begins at which position of a text, of which every other piece is one."""
    places: dict[int, int] = {}
    position = 0
    for number, piece in enumerate(pieces):
        if number % 2:
            places[position] = number // 2
        position += len(piece)
    return places


def _literals_stand_at(
    places: Mapping[int, int], constants: Sequence[_Constant], expr: Expr
) -> bool:
    """Whether a tree has each constant for a literal that stands there, and else nothing of it."""
    nodes = list(walk(expr))
    if not all(isinstance(node, _REPLACEABLE) for node in nodes):
        return False
    found = [node for node in nodes if isinstance(node, Literal) and node.position in places]
    return sorted(node.position for node in found) == list(places) and all(
        node == Literal(constants[places[node.position]]) for node in found
    )


def _builder(like: Expr, places: Mapping[int, int]) -> _Build:
    """What makes trees like one, with other constants at some positions."""
    match like:
        case Literal(position=position) if position in places:
            place = places[position]
            return lambda given: Literal(given[place])
        case Comparison(operator, Identifier() as field, Literal(position=position)) if (
            position in places
        ):
            place = places[position]
            return lambda given: Comparison(operator, field, Literal(given[place]))
        case Comparison(operator, left, right):
            makes_left, makes_right = _builder(left, places), _builder(right, places)
            return lambda given: Comparison(operator, makes_left(given), makes_right(given))
        case Between(operand, low, high):
            makes = [_builder(part, places) for part in (operand, low, high)]
            return lambda given: Between(*[make(given) for make in makes])
        case And(operands) | Or(operands):
            kind, makes = type(like), [_builder(operand, places) for operand in operands]
            return lambda given: kind(tuple([make(given) for make in makes]))
        case In(operand, items):
            make_operand, makes = (
                _builder(operand, places),
                [_builder(one, places) for one in items],
            )
            return lambda given: In(make_operand(given), tuple([make(given) for make in makes]))
        case Not(operand):
            make_operand = _builder(operand, places)
            return lambda given: Not(make_operand(given))
        case _:
            return lambda _: like
