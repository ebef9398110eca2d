"""Arrays in comparisons: true if true for any pair of elements.

Two arrays of n and m elements have n x m pairs, and a hostile message could make n and m large. An
order comparison holds for some pair exactly if it holds for some pair of extremes, so long arrays
are first reduced to their extremes; equality of long arrays is tested by hash. Both have the same
result as a test of all pairs, in linear time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from server.expressions.numerals import double, numeral
from server.message_types.base import Value
from server.util.encoding import text_to_bytes

_SHORT: Final = 16
"""Arrays up to this length are compared pair by pair."""


def elements(value: Value) -> list[Value]:
    """Return the elements of an array, with nested arrays flattened; a scalar as its only element.

    An array without elements has one, NULL.
    """
    if not isinstance(value, list):
        return [value]
    if not any(isinstance(element, list) for element in value):
        return value or [None]
    flat: list[Value] = []
    pending: list[Value] = [value]
    while pending:
        element = pending.pop()
        if isinstance(element, list):
            pending.extend(reversed(element))
        else:
            flat.append(element)
    return flat or [None]


def any_pair(
    compare: Callable[[Value, Value], bool | None],
    operator: str,
    left: list[Value],
    right: list[Value],
) -> bool | None:
    """Return true if a comparison is true for any pair, else NULL if it is NULL for any."""
    if len(left) > _SHORT and len(right) > _SHORT:
        if operator == "=":
            return _any_equal(left, right)
        left, right = _extremes(left), _extremes(right)
    result: bool | None = False
    for left_value in left:
        for right_value in right:
            holds = compare(left_value, right_value)
            if holds:
                return True
            if holds is None:
                result = None
    return result


def _extremes(values: list[Value]) -> list[Value]:
    """Return the few elements that decide any order comparison, and `!=`."""
    integers = [v for v in values if isinstance(v, int)]
    doubles = [v for v in values if isinstance(v, float) and v == v]
    texts = [v for v in values if isinstance(v, str) and v]
    numeric = [(n, v) for v in texts if (n := numeral(v)) is not None]
    words = [v for v in texts if numeral(v) is None]
    extremes: list[Value] = []
    if integers:
        extremes += (min(integers), max(integers))
    if doubles:
        extremes += (min(doubles), max(doubles))
    if texts:
        extremes += (min(texts, key=text_to_bytes), max(texts, key=text_to_bytes))
    if numeric:
        extremes += (min(numeric)[1], max(numeric)[1])
    extremes += words[:1]
    extremes += [v for v in values if v != v][:1]
    if any(v is None or v == "" for v in values):
        extremes.append(None)
    return extremes


def _any_equal(left: list[Value], right: list[Value]) -> bool | None:
    left_elements, right_elements = _ArrayElements(left), _ArrayElements(right)
    if left_elements.texts & right_elements.texts or any(
        _share_number(left_numbers, right_numbers)
        for left_numbers, right_numbers in (
            (left_elements.numbers, right_elements.numbers),
            (left_elements.numbers, right_elements.numerals),
            (left_elements.numerals, right_elements.numbers),
        )
    ):
        return True
    return None if left_elements.has_null or right_elements.has_null else False


class _ArrayElements:
    """The elements of an array, grouped by the kind of value that they can equal."""

    __slots__ = ("has_null", "numbers", "numerals", "texts")

    def __init__(self, values: list[Value]) -> None:
        self.texts = {v for v in values if isinstance(v, str) and v}
        self.numbers = [v for v in values if isinstance(v, int | float)]
        self.numerals = [n for v in self.texts if (n := numeral(v)) is not None]
        self.has_null = any(v is None or v == "" for v in values)


def _share_number(left: list[int | float], right: list[int | float]) -> bool:
    """Return whether a number is in both: integers compare exactly, all other pairs as doubles."""
    integers, others = _split(left)
    their_integers, their_others = _split(right)
    return bool(
        integers & their_integers
        or others & their_others
        or {double(i) for i in integers} & their_others
        or others & {double(i) for i in their_integers}
    )


def _split(values: list[int | float]) -> tuple[set[int], set[float]]:
    integers = {int(v) for v in values if isinstance(v, int)}
    return integers, {v for v in values if isinstance(v, float) and v == v}
