"""The one error of the language: what is wrong with a text, and where."""

from __future__ import annotations

_CONTEXT = 60
"""How many characters of a long text are shown on each side of the mark."""


class ExpressionError(ValueError):
    """An expression cannot be accepted.

    Attributes:
        message: what is wrong and what was expected.
        position: offset into `text`, counted in characters from 0, of the offending part.
        text: the whole text that was given.
    """

    def __init__(self, message: str, position: int, text: str) -> None:
        super().__init__(message)
        self.message = message
        self.position = min(max(position, 0), len(text))
        self.text = text

    def __str__(self) -> str:
        """One line: the message, then the text with `HERE -->` before the offending part."""
        return f"{self.message}; character {self.position + 1}: {self._marked()}"

    def _marked(self) -> str:
        start, end = self.position - _CONTEXT, self.position + _CONTEXT
        before = ("..." if start > 0 else "") + self.text[max(start, 0) : self.position]
        after = self.text[self.position : end] + ("..." if end < len(self.text) else "")
        return " ".join(f"{before} HERE --> {after}".split())
