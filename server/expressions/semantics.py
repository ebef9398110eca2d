"""The semantics of values, for all back ends: NULL, NaN, truth, conversion, comparison, arithmetic.

A value, as message types return it, is NULL (None), a Boolean, an integer, a double, a text, or an
array.

NULL. A missing field, a null, an empty array and the empty text are NULL. Operators return NULL for
NULL, except those that test for it. Logic is that of SQL-92: three values, AND and OR commute.

NaN. A text that is no number counts as NaN where a number is needed; so does a division by zero.
Arithmetic propagates NaN. It equals nothing, is neither less nor greater than anything, and differs
from everything. In a condition it is as unknown as NULL.

Comparison. Two texts compare as bytes, never as numbers. A text and a number compare as numbers if
the text is one; if not, the text is the greater. Integers compare exactly; an integer and a double
compare as doubles.

Arrays. A comparison is true if it is true for any element (or any pair of elements), else NULL if
it is NULL for any, else false. All other operators use the first element only.

Sources: AMPS User Guide, AMPS Data Types; NULL, NaN and IS NULL; Comparison Operators;
Arithmetic Operators; Working with Arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from server.expressions.arrays import any_pair, elements
from server.expressions.numerals import bounded, double, numeral
from server.message_types.base import Value
from server.util.encoding import text_to_bytes

Truth: TypeAlias = bool | None
Number: TypeAlias = int | float

NAN: Final = float("nan")
EXACT_LIMIT: Final = 2**53
"""Below this magnitude integers and doubles compare exactly whichever way they are converted."""


# ---- conversion


def first(value: Value) -> bool | int | float | str | None:
    """Return the scalar of a value: an array's first element, NULL for the empty text.

    All operators except comparisons use it.
    """
    while isinstance(value, list):
        value = value[0] if value else None
    return None if value == "" else value


def number(value: Value) -> Number | None:
    """Return a value as a number: None for NULL, NaN for a text that is no number."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return bounded(int(value))
    if isinstance(value, list):
        return number(first(value))
    if not value:
        return None
    converted = numeral(value)
    return NAN if converted is None else converted


def text(value: Value) -> str | None:
    """Return a value as text: None for NULL, `1` or `0` for Booleans, shortest form for doubles."""
    value = first(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value)
    return str(bounded(int(value)))


def octets(value: Value) -> bytes | None:
    """Return a value as the bytes of its text; None for NULL."""
    converted = text(value)
    return None if converted is None else text_to_bytes(converted)


def integer(value: Value) -> int | None:
    """Return a value as an integer, truncated; None for NULL, NaN and infinity."""
    converted = number(value)
    if converted is None or not math.isfinite(converted):
        return None
    return int(converted)


def truth(value: Value) -> Truth:
    """Return the truth of a value in a condition: a number is true if it is not 0."""
    if value is True or value is False:
        return value
    converted = number(value)
    if converted is None or converted != converted:
        return None
    return converted != 0


# ---- tests


def is_null(value: Value) -> bool:
    """Return `value IS NULL`."""
    return first(value) is None


def is_nan(value: Value) -> bool:
    """Return `value IS NAN`; true also for a text that is no number, as it would count as NaN."""
    converted = number(value)
    return converted is not None and converted != converted


# ---- logic


def all_true(truths: Iterable[Truth]) -> Truth:
    """Return the AND of any number of truths; stop at the first that is false."""
    result: Truth = True
    for item in truths:
        if item is False:
            return False
        if item is None:
            result = None
    return result


def any_true(truths: Iterable[Truth]) -> Truth:
    """Return the OR of any number of truths; stop at the first that is true."""
    result: Truth = False
    for item in truths:
        if item is True:
            return True
        if item is None:
            result = None
    return result


def negation(value: Truth) -> Truth:
    """Return `NOT value`."""
    return None if value is None else not value


# ---- comparison

Comparator: TypeAlias = Callable[[Value, Value], Truth]


def _comparator(holds: Callable[[Any, Any], bool], name: str) -> Comparator:
    """Return the comparison made from Python's operator for two numbers or two texts."""

    def compare(left: Value, right: Value) -> Truth:
        if isinstance(left, list) or isinstance(right, list):
            return any_pair(compare, name, elements(left), elements(right))
        if left is None or right is None or left == "" or right == "":
            return None
        if isinstance(left, str):
            if isinstance(right, str):
                return compare_texts(left, right)
            return compare_numbers(*_numbers(left, right))
        if isinstance(right, str):
            return compare_numbers(*_numbers(right, left)[::-1])
        return compare_numbers(left, right)

    def compare_texts(left: str, right: str) -> bool:
        if left.isascii() or right.isascii():  # then characters sort as their bytes do
            return holds(left, right)
        return holds(text_to_bytes(left), text_to_bytes(right))

    def compare_numbers(left: Number, right: Number) -> bool:
        if type(left) is type(right):
            return holds(left, right)
        return holds(double(left), double(right))

    compare.__name__ = compare.__qualname__ = f"compare[{name}]"
    return compare


