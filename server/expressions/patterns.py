"""Regular expressions: PCRE2, unanchored, over bytes.

Texts are matched as their UTF-8 bytes, for the language is not Unicode aware. A pattern without
metacharacters needs no engine: it is looked for as it stands, which gives the same answer at a
tenth of the cost. The work of a match is limited, so that no pattern can stop the server; a match
that reaches the limit fails.

Source: AMPS User Guide, LIKE Operator; Regular Expressions; Raw Strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

import pcre2

from server.expressions.errors import ExpressionError
from server.expressions.octets import LONGEST_TEXT, from_octets, to_octets
from server.expressions.tree import Pattern

Matcher: TypeAlias = Callable[[str], bool]

_LIMITS: Final = b"(*LIMIT_MATCH=1000000)(*LIMIT_DEPTH=100000)"
"""Items at the start of a pattern may lower these limits, never raise them."""

_LITERAL: Final = re.compile(r"(\^?)([^\\^$.\[\]|()?*+{}\ud800-\udfff]+)(\$?)")


class Regex:
    """A compiled pattern.

    Attributes:
        groups: how many capturing groups it has.
    """

    __slots__ = ("_pattern",)

    def __init__(self, source: bytes) -> None:
        self._pattern = pcre2.compile(_LIMITS + source)

    def first(self, text: str) -> str | None:
        """The first match within a text, or None."""
        try:
            match = self._pattern.search(to_octets(text))
        except pcre2.LibraryError:  # a limit was reached, or (*UTF) met bytes that are not UTF-8
            return None
        return None if match is None else from_octets(match[0])

    def found(self, text: str) -> bool:
        """Whether there is a match anywhere in a text."""
        try:
            return self._pattern.search(to_octets(text)) is not None
        except pcre2.LibraryError:
            return False

    def replace(self, text: str, replacement: bytes) -> str | None:
        """A text with every match replaced, literally; None if it would be too long."""
        octets = to_octets(text)
        parts: list[bytes] = []
        end, room = 0, LONGEST_TEXT - len(octets)
        try:
            for match in self._pattern.finditer(octets):
                parts += (octets[end : match.start()], replacement)
                end = match.end()
                room -= len(replacement)
                if room < 0:
                    return None
        except pcre2.LibraryError:
            return text
        parts.append(octets[end:])
        return from_octets(b"".join(parts))


def compile_pattern(pattern: Pattern, text: str = "") -> Regex:
    """Compile a pattern.

    Args:
        pattern: the node.
        text: the expression that it is part of, for the error.

    Raises:
        ExpressionError: PCRE2 does not accept the pattern.
    """
    source = to_octets(pattern.text)
    if pattern.quoted:
        source = re.sub(rb"[^A-Za-z0-9_\x80-\xff]", lambda m: b"\\x%02x" % m[0][0], source)
    try:
        return Regex(source)
    except pcre2.PatternError as error:
        reason = str(error).rpartition("; ")[2]
        raise ExpressionError(
            f"not a regular expression that PCRE2 accepts: {reason}", pattern.position, text
        ) from None


def matcher(pattern: Pattern) -> Matcher:
    """The test of LIKE: whether a pattern matches anywhere in a text, which is not empty."""
    if pattern.quoted and pattern.text.isascii():
        return _contains(pattern.text)
    simple = _LITERAL.fullmatch(pattern.text)
    if pattern.quoted or simple is None:
        return compile_pattern(pattern).found
    start, literal, end = simple.groups()
    if start and end:
        endings = (literal, literal + "\n")
        return lambda text: text in endings
    if start:
        return lambda text: text.startswith(literal)
    if end:  # the end, or before a newline that is the last character
        endings = (literal, literal + "\n")
        return lambda text: text.endswith(endings)
    return _contains(literal)


def _contains(literal: str) -> Matcher:
    return lambda text: literal in text
