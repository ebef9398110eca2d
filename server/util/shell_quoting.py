"""Passes values to a shell command so that the shell never parses them.

Theory of operation. The command is the operator's and goes to the shell as written, but the values
of variables may come from any client. So the shell never sees them as text to parse: each value
becomes a variable of the command's environment, and the command refers to it. A shell does not
parse the value of a variable again, apart from splitting it into words and looking for file names,
which double quotes prevent. So a reference is `"${AMPERAGE_1}"` outside of quotes, `${AMPERAGE_1}`
inside double quotes and here-documents, and inside single quotes, where there are no variables,
these are closed before and opened again after it. A value is parsed only if the operator's command
asks for that (eval, sh -c).

For that, the command is scanned as a shell reads it, as far as quotes go: with a stack of the open
quotes.
Source: POSIX.1-2017, Shell Command Language, 2.2 Quoting; 2.6 Word Expansions; 2.7.4 Here-Document.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_SINGLE: Final = "'"
_DOUBLE: Final = '"'
_BACKQUOTE: Final = "`"
_PARENTHESIS: Final = "("
_ARITHMETIC: Final = "(("
_BRACE: Final = "${"

_REFERENCES: Final = {"": '"${{{}}}"', _DOUBLE: "${{{}}}", _SINGLE: "'\"${{{}}}\"'"}
"""The form of a reference to a variable, by the quotes that are open."""

_HERE_DOCUMENT: Final = re.compile(
    r"(?<!<)<<(?!<)(-?)[ \t]*((?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|<>()'\"\\])+)"
)
_WORD_BEGINS_AFTER: Final = " \t\n;&|()`"


def shell_command(parts: Sequence[tuple[str, str]], tail: str) -> tuple[str, Mapping[str, str]]:
    """Return the command for the shell, and the environment variables that it refers to.

    Args:
        parts: the configured command: pairs of a text and the name of the variable after it.
        tail: the text after the last variable.

    Returns:
        The command, and a mapping of each environment variable's name to the name of the
        variable that it has the value of.
    """
    names: dict[str, str] = {}
    pieces: list[str] = []
    quotes = _Quotes()
    for number, (before, name) in enumerate(parts, 1):
        quotes.read(before)
        variable = f"AMPERAGE_{number}"
        names[variable] = name
        pieces += (before, _REFERENCES[quotes.open_quotes].format(variable))
        quotes.skip_reference()
    return "".join([*pieces, tail]), names


class _Quotes:
    """Tracks the quotes that are open at a position of a command."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._previous = "\n"  # the character before
        self._in_comment = False
        # Here-documents that begin with the next line.
        self._here_documents: list[tuple[str, bool]] = []
        # The line of a here-document, as far as it has been read.
        self._here_document_line: str | None = None

    @property
    def open_quotes(self) -> str:
        """The quotes around a reference here: single, double (or the like), or none."""
        if self._here_document_line is not None:
            return _DOUBLE
        for kind in reversed(self._stack):
            if kind != _BRACE:
                return kind if kind in (_SINGLE, _DOUBLE) else ""
        return ""

    def skip_reference(self) -> None:
        """Skip a reference at this position."""
        self._previous = "x"
        if self._here_document_line is not None:
            self._here_document_line += "\0"  # so that the line is no delimiter

    def read(self, text: str) -> None:
        """Read the next part of the command."""
        position = 0
        while position < len(text):
            character = text[position]
            if self._here_document_line is not None:
                self._consume_here_document(character)
            elif self._in_comment and character != "\n":
                pass
            elif character == "\\" and self._top != _SINGLE:
                position += 1
            elif (end := self._match_here_document(text, position)) is not None:
                position = end
                continue
            else:
                position += self._consume(character, text[position + 1 : position + 2])
            self._previous = text[position : position + 1]
            position += 1

    @property
    def _top(self) -> str:
        return self._stack[-1] if self._stack else ""

    def _consume(self, character: str, following: str) -> int:
        """Take one character; return how many characters behind it belong to it."""
        top, plain = self._top, self.open_quotes == ""
        if character == "\n":
            self._in_comment = False
            if self._here_documents:
                self._here_document_line = ""
        elif top == _SINGLE:
            if character == _SINGLE:
                self._stack.pop()
        elif character == _BACKQUOTE:
            self._toggle_backquote()
        elif character == "$" and following and following in "({":
            self._stack.append(_PARENTHESIS if following == "(" else _BRACE)
            return 1
        elif character == _DOUBLE:
            if top == _DOUBLE:
                self._stack.pop()
            else:
                self._stack.append(_DOUBLE)
        elif character == "}" and top == _BRACE:
            self._stack.pop()
        elif plain:
            self._consume_unquoted(character)
        return 0

    def _consume_unquoted(self, character: str) -> None:
        if character == _SINGLE:
            self._stack.append(_SINGLE)
        elif character == _PARENTHESIS:
            doubled = self._top == self._previous == _PARENTHESIS
            self._stack.append(_ARITHMETIC if doubled else _PARENTHESIS)
        elif character == ")" and self._top in (_PARENTHESIS, _ARITHMETIC):
            self._stack.pop()
        elif character == "#" and self._previous in _WORD_BEGINS_AFTER:
            self._in_comment = True

    def _toggle_backquote(self) -> None:
        """Begin a substitution, or end the open one with all quotes that are open in it."""
        if _BACKQUOTE in self._stack:
            while self._stack.pop() != _BACKQUOTE:
                pass
        else:
            self._stack.append(_BACKQUOTE)

    def _match_here_document(self, text: str, position: int) -> int | None:
        """Record the announcement of a here-document; return the position behind it, or None."""
        if self.open_quotes or text[position] != "<" or _ARITHMETIC in self._stack:
            return None
        match = _HERE_DOCUMENT.match(text, position)
        if match is None:
            return None
        delimiter = re.sub(r"\\(.)|['\"]", r"\1", match[2])
        self._here_documents.append((delimiter, bool(match[1])))
        self._previous = "x"
        return match.end()

    def _consume_here_document(self, character: str) -> None:
        if character != "\n":
            self._here_document_line = f"{self._here_document_line}{character}"
            return
        delimiter, without_tabs = self._here_documents[0]
        line = self._here_document_line or ""
        if (line.lstrip("\t") if without_tabs else line) == delimiter:
            self._here_documents.pop(0)
            self._here_document_line = "" if self._here_documents else None
        else:
            self._here_document_line = ""
