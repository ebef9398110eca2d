"""Reads the case files, and JSON records into the values of their fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

from server.expressions import ContextKind, Functions, built_in
from server.expressions.functions.times import legacy
from server.expressions.message_context import MessageContext
from server.expressions.tree import Reference, Slot
from server.message_types.base import Value
from server.message_types.paths import Path

CASES = FilePath(__file__).parent.parent / "cases"


def clock() -> float:
    """The time at which every case is evaluated."""
    return 1_700_000_000.25


FUNCTIONS: Functions = built_in(clock, "node-1", "group-1").with_functions(legacy(clock))


@dataclass(frozen=True)
class Case:
    """One line of expressions.txt.

    Attributes:
        line: its number.
        text: the expression.
        result: the value it has to give.
        kind: where it stands.
        record: the message.
        previous: the record before it.
        context: attributes of the message context.
    """

    line: int
    text: str = ""
    result: Value = None
    kind: ContextKind = ContextKind.FILTER
    record: Any = None
    previous: Any = None
    context: dict[str, Any] = field(default_factory=dict)

    def values(self, slots: tuple[Slot, ...]) -> tuple[Value, ...]:
        """What an extractor would read for the slots of the expression."""
        return tuple(self._value(slot) for slot in slots)

    def _value(self, slot: Slot) -> Value:
        assert isinstance(slot, Reference)
        return extract(self.previous if slot.state == "previous" else self.record, slot.path)

    def message_context(self) -> MessageContext:
        """The context that the case describes."""
        context = MessageContext()
        for name, value in self.context.items():
            assert hasattr(context, name)
            setattr(context, name, value)
        return context


def good_cases() -> Iterator[Case]:
    """The lines of expressions.txt."""
    state = Case(0)
    for number, line in _lines("expressions.txt"):
        if line.startswith("# record: "):
            state = Case(0, record=json.loads(line[10:]))
        elif line.startswith("# previous: "):
            state = replace(state, previous=json.loads(line[12:]))
        elif line.startswith("# context: "):
            state = replace(state, context=json.loads(line[11:]))
        elif line.startswith("# kind: "):
            state = replace(state, kind=ContextKind(line[8:]))
        elif not line.startswith("#"):
            text, result = line.rsplit(" => ", 1)
            yield replace(state, line=number, text=text.rstrip(), result=json.loads(result))


def bad_cases() -> Iterator[tuple[int, ContextKind, str, str]]:
    """The lines of expressions_refused.txt: number, kind, expression, part of the error."""
    kind = ContextKind.FILTER
    for number, line in _lines("expressions_refused.txt"):
        if line.startswith("# kind: "):
            kind = ContextKind(line[8:])
        elif not line.startswith("#"):
            text, error = line.rsplit(" => ", 1)
            yield number, kind, text.rstrip(), error


def _lines(name: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate((CASES / name).read_text("utf-8").splitlines(), 1):
        if line.strip():
            yield number, line


def extract(document: Any, path: Path) -> Value:
    """The value of a path in a JSON document, read in the plainest way.

    Names go through arrays and collect what they find there; a subscript takes one element, and a
    value that is no array is its own first element.
    """
    for step in path:
        if isinstance(step, int):
            elements = document if isinstance(document, list) else [document]
            document = elements[step] if step < len(elements) else None
        elif isinstance(document, list):
            document = [item[step] for item in document if isinstance(item, dict) and step in item]
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return _scalars(document)


def _scalars(document: Any) -> Value:
    if isinstance(document, list):
        return [_scalars(item) for item in document]
    return None if isinstance(document, dict) else document


def same(left: object, right: object) -> bool:
    """Whether two results are the same: of one type, equal or both NaN."""
    if isinstance(left, float) and left != left:
        return isinstance(right, float) and right != right
    return type(left) is type(right) and left == right
