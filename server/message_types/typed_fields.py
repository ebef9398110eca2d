"""Struct types with which msgspec decodes exactly the wanted fields and skips the rest."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import msgspec

from server.message_types.path_tree import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.message_types.base import Value
    from server.message_types.paths import Path

_Scalar: TypeAlias = Union[bool, int, float, str, None]  # noqa: UP007 - used at run time

_Fields: TypeAlias = Union[dict[str, "_Fields"], None]  # noqa: UP007 - "X | Y" takes no forward reference
"""The fields of a document by name; None for a value."""


class UntypedFieldsError(ValueError):
    """No Struct type can represent the wanted paths."""


def typed_fields(
    paths: Sequence[Path],
) -> tuple[type[msgspec.Struct], Callable[[msgspec.Struct], tuple[Value, ...]]]:
    """Make a Struct type for `paths`, and a function from an instance to their values.

    A value is a scalar or an array of scalars; decoding refuses anything else.

    Raises:
        UntypedFieldsError: there is no path, a path has a subscript or extends another path, or
            msgspec cannot express a name.
    """
    fields: dict[str, _Fields] = {}
    attributes = [_attribute(fields, path) for path in paths]
    if not attributes:
        raise UntypedFieldsError
    values_of: Callable[[msgspec.Struct], Any] = attrgetter(*attributes)
    if len(attributes) == 1:
        return _struct(fields), lambda instance: (values_of(instance),)
    return _struct(fields), values_of


def _attribute(fields: dict[str, _Fields], path: Path) -> str:
    """Add a path to the fields, and return its dotted attributes."""
    attributes = []
    for depth, step in enumerate(path, 1):
        if isinstance(step, int) or depth > MAX_DEPTH:
            raise UntypedFieldsError
        inner = fields.setdefault(step, None if depth == len(path) else {})
        if (inner is None) != (depth == len(path)):
            raise UntypedFieldsError
        attributes.append(f"field_{list(fields).index(step)}")
        fields = {} if inner is None else inner
    return ".".join(attributes)


def _struct(fields: dict[str, _Fields]) -> type[msgspec.Struct]:
    names = {f"field_{index}": name for index, name in enumerate(fields)}
    members: list[tuple[str, object, object]] = []
    for attribute, name in names.items():
        inner = fields[name]
        if inner is None:
            members.append((attribute, _Scalar | list[_Scalar], None))
        else:
            nested = _struct(inner)
            members.append((attribute, nested, nested()))
    return _define(members, names)


def _define(
    members: Sequence[tuple[str, object, object]], names: dict[str, str]
) -> type[msgspec.Struct]:
    try:
        return msgspec.defstruct("Fields", members, rename=names, frozen=True, gc=False)
    except ValueError:  # control characters, lone surrogates
        raise UntypedFieldsError from None
