"""A reader of the tokens of one statement, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

    from server.sql.query.errors import SqlError


class TokenReader:
    """Reads the tokens of a statement.

    Args:
        tokens: the tokens, at least one.
        text: the text that they are in, perhaps with other statements.
    """

    def __init__(self, tokens: list[Token], text: str) -> None:
        self._tokens = tokens
        self._all = text
        self._index = 0
        self._offset = tokens[0].start
        self._text = text[self._offset : tokens[-1].end + 1]

    def syntax_error(self) -> SqlError:
        """Return the error for the current token, or for the end of the text."""
        from server.sql.query import dialect

        token = self._tokens[self._index] if self._index < len(self._tokens) else None
        return dialect.syntax_error_at(token, self._all)

    def _word(self) -> str:
        """Return the current token in upper case; the empty text at the end."""
        if self._index >= len(self._tokens):
            return ""
        token = self._tokens[self._index]
        is_quoted = token.end - token.start + 1 != len(token.text)
        return "" if is_quoted else token.text.upper()

    def _word_after(self) -> str:
        following = self._index + 1
        return self._tokens[following].text.upper() if following < len(self._tokens) else ""

    def _accept(self, word: str) -> bool:
        if self._word() != word:
            return False
        self._index += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self.syntax_error()

    def _expect_end(self) -> None:
        if self._index < len(self._tokens):
            raise self.syntax_error()

    def _next_text(self) -> str:
        """Return the text of the current token, without quotes, and advance."""
        if self._index >= len(self._tokens):
            raise self.syntax_error()
        token = self._tokens[self._index]
        self._index += 1
        return str(token.text)

    def _identifier(self) -> str:
        """Return an identifier: in lower case, if it is not quoted."""
        is_quoted = self._word() == ""
        text = self._next_text()
        return text if is_quoted else text.lower()

    def _dotted_name(self) -> str:
        name = self._next_text()
        while self._accept("."):
            name += f".{self._next_text()}"
        return name
