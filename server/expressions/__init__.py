"""The expression language of filters, projections and conditions: one grammar, several back ends.

    text -> tokens -> tree -> a function of one message's values    compile_message
                           -> a function of columns of values       compile_columns
                           -> plain data for other engines          description
                           -> text                                  printer

`grammar` is the grammar, `semantics` defines operators on values, `kinds` defines the allowed
contents of each place.
"""

from server.expressions.check import check
from server.expressions.context_rules import ContextKind
from server.expressions.errors import ExpressionError
from server.expressions.functions.builtin import BUILTINS, built_in
from server.expressions.functions.registry import Functions
from server.expressions.parser import (
    parse,
    parse_field,
    parse_fields,
    parse_identifier,
    parse_identifiers,
    parse_join,
    parse_order_by,
)
from server.expressions.printer import field_to_text, path_to_text, to_text
from server.expressions.tree import aggregates, conjuncts, paths, references

__all__ = [
    "BUILTINS",
    "ContextKind",
    "ExpressionError",
    "Functions",
    "aggregates",
    "built_in",
    "check",
    "conjuncts",
    "field_to_text",
    "parse",
    "parse_field",
    "parse_fields",
    "parse_identifier",
    "parse_identifiers",
    "parse_join",
    "parse_order_by",
    "path_to_text",
    "paths",
    "references",
    "to_text",
]
