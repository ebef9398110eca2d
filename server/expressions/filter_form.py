"""Content filters as forms with constants, like prepared statements with their arguments.

Clients subscribe with very many filters that differ only by constants. All that follows from the
rest of a filter is the same for all of them: its fields, the terms that can be indexed, its code.
That is the filter's *form*. A filter itself is a tuple, which identifies it: its form, and its
constants. The tree is built from it on demand.

A constant becomes a parameter of the form only if code for it is code for all constants of its
kind. So there are several kinds of numbers and of texts, and some constants stay part of the form:
numbers so large that integers and doubles lose their exact relation, empty texts, the items of IN.
The search effort of regular expressions is limited for each form (`regex_budget.py`), so a form
with patterns or calls has only one parameter, and only if no message needs a test of it: the
constant of the only term that can be indexed, `field = constant`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from math import copysign
from typing import Any, Final, TypeAlias, cast

from server.expressions.numerals import numeral
from server.expressions.printer import to_text
from server.expressions.semantics import EXACT_LIMIT
from server.expressions.tree import (
    And,
    Between,
    Comparison,
    Constant,
    Expr,
    FormParameter,
    Identifier,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Reference,
    conjuncts,
    walk,
)

ContentFilter: TypeAlias = tuple[Any, ...]
"""A filter: its form, and then the constants of the form's parameters.

There may be a million, so it is a plain tuple. Equal filters are equal.
"""

_BEGINS_NUMERALS: Final = "0123456789+-."

NOT_LIFTED: Final = ""
"""The kind of constants that are part of the form."""

_EXAMPLES: Final[dict[str, Constant]] = {
    "integer": 1,
    "double": 1.5,
    "text": "a",
    "wide text": "\u00e9",
    "numeral": "1",
}
"""An example for each kind of constants."""

CONSTANT_NODES: Final = And | Or | Not | Comparison | Between | In | IsNull | Identifier | Literal
"""Nodes without patterns and calls."""


def kind_of(constant: Constant) -> str:
    """Return the kind of a constant, or NOT_LIFTED."""
    if isinstance(constant, str):
        return _kind_of_text(constant)
    if type(constant) is int:
        return "integer" if -EXACT_LIMIT < constant < EXACT_LIMIT else NOT_LIFTED
    if type(constant) is float and abs(constant) < EXACT_LIMIT:
        is_negative_zero = constant == 0.0 and copysign(1.0, constant) < 0.0
        return NOT_LIFTED if is_negative_zero else "double"
    return NOT_LIFTED


def _kind_of_text(text: str) -> str:
    if not text:
        return NOT_LIFTED
    number = numeral(text) if text[0] in _BEGINS_NUMERALS else None
    if number is None:
        return "text" if text.isascii() else "wide text"
    return "numeral" if abs(number) < EXACT_LIMIT else NOT_LIFTED


class FilterForm:
    """A filter without its constants. Equal forms have equal texts.

    Args:
        template: the tree, with parameters in place of the constants.

    Attributes:
        template: the same.
    """

    def __init__(self, template: Expr) -> None:
        self.template: Final = template
        self._text: Final = to_text(template)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FilterForm) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def lift_constants(expr: Expr) -> ContentFilter:
    """Return a filter as its form and its constants.

    Args:
        expr: the tree of the filter.
    """
    form, literals = lift_literals(expr)
    return (form, *[literal.value for literal in literals])


def lift_literals(expr: Expr) -> tuple[FilterForm, list[Literal]]:
    """Return the form of a filter, and the literals of its tree that are constants."""
    literals: list[Literal] = []
    if all(isinstance(node, CONSTANT_NODES) for node in walk(expr)):
        template = _lift(expr, literals)
    else:
        template = _lift_only_equality(expr, literals)
    return FilterForm(template), literals


def content_filter_of(expr: Expr | None) -> ContentFilter | None:
    """Return a filter as its form and its constants; None for none. See `lift_constants`."""
    return None if expr is None else lift_constants(expr)


def expr_of(content_filter: ContentFilter) -> Expr:
    """Return the tree of a filter, built anew."""
    return _bind(form_of(content_filter).template, content_filter)


def text_of(content_filter: ContentFilter) -> str:
    """Return the canonical text of a filter."""
    return to_text(expr_of(content_filter))


def form_of(content_filter: ContentFilter) -> FilterForm:
    """Return the form of a filter."""
    return cast(FilterForm, content_filter[0])


def constants_of(content_filter: ContentFilter, literals: Sequence[Literal]) -> list[Constant]:
    """Return the values that some literals of a form's template have in a filter."""
    return [
        content_filter[literal.number + 1] if isinstance(literal, FormParameter) else literal.value
        for literal in literals
    ]


