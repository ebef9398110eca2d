"""Content filters of texts, for tests."""

from __future__ import annotations

from server.expressions import BUILTINS, ContextKind, parse
from server.expressions.filter_form import ContentFilter, lift_constants
from server.expressions.functions.registry import Functions


def content_filter(text: str, functions: Functions = BUILTINS) -> ContentFilter:
    """Parse a filter."""
    return lift_constants(parse(text, ContextKind.FILTER, functions))
