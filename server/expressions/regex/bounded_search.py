"""Regular expression searches in long texts, in bounded time.

PCRE2 limits the steps of a search for each position at which a match may begin. But `a*+`, `.*` and
back references scan the whole rest of the text in one step, and a longer text has more positions:
with a limit of ten steps, `a*+[xy]` reads 20,000,000,000 characters of 200,000 letters.

So a long text is not searched by one call of PCRE2 with the unchanged expression. First, most
expressions are rewritten into a form with short steps
(server/expressions/regex/bounded_repetition.py). Then a prefix that skips up to n characters makes
many positions one for PCRE2, with one limit for all of them. If the expression fixes the positions
where matches begin, only these are tried, one by one:

    foo.*bar     where `foo` stands        ^foo    at the beginning        .*foo    with each line

An expression without a form with short steps is tried in windows of some positions. Its limit is
chosen so that steps times the length of the text take about a millisecond; a window that reaches
the limit is made smaller. The clock is read between two calls. It is the CPU time of this thread,
since a search must not fail because the machine is busy with something else.

An expression that cannot scan much text without having matched needs none of this.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pcre2

from config_schema.regex import compiled
from server.expressions.regex.bounded_repetition import bound_repetitions

LONG_TEXT_SIZE: Final = 1_000
"""The length of a long text, in bytes: as many positions that scan all of it take 1 ms."""

_SCANNED: Final = 5_000_000
"""Bytes of the text that the steps of one call may scan, which takes about 1 ms."""

_SECONDS: Final = 0.002
_SECONDS_PER_BYTE: Final = 0.000_000_02
"""Time limit of a search: a constant part and a part per byte."""

_HURRIED: Final = 1 / 4
"""The fraction of the time limit for a search that would not be retried."""

_FOR_ALL_MATCHES: Final = 5
"""The factor of the time limit for a search for all matches."""

_SHORT_STEPS: Final = 20_000
_THOROUGH: Final = 60_000
"""Short steps of the first call, in addition to some for each position."""

_OVERRUN_FACTOR: Final = 1.5
"""The expected time of a call may be this multiple of the time left, as most calls end earlier."""

_MIN_SECONDS: Final = 0.000_01

_STEP: Final = 4
"""Sizes of windows and limits are powers of this, so that few forms are compiled."""

_MIN_STEPS: Final = _STEP**2
_MAX_WINDOW_SIZE: Final = _STEP**7
_WINDOW_OF_SHORT_STEPS: Final = _STEP**6

PREFIX_SENSITIVE_SYNTAX: Final = re.compile(rb"\(\*|\(\?[R0]|\\g[<'{]?0|\\G")
"""Syntax whose meaning a prefix of the pattern would change: verbs, recursion, `\\G`."""

_UNICODE: Final = re.compile(rb"\A(?:\(\*(?:UTF|UCP)\))+")
"""Verbs at the beginning of an expression, which must stay before any prefix."""

_PREFIX: Final = re.compile(rb"(\(\?i\))?([\w/:@#,;=\"'<>&%!~ -]+)(?![*?+{])")
_UNDETERMINED_STARTS: Final = re.compile(rb"\||\(\?[a-zA-Z]*[msx]|\\Q")
"""Syntax for which the positions where matches begin are not determined."""

_ONE_BEGINNING: Final = re.compile(rb"(\(\?i\))?(\^(?![*?+{])|\\A)")
_LINES: Final = re.compile(rb"(\(\?i\))?\.\*(?!\+)")
_REPEATED: Final = re.compile(rb"[*+]|\{(?!\d\d?\})")
_REPEATED_GROUPS: Final = re.compile(rb"\)[*+{]|\\[1-9gkRX]|\(\?(P[=>]|&|[-+R0-9])")
"""Repeated groups, and references to a group or to a text that it has matched."""

_Beginnings: TypeAlias = Callable[[bytes, int], Iterator[int]]
"""Yields the positions in a text where matches may begin, from a position on."""


class SearchLimitError(Exception):
    """A search has exceeded its time or step limit."""


class BoundedSearch:
    """Searches long texts for one expression.

    Args:
        source: the expression.
        options: further limits of its searches, as PCRE2 verbs.

    Raises:
        SearchLimitError: a prefix would change the meaning of the expression.
    """

    __slots__ = ("_has_short_steps", "_options", "_patterns", "_source", "_start_positions")

    def __init__(self, source: bytes, options: bytes) -> None:
        remainder = _UNICODE.sub(b"", source, count=1)
        verbs, source = source[: len(source) - len(remainder)], remainder
        if PREFIX_SENSITIVE_SYNTAX.search(source):
            raise SearchLimitError
        short = None if verbs and not source.isascii() else bound_repetitions(source)
        self._has_short_steps = short is not None
        self._source = source if short is None else short
        self._options = options + verbs
        self._patterns: dict[tuple[int, int, bool], pcre2.Pattern] = {}
        self._start_positions = _beginnings(source)

    def search(self, attempt: SearchAttempt, start: int) -> pcre2.Match | None:
        """Return the first match, or None.

        Args:
            attempt: the text, and the limits of its search.
            start: the position to begin at.

        Raises:
            SearchLimitError: the search takes too long, or one position takes too many steps.
        """
        attempt.check_time_limit()
        if self._start_positions is not None:
            return self._search_start_positions(self._start_positions, attempt, start)
        if self._has_short_steps:
            return self._search_in_short_steps(attempt, start)
        return self._search_windows(attempt, start)

    def _search_start_positions(
        self, beginnings: _Beginnings, attempt: SearchAttempt, start: int
    ) -> pcre2.Match | None:
        for at in beginnings(attempt.octets, start):
            attempt.check_time_limit()
            match = self._try_position(attempt, at)
            if match is not None:
                return match
        return None

    def _search_in_short_steps(self, attempt: SearchAttempt, start: int) -> pcre2.Match | None:
        window = _WINDOW_OF_SHORT_STEPS
        for at in range(start, len(attempt.octets) + 1, window + 1):
            attempt.check_time_limit()
            match = self._match_in_short_steps(window, attempt, at)
            if match is not None:
                return match
        return None

    def _match_in_short_steps(
        self, window: int, attempt: SearchAttempt, at: int
    ) -> pcre2.Match | None:
        """Try with few steps, then with as many as fit into the time left, as measured so far."""
        steps = attempt.short_steps
        while True:
            before = attempt.seconds_left
            try:
                return self._match(window, steps, attempt, at)
            except SearchLimitError:
                after = attempt.seconds_left
                times = _OVERRUN_FACTOR * max(after, 0.0) / max(before - after, _MIN_SECONDS)
                doublings = min(int(times), attempt.max_steps // steps).bit_length() - 1
                if doublings < 1:
                    raise
                steps <<= doublings

    def _search_windows(self, attempt: SearchAttempt, start: int) -> pcre2.Match | None:
        at, window = start, attempt.max_window
        while at <= len(attempt.octets):
            attempt.check_time_limit()
            try:
                if not window:
                    match = self._try_position(attempt, at)
                else:
                    match = self._match(window, attempt.steps, attempt, at)
            except SearchLimitError:
                if not window:
                    raise
                window //= _STEP
                continue
            if match is not None:
                return match
            at += window + 1
            window = min(max(window, 1) * _STEP, attempt.max_window)
        return None

    def _try_position(self, attempt: SearchAttempt, at: int) -> pcre2.Match | None:
        if self._has_short_steps:
            return self._match_in_short_steps(0, attempt, at)
        return self._match(0, attempt.steps, attempt, at)

    def _match(
        self, window: int, steps: int, attempt: SearchAttempt, at: int
    ) -> pcre2.Match | None:
        try:
            return self._pattern_for(window, steps, attempt).match(attempt.octets, at)
        except pcre2.LibraryError:
            raise SearchLimitError from None

    def _pattern_for(self, window: int, steps: int, attempt: SearchAttempt) -> pcre2.Pattern:
        """Return the compiled expression with a prefix that skips the positions of a window."""
        key = window, steps, attempt.is_thorough
        form = self._patterns.get(key)
        if form is None:
            limit = b"(*LIMIT_MATCH=%d)" % steps + self._options
            skip = b"(?s:.{0,%d}?)\\K(?:" % window
            source = limit + skip + self._source + b")"
            form = pcre2.compile(source, jit=False) if attempt.is_thorough else compiled(source)
            self._patterns[key] = form
        return form


class SearchAttempt:
    """The limits of the search in one text.

    Args:
        octets: the text, which is not empty.
        is_thorough: allow more steps, and do without machine code, whose stack is small.
        matches: search for all matches, which may take longer.
        hurried: allow less time; the search is not retried if that is not enough.

    Attributes:
        steps: limit of one call, so that it takes about 1 ms if each step scans the whole text.
        short_steps: limit of the first call if steps are short.
        max_steps: limit of the calls that follow if the first one was not enough.
        max_window: the maximum number of positions skipped in one call.
    """

    __slots__ = (
        "_cpu_limit_s",
        "_cpu_started_s",
        "_deadline_s",
        "is_thorough",
        "max_steps",
        "max_window",
        "octets",
        "short_steps",
        "steps",
    )

    def __init__(
        self,
        octets: bytes,
        *,
        is_thorough: bool = False,
        matches: bool = False,
        hurried: bool = False,
    ) -> None:
        self.octets = octets
        self.is_thorough = is_thorough
        size = len(octets)
        self.steps = _power(_SCANNED * (_STEP if is_thorough else 1) // size)
        self.short_steps = 2 * _WINDOW_OF_SHORT_STEPS + (_THOROUGH if is_thorough else _SHORT_STEPS)
        self.max_steps = 2 * _STEP * max(self.short_steps, size)
        self.max_window = min(self.steps // _STEP, _MAX_WINDOW_SIZE)
        self._cpu_limit_s = _SECONDS + size * _SECONDS_PER_BYTE
        if matches:
            self._cpu_limit_s *= _FOR_ALL_MATCHES
        elif hurried:
            self._cpu_limit_s *= _HURRIED
        self._deadline_s = time.perf_counter() + self._cpu_limit_s
        self._cpu_started_s = time.thread_time()

    def check_time_limit(self) -> None:
        """Check that there is time left.

        Raises:
            SearchLimitError: there is none.
        """
        if time.perf_counter() < self._deadline_s:
            return
        left = self.seconds_left
        if left <= 0:
            raise SearchLimitError
        self._deadline_s = time.perf_counter() + left

    @property
    def seconds_left(self) -> float:
        """The time left, in seconds; below zero if the limit is exceeded."""
        return self._cpu_limit_s - (time.thread_time() - self._cpu_started_s)


def is_bounded(source: bytes) -> bool:
    """Return whether the expression can scan much of a text only if it has matched by then."""
    repeated = len(_REPEATED.findall(source))
    ends_with_it = repeated == 1 and source.endswith((b"*", b"+"))
    return (not repeated or ends_with_it) and _REPEATED_GROUPS.search(source) is None


def _power(number: int) -> int:
    """Return the highest power of `_STEP` not above a number, and at least `_MIN_STEPS`."""
    power = _MIN_STEPS
    while power * _STEP <= number:
        power *= _STEP
    return power


def _beginnings(source: bytes) -> _Beginnings | None:
    """Return the positions where matches may begin, or None if they are not determined."""
    if _UNDETERMINED_STARTS.search(source):
        return None
    if _ONE_BEGINNING.match(source):
        return lambda _, start: iter(() if start else (0,))
    if _LINES.match(source):
        return _lines
    prefix = _PREFIX.match(source)
    if prefix is None:
        return None
    folds, text = bool(prefix[1]), prefix[2]
    return lambda octets, start: _text_positions(octets, text, start, folds=folds)


def _lines(octets: bytes, start: int) -> Iterator[int]:
    yield start
    while start := octets.find(b"\n", start) + 1:
        yield start


def _text_positions(octets: bytes, text: bytes, start: int, *, folds: bool) -> Iterator[int]:
    if folds:
        octets, text = octets.lower(), text.lower()
    at = octets.find(text, start)
    while at >= 0:
        yield at
        at = octets.find(text, at + 1)
