"""Regular expressions: PCRE2, unanchored, over bytes.

Texts are matched as their UTF-8 bytes, since the language is not Unicode aware. A pattern without
metacharacters needs no engine: a substring search returns the same result at a tenth of the cost.

The work of a search is limited, so that no pattern can stop the server. PCRE2 limits the steps for
each position at which a match may begin, not those of the whole search; so the limit per position
decreases with the length of the text. A search that reaches it is retried with the thorough form of
the pattern: a prefix that skips characters makes all positions one, with one limit for all. That
form does without the JIT compiler, whose stack is small. A search that reaches the limit of this
form, too, counts as no match.

A step may be long: `a*+`, `.*` and back references scan the whole rest of the text, and PCRE2
counts that once. So the product is limited, steps times the length of the text; and long texts are
searched piece by piece (server/expressions/regex/bounded_search.py).

Most searches need far less. So the first attempt is brief; if that is not enough, the search is a
long one and is charged to the search budget (server/expressions/regex/budget.py).

Source: AMPS User Guide, LIKE Operator; Regular Expressions; Raw Strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pcre2

from config_schema.regex import compiled, limit_error
from server.expressions.concat import MAX_TEXT_LENGTH
from server.expressions.errors import ExpressionError
from server.expressions.regex.bounded_search import (
    LONG_TEXT_SIZE,
    PREFIX_SENSITIVE_SYNTAX,
    BoundedSearch,
    SearchAttempt,
    SearchLimitError,
    is_bounded,
)
from server.expressions.regex.budget import SearchCounter, search_cost
from server.expressions.tree import Expr, Pattern, walk
from server.util.encoding import bytes_to_text, text_to_bytes

Matcher: TypeAlias = Callable[[str], bool | None]

_LIMIT_ERRORS: Final = (pcre2.LibraryError, SearchLimitError)
_DEPTH: Final = b"(*LIMIT_DEPTH=100000)"

_BRIEF_SEARCH_DIGITS: Final = 6
_QUICK_SEARCH_DIGITS: Final = 7
_BRIEF_DECISION_DIGITS: Final = 4
_QUICK_DECISION_DIGITS: Final = 5
"""Limits of a search in machine code: below 10**n steps, at all start positions together."""

_SCANNED: Final = 10_000_000
_SCANNED_THOROUGHLY: Final = 10_000_000
"""Bytes of the text that a search may scan, if each of its steps scans all of it."""

_THOROUGH_STEPS: Final = 500_000
SHORT_TEXT_STEP_LIMIT: Final = 100_000
"""Enough for texts as short as names; a search that needs more ends within some milliseconds."""
_THOROUGH_SEARCHES: Final = 4
"""Limit of the searches of one REGEXP_REPLACE that may need the thorough form."""

_MAX_MATCHES: Final = 1_000_000
"""Limit of the matches that REGEXP_REPLACE replaces."""

_LITERAL: Final = re.compile(r"(\^?)([^\\^$.\[\]|()?*+{}\ud800-\udfff]+)(\$?)")


class RegexPatternError(ValueError):
    """A pattern cannot be used. The message states the reason."""


class Regex:
    """A compiled pattern.

    Args:
        source: the pattern.
        steps: step limit of a thorough search.
        search_counter: counts long searches; None to leave them uncounted.

    The methods raise TooCostlyError if a search is long and the budget is used up.
    """

    __slots__ = (
        "__weakref__",
        "_is_bounded",
        "_long_texts",
        "_quick",
        "_search_counter",
        "_source",
        "_steps",
        "_thorough",
    )

    def __init__(
        self, source: bytes, steps: int, search_counter: SearchCounter | None = None
    ) -> None:
        self._search_counter = search_counter
        self._source = source
        self._steps = steps
        self._quick: dict[int, pcre2.Pattern] = {}
        self._thorough: dict[int, pcre2.Pattern] = {}
        self._long_texts: BoundedSearch | None = None
        self._is_bounded = is_bounded(source)
        self._quick_pattern(b"", _BRIEF_SEARCH_DIGITS)

    def first_match(self, text: str) -> str | None:
        """Return the first match within a text; None if there is none or a limit is reached."""
        try:
            match = self._search(text_to_bytes(text))
        except _LIMIT_ERRORS:
            return None
        return None if match is None else bytes_to_text(match[0])

    def has_match(self, text: str) -> bool | None:
        """Return whether there is a match anywhere in a text; None if a limit is reached."""
        try:
            return self._search(text_to_bytes(text)) is not None
        except _LIMIT_ERRORS:
            return None

    def match_name(self, text: str, search_counter: SearchCounter) -> bool | None:
        """Return whether there is a match anywhere in a name; None if a limit is reached.

        Args:
            text: the name, which is short.
            search_counter: counts long searches, instead of the counter passed to the constructor.

        Raises:
            TooCostlyError: a long search is needed and the budget is used up.
        """
        octets = text_to_bytes(text)
        for size in (_BRIEF_DECISION_DIGITS, _QUICK_DECISION_DIGITS):
            try:
                return self._quick_pattern(octets, size).search(octets) is not None
            except pcre2.LibraryError:
                if size == _BRIEF_DECISION_DIGITS:
                    search_counter.spend()
        thorough = self._thorough_pattern(octets)
        try:
            return None if thorough is None else thorough.match(octets) is not None
        except pcre2.LibraryError:
            return None

    def replace(self, text: str, replacement: bytes) -> str | None:
        """Return a text with every match replaced, literally; None if it would be too long.

        A text whose search reaches its limit is returned unchanged.
        """
        octets = text_to_bytes(text)
        parts: list[bytes] = []
        end, room, matches = 0, MAX_TEXT_LENGTH - len(octets), _MAX_MATCHES
        try:
            for match in self._matches(octets):
                parts += (octets[end : match.start()], replacement)
                end = match.end()
                room -= len(replacement)
                matches -= 1
                if room < 0 or not matches:
                    return None
        except _LIMIT_ERRORS:
            return text
        parts.append(octets[end:])
        return bytes_to_text(b"".join(parts))

    def _search(self, octets: bytes) -> pcre2.Match | None:
        """Return the first match, or None.

        Raises:
            pcre2.LibraryError, SearchLimitError: a limit is reached.
        """
        try:
            if self._is_single_search(octets):
                return self._quick_pattern(octets, _BRIEF_SEARCH_DIGITS).search(octets)
            return self._search_long(SearchAttempt(octets, hurried=self._is_hurried(octets)), 0)
        except _LIMIT_ERRORS:  # a limit was reached, or (*UTF) met bytes that are not UTF-8
            self._charge_search(octets)
        return self._search_thoroughly(octets, 0)

    def _charge_search(self, octets: bytes) -> None:
        if self._search_counter is not None:
            self._search_counter.spend(search_cost(len(octets)))

    def _is_hurried(self, octets: bytes) -> bool:
        return self._search_counter is not None and self._search_counter.remaining < search_cost(
            len(octets)
        )

    def _is_single_search(self, octets: bytes) -> bool:
        return len(octets) < LONG_TEXT_SIZE or self._is_bounded

    def _search_thoroughly(self, octets: bytes, start: int) -> pcre2.Match | None:
        if not self._is_single_search(octets):
            return self._search_long(SearchAttempt(octets, is_thorough=True), start)
        thorough = self._thorough_pattern(octets)
        if thorough is None:
            raise SearchLimitError
        return thorough.match(octets, start)

    def _search_long(self, attempt: SearchAttempt, start: int) -> pcre2.Match | None:
        if self._long_texts is None:
            self._long_texts = BoundedSearch(self._source, _DEPTH)
        return self._long_texts.search(attempt, start)

    def _matches(self, octets: bytes) -> Iterator[pcre2.Match]:
        """Return an iterator over all matches.

        Raises:
            pcre2.LibraryError, SearchLimitError: too many searches reached their limit.
        """
        at_once = self._is_single_search(octets)
        return self._matches_at_once(octets) if at_once else self._matches_in_long(octets)

    def _matches_in_long(self, octets: bytes) -> Iterator[pcre2.Match]:
        end, searches, attempt = 0, _THOROUGH_SEARCHES, SearchAttempt(octets, matches=True)
        while end <= len(octets):
            try:
                match = self._search_long(attempt, end)
            except _LIMIT_ERRORS:
                self._charge_search(octets)
                searches -= 1
                if not searches:
                    raise
                match = self._search_long(SearchAttempt(octets, is_thorough=True), end)
            if match is None:
                return
            yield match
            end = match.end() + (match.end() == match.start())

    def _matches_at_once(self, octets: bytes) -> Iterator[pcre2.Match]:
        end, searches, size = 0, _THOROUGH_SEARCHES, _BRIEF_SEARCH_DIGITS
        while True:
            try:
                for match in self._quick_pattern(octets, size).finditer(octets, end):
                    end = match.end()
                    yield match
            except pcre2.LibraryError:
                if size == _BRIEF_SEARCH_DIGITS:
                    size = _QUICK_SEARCH_DIGITS
                    self._charge_search(octets)
                    continue
                long_match = self._search_thoroughly(octets, end)
                searches -= 1
                if long_match is None or long_match.end() == end or not searches:
                    raise
                end = long_match.end()
                yield long_match
            else:
                return

    def _quick_pattern(self, octets: bytes, size: int) -> pcre2.Pattern:
        length = max(len(octets), 1)
        digits = size - len(str(length))
        if not self._is_bounded:
            digits = min(digits, len(str(_SCANNED // length**2)) - 1)
        digits = max(1, digits)
        quick = self._quick.get(digits)
        if quick is None:
            limit = b"(*LIMIT_MATCH=%d)" % 10**digits
            quick = self._quick[digits] = compiled(limit + _DEPTH + self._source)
        return quick

    def _thorough_pattern(self, octets: bytes) -> pcre2.Pattern | None:
        max_steps = self._steps
        if not self._is_bounded:
            max_steps = min(max_steps, 10 ** len(str(_SCANNED_THOROUGHLY // max(len(octets), 1))))
        if max_steps not in self._thorough and not PREFIX_SENSITIVE_SYNTAX.search(self._source):
            limit = b"(*LIMIT_MATCH=%d)" % max_steps
            source = limit + _DEPTH + b"(?s:.*?)\\K(?:" + self._source + b")"
            try:
                self._thorough[max_steps] = pcre2.compile(source, jit=False)
            except pcre2.PatternError:  # a comment at its end hides the parenthesis
                return None
        return self._thorough.get(max_steps)


def compile_pattern(
    pattern: Pattern, text: str = "", search_counter: SearchCounter | None = None
) -> Regex:
    """Compile a pattern.

    Args:
        pattern: the node.
        text: the expression that it is part of, for the error.
        search_counter: counts long searches.

    Raises:
        ExpressionError: PCRE2 does not accept the pattern, or the pattern sets limits.
    """
    try:
        if pattern.is_quoted:
            return _compile(_quoted(pattern.text))
        return compile_regex(pattern.text, search_counter=search_counter)
    except RegexPatternError as refusal:
        raise ExpressionError(str(refusal), pattern.position, text) from None


def compile_regex(
    pattern: str, steps: int = _THOROUGH_STEPS, search_counter: SearchCounter | None = None
) -> Regex:
    """Compile a regular expression from an untrusted source, so that its searches end.

    Args:
        pattern: the expression.
        steps: step limit of a thorough search.
        search_counter: counts long searches.

    Raises:
        RegexPatternError: PCRE2 does not accept the expression, or the expression sets limits.
    """
    problem = limit_error(pattern)
    if problem is not None:
        raise RegexPatternError(problem)
    return _compile(text_to_bytes(pattern), steps, search_counter)


def _quoted(text: str) -> bytes:
    """Return the source of a pattern that matches a text literally."""
    return re.sub(rb"[^A-Za-z0-9_\x80-\xff]", lambda m: b"\\x%02x" % m[0][0], text_to_bytes(text))


def _compile(
    source: bytes, steps: int = _THOROUGH_STEPS, search_counter: SearchCounter | None = None
) -> Regex:
    try:
        return Regex(source, steps, search_counter)
    except pcre2.PatternError as error:
        reason = str(error).rpartition("; ")[2]
        raise RegexPatternError(f"not a regular expression that PCRE2 accepts: {reason}") from None


def count_regexes(expr: Expr) -> int:
    """Return the number of patterns of an expression that need the regular expression engine."""
    return sum(
        not (node.is_quoted or _LITERAL.fullmatch(node.text))
        for node in walk(expr)
        if isinstance(node, Pattern)
    )


def matcher(pattern: Pattern, search_counter: SearchCounter | None = None) -> Matcher:
    """Return the test of LIKE: true if the pattern matches anywhere in a text, which is not empty.

    Args:
        pattern: the node.
        search_counter: counts long searches; the test raises TooCostlyError when it is used up.
    """
    if pattern.is_quoted and pattern.text.isascii():
        return _contains(pattern.text)
    simple = _LITERAL.fullmatch(pattern.text)
    if pattern.is_quoted or simple is None:
        return compile_pattern(pattern, search_counter=search_counter).has_match
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