def _numbers(string: str, value: Number) -> tuple[Number, Number]:
    """Return two numbers that compare as the text and the number do: words exceed all numbers."""
    converted = numeral(string)
    if converted is not None:
        return converted, value
    return (NAN, NAN) if value != value else (1, 0)


COMPARISON_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The comparison of two numbers of one type, or of the bytes of two texts, by operator."""

COMPARATORS: Final[dict[str, Comparator]] = {
    sign: _comparator(holds, sign) for sign, holds in COMPARISON_OPERATORS.items()
}

equal: Final = COMPARATORS["="]
less: Final = COMPARATORS["<"]
at_most: Final = COMPARATORS["<="]
greater: Final = COMPARATORS[">"]
at_least: Final = COMPARATORS[">="]


def _with_number(sign: str) -> Callable[[Value, Number], Truth]:
    """Return a comparison with a number below 2^53, which Python compares exactly with others."""
    general, holds = COMPARATORS[sign], COMPARISON_OPERATORS[sign]
    if_a_word = general("a word", 0)

    def compare(value: Value, literal: Number) -> Truth:
        if type(value) is str and value:
            converted = numeral(value)
            return if_a_word if converted is None else holds(converted, literal)
        return None if value is None else general(value, literal)

    return compare


def _with_numeral(sign: str) -> Callable[[Value, str, Number], Truth]:
    """Return a comparison with a text that is a number; the caller passes the number as well."""
    general = COMPARATORS[sign]

    def compare(value: Value, literal: str, number: Number) -> Truth:
        if type(value) is int or type(value) is float:
            return general(value, number)
        return general(value, literal)

    return compare


WITH_NUMBER: Final = {sign: _with_number(sign) for sign in COMPARISON_OPERATORS}
WITH_NUMERAL: Final = {sign: _with_numeral(sign) for sign in COMPARISON_OPERATORS}
"""Comparisons with a literal of known type, with the same results as `COMPARATORS`."""


def between(value: Value, low: Value, high: Value) -> Truth:
    """Return `value BETWEEN low AND high`, the same as `value >= low AND value <= high`."""
    return all_true((at_least(value, low), at_most(value, high)))


def is_in(value: Value, items: Iterable[Value]) -> Truth:
    """Return `value IN (items)`, the same as comparisons with `=` joined by OR."""
    return any_true(equal(value, item) for item in items)


class LiteralSet:
    """Evaluates `value IN (literals)` by hashing, with the same result as `is_in`.

    If none of the literals is large, these values are among them, and no others:

        a text      that is in `texts`, or is a number that is in `numbers`
        a number    that is in `numbers` or in `text_numbers`; true is 1, false is 0
        an array    of which any element is

    Thus "1" is among (1) and ('1') but not among ('1.0'); the number 1 is among all three. Python's
    hash of numbers agrees with the language: 1, 1.0 and True are one.

    Attributes:
        texts: the literals that are texts.
        numbers: the literals that are numbers.
        text_numbers: the numbers that texts among the literals stand for.
        large: literals of 2^53 and more. As doubles they may be equal without being equal exactly,
            which hashing would miss; they are compared one by one.
        has_null: NULL is among the literals, so that the result is NULL instead of false.
    """

    __slots__ = ("has_null", "large", "numbers", "text_numbers", "texts")

    def __init__(self, literals: Iterable[int | float | str | None]) -> None:
        texts: list[str] = []
        numbers: list[Number] = []
        text_numbers: list[Number] = []
        large: list[Number | str] = []
        self.has_null = False
        for literal in literals:
            if literal is None or literal == "":
                self.has_null = True
                continue
            number: Number | None
            if isinstance(literal, str):
                texts.append(literal)
                number, same_kind = numeral(literal), text_numbers
            else:
                number, same_kind = literal, numbers
            if number is None:
                continue
            if abs(number) < EXACT_LIMIT:
                same_kind.append(number)
            else:
                large.append(literal)
        self.large = tuple(large)
        self.texts = frozenset(texts)
        self.numbers = frozenset(numbers)
        self.text_numbers = frozenset(text_numbers)

    @property
    def only_texts(self) -> bool:
        """True if a text is among the literals exactly if it is in `texts`."""
        return not self.numbers and not self.large

    @property
    def only_numbers(self) -> bool:
        """True if a number is among the literals exactly if it is in `numbers`."""
        return not self.texts and not self.large

    def contains(self, value: Value) -> Truth:
        """Return whether a value equals one of the literals; None if NULL makes it unknown."""
        if isinstance(value, list):
            return any_true(self.contains(element) for element in elements(value))
        if value is None or value == "":
            return None
        if isinstance(value, str):
            is_member = value in self.texts or (
                bool(self.numbers) and numeral(value) in self.numbers
            )
        else:
            is_member = value in self.numbers or value in self.text_numbers
        if not is_member and self.large:
            is_member = is_in(value, self.large) is True
        if is_member:
            return True
        return None if self.has_null else False


# ---- texts


def like(value: Value, matches: Callable[[str], bool | None]) -> Truth:
    """Return `value LIKE pattern`."""
    if isinstance(value, list):
        return any_true(like(element, matches) for element in elements(value))
    converted = text(value)
    return None if converted is None else matches(converted)


def begins_with(value: Value, items: Iterable[Value]) -> Truth:
    """Return `value BEGINS WITH (items)`: true if the value begins with any item."""
    return any_true(
        _affix(element, item, bytes.startswith) for element in elements(value) for item in items
    )


def ends_with(value: Value, items: Iterable[Value]) -> Truth:
    """Return `value ENDS WITH (items)`: true if the value ends with any item."""
    return any_true(
        _affix(element, item, bytes.endswith) for element in elements(value) for item in items
    )


def _affix(value: Value, item: Value, holds: Callable[[bytes, bytes], bool]) -> Truth:
    whole, part = octets(value), octets(item)
    return None if whole is None or part is None else holds(whole, part)


# ---- arithmetic

Operation: TypeAlias = Callable[[Value, Value], Number | None]


def _operation(
    integers: Callable[[int, int], Number], doubles: Callable[[float, float], float]
) -> Operation:
    def operate(left: Value, right: Value) -> Number | None:
        if type(left) is float and type(right) is float:
            return doubles(left, right)
        left_number, right_number = number(left), number(right)
        if left_number is None or right_number is None:
            return None
        if isinstance(left_number, int) and isinstance(right_number, int):
            result = integers(left_number, right_number)
            return bounded(result) if isinstance(result, int) else result
        return doubles(float(left_number), float(right_number))

    return operate


def _divide_integers(left: int, right: int) -> Number:
    if right == 0:
        return NAN
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide_doubles(left: float, right: float) -> float:
    return left / right if right != 0 else NAN


def _remainder_integers(left: int, right: int) -> Number:
    if right == 0:
        return NAN
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _remainder_doubles(left: float, right: float) -> float:
    if right == 0 or math.isinf(left):
        return NAN
    return math.fmod(left, right)


add: Final = _operation(operator.add, operator.add)
subtract: Final = _operation(operator.sub, operator.sub)
multiply: Final = _operation(operator.mul, operator.mul)
divide: Final = _operation(_divide_integers, _divide_doubles)
remainder: Final = _operation(_remainder_integers, _remainder_doubles)

OPERATIONS: Final[dict[str, Operation]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
}


def negate(value: Value) -> Number | None:
    """Return `-value`."""
    converted = number(value)
    if isinstance(converted, int):
        return bounded(-converted)
    return None if converted is None else -converted


# ---- order and identity


def largest(values: Iterable[Value]) -> Value:
    """Return the greatest of the values by `>`; NULLs are left out, NaN wins."""
    return _extreme(values, greater)


def smallest(values: Iterable[Value]) -> Value:
    """Return the least of the values by `<`; NULLs are left out, NaN wins."""
    return _extreme(values, less)


def _extreme(values: Iterable[Value], beats: Comparator) -> Value:
    best: Value = None
    for value in values:
        if value is None or value == "":
            continue
        if value != value:
            return NAN
        if best is None or beats(value, best):
            best = value
    return best


def order_key(value: Value) -> tuple[int, Number | bytes]:
    """Return a sort key for OrderBy: NULL, then NaN, then numbers, then texts by their bytes.

    Unlike `<` between a text and a number it is a total order: a text is never read as a number.
    """
    value = first(value)
    if value is None:
        return (0, 0)
    if isinstance(value, str):
        return (3, text_to_bytes(value))
    return (1, 0) if value != value else (2, value)


def inferred(value: Value) -> Value:
    """Return a value of an untyped message with its inferred type: a number if its text is one.

    Source: AMPS User Guide, AMPS Data Types.
    """
    if isinstance(value, list):
        return [inferred(element) for element in value]
    return _or_number(value) if isinstance(value, str) else value


def identity_key(value: Value) -> Number | str | None:
    """Return the key that COUNT_DISTINCT compares: an array's first element, as a number if it can.

    A text that is a number becomes that number.
    """
    value = first(value)
    return _or_number(value) if isinstance(value, str) else value


def _or_number(string: str) -> Number | str:
    converted = numeral(string)
    return string if converted is None else converted
