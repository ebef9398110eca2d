"""Which topics a name in a command stands for.

A name with regular expression characters stands for every topic that it matches anywhere in the
name (AMPS User Guide, Matching Multiple Topics With Regular Expressions); any other name stands for
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pcre2

_REGEX_CHARACTERS: Final = frozenset(".*+?[](){}^$|\\")


class TopicError(ValueError):
    """A topic name cannot be used where it stands. The text says why."""


@dataclass(frozen=True, slots=True)
class TopicSelector:
    """The topics that a subscription or query is for.

    Attributes:
        text: the name or regular expression, as sent.
        pattern: the compiled regular expression, None for a literal name.
    """

    text: str
    pattern: pcre2.Pattern | None

    @property
    def is_regex(self) -> bool:
        """Whether more than one topic may be meant."""
        return self.pattern is not None

    def matches(self, topic: str) -> bool:
        """Whether the topic is one of those meant."""
        if self.pattern is None:
            return self.text == topic
        return self.pattern.search(topic) is not None


def has_regex_characters(name: str) -> bool:
    """Whether a name would be taken for a regular expression in a subscription."""
    return not _REGEX_CHARACTERS.isdisjoint(name)


def select_topics(text: str, *, literal: bool = False) -> TopicSelector:
    """Read the topic of a subscription or query.

    Args:
        text: the topic as sent.
        literal: take the name as it stands, whatever its characters: the option `non_regex_topic`,
            or an instance whose RegexTopicSupport is off.

    Raises:
        TopicError: the text is empty, or is no valid regular expression.
    """
    if not text:
        raise TopicError("the topic is empty, expected a name or a regular expression")
    if literal or not has_regex_characters(text):
        return TopicSelector(text, None)
    try:
        return TopicSelector(text, pcre2.compile(text))
    except pcre2.PatternError as error:
        raise TopicError(f"{text!r} is not a valid regular expression: {error}") from None
