"""The structure of a filter's text: the text without its constants and without its fields.

Some clients subscribe with very many filters of different forms, which are the same combinations of
comparisons of other fields. The tree of such a filter is made from the tree of an earlier one with
the same structure, instead of parsing the text.

One regular expression cuts out plain fields, `/name` or `/name/name`. The tree of the earlier text
proves that they are fields, and not parts of anything else: the tree's fields must have their
positions and paths. The rest of the text is the same for all texts of a structure, and parses the
same way.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from server.expressions.tree import (
    And,
    Between,
    Comparison,
    Constant,
    Expr,
    Identifier,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Reference,
    walk,
)
from server.message_types.paths import Path

_FIELD: Final = re.compile(r"(?<![\w./:@\])'-])((?:/[A-Za-z0-9_]+){1,3})(?![\w./:\[(@-])", re.ASCII)
"""A plain field. What is around it must leave no doubt that it is one."""

_FIELD_MARK: Final = 0
_NO_POSITION: Final = -1


class FilterText(NamedTuple):
    """A text, cut into pieces.

    Attributes:
        structure: identifies its structure.
        fields: its fields by their positions in the text.
        constants: its constants by their positions.
    """

    structure: Hashable
    fields: Mapping[int, Path]
    constants: Mapping[int, Constant]


def cut_text(
    pieces: Sequence[str], constants: Sequence[Constant], kinds: Sequence[Hashable]
) -> FilterText:
    """Cut the fields out of a text.

    Args:
        pieces: the text in pieces, every other of which is a constant.
        constants: the values of the constants.
        kinds: their kinds.
    """
    structure: list[Hashable] = []
    fields: dict[int, Path] = {}
    constants_by_position: dict[int, Constant] = {}
    position = 0
    for number, piece in enumerate(pieces):
        if number % 2:
            structure.append(kinds[number // 2])
            constants_by_position[position] = constants[number // 2]
            position += len(piece)
            continue
        for part_number, part in enumerate(_FIELD.split(piece)):
            if part_number % 2:
                structure.append(_FIELD_MARK)
                fields[position] = tuple(part[1:].split("/"))
            else:
                structure.append(part)
            position += len(part)
    return FilterText(tuple(structure), fields, constants_by_position)


def has_plain_fields(expr: Expr, text: FilterText) -> bool:
    """Return whether the fields of a tree are those that have been cut out of its text."""
    fields = {node.position: node.reference for node in walk(expr) if isinstance(node, Identifier)}
    return fields == {position: Reference(path) for position, path in text.fields.items()}


@lru_cache(maxsize=4096)
def _identifier(path: Path) -> Identifier:
    """Return one node for all mentions of a field: they are many."""
    return Identifier(path)


class StructureTree:
    """The tree of a text, from which the trees of texts with the same structure are made.

    Args:
        expr: the tree. See `has_plain_fields`; it has a literal for each constant.
        text: the text.
    """

    def __init__(self, expr: Expr, text: FilterText) -> None:
        self._expr = expr
        self._positions = sorted((*text.fields, *text.constants))

    def tree_of(self, text: FilterText) -> Expr:
        """Return the tree of another text."""
        positions = sorted((*text.fields, *text.constants))
        return _rebuilt(self._expr, dict(zip(self._positions, positions, strict=True)), text)


def _rebuilt(node: Expr, positions: Mapping[int, int], text: FilterText) -> Expr:
    """Return a node with the fields and constants of another text.

    Args:
        node: the node of the earlier text.
        positions: the positions of its fields and constants, and theirs in the other text.
        text: the other text.
    """
    if isinstance(node, Identifier):
        return _identifier(text.fields[positions[node.position]])
    if isinstance(node, Literal):
        other_position = positions.get(node.position)
        if other_position is None:  # a literal that is no constant of the text, such as NULL
            return Literal(node.value, position=_NO_POSITION)
        return Literal(text.constants[other_position], position=other_position)
    if isinstance(node, Comparison):
        return Comparison(
            node.operator,
            _rebuilt(node.left, positions, text),
            _rebuilt(node.right, positions, text),
        )
    if isinstance(node, And):
        return And(tuple([_rebuilt(operand, positions, text) for operand in node.operands]))
    if isinstance(node, Or):
        return Or(tuple([_rebuilt(operand, positions, text) for operand in node.operands]))
    if isinstance(node, Not):
        return Not(_rebuilt(node.operand, positions, text))
    if isinstance(node, Between):
        return Between(*[_rebuilt(child, positions, text) for child in node.children()])
    if isinstance(node, IsNull):
        return IsNull(_rebuilt(node.operand, positions, text))
    assert isinstance(node, In)  # noqa: S101 - see `filter_form.CONSTANT_NODES`
    return In(
        _rebuilt(node.operand, positions, text),
        tuple([_rebuilt(item, positions, text) for item in node.items]),
    )
