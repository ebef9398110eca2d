"""The topics that a name or a regular expression selects, as far as that is decidable.

Whether one expression covers another is undecidable in general. It is decidable for the expressions
in common use for topics: everything, and names that begin with, end with, contain or equal a text.
Any other expression covers itself, and the names that it matches.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct

from config_schema.regex import has_regex_characters, matches

_SHAPE: Final = re.compile(
    r"(?P<start>\^)?(?P<before>\.\*)?"
    r"(?P<text>(?:[^.*+?^$|()\[\]{}\\]|\\[^A-Za-z0-9])*)"
    r"(?P<after>\.\*)?(?P<end>\$)?",
    re.DOTALL,
)
_ANY_NAME: Final = (".+", "^.+$")
"""No topic has an empty name."""

_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class TopicPattern(Struct, frozen=True):
    """A topic, or with `is_expression` all topics whose names a regular expression matches."""

    name: str
    message_type: str
    is_expression: bool

    @classmethod
    def from_name(cls, name: str, message_type: str, *, regex_topics: bool) -> "TopicPattern":
        """Interpret a name as TransactionLog and Destination do.

        A name like `fix.orders` is an expression too, but is always meant as a name.
        """
        return cls(name, message_type, regex_topics and has_regex_characters(name.replace(".", "")))

    def includes(self, other: "TopicPattern") -> bool:
        """Return true if this certainly selects all topics that `other` selects."""
        if self.message_type != other.message_type:
            return False
        if self.name == other.name:
            return self.is_expression or not other.is_expression
        if not self.is_expression:
            return False
        if not other.is_expression:
            return matches(self.name, other.name)
        mine, others = _shape(self.name), _shape(other.name)
        return mine is not None and others is not None and mine.includes(others)

    def overlaps(self, other: "TopicPattern") -> bool:
        """Return true unless it is certain that no topic is selected by both."""
        if not (self.is_expression and other.is_expression):
            return self.includes(other) or other.includes(self)
        mine, others = _shape(self.name), _shape(other.name)
        return self.message_type == other.message_type and not (
            mine is not None and others is not None and mine.excludes(others)
        )


PatternIntersection = tuple[TopicPattern, ...]
"""Topics that are selected by each of these: one, or two expressions that overlap."""


class Coverage:
    """The union of selections that are recorded, or replicated. There may be thousands."""

    def __init__(self, selections: Iterable[TopicPattern]) -> None:
        self._patterns = tuple(selections)
        self._names = {
            (pattern.name, pattern.message_type)
            for pattern in self._patterns
            if not pattern.is_expression
        }
        self._expressions = [pattern for pattern in self._patterns if pattern.is_expression]

    def covers(self, part: PatternIntersection) -> bool:
        """Return true if all topics of `part` are certain to be selected."""
        return any(self._includes(selection) for selection in part)

    def intersections(self, selected: TopicPattern) -> Iterator[PatternIntersection]:
        """Return the parts selected here as well as by `selected`."""
        if self._includes(selected):
            yield (selected,)
            return
        for pattern in self._patterns:
            if selected.includes(pattern):
                yield (pattern,)
            elif pattern.is_expression and pattern.overlaps(selected):
                yield (selected, pattern)

    def _includes(self, selection: TopicPattern) -> bool:
        key = (selection.name, selection.message_type)
        literally = not selection.is_expression and key in self._names
        return literally or any(expression.includes(selection) for expression in self._expressions)


class _NameCondition(Struct, frozen=True):
    """The condition of a simple expression: a text at the start or end of names, both, anywhere."""

    text: str
    at_start: bool
    at_end: bool

    def accepts(self, name: str) -> bool:
        if self.at_start and self.at_end:
            return name == self.text
        if self.at_start:
            return name.startswith(self.text)
        return name.endswith(self.text) if self.at_end else self.text in name

    def includes(self, other: "_NameCondition") -> bool:
        """Return true if each name that `other` accepts is accepted."""
        if (self.at_start and not other.at_start) or (self.at_end and not other.at_end):
            return self.text == "" and not (self.at_start and self.at_end)
        return self.accepts(other.text)

    def excludes(self, other: "_NameCondition") -> bool:
        """Return true if no name is accepted by both."""
        for exact, other_condition in ((self, other), (other, self)):
            if exact.at_start and exact.at_end:
                return not other_condition.accepts(exact.text)
        texts = (self.text, other.text)
        shorter, longer = sorted(texts, key=len)
        if self.at_start and other.at_start:
            return not longer.startswith(shorter)
        return self.at_end and other.at_end and not longer.endswith(shorter)


@lru_cache(maxsize=1024)
def _shape(expression: str) -> _NameCondition | None:
    match = _SHAPE.fullmatch("" if expression in _ANY_NAME else expression)
    if match is None:
        return None
    return _NameCondition(
        _ESCAPED.sub(r"\1", match["text"]),
        at_start=match["start"] is not None and match["before"] is None,
        at_end=match["end"] is not None and match["after"] is None,
    )
