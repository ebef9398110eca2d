"""Which topics a name in a command stands for.

A name with regular expression characters stands for every topic that it matches anywhere in the
name (AMPS User Guide, Matching Multiple Topics With Regular Expressions); any other name stands for
itself.

The expression of one client is run inside the commands of others, whoever is the first to use a
topic. So it is compiled and limited like the patterns of filters (server/expressions/patterns.py),
and a name for which it takes too many steps is not meant. Equal expressions are compiled once, as
long as somebody has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from weakref import WeakValueDictionary

from server.expressions.effort import Allowance, Effort, TooCostlyError
from server.expressions.needles import needle
from server.expressions.patterns import BRIEF_STEPS, PatternRefused, Regex, compile_regex

_REGEX_CHARACTERS: Final = frozenset(".*+?[](){}^$|\\")

_LONGEST_KEPT: Final = 256
"""Characters of a name whose selector is kept for whoever is next."""

_compiled: Final = WeakValueDictionary[str, Regex]()

AUDIT: Final = "/AMPS/Audit"
"""The topic of the audit trail. AMPS does not have it, so that programs written for AMPS that
subscribe to `.*` do not expect it: an expression means it only if it names /AMPS."""

_OWN_TOPICS: Final = "/AMPS"


class TopicError(ValueError):
    """A topic name cannot be used where it stands. The text says why."""


@dataclass(frozen=True, slots=True)
class TopicSelector:
    """The topics that a subscription or query is for.

    Attributes:
        text: the name or regular expression, as sent.
        pattern: the compiled regular expression, None for a literal name.
        needle: what all names contain that it matches.
        left_out: a name that is none of those meant, whatever the expression matches.
    """

    text: str
    pattern: Regex | None
    needle: str = ""
    left_out: str = ""

    @property
    def is_regex(self) -> bool:
        """Whether more than one topic may be meant."""
        return self.pattern is not None

    def matches(self, topic: str) -> bool:
        """Whether the topic is one of those meant; not, if it takes too many steps to tell."""
        return self.decide_alone(topic) is True

    def decide_alone(self, topic: str) -> bool | None:
        """The same; None if it takes too many steps to tell."""
        try:
            return self.decide(topic, Allowance())
        except TooCostlyError:
            return None

    def decide(self, topic: str, effort: Effort) -> bool | None:
        """The same; None if it takes too many steps to tell.

        Args:
            topic: a name.
            effort: counts the long searches that are done for this name, or for this expression.

        Raises:
            TooCostlyError: there have been enough of them.
        """
        if self.pattern is None:
            return self.text == topic
        if self.needle not in topic or topic == self.left_out:
            return False
        return self.pattern.decide(topic, effort)


def has_regex_characters(name: str) -> bool:
    """Whether a name would be taken for a regular expression in a subscription."""
    return not _REGEX_CHARACTERS.isdisjoint(name)


@lru_cache(maxsize=4096)
def _literal(text: str) -> TopicSelector:
    """The selector of a name, one for all who have subscribed to it lately."""
    return TopicSelector(text, None)


def select_topics(text: str, *, literal: bool = False, with_audit: bool = False) -> TopicSelector:
    """Read the topic of a subscription or query.

    Args:
        text: the topic as sent.
        literal: take the name as it stands, whatever its characters: the option `non_regex_topic`,
            or an instance whose RegexTopicSupport is off.
        with_audit: an expression may mean the audit trail without naming it, as in a permission.

    Raises:
        TopicError: the text is empty, or is no valid regular expression.
    """
    if not text:
        raise TopicError("the topic is empty, expected a name or a regular expression")
    if literal or not has_regex_characters(text):
        return _literal(text) if len(text) <= _LONGEST_KEPT else TopicSelector(text, None)
    pattern = _compiled.get(text)
    if pattern is None:
        try:
            pattern = _compiled[text] = compile_regex(text, BRIEF_STEPS)
        except PatternRefused as refusal:
            raise TopicError(f"{text!r}: {refusal}") from None
    left_out = "" if with_audit or _OWN_TOPICS in text else AUDIT
    return TopicSelector(text, pattern, needle(text), left_out)
