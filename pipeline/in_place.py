"""What a body has in the place of a value that was wanted of it.

To the server's filters, which read the values, an object is no value and an empty array none:
NULL. As a column that would be silent. So where a value is NULL and its name stands in the body,
the whole body is decoded and looked at; bodies without the name, which are most of those with a
NULL, cost a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pipeline.errors import PipelineError
from server.message_types.base import BodyError

NESTED: Final = frozenset({"bson", "msgpack"})
"""The message types, by their modules, in which objects are within objects and arrays."""

_SHOWN: Final = 200


class Members(NamedTuple):
    """A struct.

    Attributes:
        path: where it is.
        slots: the places of its members among the values.
    """

    path: tuple[str, ...]
    slots: slice


def decoded(tree: Callable[[bytes], Any], body: bytes) -> Any:
    """A whole body, with all that it holds.

    Args:
        tree: decodes it.
        body: what is to be decoded.

    Raises:
        PipelineError: it cannot be decoded.
    """
    try:
        return tree(body)
    except BodyError as error:
        raise PipelineError(
            f"schema: a message does not fit: {error}; it is {body[:_SHOWN]!r}"
        ) from None


def with_parts(
    extract: Callable[[bytes], Sequence[Any]],
    tree: Callable[[bytes], Any],
    paths: Sequence[tuple[str, ...]],
    structs: Sequence[Members],
) -> Callable[[bytes], Sequence[Any]]:
    """Has objects and arrays in the places of values that are NULL because of these.

    Args:
        extract: gives the values.
        tree: decodes a whole body.
        paths: where the values are.
        structs: behind the values stands what the body has in the place of each of them, if none
            of its members has a value; else None.

    Returns:
        What gives all that; PipelineError: a body has such a name, and cannot be decoded.
    """
    names = [path[-1].encode() for path in paths]
    struct_names = [struct.path[-1].encode() for struct in structs]
    none = [None] * len(structs)

    def extended(body: bytes) -> Sequence[Any]:
        values = [*extract(body), *none]
        slots = [
            slot
            for slot, name in enumerate(names)
            if values[slot] is None and name in body  # which is quick
        ]
        without = [
            number
            for number, name in enumerate(struct_names)
            if name in body and not any(one is not None for one in values[structs[number].slots])
        ]
        if not slots and not without:
            return values
        document = decoded(tree, body)
        for slot in slots:
            found = _at(document, paths[slot])
            if isinstance(found, (dict, list)):
                values[slot] = found
        for number in without:
            values[len(names) + number] = _at(document, structs[number].path)
        return values

    return extended


def _at(document: Any, path: Sequence[str]) -> Any:
    for step in path:
        document = document.get(step) if isinstance(document, dict) else None
    return document
