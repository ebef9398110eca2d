"""Filters that clients send again and again, with other texts in them each time.

What a filter says is known from its *form*, the text without the strings in it, once a filter of
the same form has been parsed: `/symbol = 'IBM'` differs from `/symbol = 'AAPL'` by a literal of the
tree. Forms are kept if nothing but literals depends on the strings: patterns and the arguments of
functions are looked at while they are parsed, so filters with those are only kept as they are.

A text's form is what is left between single quotes, which is right for texts without backslashes
and double quotes: there a string ends at the next quote, whatever is in it. That the quotes are
those of strings, and not part of a name, is seen from the tree: its literals have to stand where
the quotes are.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final, TypeAlias

from server.expressions.functions.registry import Functions
from server.expressions.kinds import Kind
from server.expressions.parser import SizeLimits, parse
from server.expressions.tree import And, Comparison, Expr, Identifier, In, Literal, Or, walk

_LONGEST: Final = 256
"""Characters of a filter that is worth keeping."""
_KEPT: Final = 2048
"""Forms that are kept, and texts; some 10 MB at most."""

_Form: TypeAlias = tuple[str, ...]
_REPLACEABLE: Final = And | Or | Comparison | In | Identifier | Literal


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
        self._forms: dict[_Form, Expr] = {}
        self._parse: Final = lru_cache(maxsize=_KEPT)(self._parse_anew)

    def parse(self, text: str) -> Expr:
        """Read a filter.

        Raises:
            ExpressionError: the text is no filter.
        """
        if len(text) > _LONGEST:
            return self._parse_anew(text)
        if "\\" in text or '"' in text or "'" not in text:
            return self._parse(text)
        pieces = text.split("'")
        form = tuple(pieces[::2])
        like = self._forms.get(form)
        if like is not None:
            return _with_texts(like, iter(pieces[1::2]))
        expr = self._parse(text)
        if _literals_stand_at(_quotes(pieces), expr):
            if len(self._forms) == _KEPT:
                self._forms.clear()
            self._forms[form] = expr
        return expr

    def _parse_anew(self, text: str) -> Expr:
        return parse(text, Kind.FILTER, self._functions, self.limits)


def _quotes(pieces: list[str]) -> list[int]:
    """Where strings begin, in a text that was split at quotes."""
    ends = list(accumulate(len(piece) + 1 for piece in pieces))
    return [end - 1 for end in ends[:-1:2]]


def _literals_stand_at(positions: list[int], expr: Expr) -> bool:
    """Whether the texts of a tree stand just there, in order, and nothing depends on them."""
    nodes = list(walk(expr))
    found = [
        node.position for node in nodes if isinstance(node, Literal) and isinstance(node.value, str)
    ]
    return found == positions and all(isinstance(node, _REPLACEABLE) for node in nodes)


def _with_texts(like: Expr, texts: Iterator[str]) -> Expr:
    """The tree with other texts for literals."""
    match like:
        case Comparison():
            left = _with_texts(like.left, texts)
            return Comparison(like.operator, left, _with_texts(like.right, texts))
        case Literal():
            return Literal(next(texts)) if isinstance(like.value, str) else like
        case And() | Or():
            return type(like)(tuple([_with_texts(term, texts) for term in like.operands]))
        case In():
            operand = _with_texts(like.operand, texts)
            return In(operand, tuple([_with_texts(item, texts) for item in like.items]))
        case _:
            return like
