"""Detects objects and arrays in bodies where a single value was expected.

The server's filters read single values: to them an object or an empty array is NULL. For a column,
such data loss would be silent. So where a value is NULL and its name occurs in the body, the whole
body is decoded and examined. Bodies without the name, which are most of those with a NULL, cost
only a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pipeline.errors import SchemaError
from server.message_types.base import BodyError

NESTED: Final = frozenset({"bson", "msgpack"})
"""The message types, by their modules, with nested objects and arrays."""

_MAX_SHOWN_LENGTH: Final = 200


class StructMembers(NamedTuple):
    """A struct.

    Attributes:
        path: its path in the body.
        slots: the indexes of its members among the values.
    """

    path: tuple[str, ...]
    slots: slice


def decoded(tree: Callable[[bytes], Any], body: bytes) -> Any:
    """Decode a whole body.

    Args:
        tree: the decoder.
        body: the body.

    Raises:
        PipelineError: it cannot be decoded.
    """
    try:
        return tree(body)
    except BodyError as error:
        raise SchemaError(
            f"schema: a message does not fit: {error}; message: {body[:_MAX_SHOWN_LENGTH]!r}"
        ) from None


def with_parts(
    extract: Callable[[bytes], Sequence[Any]],
    tree: Callable[[bytes], Any],
    paths: Sequence[tuple[str, ...]],
    structs: Sequence[StructMembers],
) -> Callable[[bytes], Sequence[Any]]:
    """Replace values that are NULL because of objects and arrays by these.

    Args:
        extract: reads the values.
        tree: decodes a whole body.
        paths: the paths of the values.
        structs: for each of them, a further value follows: the value in the body at its path if
            none of its members has a value, else None.

    Returns:
        The function that reads all of them; PipelineError: a body with such a name cannot be
        decoded.
    """
    names = [path[-1].encode() for path in paths]
    struct_names = [struct.path[-1].encode() for struct in structs]
    none = [None] * len(structs)

    def extended(body: bytes) -> Sequence[Any]:
        values = [*extract(body), *none]
        slots = [
            slot
            for slot, name in enumerate(names)
            if values[slot] is None and name in body  # a cheap test first
        ]
        without = [
            number
            for number, name in enumerate(struct_names)
            if name in body
            and not any(value is not None for value in values[structs[number].slots])
        ]
        if not slots and not without:
            return values
        document = decoded(tree, body)
        for slot in slots:
            value = _at(document, paths[slot])
            if isinstance(value, (dict, list)):
                values[slot] = value
        for number in without:
            values[len(names) + number] = _at(document, structs[number].path)
        return values

    return extended


def _at(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document