def shape_of(template: Expr, fields: Mapping[Reference, int]) -> Hashable:
    """Return what decides about the code of a template, given the numbers of its fields.

    Returns:
        None if the code depends on more: on constants that are part of the form.
    """
    try:
        return _shape_of(template, fields)
    except _NoShapeError:
        return None


class _NoShapeError(Exception):
    """A node has no shape."""


def _shape_of(node: Expr, fields: Mapping[Reference, int]) -> Hashable:
    if isinstance(node, Identifier):
        return fields[node.reference]
    if isinstance(node, FormParameter):
        return node.number, node.value
    if isinstance(node, Comparison):
        return node.operator, _shape_of(node.left, fields), _shape_of(node.right, fields)
    if isinstance(node, And | Or | Not | Between | IsNull):
        return type(node), *[_shape_of(child, fields) for child in node.children()]
    raise _NoShapeError


def _lift(node: Expr, literals: list[Literal]) -> Expr:
    """Return a node with parameters for its constants, and append their literals to `literals`."""
    if isinstance(node, Comparison):
        return _lift_comparison(node, literals)
    if isinstance(node, And):
        return And(tuple([_lift(operand, literals) for operand in node.operands]))
    if isinstance(node, Or):
        return Or(tuple([_lift(operand, literals) for operand in node.operands]))
    if isinstance(node, Not):
        return Not(_lift(node.operand, literals))
    if isinstance(node, Between) and isinstance(node.operand, Identifier):
        return Between(
            node.operand, _parameter(node.low, literals), _parameter(node.high, literals)
        )
    return node


def _lift_comparison(node: Comparison, literals: list[Literal]) -> Expr:
    left, right = node.left, node.right
    if isinstance(left, Identifier) and isinstance(right, Literal):
        kind = kind_of(right.value)
        if kind != NOT_LIFTED:
            literals.append(right)
            return _template_comparison(node.operator, left.reference, kind, len(literals) - 1)
    elif isinstance(left, Literal) and isinstance(right, Identifier):
        return Comparison(node.operator, _parameter(left, literals), right)
    return node


def _lift_only_equality(node: Expr, literals: list[Literal]) -> Expr:
    """Do as `_lift` for a term `field = constant`, if no other term demands that a field equals."""
    terms = conjuncts(node)
    equalities = [
        term
        for term in terms
        if isinstance(term, In) or (isinstance(term, Comparison) and term.operator == "=")
    ]
    if len(equalities) != 1 or not isinstance(equalities[0], Comparison):
        return node
    lifted = _lift_comparison(equalities[0], literals)
    others = [lifted if term is equalities[0] else term for term in terms]
    return And(tuple(others)) if isinstance(node, And) else lifted


def _parameter(node: Expr, literals: list[Literal]) -> Expr:
    """Return a parameter for a literal, if it can have one."""
    kind = kind_of(node.value) if isinstance(node, Literal) else NOT_LIFTED
    if kind == NOT_LIFTED:
        return node
    literals.append(cast(Literal, node))
    return _shared_parameter(kind, len(literals) - 1)


def _new_parameter(kind: str, number: int) -> FormParameter:
    return FormParameter(_EXAMPLES[kind], number)


_shared_parameter: Final = lru_cache(maxsize=1024)(_new_parameter)


def _new_template_comparison(operator: str, field: Reference, kind: str, number: int) -> Comparison:
    identifier = Identifier(field.path, field.message_type, field.topic, field.state)
    return Comparison(operator, identifier, _shared_parameter(kind, number))


_template_comparison: Final = lru_cache(maxsize=4096)(_new_template_comparison)
"""Forms that are combinations of the same comparisons share these."""


def _bind(node: Expr, content_filter: ContentFilter) -> Expr:
    """Return a node of a template with a filter's constants in place of the parameters."""
    if isinstance(node, FormParameter):
        return Literal(content_filter[node.number + 1])
    if isinstance(node, Comparison):
        return Comparison(
            node.operator, _bind(node.left, content_filter), _bind(node.right, content_filter)
        )
    if isinstance(node, And):
        return And(tuple([_bind(operand, content_filter) for operand in node.operands]))
    if isinstance(node, Or):
        return Or(tuple([_bind(operand, content_filter) for operand in node.operands]))
    if isinstance(node, Not):
        return Not(_bind(node.operand, content_filter))
    if isinstance(node, Between):
        return Between(*[_bind(child, content_filter) for child in node.children()])
    return node
