"""A cache of parsed filters, like prepared statements: clients repeat filters with other constants.

The tree of a filter follows from its *form*, the text without its numbers and strings, once a
filter of the same form has been parsed: `/symbol = 'IBM'` differs from `/symbol = 'AAPL'` by a
literal of the tree. A form is cached if only literals depend on the constants. The parser inspects
patterns and the arguments of functions, so filters with those are cached as whole texts only.

One regular expression cuts out the constants. It reads strings correctly in texts without
backslashes and double quotes: there a string ends at the next quote, with any characters in it. The
tree proves that they are constants, and not parts of a name or a pattern: its literals must have
their positions and values. The rest of the text is the same for all texts of a form, and parses the
same way; constants of different kinds (`filter_form`) make different forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from server.expressions.context_rules import ContextKind
from server.expressions.filter_form import (
    CONSTANT_NODES,
    ContentFilter,
    FilterForm,
    expr_of,
    kind_of,
    lift_constants,
    lift_literals,
)
from server.expressions.filter_structure import StructureTree, cut_text, has_plain_fields
from server.expressions.functions.registry import Functions
from server.expressions.parser import SizeLimits, parse
from server.expressions.tree import (
    And,
    Between,
    Comparison,
    Expr,
    Identifier,
    In,
    Literal,
    Not,
    Or,
    walk,
)

_MAX_FILTER_LENGTH: Final = 256
"""Maximum length of a cached filter, in characters."""
_MAX_CACHED: Final = 2048
"""Maximum number of cached forms, and of texts; some 10 MB at most."""

_CONSTANT: Final = re.compile(
    r"('[^']*'|(?<![\w./:@\[\]-])-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w./:\[-]))"
)
"""A string, or a number that a double holds exactly enough to be read in two ways."""

_Constant: TypeAlias = int | float | str
_Build: TypeAlias = Callable[[Sequence[_Constant]], Expr]
"""Builds a tree from the constants of its text."""


_CachedForm: TypeAlias = FilterForm | _Build
"""The form of filters whose parameters are exactly the constants of their texts; or a builder."""


class FilterParser:
    """Parses filters as `parse` does, and caches forms and texts.

    Args:
        functions: the functions that filters may call.
        limits: size limits of a filter. See `parse`.
    """

    def __init__(self, functions: Functions, limits: SizeLimits | None = None) -> None:
        self.limits: Final = limits
        self._functions: Final = functions
        self._forms: dict[Hashable, _CachedForm] = {}
        self._structures: dict[Hashable, StructureTree] = {}
        self._parse_cached: Final = lru_cache(maxsize=_MAX_CACHED)(self._parse_uncached)

    def parse(self, text: str) -> Expr:
        """Parse a filter, or build its tree from the cache.

        Raises:
            ExpressionError: the text is no filter.
        """
        cached, constants = self._find_form(text)
        if cached is None:
            return self._parse_whole(text)
        return _tree_of(cached, constants)

    def parse_content_filter(self, text: str) -> ContentFilter:
        """Parse a filter, or make it from the cache, without its tree.

        Raises:
            ExpressionError: the text is no filter.
        """
        cached, constants = self._find_form(text)
        if cached is None:
            return lift_constants(self._parse_whole(text))
        if isinstance(cached, FilterForm):
            return (cached, *constants)
        return lift_constants(_tree_of(cached, constants))

    def _find_form(self, text: str) -> tuple[_CachedForm | None, Sequence[_Constant]]:
        """Return the form of a text, which is cached if it can be, and the text's constants.

        Raises:
            ExpressionError: the text has no cached form, and is no filter.
        """
        if len(text) > _MAX_FILTER_LENGTH or "\\" in text or '"' in text:
            return None, ()
        key: Hashable
        if text.count("'") == 2:  # fast path: the string may be the text's only constant
            before, string, after = text.split("'")
            key = before, after, _kind(string)
            cached = self._forms.get(key)
            if cached is not None:
                return cached, (string,)
        pieces = _CONSTANT.split(text)
        if len(pieces) == 1:
            return None, ()
        constants = [_value(piece) for piece in pieces[1::2]]
        key = *pieces[::2], *map(_kind, constants)
        cached = self._forms.get(key)
        return (cached or self._cache_form(key, text, pieces, constants)), constants

    def _cache_form(
        self,
        key: Hashable,
        text: str,
        pieces: Sequence[str],
        constants: Sequence[_Constant],
    ) -> _CachedForm | None:
        """Cache the form of a text and return it; None if its tree depends on the constants."""
        cut = cut_text(pieces, constants, [_kind(constant) for constant in constants])
        numbers = {position: number for number, position in enumerate(cut.constants)}
        similar = self._structures.get(cut.structure)
        if similar is not None:
            expr = similar.tree_of(cut)
        else:
            expr = self._parse_cached(text)
            if not _literals_stand_at(numbers, constants, expr):
                return None
            if has_plain_fields(expr, cut):
                if len(self._structures) == _MAX_CACHED:
                    self._structures.clear()
                self._structures[cut.structure] = StructureTree(expr, cut)
        if len(self._forms) == _MAX_CACHED:
            self._forms.clear()
        form, lifted = lift_literals(expr)
        is_complete = [literal.position for literal in lifted] == list(numbers)
        cached = form if is_complete else _builder(expr, numbers)
        self._forms[key] = cached
        return cached

    def _parse_whole(self, text: str) -> Expr:
        """Parse a text that has no cached form."""
        is_short = len(text) <= _MAX_FILTER_LENGTH
        return self._parse_cached(text) if is_short else self._parse_uncached(text)

    def _parse_uncached(self, text: str) -> Expr:
        return parse(text, ContextKind.FILTER, self._functions, self.limits)


def _tree_of(cached: _CachedForm, constants: Sequence[_Constant]) -> Expr:
    """Return the tree of a text from its form and its constants."""
    if isinstance(cached, FilterForm):
        return expr_of((cached, *constants))
    return cached(constants)


def _value(constant: str) -> _Constant:
    """Return the value of a constant."""
    if constant[0] == "'":
        return constant[1:-1]
    return float(constant) if "." in constant else int(constant)


def _kind(constant: _Constant) -> str | type:
    """Return what texts with one form agree in: the kind of a constant, or else its type."""
    return kind_of(constant) or type(constant)


def _literals_stand_at(
    numbers: Mapping[int, int], constants: Sequence[_Constant], expr: Expr
) -> bool:
    """Return whether the tree has a literal for each constant, and depends on them in no other way.

    The literal must have the position and the value of the constant.
    """
    nodes = list(walk(expr))
    if not all(isinstance(node, CONSTANT_NODES) for node in nodes):
        return False
    literals = [node for node in nodes if isinstance(node, Literal) and node.position in numbers]
    return sorted(node.position for node in literals) == list(numbers) and all(
        node == Literal(constants[numbers[node.position]]) for node in literals
    )


def _builder(like: Expr, numbers: Mapping[int, int]) -> _Build:
    """Return a function that builds trees like this one, with other constants at some positions."""
    match like:
        case Literal(position=position) if position in numbers:
            number = numbers[position]
            return lambda constants: Literal(constants[number])
        case Comparison(operator, Identifier() as field, Literal(position=position)) if (
            position in numbers
        ):
            number = numbers[position]
            return lambda constants: Comparison(operator, field, Literal(constants[number]))
        case Comparison(operator, left, right):
            makes_left, makes_right = _builder(left, numbers), _builder(right, numbers)
            return lambda constants: Comparison(
                operator, makes_left(constants), makes_right(constants)
            )
        case Between(operand, low, high):
            makes = [_builder(part, numbers) for part in (operand, low, high)]
            return lambda constants: Between(*[make(constants) for make in makes])
        case And(operands) | Or(operands):
            kind, makes = type(like), [_builder(operand, numbers) for operand in operands]
            return lambda constants: kind(tuple([make(constants) for make in makes]))
        case In(operand, items):
            make_operand, makes = (
                _builder(operand, numbers),
                [_builder(item, numbers) for item in items],
            )
            return lambda constants: In(
                make_operand(constants), tuple([make(constants) for make in makes])
            )
        case Not(operand):
            make_operand = _builder(operand, numbers)
            return lambda constants: Not(make_operand(constants))
        case _:
            return lambda _: like
