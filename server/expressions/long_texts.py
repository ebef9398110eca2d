"""Searching long texts for a regular expression, so that it ends.

PCRE2 limits the steps of a search for each position at which a match may begin. But `a*+`, `.*` and
back references go through as much of the text as there is in one step, and the longer a text, the
more positions there are: with a limit of ten steps, `a*+[xy]` looks at 20,000,000,000 characters of
200,000 letters.

So a long text is not left to one call of PCRE2 with the expression as it is. First, most are
brought into a form whose steps are short (server/expressions/short_steps.py). Then, a prefix "skip
so many" makes many positions one for PCRE2, with one limit for all of them. Where the expression
says where matches begin, only these positions are tried, each by itself:

    foo.*bar     where `foo` stands        ^foo    at the beginning        .*foo    with each line

An expression that has no form with short steps is tried in windows, some positions at a time. Its
limit is such that steps times the length of the text take about a millisecond; a window that
reaches it is made smaller. Between two calls the clock is looked at: the processor's time of this
thread, since a search must not fail because the machine is busy with something else.

An expression that cannot go through much without having matched needs none of this.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import pcre2

from config_schema.regex import compiled
from server.expressions.short_steps import with_short_steps

LONG: Final = 1_000
"""From how many bytes on a text is long: as many positions that go through all of it take 1 ms."""

_SCANNED: Final = 5_000_000
"""Bytes of the text that the steps of one call may go through, which takes about 1 ms."""

_SECONDS: Final = 0.002
_SECONDS_PER_BYTE: Final = 0.000_000_02
"""How long a search may take."""

_HURRIED: Final = 1 / 4
"""The part of that which a search has that would not be repeated."""

_FOR_ALL_MATCHES: Final = 5
"""How many times as long the search for all matches may take."""

_BRIEF: Final = 20_000
_THOROUGH: Final = 60_000
"""Short steps of the first call, besides some for each position."""

_HOPE: Final = 1.5
"""How many times the time that is left a call may be expected to take: most end before."""

_LEAST_SECONDS: Final = 0.000_01

_STEP: Final = 4
"""What sizes of windows and limits are powers of, so that few forms are compiled."""

_FEWEST_STEPS: Final = _STEP**2
_LARGEST_WINDOW: Final = _STEP**7
_WINDOW_OF_SHORT_STEPS: Final = _STEP**6

OF_THE_WHOLE: Final = re.compile(rb"\(\*|\(\?[R0]|\\g[<'{]?0|\\G")
"""What means something else when something stands before a pattern: verbs, recursion, `\\G`."""

_UNICODE: Final = re.compile(rb"\A(?:\(\*(?:UTF|UCP)\))+")
"""Verbs that stand before an expression, and before whatever else is put there."""

_PREFIX: Final = re.compile(rb"(\(\?i\))?([\w/:@#,;=\"'<>&%!~ -]+)(?![*?+{])")
_HARD_TO_TELL: Final = re.compile(rb"\||\(\?[a-zA-Z]*[msx]|\\Q")
"""What makes it hard to say where matches begin."""

_ONE_BEGINNING: Final = re.compile(rb"(\(\?i\))?(\^(?![*?+{])|\\A)")
_LINES: Final = re.compile(rb"(\(\?i\))?\.\*(?!\+)")
_REPEATED: Final = re.compile(rb"[*+]|\{(?!\d\d?\})")
_REPEATING: Final = re.compile(rb"\)[*+{]|\\[1-9gkRX]|\(\?(P[=>]|&|[-+R0-9])")
"""Groups that are repeated, and what stands for a group or for a text that it has matched."""

_Beginnings: TypeAlias = Callable[[bytes, int], Iterator[int]]
"""Where matches may begin in a text, from a position on."""


class GivenUpError(Exception):
    """A search has taken too long, or too many steps."""


class LongTexts:
    """Searches long texts for one expression.

    Args:
        source: the expression.
        options: what its searches are limited by besides.

    Raises:
        GivenUpError: it would mean something else with something before it.
    """

    __slots__ = ("_beginnings", "_forms", "_has_short_steps", "_options", "_source")

    def __init__(self, source: bytes, options: bytes) -> None:
        rest = _UNICODE.sub(b"", source, count=1)
        verbs, source = source[: len(source) - len(rest)], rest
        if OF_THE_WHOLE.search(source):
            raise GivenUpError
        short = None if verbs and not source.isascii() else with_short_steps(source)
        self._has_short_steps = short is not None
        self._source = source if short is None else short
        self._options = options + verbs
        self._forms: dict[tuple[int, int, bool], pcre2.Pattern] = {}
        self._beginnings = _beginnings(source)

    def search(self, attempt: Attempt, start: int) -> pcre2.Match | None:
        """The first match.

        Args:
            attempt: the text, and what searching it may take.
            start: where to begin.

        Raises:
            GivenUpError: it takes too long, or one position takes too many steps.
        """
        attempt.look_at_clock()
        if self._beginnings is not None:
            return self._search_beginnings(self._beginnings, attempt, start)
        if self._has_short_steps:
            return self._search_in_short_steps(attempt, start)
        return self._search_windows(attempt, start)

    def _search_beginnings(
        self, beginnings: _Beginnings, attempt: Attempt, start: int
    ) -> pcre2.Match | None:
        for at in beginnings(attempt.octets, start):
            attempt.look_at_clock()
            found = self._try_position(attempt, at)
            if found is not None:
                return found
        return None

    def _search_in_short_steps(self, attempt: Attempt, start: int) -> pcre2.Match | None:
        window = _WINDOW_OF_SHORT_STEPS
        for at in range(start, len(attempt.octets) + 1, window + 1):
            attempt.look_at_clock()
            found = self._match_in_short_steps(window, attempt, at)
            if found is not None:
                return found
        return None

    def _match_in_short_steps(self, window: int, attempt: Attempt, at: int) -> pcre2.Match | None:
        """Try with few steps, then with as many as the time is enough for, going by these."""
        steps = attempt.short_steps
        while True:
            before = attempt.seconds_left
            try:
                return self._match(window, steps, attempt, at)
            except GivenUpError:
                after = attempt.seconds_left
                times = _HOPE * max(after, 0.0) / max(before - after, _LEAST_SECONDS)
                more = min(int(times), attempt.most_steps // steps).bit_length() - 1
                if more < 1:
                    raise
                steps <<= more

    def _search_windows(self, attempt: Attempt, start: int) -> pcre2.Match | None:
        at, window = start, attempt.largest_window
        while at <= len(attempt.octets):
            attempt.look_at_clock()
            try:
                if not window:
                    found = self._try_position(attempt, at)
                else:
                    found = self._match(window, attempt.steps, attempt, at)
            except GivenUpError:
                if not window:
                    raise
                window //= _STEP
                continue
            if found is not None:
                return found
            at += window + 1
            window = min(max(window, 1) * _STEP, attempt.largest_window)
        return None

    def _try_position(self, attempt: Attempt, at: int) -> pcre2.Match | None:
        if self._has_short_steps:
            return self._match_in_short_steps(0, attempt, at)
        return self._match(0, attempt.steps, attempt, at)

    def _match(self, window: int, steps: int, attempt: Attempt, at: int) -> pcre2.Match | None:
        try:
            return self._form(window, steps, attempt).match(attempt.octets, at)
        except pcre2.LibraryError:
            raise GivenUpError from None

    def _form(self, window: int, steps: int, attempt: Attempt) -> pcre2.Pattern:
        """The expression after something that skips the positions of a window."""
        key = window, steps, attempt.thorough
        form = self._forms.get(key)
        if form is None:
            limit = b"(*LIMIT_MATCH=%d)" % steps + self._options
            skip = b"(?s:.{0,%d}?)\\K(?:" % window
            source = limit + skip + self._source + b")"
            form = pcre2.compile(source, jit=False) if attempt.thorough else compiled(source)
            self._forms[key] = form
        return form


class Attempt:
    """Searching one text: what it may take.

    Args:
        octets: the text, which is not empty.
        thorough: take more steps, and do without machine code, whose stack is small.
        matches: search for all matches, which may take longer.
        hurried: take less time; the search is not repeated if that is not enough.

    Attributes:
        octets: see above.
        thorough: see above.
        steps: limits one call, so that it takes about a millisecond if each goes through the text.
        short_steps: limits the first call if steps are short.
        most_steps: limits those that follow if that was not enough.
        largest_window: how many positions are skipped at most in one call.
    """

    __slots__ = (
        "_ends",
        "_seconds",
        "_used_before",
        "largest_window",
        "most_steps",
        "octets",
        "short_steps",
        "steps",
        "thorough",
    )

    def __init__(
        self,
        octets: bytes,
        *,
        thorough: bool = False,
        matches: bool = False,
        hurried: bool = False,
    ) -> None:
        self.octets = octets
        self.thorough = thorough
        size = len(octets)
        self.steps = _power(_SCANNED * (_STEP if thorough else 1) // size)
        self.short_steps = 2 * _WINDOW_OF_SHORT_STEPS + (_THOROUGH if thorough else _BRIEF)
        self.most_steps = 2 * _STEP * max(self.short_steps, size)
        self.largest_window = min(self.steps // _STEP, _LARGEST_WINDOW)
        self._seconds = _SECONDS + size * _SECONDS_PER_BYTE
        if matches:
            self._seconds *= _FOR_ALL_MATCHES
        elif hurried:
            self._seconds *= _HURRIED
        self._ends = time.perf_counter() + self._seconds
        self._used_before = time.thread_time()

    def look_at_clock(self) -> None:
        """See whether there is time left.

        Raises:
            GivenUpError: there is not.
        """
        if time.perf_counter() < self._ends:
            return
        left = self.seconds_left
        if left <= 0:
            raise GivenUpError
        self._ends = time.perf_counter() + left

    @property
    def seconds_left(self) -> float:
        """How much time is left; below zero if more has been taken."""
        return self._seconds - (time.thread_time() - self._used_before)


def is_bounded(source: bytes) -> bool:
    """Whether an expression may go through much of a text only when it has matched by then."""
    repeated = len(_REPEATED.findall(source))
    ends_with_it = repeated == 1 and source.endswith((b"*", b"+"))
    return (not repeated or ends_with_it) and _REPEATING.search(source) is None


def _power(number: int) -> int:
    """The highest power that is not above a number, and not too small to be of use."""
    power = _FEWEST_STEPS
    while power * _STEP <= number:
        power *= _STEP
    return power


def _beginnings(source: bytes) -> _Beginnings | None:
    """Where the matches of an expression may begin, if that can be told; otherwise None."""
    if _HARD_TO_TELL.search(source):
        return None
    if _ONE_BEGINNING.match(source):
        return lambda _, start: iter(() if start else (0,))
    if _LINES.match(source):
        return _lines
    prefix = _PREFIX.match(source)
    if prefix is None:
        return None
    folds, text = bool(prefix[1]), prefix[2]
    return lambda octets, start: _places(octets, text, start, folds=folds)


def _lines(octets: bytes, start: int) -> Iterator[int]:
    yield start
    while start := octets.find(b"\n", start) + 1:
        yield start


def _places(octets: bytes, text: bytes, start: int, *, folds: bool) -> Iterator[int]:
    if folds:
        octets, text = octets.lower(), text.lower()
    at = octets.find(text, start)
    while at >= 0:
        yield at
        at = octets.find(text, at + 1)
