"""Compiles expressions over one message at a time, each to one generated Python function.

The function takes the tuple of values that an extractor reads, one for each slot of the expression,
and the message's context:

    predicate = compile_filter(parse("/qty > 3 AND /sym = 'IBM'"))
    predicate((5, "IBM"))        # True

    def make(k0, k1):
        def expression(v, m=NO_CONTEXT): return (
            (x0 > k0 if type(x0 := v[0]) is int or type(x0) is float else greater(x0, k0) is True)
            and (x1 == k1 if type(x1 := v[1]) is str else equal(x1, k1) is True))
        return expression

    make(3, 'IBM')

A filter need not distinguish false from NULL, which avoids three-valued logic on the hottest path.
`true` writes a test of "this is true", `false` one of "this is false". In SQL-92's logic an AND is
true if all its operands are true and false if any is false, an OR the other way round, and a NOT is
true if its operand is false. So a whole tree of logic becomes Python's `and` and `or`, with their
short circuits, over tests of comparisons. `value` writes a node's value, three-valued for a truth.

`source` assembles the text, `message_tests` writes comparisons; here are logic and values, and the
tables of all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

from server.expressions import semantics
from server.expressions.backends import message_tests as tests
from server.expressions.backends.python_source import NodeWriters, SourceBuilder
from server.expressions.filter_form import ContentFilter, shape_of
from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.registry import Functions, Parameter
from server.expressions.message_context import MessageContext
from server.expressions.regex.budget import SearchCounter
from server.expressions.regex.patterns import compile_pattern
from server.expressions.tree import (
    Affix,
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Comparison,
    Expr,
    FormParameter,
    Identifier,
    In,
    InferredField,
    IsNan,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Pattern,
    Reference,
    Slot,
    slots,
)
from server.message_types.base import Value

_Result = TypeVar("_Result", covariant=True)


class CompiledExpression(Protocol[_Result]):
    """A function that evaluates an expression for one message."""

    def __call__(self, values: tuple[Value, ...], context: MessageContext = ..., /) -> _Result:
        """Return the result for a message, given the values in its fields."""


Predicate: TypeAlias = CompiledExpression[bool]
"""A compiled filter. It returns whether a message matches: the expression is true, neither false
nor NULL."""

FormPredicate: TypeAlias = Callable[
    [tuple[Value, ...], MessageContext, ContentFilter, tuple[int, ...]], bool
]
"""A compiled form: takes values, the message's context, a filter of the form, and the positions of
the form's fields among the values. See `Predicate`."""

_MAX_SHAPES: Final = 4096
_predicates_by_shape: Final[dict[Hashable, FormPredicate]] = {}

Evaluator: TypeAlias = CompiledExpression[Value]
"""A compiled value. It returns a scalar, NULL for the empty text; NaN is a double."""

TupleEvaluator: TypeAlias = CompiledExpression[tuple[Value, ...]]
"""Several compiled values, each returned as by an `Evaluator`."""


def compile_filter(
    expr: Expr,
    functions: Functions = BUILTINS,
    layout: Sequence[Slot] | Mapping[Reference, int] | None = None,
    search_counter: SearchCounter | None = None,
) -> Predicate:
    """Compile a filter.

    Args:
        expr: the tree.
        functions: implementations of the functions that it calls.
        layout: the contents of the tuple of values, in order or with places; by default
            `slots(expr)`. Filters that share an extractor share its layout.
        search_counter: counts long searches; the filter raises TooCostlyError when it is used up.

    Raises:
        KeyError: the layout lacks a slot of the expression.
    """
    source = SourceBuilder(functions, layout or slots(expr), _WRITERS, search_counter)
    predicate: Predicate = source.compile_function(source.true(expr))
    return predicate


def compile_form(
    template: Expr,
    functions: Functions,
    fields: Sequence[Reference],
    search_counter: SearchCounter,
) -> FormPredicate:
    """Compile the template of a form.

    Args:
        template: the template, or some of its terms.
        functions: implementations of the functions that it calls.
        fields: the fields of the form, whose positions are passed to the predicate in this order.
        search_counter: see `compile_filter`.
    """
    shape = shape_of(template, {field: number for number, field in enumerate(fields)})
    predicate = None if shape is None else _predicates_by_shape.get(shape)
    if predicate is None:
        source = SourceBuilder(functions, fields, _WRITERS, search_counter, is_form=True)
        predicate = source.compile_function(source.true(template))
        if shape is not None:
            if len(_predicates_by_shape) >= _MAX_SHAPES:
                _predicates_by_shape.clear()
            _predicates_by_shape[shape] = predicate
    return predicate


