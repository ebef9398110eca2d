"""Index of candidates, such as filters, by a field value that they demand.

The lookup keys follow the rules by which `=` compares texts and numbers, which
`server.expressions.semantics.LiteralSet` implements with sets: a text finds equal texts and, if it
is a numeral, equal numbers; a number finds equal numbers and texts that are equal numerals.
Literals so large that integers and doubles lose their exact relation are not indexed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from server.expressions import conjuncts
from server.expressions.filter_form import ContentFilter, constants_of
from server.expressions.numerals import numeral
from server.expressions.semantics import EXACT_LIMIT
from server.expressions.tree import (
    And,
    Comparison,
    Constant,
    Expr,
    FormParameter,
    Identifier,
    In,
    Literal,
    Reference,
)
from server.message_types.base import Value
from server.util.multimap import MultimapItems, add_item, discard_item, members
from server.util.prefetch import prefetch
from server.util.string_table import StringTable

CandidateT = TypeVar("CandidateT", bound=Hashable)
"""The type of the candidates."""

_BEGINS_NUMERALS: Final = "0123456789+-."

FieldCandidates: TypeAlias = "MultimapItems[CandidateT] | list[CandidateT] | None"
"""The candidates that demand a value: the only one, or several of them, or None."""

QuickFind: TypeAlias = Callable[[Any], "FieldCandidates[CandidateT]"]
"""Returns the candidates that demand a value that is no array."""


class FieldDemand:
    """Values of which a field must equal one, by lookup key.

    Args:
        literals: the values.

    Attributes:
        texts: the texts among them.
        numbers: the numbers among them.
        text_numbers: the numbers that the texts are numerals of.
        is_exact: whether the lookup is exact for all values, because none is too large.
        is_unsatisfiable: whether no message has one of the values, as with `/a = ''`.
    """

    def __init__(self, literals: Sequence[Constant]) -> None:
        texts: list[str] = []
        numbers: list[int | float] = []
        text_numbers: list[int | float] = []
        self.is_exact = True
        for literal in literals if len(literals) == 1 else dict.fromkeys(literals):
            number: int | float | None
            if isinstance(literal, str):
                if not literal:
                    continue
                texts.append(literal)
                if literal[0] not in _BEGINS_NUMERALS:
                    continue
                number, kind_numbers = numeral(literal), text_numbers
            else:
                number, kind_numbers = literal, numbers
            if number is None:
                continue
            if abs(number) < EXACT_LIMIT:
                kind_numbers.append(number)
            else:
                self.is_exact = False
        self.is_unsatisfiable = not (texts or numbers)
        self.texts: Sequence[str] = texts
        self.numbers: Sequence[int | float] = numbers
        self.text_numbers: Collection[int | float] = text_numbers
        if len(text_numbers) > 1:
            self.text_numbers = dict.fromkeys(text_numbers)


class IndexableTerm:
    """A term of a form that demands that a field equals one of some values.

    Args:
        field: the field.
        literals: the values, some of which may be parameters of the form.
        position: its position among the terms of the form.
    """

    def __init__(self, field: Reference, literals: Sequence[Literal], position: int) -> None:
        self.field = field
        self._position = position
        self._literals = literals
        has_parameters = any(isinstance(literal, FormParameter) for literal in literals)
        # without parameters, the values of all filters of the form
        self._demand = (
            None if has_parameters else FieldDemand([literal.value for literal in literals])
        )

    def demand_of(self, content_filter: ContentFilter) -> FieldDemand:
        """Return the values that a filter of the form demands."""
        demand = self._demand
        return (
            FieldDemand(constants_of(content_filter, self._literals)) if demand is None else demand
        )

    def other_terms(self, template: Expr) -> Expr | None:
        """Return the other terms of the form; None if there are none.

        Args:
            template: the form's template.
        """
        terms = conjuncts(template)
        others = terms[: self._position] + terms[self._position + 1 :]
        if not others:
            return None
        return others[0] if len(others) == 1 else And(others)

    @property
    def is_exact(self) -> bool:
        """See `FieldDemand`; parameters are exact."""
        return self._demand is None or self._demand.is_exact


def indexable_terms(template: Expr) -> list[IndexableTerm]:
    """Return the terms of a form that can be indexed; the index needs one of them."""
    indexable: list[IndexableTerm] = []
    for position, term in enumerate(conjuncts(template)):
        field, literals = _demanded(term)
        if field is None:
            continue
        indexable_term = IndexableTerm(field.reference, literals, position)
        if indexable_term.is_exact:
            indexable.append(indexable_term)
    return indexable


def _demanded(term: Expr) -> tuple[Identifier | None, Sequence[Literal]]:
    """Return the field and the values of which it must equal one; None for any other term."""
    if isinstance(term, Comparison):
        field, value = term.left, term.right
        if isinstance(field, Literal):
            field, value = value, field
        if term.operator == "=" and isinstance(field, Identifier) and isinstance(value, Literal):
            return field, (value,)
    elif isinstance(term, In):
        literals = [item for item in term.items if isinstance(item, Literal)]
        if isinstance(term.operand, Identifier) and len(literals) == len(term.items):
            return term.operand, literals
    return None, ()


class FieldIndex(Generic[CandidateT]):
    """The candidates that demand values of one field, by value."""

    def __init__(self) -> None:
        self._texts: StringTable[MultimapItems[CandidateT]] = StringTable()
        self._numbers: dict[float, MultimapItems[CandidateT]] = {}
        self._text_numbers: dict[float, MultimapItems[CandidateT]] = {}

    def __bool__(self) -> bool:
        return bool(self._texts or self._numbers or self._text_numbers)

    def add(self, values: FieldDemand, candidate: CandidateT) -> None:
        """Add a candidate, to be found by any of some values."""
        for text in values.texts:
            add_item(self._texts, text, candidate)
        for number in values.numbers:
            add_item(self._numbers, number, candidate)
        for number in values.text_numbers:
            add_item(self._text_numbers, number, candidate)

    def remove(self, values: FieldDemand, candidate: CandidateT) -> None:
        """Remove a candidate from some values."""
        for text in values.texts:
            discard_item(self._texts, text, candidate)
        for number in values.numbers:
            discard_item(self._numbers, number, candidate)
        for number in values.text_numbers:
            discard_item(self._text_numbers, number, candidate)

    def max_candidates(self, values: FieldDemand) -> int:
        """Return the largest number of candidates that share one of some values."""
        entries = [self._texts.get(word) for word in values.texts]
        entries += [self._numbers.get(number) for number in values.numbers]
        return max([0 if crowd is None else len(members(crowd)) for crowd in entries], default=0)

    @property
    def quick_find(self) -> QuickFind[CandidateT]:
        """The lookup for a value that is no array.

        The table's own `get`, if all literals are texts that no number equals.

        Raises:
            TypeError: the value is an array.
        """
        if self._numbers or self._text_numbers:
            return self._find_scalar
        return self._texts.get

    def find_all(self, values: Sequence[Value]) -> Sequence[FieldCandidates[CandidateT]]:
        """Return the candidates for many values, and prefetch them into the processor's caches.

        Raises:
            TypeError: a value is an array.
        """
        if not (self._numbers or self._text_numbers):
            return self._texts.get_all(values)
        candidates = [self._find_scalar(value) for value in values]
        prefetch(candidates)
        return candidates

    def find(self, value: Value) -> Collection[CandidateT]:
        """Return the candidates for a message's value; for an array, those of any element."""
        if isinstance(value, list):
            return dict.fromkeys(candidate for item in value for candidate in self.find(item))
        candidates = self._find_scalar(value)
        if candidates is None:
            return ()
        return candidates if isinstance(candidates, list) else members(candidates)

    def _find_scalar(self, value: Value) -> FieldCandidates[CandidateT]:
        if isinstance(value, str):
            number = numeral(value) if self._numbers else None
            return _both(
                self._texts.get(value), None if number is None else self._numbers.get(number)
            )
        if isinstance(value, list):
            raise TypeError
        if value is None:
            return None
        return _both(
            self._numbers.get(value), self._text_numbers.get(value) if self._text_numbers else None
        )


def _both(
    first: MultimapItems[CandidateT] | None, second: MultimapItems[CandidateT] | None
) -> FieldCandidates[CandidateT]:
    """Merge the candidates of two lookups."""
    if first is None or second is None:
        return second if first is None else first
    return [*members(first), *members(second)]
