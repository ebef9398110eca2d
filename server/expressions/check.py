"""Validates the text of an expression, for the verification of configurations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from server.expressions.context_rules import RULES, ContextKind, StartSymbol
from server.expressions.errors import ExpressionError
from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.registry import Functions
from server.expressions.parser import (
    parse,
    parse_field,
    parse_identifier,
    parse_join,
    parse_order_by,
)

_VARIABLE: Final = re.compile(r"\{\{\w+\}\}")

_READERS: Final[Mapping[StartSymbol, Callable[[str, ContextKind, Functions], object]]] = {
    "expression": parse,
    "field": parse_field,
    "identifier": lambda text, kind, _: parse_identifier(text, kind),
    "order": lambda text, _kind, _: parse_order_by(text),
    "join": lambda text, _kind, _: parse_join(text),
}


def check(text: str, kind: ContextKind, functions: Functions = BUILTINS) -> str | None:
    """Validate an expression, and return its error.

    If the kind has context variables, `{{NAME}}` is read as a number, since its value is not known
    yet.

    Args:
        text: the expression, field, path, order or join.
        kind: the place of the expression.
        functions: the functions that may be called.

    Returns:
        None if the text is valid, else one line with the position marked.
    """
    rules = RULES[kind]
    try:
        _READERS[rules.start_symbol](
            _without_variables(text) if rules.expands_variables else text, kind, functions
        )
    except ExpressionError as error:
        message = error.message
        variable = _VARIABLE.match(text, error.position) if rules.expands_variables else None
        if variable is not None:
            message = message.replace(_placeholder(variable), variable[0])
        return str(ExpressionError(message, error.position, text))
    return None


def _without_variables(text: str) -> str:
    """Replace every variable by a number of the same length, so that positions stay valid."""
    return _VARIABLE.sub(_placeholder, text)


def _placeholder(variable: re.Match[str]) -> str:
    return "0" * len(variable[0])
