"""The allowed contents of an expression by its place: one table, one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias
from typing import Literal as OneOf

from config_schema.catalogue import ExpressionKind
from server.expressions.errors import ExpressionError
from server.expressions.tree import Aggregate, Call, Expr, Identifier, Literal, walk

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions


ContextKind: TypeAlias = ExpressionKind
"""The places of expressions, a table shared with the configuration language."""

StartSymbol: TypeAlias = OneOf["expression", "field", "identifier", "order", "join"]


@dataclass(frozen=True, slots=True)
class ContextRules:
    """The rules of one kind.

    Attributes:
        start_symbol: the start symbol of the grammar.
        description: the name of the place in messages.
        allows_aggregates: aggregate functions may be used.
        allows_volatile: non-deterministic functions may be used (outside aggregates).
        allows_lookups: VALUE_LOOKUP may be used where volatile functions may.
        allows_qualifiers: identifiers may name a topic.
        allows_current: OF CURRENT may be used.
        allows_previous: OF PREVIOUS may be used.
        expands_variables: `{{NAME}}` is replaced before the text is parsed for use.
    """

    start_symbol: StartSymbol
    description: str
    allows_aggregates: bool = False
    allows_volatile: bool = True
    allows_lookups: bool = False
    allows_qualifiers: bool = False
    allows_current: bool = False
    allows_previous: bool = False
    expands_variables: bool = False


RULES: Final[dict[ContextKind, ContextRules]] = {
    ContextKind.FILTER: ContextRules("expression", "a filter", expands_variables=True),
    ContextKind.STABLE_FILTER: ContextRules("expression", "this filter", allows_volatile=False),
    ContextKind.VIEW_FILTER: ContextRules(
        "expression", "a view's filter", allows_volatile=False, allows_qualifiers=True
    ),
    ContextKind.CONDITION: ContextRules("expression", "a condition", expands_variables=True),
    ContextKind.VALUE: ContextRules("expression", "a value", expands_variables=True),
    ContextKind.PATH: ContextRules("identifier", "a path"),
    ContextKind.GROUPING: ContextRules("identifier", "a grouping", allows_qualifiers=True),
    ContextKind.PROJECTION: ContextRules(
        "field", "a projection", allows_aggregates=True, allows_qualifiers=True
    ),
    ContextKind.PREPROCESSING: ContextRules("field", "preprocessing", allows_lookups=True),
    ContextKind.ENRICHMENT: ContextRules(
        "field", "enrichment", allows_lookups=True, allows_current=True, allows_previous=True
    ),
    ContextKind.CONFLATED_ENRICHMENT: ContextRules(
        "field", "enrichment of a conflated topic", allows_lookups=True, allows_current=True
    ),
    ContextKind.ORDER_BY: ContextRules("order", "an OrderBy"),
    ContextKind.JOIN: ContextRules("join", "a join", allows_qualifiers=True),
}
"""AMPS User Guide: Aggregate Functions; Deterministic and Non-Deterministic Functions;
Constructing Fields; Special-Purpose Functions (VALUE_LOOKUP)."""


def check_tree(expr: Expr, kind: ContextKind, functions: Functions, text: str) -> None:
    """Refuse nodes that the kind does not allow.

    Raises:
        ExpressionError: at the first node that is not allowed.
    """
    rules = RULES[kind]
    for node in walk(expr):
        match node:
            case Identifier():
                _check_identifier(node, rules, text)
            case Aggregate():
                _check_aggregate(node, rules, functions, text)
            case Call():
                _check_call(node, rules, functions, text)


def _check_identifier(node: Identifier, rules: ContextRules, text: str) -> None:
    if node.topic is not None and not rules.allows_qualifiers:
        raise ExpressionError(
            f"the fields of {rules.description} belong to one message: write them without [topic]",
            node.position,
            text,
        )
    if node.state == "current" and not rules.allows_current:
        raise ExpressionError(
            "OF CURRENT and OF PREVIOUS are for enrichment only", node.position, text
        )
    if node.state == "previous" and not rules.allows_previous:
        raise ExpressionError(
            f"{rules.description} has no previous state of the message, OF PREVIOUS cannot be used",
            node.position,
            text,
        )


def _check_aggregate(node: Aggregate, rules: ContextRules, functions: Functions, text: str) -> None:
    if not rules.allows_aggregates:
        raise ExpressionError(
            f"{node.name} is an aggregate function and cannot be used in {rules.description}, "
            "only in the projection of a view or of an aggregated subscription",
            node.position,
            text,
        )
    for separator in node.arguments[1:]:
        if not isinstance(separator, Literal):
            raise ExpressionError(
                f"the second argument of {node.name} joins the values of all messages: "
                "it has to be a literal",
                separator.position,
                text,
            )
    for inner in (inner for argument in node.arguments for inner in walk(argument)):
        if isinstance(inner, Aggregate):
            raise ExpressionError(
                f"{inner.name} cannot be used within {node.name}: aggregates do not nest",
                inner.position,
                text,
            )
        if isinstance(inner, Call) and not functions[inner.name].is_deterministic:
            raise ExpressionError(
                f"{inner.name} gives a new value at each call, it cannot be used in {node.name}",
                inner.position,
                text,
            )


def _check_call(node: Call, rules: ContextRules, functions: Functions, text: str) -> None:
    function = functions[node.name]
    if function.is_lookup and not rules.allows_lookups:
        raise ExpressionError(
            f"{node.name} can be used in preprocessing and enrichment only", node.position, text
        )
    if (
        function.find_argument_error is not None
        and (reason := function.find_argument_error(node.arguments)) is not None
    ):
        raise ExpressionError(f"{node.name}: {reason}", node.position, text)
    if not function.is_deterministic and not rules.allows_volatile:
        raise ExpressionError(
            f"{node.name} may give a new value at each call, {rules.description} needs one"
            " that stays",
            node.position,
            text,
        )
