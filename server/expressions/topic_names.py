"""Topic selectors: the topics that a name in a command selects.

A name with regular expression characters selects every topic that it matches anywhere in the name
(AMPS User Guide, Matching Multiple Topics With Regular Expressions); any other name selects the
topic of that name.

The expression of one client is executed within the commands of other clients: of the first one to
use a topic. So it is compiled and limited like the patterns of filters
(server/expressions/regex/patterns.py), and a name whose test reaches the limit is not selected.
Equal expressions are compiled once, for as long as a selector uses one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from weakref import WeakValueDictionary

from server.expressions.regex.budget import SearchAllowance, SearchCounter, TooCostlyError
from server.expressions.regex.patterns import (
    SHORT_TEXT_STEP_LIMIT,
    Regex,
    RegexPatternError,
    compile_regex,
)
from server.expressions.regex.required_literal import needle

_REGEX_CHARACTERS: Final = frozenset(".*+?[](){}^$|\\")

_MAX_KEPT_LENGTH: Final = 256
"""Maximum length of a name whose selector is cached, in characters."""

_compiled: Final = WeakValueDictionary[str, Regex]()

AUDIT: Final = "/AMPS/Audit"
"""The topic of the audit trail. AMPS does not have it, so programs written for AMPS that subscribe
to `.*` do not expect it: an expression selects it only if it contains /AMPS."""

_OWN_TOPICS: Final = "/AMPS"


class TopicError(ValueError):
    """A topic name cannot be used in its place. The message states the reason."""


@dataclass(frozen=True, slots=True)
class TopicSelector:
    """The topics that a subscription or query is for.

    Attributes:
        text: the name or regular expression, as sent.
        pattern: the compiled regular expression, None for a literal name.
        needle: a text that all names contain that the expression matches.
        excluded_topic: a name that is never selected, even if the expression matches it.
    """

    text: str
    pattern: Regex | None
    needle: str = ""
    excluded_topic: str = ""

    @property
    def is_regex(self) -> bool:
        """True if more than one topic may be selected."""
        return self.pattern is not None

    def matches(self, topic: str) -> bool:
        """Return whether the topic is selected; false if the step limit is reached."""
        return self.match_topic_alone(topic) is True

    def match_topic_alone(self, topic: str) -> bool | None:
        """Return whether the topic is selected; None if the step limit is reached."""
        try:
            return self.match_topic(topic, SearchAllowance())
        except TooCostlyError:
            return None

    def match_topic(self, topic: str, search_counter: SearchCounter) -> bool | None:
        """Return whether the topic is selected; None if the step limit is reached.

        Args:
            topic: a name.
            search_counter: counts the long searches for this name, or for this expression.

        Raises:
            TooCostlyError: a long search is needed and the budget is used up.
        """
        if self.pattern is None:
            return self.text == topic
        if self.needle not in topic or topic == self.excluded_topic:
            return False
        return self.pattern.match_name(topic, search_counter)


def has_regex_characters(name: str) -> bool:
    """Return whether a subscription would read the name as a regular expression."""
    return not _REGEX_CHARACTERS.isdisjoint(name)


@lru_cache(maxsize=4096)
def _literal(text: str) -> TopicSelector:
    """Return the selector of a name, shared by its recent subscribers."""
    return TopicSelector(text, None)


def select_topics(text: str, *, literal: bool = False, with_audit: bool = False) -> TopicSelector:
    """Read the topic of a subscription or query.

    Args:
        text: the topic as sent.
        literal: read the name literally, even with regular expression characters: the option
            `non_regex_topic`, or an instance whose RegexTopicSupport is off.
        with_audit: an expression may select the audit trail without naming it, as in a permission.

    Raises:
        TopicError: the text is empty, or is no valid regular expression.
    """
    if not text:
        raise TopicError("the topic is empty, expected a name or a regular expression")
    if literal or not has_regex_characters(text):
        return _literal(text) if len(text) <= _MAX_KEPT_LENGTH else TopicSelector(text, None)
    pattern = _compiled.get(text)
    if pattern is None:
        try:
            pattern = _compiled[text] = compile_regex(text, SHORT_TEXT_STEP_LIMIT)
        except RegexPatternError as refusal:
            raise TopicError(f"{text!r}: {refusal}") from None
    left_out = "" if with_audit or _OWN_TOPICS in text else AUDIT
    return TopicSelector(text, pattern, needle(text), left_out)
