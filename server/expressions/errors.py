"""The only error of the expression language, with the position in the text."""

from __future__ import annotations

_CONTEXT = 60
"""Characters of a long text shown on each side of the mark."""


class ExpressionError(ValueError):
    """An expression is invalid.

    Attributes:
        message: the error and the expected input.
        position: offset into `text`, counted in characters from 0, of the offending part.
        text: the whole text.
    """

    def __init__(self, message: str, position: int, text: str) -> None:
        super().__init__(message)
        self.message = message
        self.position = min(max(position, 0), len(text))
        self.text = text

    def __str__(self) -> str:
        """Return one line: the message, then the text with `HERE -->` before the offending part."""
        return f"{self.message}; character {self.position + 1}: {self._marked()}"

    def _marked(self) -> str:
        start, end = self.position - _CONTEXT, self.position + _CONTEXT
        before = ("..." if start > 0 else "") + self.text[max(start, 0) : self.position]
        after = self.text[self.position : end] + ("..." if end < len(self.text) else "")
        return " ".join(f"{before} HERE --> {after}".split())