def compile_value(
    expr: Expr, functions: Functions = BUILTINS, layout: Sequence[Slot] | None = None
) -> Evaluator:
    """Compile an expression for its value, as projections, enrichment and priorities need it.

    Aggregates are slots of their own: the caller maintains them and passes their results.

    Args:
        expr: the tree.
        functions: implementations of the functions that it calls.
        layout: the contents of the tuple of values; by default `slots(expr)`.

    Raises:
        KeyError: the layout lacks a slot of the expression.
    """
    source = SourceBuilder(functions, layout or slots(expr), _WRITERS)
    evaluator: Evaluator = source.compile_function(source.scalar(expr))
    return evaluator


def compile_values(
    exprs: Sequence[Expr], functions: Functions, layout: Sequence[Slot]
) -> TupleEvaluator:
    """Compile several expressions over one layout to one function. See `compile_value`."""
    source = SourceBuilder(functions, layout, _WRITERS)
    evaluator: TupleEvaluator = source.compile_function(
        f"({''.join(f'{source.scalar(e)}, ' for e in exprs)})"
    )
    return evaluator


def _joined(operator: str, tests: Iterable[str]) -> str:
    return f"({operator.join(tests)})"


def _logic_value(
    builder: SourceBuilder,
    node: And | Or,
    *,
    operation: Callable[[Iterable[semantics.Truth]], semantics.Truth],
) -> str:
    truths = ", ".join(map(builder.truth, node.operands))
    return f"{builder.name(operation)}(({truths},))"


def _arithmetic_value(builder: SourceBuilder, node: Arithmetic) -> str:
    operation = builder.name(semantics.OPERATIONS[node.operator])
    return f"{operation}({builder.value(node.left)}, {builder.value(node.right)})"


def _true_call(builder: SourceBuilder, node: Call) -> str:
    if node.name == "IF":
        return _conditional(builder, node, builder.true)
    return f"({builder.truth(node)} is True)"


def _false_call(builder: SourceBuilder, node: Call) -> str:
    if node.name == "IF":
        return _conditional(builder, node, builder.false)
    return f"({builder.truth(node)} is False)"


def _call_value(builder: SourceBuilder, node: Call) -> str:
    if node.name == "IF":
        return _conditional(builder, node, builder.scalar)
    function = builder.functions[node.name]
    if function.context_attribute is not None:
        return f"m.{function.context_attribute}"
    arguments = ", ".join(
        _argument(builder, argument, function.parameter(index))
        for index, argument in enumerate(node.arguments)
    )
    return f"{builder.constant(function.bind(len(node.arguments)))}({arguments})"


def _conditional(builder: SourceBuilder, node: Call, branch: Callable[[Expr], str]) -> str:
    """Return source for IF; only the needed branch is evaluated, a NULL condition is not true."""
    condition, consequence, otherwise = node.arguments
    return f"({branch(consequence)} if {builder.true(condition)} else {branch(otherwise)})"


def _argument(builder: SourceBuilder, node: Expr, parameter: Parameter | None) -> str:
    if isinstance(node, Pattern):
        return builder.constant(compile_pattern(node, search_counter=builder.search_counter))
    return builder.scalar(node) if parameter is Parameter.ANY else builder.value(node)


_WRITERS: Final = NodeWriters(
    true={
        Not: lambda w, node: w.false(node.operand),
        And: lambda w, node: _joined(" and ", map(w.true, node.operands)),
        Or: lambda w, node: _joined(" or ", map(w.true, node.operands)),
        Comparison: partial(tests.comparison, truth=True),
        Between: partial(tests.between, truth=True),
        In: partial(tests.is_in, truth=True),
        Like: partial(tests.like, truth=True),
        Affix: tests.affix,
        IsNull: partial(tests.null, truth=True),
        Call: _true_call,
    },
    false={
        Not: lambda w, node: w.true(node.operand),
        And: lambda w, node: _joined(" or ", map(w.false, node.operands)),
        Or: lambda w, node: _joined(" and ", map(w.false, node.operands)),
        Comparison: partial(tests.comparison, truth=False),
        Between: partial(tests.between, truth=False),
        In: partial(tests.is_in, truth=False),
        Like: partial(tests.like, truth=False),
        IsNull: partial(tests.null, truth=False),
        Call: _false_call,
    },
    value={
        Literal: lambda w, node: w.literal(node),
        FormParameter: lambda w, node: w.literal(node),
        Identifier: lambda w, node: w.slot(node),
        Aggregate: lambda w, node: w.slot(node),
        InferredField: lambda w, node: f"{w.name(semantics.inferred)}({w.value(node.operand)})",
        Negate: lambda w, node: f"{w.name(semantics.negate)}({w.value(node.operand)})",
        Arithmetic: _arithmetic_value,
        Comparison: tests.comparison_value,
        Between: tests.between_value,
        In: tests.in_value,
        Like: tests.like_value,
        Affix: tests.affix_value,
        IsNull: tests.null_value,
        IsNan: tests.nan_value,
        Not: lambda w, node: f"{w.name(semantics.negation)}({w.truth(node.operand)})",
        And: partial(_logic_value, operation=semantics.all_true),
        Or: partial(_logic_value, operation=semantics.any_true),
        Call: _call_value,
    },
)
