"""The tokenizer of expressions.

Every token has its position; paths and qualified paths are one token each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from server.expressions.errors import ExpressionError
from server.expressions.grammar import ESCAPES, MAX_LENGTH, MAX_STEPS, SYMBOLS
from server.expressions.numerals import numeral
from server.message_types.paths import Path
from server.util.encoding import bytes_to_text, text_to_bytes


class PathToken(NamedTuple):
    """A path with its message type and topic, if the text names them."""

    path: Path
    message_type: str | None
    topic: str | None


class StringToken(NamedTuple):
    """A string, read both ways: as a value, and as the text of a pattern."""

    value: str
    pattern: str
    raw: bool


class ListToken(NamedTuple):
    """A list of numbers, and of texts without escapes, each with its position."""

    items: tuple[tuple[int | float | str, int], ...]


class Token(NamedTuple):
    """One lexical unit.

    Attributes:
        kind: "number", "string", "identifier", "word", "symbol", "list" or "end".
        text: the source text; words in upper case.
        value: the value of a number, a string, a list or an identifier.
        position: offset of its first character.
    """

    kind: str
    text: str
    value: int | float | StringToken | PathToken | ListToken | None
    position: int


_SPACE: Final = re.compile(r"\s*")
_NUMBER: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")
_STEP: Final = re.compile(r"/(@?\w[\w.:-]*)")
_BRACKETED: Final = re.compile(r"\[((?:/[^/\[\]]+)+)\]")
_PLAIN_FIELD: Final = re.compile(r"\[([^/\[\]]+)\](?!\.[\[/])")
"""A field after its topic as AMPS 5.2 writes it, `[topic].[field]`."""
_SUBSCRIPT: Final = re.compile(r"\[([0-9]{1,9})\]")
_QUALIFIER: Final = re.compile(r"\[([^\]\[]+)\]\.(?=\[|/)")
_STRING_START: Final = re.compile(r"[rR]?(['\"])")
_PLAIN: Final = r"(?:'[^'\\]*'|-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w.]))"
_PLAIN_LIST: Final = re.compile(rf"\((?:\s*{_PLAIN}\s*,)+\s*{_PLAIN}\s*\)")
_PLAIN_ITEM: Final = re.compile(_PLAIN)
_LIST_WORDS: Final = ("IN", "WITH")
"""Words before lists that are read as one token."""
_VALUES: Final = ("number", "string", "list")
"""Kinds of tokens after which, as after a closing parenthesis, a slash divides: no path can begin
there."""
_NUMERIC_ESCAPE: Final = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})")


def tokenize(text: str) -> Iterator[Token]:
    """Split a text into tokens, the last of which is an "end".

    Tokens are read lazily: a text with an error near its beginning, such as a client's filter that
    is too deep, costs no more than the part before the error.

    Raises:
        ExpressionError: a character, string, number or path that cannot be read, or a text that is
            too long.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters", MAX_LENGTH, text)
    before, follows_value = "", False
    position = _skip_space(text, 0)
    while position < len(text):
        if text[position] == "(" and before in _LIST_WORDS:
            token, end = _read_list(text, position)
        elif text[position] == "/" and follows_value:
            token, end = Token("symbol", "/", None, position), position + 1
        else:
            token, end = _read(text, position)
        yield token
        before = token.text
        follows_value = token.kind in _VALUES or before == ")"
        position = _skip_space(text, end)
    yield Token("end", "", None, len(text))


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _read(text: str, position: int) -> tuple[Token, int]:
    character = text[position]
    if start := _STRING_START.match(text, position):
        return _read_string(text, position, start)
    if character in "0123456789." and (match := _NUMBER.match(text, position)):
        return _read_number(text, match)
    if character == "[" or (character == "/" and _STEP.match(text, position)):
        return _read_identifier(text, position)
    if match := _WORD.match(text, position):
        return Token("word", match[0].upper(), None, position), match.end()
    for symbol in SYMBOLS:
        if text.startswith(symbol, position):
            return Token("symbol", symbol, None, position), position + len(symbol)
    raise ExpressionError(f"unexpected character {character!r}", position, text)


def _read_list(text: str, position: int) -> tuple[Token, int]:
    """Read a whole list of only numbers and plain texts; of any other list, its parenthesis."""
    match = _PLAIN_LIST.match(text, position)
    if match is None:
        return _read(text, position)
    items = tuple(
        [
            (_plain_value(item[0]), item.start())
            for item in _PLAIN_ITEM.finditer(text, position, match.end())
        ]
    )
    return Token("list", match[0], ListToken(items), position), match.end()


