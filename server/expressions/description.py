"""Describes trees as plain data, for engines that have their own expressions.

Every node is a dictionary with its kind as `node`; operands are dictionaries again:

    describe(parse("/qty > 3")) ==
        {"node": "comparison", "operator": ">",
         "left": {"node": "field", "path": ["qty"],
                  "message_type": None, "topic": None, "state": None},
         "right": {"node": "literal", "type": "integer", "value": 3}}

A description can be written as JSON, except texts with bytes that are not UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from server.expressions.functions.registry import AGGREGATES
from server.expressions.tree import (
    Affix,
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Comparison,
    Expr,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    Pattern,
)

ExpressionDescription: TypeAlias = dict[str, Any]

_TYPES: Final = {type(None): "null", int: "integer", float: "double", str: "text"}


def describe(expr: Expr) -> ExpressionDescription:
    """Describe an expression.

    Returns:
        Dictionaries, lists, texts, numbers and None only.
    """
    return _DESCRIBERS[type(expr)](expr)


def _describe_all(nodes: tuple[Expr, ...]) -> list[ExpressionDescription]:
    return [describe(node) for node in nodes]


def _literal(node: Literal) -> ExpressionDescription:
    return {"node": "literal", "type": _TYPES[type(node.value)], "value": node.value}


def _field(node: Identifier) -> ExpressionDescription:
    return {
        "node": "field",
        "path": list(node.path),
        "message_type": node.message_type,
        "topic": node.topic,
        "state": node.state,
    }


def _binary(kind: str) -> Callable[[Any], ExpressionDescription]:
    return lambda node: {
        "node": kind,
        "operator": node.operator,
        "left": describe(node.left),
        "right": describe(node.right),
    }


def _unary(kind: str) -> Callable[[Any], ExpressionDescription]:
    return lambda node: {"node": kind, "operand": describe(node.operand)}


def _between(node: Between) -> ExpressionDescription:
    return {
        "node": "between",
        "operand": describe(node.operand),
        "low": describe(node.low),
        "high": describe(node.high),
    }


def _in(node: In) -> ExpressionDescription:
    return {"node": "in", "operand": describe(node.operand), "items": _describe_all(node.items)}


def _like(node: Like) -> ExpressionDescription:
    return {
        "node": "like",
        "operand": describe(node.operand),
        "pattern": describe(node.pattern),
    }


def _pattern(node: Pattern) -> ExpressionDescription:
    return {"node": "pattern", "text": node.text, "quoted": node.is_quoted}


def _affix(node: Affix) -> ExpressionDescription:
    return {
        "node": "affix",
        "operator": node.operator,
        "operand": describe(node.operand),
        "items": _describe_all(node.items),
    }


def _call(node: Call) -> ExpressionDescription:
    return {"node": "call", "name": node.name, "arguments": _describe_all(node.arguments)}


def _aggregate(node: Aggregate) -> ExpressionDescription:
    return {
        "node": "aggregate",
        "name": node.name,
        "arguments": _describe_all(node.arguments),
        "result": AGGREGATES[node.name].result,
    }


_DESCRIBERS: Final[Mapping[type[Expr], Callable[[Any], ExpressionDescription]]] = {
    Literal: _literal,
    Identifier: _field,
    Pattern: _pattern,
    Negate: _unary("negate"),
    Arithmetic: _binary("arithmetic"),
    Comparison: _binary("comparison"),
    Between: _between,
    In: _in,
    Like: _like,
    Affix: _affix,
    IsNull: _unary("is null"),
    IsNan: _unary("is nan"),
    Not: _unary("not"),
    And: lambda node: {"node": "and", "operands": _describe_all(node.operands)},
    Or: lambda node: {"node": "or", "operands": _describe_all(node.operands)},
    Call: _call,
    Aggregate: _aggregate,
}
