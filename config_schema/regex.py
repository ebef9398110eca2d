"""Regular expressions of the configuration: PCRE2, unanchored, as AMPS matches topics.

Source: AMPS User Guide, Regular Expressions and Subscribing to a Set of Topics.
"""

import re
from functools import lru_cache
from typing import Final

import pcre2

_SPECIAL: Final = re.compile(r"[.*+?^$|()\[\]{}\\]")
"""Characters that make a name a pattern: without these a regular expression only matches itself."""

_OWN_LIMIT: Final = re.compile(r"(?:\(\*[A-Za-z0-9_=]*\))*\(\*(LIMIT_[A-Z]+)")
"""Items that may start a pattern, up to one that sets a limit on its searches."""

_MAX_JIT_PATTERN_LENGTH: Final = 4096
"""In characters. Compiling a longer pattern to machine code may take a tenth of a second."""

_MAX_STEPS: Final = 100_000
"""Maximum number of steps, for each position at which a match may begin."""


def has_regex_characters(name: str) -> bool:
    """Return true if `name`, where a pattern is allowed, is one and not a literal topic name."""
    return _SPECIAL.search(name) is not None


def compiled(pattern: str | bytes) -> pcre2.Pattern:
    """Compile a pattern, to machine code if PCRE2 can; it interprets some, and very long ones.

    Args:
        pattern: the pattern, with the limits of its searches.

    Raises:
        pcre2.PatternError: it is no regular expression.
    """
    try:
        return pcre2.compile(pattern, jit=len(pattern) <= _MAX_JIT_PATTERN_LENGTH)
    except pcre2.PatternError:
        raise
    except pcre2.LibraryError:
        return pcre2.compile(pattern, jit=False)


def limit_error(pattern: str) -> str | None:
    """Return why `pattern` is refused although it compiles; None if it is not.

    The program sets the limits of searches. A pattern with a limit of its own, such as
    `(*LIMIT_MATCH=0)`, would fail instead of matching or not.
    """
    limit = _OWN_LIMIT.match(pattern)
    return None if limit is None else f"a pattern may not set limits of its own: (*{limit[1]})"


def regex_error(pattern: str) -> str | None:
    """Return why `pattern` does not compile, with the position counted from 1; None if it does."""
    try:
        compiled(pattern)
    except pcre2.PatternError as error:
        reason = str(error.msg).split(";")[-1].strip()
        return f"{reason} at character {max(error.pos, 1)}"
    except UnicodeEncodeError as error:
        return f"not text at character {error.start + 1}"
    return limit_error(pattern)


def matches(pattern: str, topic: str) -> bool:
    """Return true if `pattern`, known to compile, occurs in `topic`.

    An expression that takes too many steps, because it backtracks without end, does not match: the
    names of topics are chosen by clients, and no name may keep the program busy.
    """
    return decide(pattern, topic) is True


def decide(pattern: str, topic: str) -> bool | None:
    """Do the same as `matches`; return None after too many steps, or if the name is no text."""
    try:
        return _limited(pattern).search(topic) is not None
    except (pcre2.LibraryError, UnicodeEncodeError):
        return None


@lru_cache(maxsize=1024)
def _limited(pattern: str) -> pcre2.Pattern:
    return compiled(f"(*LIMIT_MATCH={_MAX_STEPS})(*LIMIT_DEPTH={_MAX_STEPS}){pattern}")
