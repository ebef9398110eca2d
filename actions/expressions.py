"""Expressions with context variables.

The variables are filled in before the text is parsed (AMPS User Guide, Based on an Expression). A
value is data all the same, with any content: inside a string it is escaped, so that it cannot end
the string; outside, a number stays a number and anything else becomes a string. Only where a
variable is the whole text, its value is the expression, as its author intends.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from actions.context import VariableTemplate
from actions.module import StepError
from server.expressions import ExpressionError
from server.expressions.numerals import numeral
from server.util.encoding import bytes_to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.context import ActionContext

_Compiled = TypeVar("_Compiled")

_MAX_CACHED_EXPRESSIONS: Final = 256
_QUOTE: Final = "'"
_SCAN: Final = re.compile(r"(?<!\w)[rR]['\"]|\\.|.", re.DOTALL)


class ExpressionText:
    """An expression with variables.

    Args:
        text: the expression.
    """

    def __init__(self, text: str) -> None:
        template = VariableTemplate(text)
        self._is_variable = template.is_variable
        string = ""
        pieces = []
        for preceding, name in template.parts:
            string = _string_at_end(preceding, string)
            pieces.append((preceding, name, string))
        self._pieces = tuple(pieces)
        self._tail = template.tail

    def expand(self, context: ActionContext) -> str:
        """Return the expression with the values of its variables.

        Raises:
            StepError: a value is not valid at its place.
        """
        pieces: list[str] = []
        for preceding, name, string in self._pieces:
            value = bytes_to_text(context[name])
            if self._is_variable:
                return value
            pieces += (preceding, _in_string(value, string) if string else _as_literal(value))
        return "".join([*pieces, self._tail])


class ExpressionTemplate(Generic[_Compiled]):
    """An expression with variables, compiled for each set of values that is requested.

    Args:
        text: the expression.
        compiled: compiles an expression without variables; raises ExpressionError.
    """

    def __init__(self, text: str, compiled: Callable[[str], _Compiled]) -> None:
        self._text = ExpressionText(text)
        self._compile = lru_cache(_MAX_CACHED_EXPRESSIONS)(compiled)

    def compile_expanded(self, context: ActionContext) -> _Compiled:
        """Compile the expression with the values of its variables.

        Raises:
            StepError: with these values it cannot be parsed.
        """
        try:
            return self._compile(self._text.expand(context))
        except ExpressionError as error:
            raise StepError(str(error)) from None


def _string_at_end(text: str, string: str) -> str:
    """Return the opening of the string that is open at the end of a text, "" if none is.

    Args:
        text: a piece of an expression.
        string: how the string that is open where the piece begins had begun.
    """
    for match in _SCAN.finditer(text):
        token = match[0]
        if not string:
            string = token if token[-1] in "'\"" and not token.startswith("\\") else ""
        elif token == string[-1] or (token[-1] == string[-1] and _closes(token, string)):
            string = ""
    return string


def _closes(token: str, string: str) -> bool:
    """Return true if a token ends with a string's closing quote: a letter or \\ may precede it."""
    return not token.startswith("\\") or len(string) == 2  # in a raw string a backslash is a letter


def _in_string(value: str, string: str) -> str:
    quote = string[-1]
    if len(string) == 2:
        if quote in value:
            raise StepError(f"a value with {quote} cannot stand in a raw string")
        return value
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}")


def _as_literal(value: str) -> str:
    return value if numeral(value) is not None else f"'{_in_string(value, _QUOTE)}'"