def _plain_value(text: str) -> int | float | str:
    if text[0] == "'":
        return text[1:-1]
    return float(text) if "." in text else int(text)


def _read_number(text: str, match: re.Match[str]) -> tuple[Token, int]:
    position, end = match.span()
    if end < len(text) and (text[end].isalnum() or text[end] == "_"):
        raise ExpressionError("a number is followed by letters", position, text)
    value = numeral(match[0])
    if value is None or value in (float("inf"), float("-inf")):
        raise ExpressionError("the number is out of range", position, text)
    return Token("number", match[0], value, position), end


def _read_string(text: str, position: int, start: re.Match[str]) -> tuple[Token, int]:
    quote, raw = start[1], len(start[0]) == 2
    body = start.end()
    end = text.find(quote, body) if raw else _closing_quote(text, body, quote)
    if end < 0:
        raise ExpressionError(f"the string has no closing {quote}", position, text)
    content = text[body:end]
    if raw:
        quoted = StringToken(content, content, raw=True)
    else:
        quoted = StringToken(_unescape(content), _pattern_text(content), raw=False)
    return Token("string", text[position : end + 1], quoted, position), end + 1


def _closing_quote(text: str, position: int, quote: str) -> int:
    while True:
        end = text.find(quote, position)
        backslash = text.find("\\", position)
        if end < 0 or backslash < 0 or end < backslash:
            return end
        position = backslash + 2


def _unescape(content: str) -> str:
    """Return the value of a string. Escapes are bytes: `\\xc3\\xa9` is the letter of these two."""
    if "\\" not in content:
        return content
    out = bytearray()
    position = 0
    while (backslash := content.find("\\", position)) >= 0:
        out += text_to_bytes(content[position:backslash])
        following = content[backslash + 1]
        position = backslash + 2
        if following in ESCAPES:
            out.append(ESCAPES[following])
        elif match := _NUMERIC_ESCAPE.match(content, backslash + 1):
            out.append(int(match[1], 16) if match[1] else int(match[2], 8) & 0xFF)
            position = match.end()
        else:
            out += text_to_bytes(following)
    out += text_to_bytes(content[position:])
    return bytes_to_text(bytes(out))


def _pattern_text(content: str) -> str:
    """Return the text of a pattern: PCRE2 reads its escapes, except that of an escaped quote."""
    return re.sub(r"\\(.)", lambda m: m[1] if m[1] in "'\"" else m[0], content, flags=re.DOTALL)


def _read_identifier(text: str, position: int) -> tuple[Token, int]:
    qualifiers: list[str] = []
    end = position
    while len(qualifiers) < 2 and (qualifier := _QUALIFIER.match(text, end)):
        qualifiers.append(qualifier[1])
        end = qualifier.end()
    steps: list[str | int] = []
    if qualifiers and (plain := _PLAIN_FIELD.match(text, end)):
        steps.append(plain[1])
        end = plain.end()
    path, end = _read_path(text, end, steps)
    if not path:
        raise ExpressionError(
            "expected a field: /name, [/name with spaces], [topic]./name or [type].[topic]./name",
            position,
            text,
        )
    topic = qualifiers[-1] if qualifiers else None
    message_type = qualifiers[0] if len(qualifiers) == 2 else None
    token = Token("identifier", text[position:end], PathToken(path, message_type, topic), position)
    return token, end


def _read_path(text: str, position: int, steps: list[str | int]) -> tuple[Path, int]:
    """Read the rest of a path after `steps`, and return the path and its end."""
    while True:
        if match := _STEP.match(text, position):
            steps.append(match[1])
        elif match := _BRACKETED.match(text, position):
            steps.extend(match[1][1:].split("/"))
        elif steps and (match := _SUBSCRIPT.match(text, position)):
            steps.append(int(match[1]))
        elif steps and text.startswith("[", position):
            raise ExpressionError("expected a subscript such as [0]", position, text)
        elif len(steps) > MAX_STEPS:
            raise ExpressionError(f"a path has at most {MAX_STEPS} steps", position, text)
        else:
            return tuple(steps), position
        position = match.end()


def plain(step: str) -> bool:
    """Return whether a step's name can be written without brackets."""
    return _STEP.fullmatch(f"/{step}") is not None


def is_word(text: str) -> bool:
    """Return whether a text is a word, as names of functions must be."""
    return _WORD.fullmatch(text) is not None
