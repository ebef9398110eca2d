"""The token cursor of the parser: lookahead, consumption, and errors with the expected token."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final, TypeVar

from server.expressions.errors import ExpressionError
from server.expressions.grammar import MAX_DEPTH
from server.expressions.tokens import Token, tokenize

ItemT = TypeVar("ItemT")

_LOOKAHEAD: Final = 2
"""Number of tokens of lookahead after the current one."""


class TokenCursor:
    """A position in the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._unread = tokenize(text)
        self._tokens = list(islice(self._unread, 1 + _LOOKAHEAD))
        self._index = 0
        self._depth = 0

    def parse_whole(self, rule: Callable[[], ItemT]) -> ItemT:
        """Apply a rule that must consume the whole text.

        Raises:
            ExpressionError: the text is empty, or tokens are left.
        """
        if self._token.kind == "end":
            raise self._unexpected_error("an expression")
        item = rule()
        if self._token.kind != "end":
            raise self._unexpected_error("an operator or the end")
        return item

    def parse_separated(self, rule: Callable[[], ItemT]) -> tuple[ItemT, ...]:
        """Apply a rule to one or more items with commas between them."""
        items = [rule()]
        while self._accept_symbol(","):
            items.append(rule())
        return tuple(items)

    @property
    def _token(self) -> Token:
        return self._tokens[self._index]

    def _advance(self) -> Token:
        token = self._tokens[self._index]
        if token.kind != "end":
            self._advance_index()
        return token

    def _advance_index(self) -> None:
        self._index += 1
        self._tokens.extend(islice(self._unread, 1))

    def _accept_word(self, word: str) -> bool:
        return self._accept("word", word)

    def _accept_symbol(self, symbol: str) -> bool:
        return self._accept("symbol", symbol)

    def _accept(self, kind: str, text: str) -> bool:
        token = self._tokens[self._index]
        if token.kind != kind or token.text != text:
            return False
        self._advance_index()
        return True

    def _expect_word(self, word: str, expected: str) -> None:
        if not self._accept_word(word):
            raise self._unexpected_error(expected)

    def _expect_symbol(self, symbol: str, expected: str) -> None:
        if not self._accept_symbol(symbol):
            raise self._unexpected_error(expected)

    def _increase_depth(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(
                f"nested deeper than {MAX_DEPTH}", self._token.position, self._text
            )

    def _nested(self, rule: Callable[[], ItemT]) -> ItemT:
        self._increase_depth()
        item = rule()
        self._depth -= 1
        return item

    def _unexpected_error(self, expected: str) -> ExpressionError:
        token = self._token
        hint = ""
        if token.kind == "end":
            actual = "the end"
        else:
            actual = self._text[token.position : token.position + max(len(token.text), 1)]
            if len(actual) > 40:
                actual = actual[:37] + "..."
        after_operand = self._index > 0 and self._tokens[self._index - 1].text != "("
        if token.kind == "identifier" and actual.startswith("/") and after_operand:
            hint = " (to divide, put white space on both sides of the slash)"
        return ExpressionError(
            f"expected {expected}, found {actual}{hint}", token.position, self._text
        )
