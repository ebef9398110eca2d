"""Select lists: the fields of a message that a subscriber gets.

A select list is a comma-separated list of directives, `+/path` to include and `-/path` to exclude
(AMPS User Guide, Retrieving Part of a Message). The most specific directive that covers a field
decides; of two for the same path the first one; a field that none covers is included. `+/` and `-/`
cover everything.

A selection is a tree of names, so that a message type traverses it in step with the document.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.message_types.paths import PathError, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from server.message_types.paths import Path

_DIRECTIVE = re.compile(r"(?:\[[^\]]*\]|[^,\[])*")
"""Up to the next comma outside a bracketed name."""


class SelectionError(ValueError):
    """A select list is invalid; the message states the directive and the reason."""


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """The rules of a select list for one step of the document and for the steps below it.

    Attributes:
        include: the value at this step is sent, unless a rule of a step below differs.
        children: the names below this step that have rules of their own. A name that is not here
            follows `include`.
    """

    include: bool = True
    children: dict[str, FieldSelection] = field(default_factory=dict)

    def includes(self, path: Path) -> bool:
        """Return whether the value at `path` is sent; subscripts are ignored."""
        node, _ = self._find_rules(path)
        return node.include

    def includes_whole(self, path: Path) -> bool:
        """Return whether the value at `path` is sent with all fields below it."""
        node, has_rules = self._find_rules(path)
        return node.is_whole if has_rules else node.include

    def _find_rules(self, path: Path) -> tuple[FieldSelection, bool]:
        """Return the rules for a path: its own, else (False) those of the nearest step above."""
        node = self
        for step in path:
            if isinstance(step, int):
                continue
            child = node.children.get(step)
            if child is None:
                return node, False
            node = child
        return node, True

    @property
    def is_whole(self) -> bool:
        """True if the whole value at this step is sent; MAX_STEPS bounds the recursion."""
        return self.include and all(child.is_whole for child in self.children.values())


def parse_selection(text: str) -> FieldSelection:
    """Parse a select list, without the brackets that enclose it in a command's options:
    `-/,+/id,+/name`.

    Raises:
        SelectionError: the text is not a select list.
    """
    decided: dict[Path, bool] = {}
    for directive in _directives(text):
        include, path = _parse_directive(directive)
        decided.setdefault(path, include)
    return _tree(decided, default=True)


def selection_of(paths: Iterable[Path]) -> FieldSelection:
    """Make the selection of exactly the fields at `paths`; subscripts are ignored."""
    named: dict[Path, bool] = {
        tuple(step for step in path if isinstance(step, str)): True for path in paths
    }
    return _tree(named, default=False)


def _directives(text: str) -> Iterator[str]:
    position = 0
    while True:
        match = _DIRECTIVE.match(text, position)
        directive = match[0] if match else ""
        position += len(directive)
        if position < len(text) and text[position] != ",":
            raise SelectionError(f"select list {text!r}: '[' without ']' in a directive")
        yield directive.strip()
        if position == len(text):
            return
        position += 1


def _parse_directive(directive: str) -> tuple[bool, Path]:
    if directive[:1] not in ("+", "-"):
        raise SelectionError(
            f"select list directive {directive!r}: expected '+' or '-' and a path, such as +/id"
        )
    include = directive[0] == "+"
    if directive[1:] == "/":
        return include, ()
    try:
        path = parse_path(directive[1:])
    except PathError as error:
        raise SelectionError(f"select list directive {directive!r}: {error.message}") from None
    if any(isinstance(step, int) for step in path):
        raise SelectionError(f"select list directive {directive!r}: subscripts cannot be selected")
    return include, path


def _tree(decided: Mapping[Path, bool], *, default: bool) -> FieldSelection:
    """Build the tree of directives, with paths relative to its root; MAX_STEPS bounds recursion."""
    include = decided.get((), default)
    below: defaultdict[str, dict[Path, bool]] = defaultdict(dict)
    for path, is_selected in decided.items():
        if path:
            below[str(path[0])][path[1:]] = is_selected
    children = {name: _tree(is_selected, default=include) for name, is_selected in below.items()}
    return FieldSelection(include, children)
