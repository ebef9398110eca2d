"""Functions that reduce an array of one message to a value."""

from __future__ import annotations

from functools import reduce
from typing import Final

from server.expressions import semantics
from server.expressions.arrays import elements
from server.expressions.concat import joined
from server.expressions.functions.registry import Function, Parameter
from server.message_types.base import Value

_SECTION = "Arrays"


def _non_null(array: Value) -> list[Value]:
    return [element for element in elements(array) if element is not None and element != ""]


def _count(array: Value) -> int:
    if array is None or array == "" or array == []:
        return 0
    return len(elements(array))


def _sum(array: Value) -> Value:
    values = _non_null(array)
    return reduce(semantics.add, values[1:], semantics.number(values[0])) if values else None


def _to_string(array: Value, delimiter: Value, replacement: Value) -> str | None:
    if _count(array) == 0:
        return None
    null = semantics.text(replacement) or ""
    texts = [semantics.text(element) or null for element in elements(array)]
    return joined(texts, semantics.text(delimiter) or "")


FUNCTIONS: Final = (
    Function(
        "ARRAY_COUNT",
        _SECTION,
        "How many elements there are; 0 for NULL, 1 for a single value.",
        _count,
        (Parameter.ARRAY,),
    ),
    Function(
        "ARRAY_MAX",
        _SECTION,
        "The greatest element by `>`.",
        lambda array: semantics.largest(elements(array)),
        (Parameter.ARRAY,),
    ),
    Function(
        "ARRAY_MIN",
        _SECTION,
        "The least element by `<`.",
        lambda array: semantics.smallest(elements(array)),
        (Parameter.ARRAY,),
    ),
    Function(
        "ARRAY_SUM",
        _SECTION,
        "The sum of the elements that are not NULL.",
        _sum,
        (Parameter.ARRAY,),
    ),
    Function(
        "ARRAY_TO_STRING",
        _SECTION,
        "The elements as one text, with the second argument between them and the third for NULLs.",
        _to_string,
        (Parameter.ARRAY, Parameter.ANY, Parameter.ANY),
    ),
)
"""AMPS User Guide, Array Reduce Functions."""
