"""Values as texts: the same in all forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from server.admin.tree import INSTANCE, TIMESTAMP_FIELD, SnapshotTree, TreeTarget
from server.statistics.schema import ColumnType, Resource, ResourceField, StatisticValue
from server.statistics.timestamps import to_text


def text_of(field: ResourceField, value: StatisticValue | None) -> str:
    """Return a value as text, as all forms have it.

    Programs read counts and rates as whole numbers, so that these have no decimal point; other
    numbers have 12 decimal places, as in AMPS.

    Args:
        field: the field of the value.
        value: None if not known.
    """
    if isinstance(value, float):
        return _whole(value) if field.type is ColumnType.INTEGER else _real(value)
    if field.type is ColumnType.REAL and isinstance(value, int):
        return _real(value)
    return "" if value is None else str(value)


def _real(value: float) -> str:
    return f"{value:.12f}" if math.isfinite(value) else f"{0:.12f}"


def _whole(value: float) -> str:
    return str(int(value)) if math.isfinite(value) else "0"


@cache
def texts_of(resource: Resource) -> Callable[[Sequence[StatisticValue]], list[str]]:
    """Return a function that formats an entry's values, at little cost for each of many entries."""
    numbers = [
        (index, field)
        for index, field in enumerate(resource.fields)
        if field.type is not ColumnType.TEXT
    ]

    def texts(values: Sequence[StatisticValue]) -> list[str]:
        result = list(map(str, values))
        for index, field in numbers:
            if type(values[index]) is float or field.type is ColumnType.REAL:
                value = values[index]
                result[index] = text_of(field, value)
        return result

    return texts


def named_texts(tree: SnapshotTree, target: TreeTarget) -> Iterator[tuple[str, str]]:
    """Yield the values of an entry, or of a node that is one itself, with their names.

    Those of the instance end with the moment of the sample.
    """
    values, resource = tree.values(target), target.node.resource
    if resource is not None and values is not None:
        names = [field.name for field in resource.fields]
        yield from zip(names, texts_of(resource)(values), strict=True)
    if target.node.path == INSTANCE:
        yield TIMESTAMP_FIELD, to_text(tree.snapshot.timestamp)
