"""Elements as typed values: a value that cannot be read is reported, and reading continues.

An `ElementReader` is one element. Its methods take the names of children and return values, so that
the compiler of a section reads like the section's documentation. A missing or wrong value is
replaced by a stand-in of the right type: it is never used, because a configuration with errors
gives no instance, but the later checks still run and the whole file is checked in one run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, overload

from config_schema.catalogue import Catalogue, ExpressionKind
from config_schema.document import ConfigNode
from config_schema.problems import HasLocation, Location, Problems, Severity
from config_schema.regex import regex_error
from config_schema.spec import InetAddr
from config_schema.suggest import nearest
from config_schema.units import (
    UnitError,
    parse_bool,
    parse_count,
    parse_inet_address,
    parse_interval,
    parse_octal_mask,
    parse_size,
    quoted,
)

WordT = TypeVar("WordT", bound=str)


def _parse_percentage(text: str) -> int:
    number = text.strip().removesuffix("%").strip()
    try:
        return parse_count(number)
    except UnitError:
        raise UnitError(
            f"{quoted(text)} is not a percentage: expected a whole number such as 50%"
        ) from None


INTERVAL: Final = parse_interval
SIZE: Final = parse_size
COUNT: Final = parse_count
PERCENTAGE: Final = _parse_percentage
"""Parsers of the texts of quantities."""


class CompileReport:
    """Collects the compiler's problems, except errors that the check of the structure reported.

    Args:
        problems: the problems of earlier stages; the compiler's are added.
        is_lenient: true to replace values of the wrong type or out of range, with a warning, as
            ConfigValidation `disabled` requests.
    """

    def __init__(self, problems: Problems, *, is_lenient: bool = False) -> None:
        self.is_lenient = is_lenient
        self._problems = problems
        self._structure_errors = {
            (problem.location, problem.element)
            for problem in problems
            if problem.severity is Severity.ERROR
        }

    def error(
        self, where: HasLocation, element: str, message: str, hint: str | None = None
    ) -> None:
        """Add an error, unless one about the same element at the same place is known."""
        if not self.has_structure_error(where, element):
            self._problems.error(where, element, message, hint)

    def has_structure_error(self, where: HasLocation, element: str) -> bool:
        """Return true if the check of the structure found an error in this element."""
        return (where.location, element) in self._structure_errors

    def warning(
        self, where: HasLocation, element: str, message: str, hint: str | None = None
    ) -> None:
        """Add a warning."""
        self._problems.warning(where, element, message, hint)

    def info(self, where: HasLocation, element: str, message: str) -> None:
        """Add a remark."""
        self._problems.info(where, element, message)


@dataclass(frozen=True, slots=True)
class ElementReader:
    """One element, its label in problems, and the report and catalogue that check its values."""

    node: ConfigNode
    label: str
    report: CompileReport
    catalogue: Catalogue

    @property
    def location(self) -> Location:
        """The location of the element."""
        return self.node.location

    @property
    def value(self) -> str:
        """Its own text."""
        return self.node.text

    # Children

    def has(self, tag: str) -> bool:
        """Return true if there is a child called `tag`."""
        return self.node.find(tag) is not None

    def child(self, tag: str) -> "ElementReader | None":
        """Return the first child called `tag`, or None."""
        node = self.node.find(tag)
        return None if node is None else self._child_reader(node)

    def children(self, *tags: str) -> "Iterator[ElementReader]":
        """Return the children with one of these tags, all children if no tag is given."""
        return (
            self._child_reader(node) for node in self.node.children if not tags or node.tag in tags
        )

    def section_children(self, section: str, tag: str) -> "Iterator[ElementReader]":
        """Return the elements `tag` of the child `section`, which may be absent."""
        section_reader = self.child(section)
        return section_reader.children(tag) if section_reader else iter(())

    def texts(self, tag: str) -> tuple[str, ...]:
        """Return the texts of the children called `tag`, without the empty ones."""
        return tuple(child.text for child in self.node.all(tag) if child.text)

    # Values

    def text(self, tag: str) -> str | None:
        """Return the text of a child; None if it is absent or empty."""
        return self.node.value(tag) or None

    def required(self, tag: str) -> str:
        """Return the text of a child that must be there."""
        text = self.text(tag)
        if text is None:
            self.error("is missing but required", tag=tag)
        return text or ""

    def flag(self, tag: str, *, default: bool) -> bool:
        """Return a boolean."""
        text = self.text(tag)
        return default if text is None else self._parse(tag, text, parse_bool, default)

    def mask(self, tag: str) -> int | None:
        """Return file permissions."""
        text = self.text(tag)
        return None if text is None else self._parse(tag, text, parse_octal_mask, None)

    def address(self, tag: str) -> InetAddr | None:
        """Return an address."""
        child = self.child(tag)
        return child.own_address() if child and child.value else None

    def own_address(self) -> InetAddr | None:
        """Return the element's own text as an address."""
        try:
            address = parse_inet_address(self.value)
        except UnitError as error:
            self.error(str(error))
            return None
        return InetAddr(address.host, address.port, address.family, self.location)

    @overload
    def quantity(
        self,
        tag: str,
        read: Callable[[str], int],
        default: None = None,
        *,
        minimum: str | None = None,
        maximum: str | None = None,
    ) -> int | None: ...
    @overload
    def quantity(
        self,
        tag: str,
        read: Callable[[str], int],
        default: str,
        *,
        minimum: str | None = None,
        maximum: str | None = None,
    ) -> int: ...
    def quantity(
        self,
        tag: str,
        read: Callable[[str], int],
        default: str | None = None,
        *,
        minimum: str | None = None,
        maximum: str | None = None,
    ) -> int | None:
        """Return a number within limits.

        Args:
            tag: the child.
            read: INTERVAL, SIZE, COUNT or PERCENTAGE.
            default: the text that applies if the element is absent.
            minimum: the smallest text allowed.
            maximum: the largest text allowed.
        """
        stand_in = None if default is None else read(default)
        text = self.text(tag)
        if text is None:
            return stand_in
        number = self._parse(tag, text, read, stand_in)
        if number is not None and minimum is not None and number < read(minimum):
            wrong = f"{quoted(text)} is too small: the least is {minimum}"
            return self._report_unusable(tag, wrong, read(minimum), used=minimum)
        if number is not None and maximum is not None and number > read(maximum):
            wrong = f"{quoted(text)} is too large: the most is {maximum}"
            return self._report_unusable(tag, wrong, read(maximum), used=maximum)
        return number

    def choice(self, tag: str, words: Sequence[WordT], default: WordT) -> WordT:
        """Return the one of `words` that the child holds, ignoring case."""
        text = self.text(tag)
        if text is None:
            return default
        for word in words:
            if word.lower() == text.lower():
                return word
        expected = f"expected {', '.join(words)}"
        hint = did_you_mean(text, words)
        wrong = f"{quoted(text)} is not accepted: {expected}"
        return self._report_unusable(tag, wrong, default, hint, used=default)

    def words(self, tag: str) -> list[str]:
        """Return the comma-separated words that the child holds."""
        return [word for part in (self.text(tag) or "").split(",") if (word := part.strip())]

    def refuse_word(self, tag: str, word: str, expectation: str, words: Sequence[str]) -> None:
        """Report a word that is none of `words`; `expectation` is the message's term for these."""
        wrong = f"{quoted(word)} is not {expectation}: expected {', '.join(words)}"
        self.error(wrong, did_you_mean(word, words), tag=tag)

    def expression(self, tag: str, kind: ExpressionKind) -> str | None:
        """Return an expression, checked."""
        child = self.child(tag)
        return child.checked_expression(kind) if child and child.value else None

    def checked_expression(self, kind: ExpressionKind) -> str:
        """Return the element's own text, checked as an expression."""
        error = self.catalogue.check_expression(self.value, kind)
        if error is not None:
            self.error(error)
        return self.value

    def expressions(self, tag: str, kind: ExpressionKind) -> tuple[str, ...]:
        """Return the expressions of every child called `tag`, checked."""
        return tuple(child.checked_expression(kind) for child in self.children(tag) if child.value)

    def pattern(self, tag: str) -> str | None:
        """Return a regular expression, checked."""
        child = self.child(tag)
        return child.checked_pattern() if child and child.value else None

    def checked_pattern(self) -> str:
        """Return the element's own text, checked as a regular expression."""
        error = regex_error(self.value)
        if error is not None:
            self.error(f"{quoted(self.value)} is not a regular expression: {error}")
        return self.value

    # Problems

    def error(self, message: str, hint: str | None = None, *, tag: str | None = None) -> None:
        """Report an error of this element, or of its child `tag` even where that is absent."""
        where, element = self._problem_subject(tag)
        if tag is None or self.has(tag) or not self._is_misspelled(tag):
            self.report.error(where, element, message, hint)

    def warning(self, message: str, hint: str | None = None, *, tag: str | None = None) -> None:
        """Report a warning about this element, or about its child `tag`."""
        where, element = self._problem_subject(tag)
        self.report.warning(where, element, message, hint)

    def info(self, message: str, *, tag: str | None = None) -> None:
        """Report a remark on this element, or on its child `tag`."""
        self.report.info(*self._problem_subject(tag), message)

    def warn_no_effect(self, tags: Sequence[str], reason: str) -> None:
        """Warn about each of these children that is present, because it has no effect."""
        for child in self.children(*tags):
            child.warning(f"has no effect: {reason}")

    def _is_misspelled(self, tag: str) -> bool:
        """Return true if a child with a reported error is probably a misspelling of `tag`."""
        wrong = [
            child.node.tag
            for child in self.children()
            if self.report.has_structure_error(child, child.label)
        ]
        return nearest(tag, wrong) is not None

    def _problem_subject(self, tag: str | None) -> tuple[ConfigNode, str]:
        if tag is None:
            return self.node, self.label
        child = self.node.find(tag)
        return child or self.node, f"{self.node.written_tag}/{child.written_tag if child else tag}"

    def _child_reader(self, node: ConfigNode) -> "ElementReader":
        return ElementReader(
            node, f"{self.node.written_tag}/{node.written_tag}", self.report, self.catalogue
        )

    _Value = TypeVar("_Value")

    def _parse(
        self, tag: str, text: str, parse: Callable[[str], _Value], stand_in: _Value
    ) -> _Value:
        try:
            return parse(text)
        except UnitError as error:
            return self._report_unusable(tag, str(error), stand_in)

    def _report_unusable(
        self,
        tag: str,
        wrong: str,
        stand_in: _Value,
        hint: str | None = None,
        used: str = "the default",
    ) -> _Value:
        """Report an unusable value, and return its replacement."""
        if self.report.is_lenient and stand_in is not None:
            self.warning(f"{wrong}; {used} is used, since nothing is validated", hint, tag=tag)
        else:
            self.error(wrong, hint, tag=tag)
        return stand_in


def did_you_mean(word: str, known: Sequence[str]) -> str | None:
    """Return a hint with the known word that `word` was probably meant to be, if there is one."""
    suggestion = nearest(word, known)
    return f"did you mean {suggestion}?" if suggestion else None
