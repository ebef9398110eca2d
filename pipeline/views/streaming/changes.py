"""Changes of rows: what travels between the stages of a streaming view.

    key         where the next stage takes it: the fields of the next join, or the group's SOW key
    is_right    whether it is one of the topic that the next join adds
    row         the row so far (`Grown`), or that topic's part of it (`Part`), pickled
    times       how many such rows come, or go if it is negative
    sequence    the order of the events that these are the consequences of
    timestamp   when the event was, in nanoseconds since 1970

A row that changes goes as it was and comes as it is. What goes in a micro-batch was there before
it, so that a stage may let all go first, and then take in what comes, in order.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pyspark.sql import Row

from pipeline.views.definition import ViewDefinition
from pipeline.views.rows import Part, joined_paths
from server.expressions.context import MessageContext
from server.sow.keys import KeyHash
from server.views.projection import Row as Values

SCHEMA: Final = (
    "key string, is_right boolean, row binary, times long, sequence long, timestamp long"
)
NOTHING: Final = "!"
"""What keys begin with of rows that the next topic has nothing for."""
_SPREAD: Final = 1024
"""Keys that these are divided among."""


class Change(NamedTuple):
    """One change; see above."""

    key: str
    is_right: bool
    row: bytes
    times: int
    sequence: int
    timestamp: int

    def spark(self) -> Row:
        """The same for Spark."""
        return _ROW(*self)


_ROW: Final = Row(*Change._fields)


def in_order(rows: Iterable[Row]) -> list[Change]:
    """The changes of a micro-batch for one key: what goes, then what comes, in order."""
    changes = [
        Change(one.key, one.is_right, bytes(one.row), one.times, one.sequence, one.timestamp)
        for one in rows
    ]
    changes.sort(key=lambda one: (one.times > 0, one.sequence, one.row))
    return changes


class Grown(NamedTuple):
    """A row as far as it has grown.

    Attributes:
        parts: a part of each topic so far, None where nothing fits.
        context: what expressions may ask about the message, if they do.
    """

    parts: tuple[Part | None, ...]
    context: MessageContext | None = None


_Stored: TypeAlias = "tuple[Any, ...]"


def pack(row: Grown | Part) -> bytes:
    """A row, or a part of one, as bytes: the same for the same."""
    plain = (tuple(row.parts), row.context) if isinstance(row, Grown) else tuple(row)
    return pickle.dumps(plain, protocol=5)


def unpack(packed: bytes) -> Grown:
    """A row that was packed."""
    return Grown(*_loads(packed))


def unpack_part(packed: bytes) -> Part:
    """A part of a row that was packed."""
    return Part(*_loads(packed))


def _loads(packed: bytes) -> _Stored:
    return cast("_Stored", pickle.loads(packed))  # noqa: S301 - made by `pack`, now or in an earlier run


class Keys:
    """Where changes go next.

    Args:
        view: the view.
    """

    def __init__(self, view: ViewDefinition) -> None:
        compiled = view.compiled
        self._projection: Final = compiled.projection
        self._hash: Final = KeyHash(view.spec.key_domain)
        self._nulls_match: Final = view.spec.join_null_equivalency
        self._nothing: Final[Sequence[Values]] = [
            (None,) * len(compiled.inputs(place)) for place in range(len(compiled.topics))
        ]
        fields = compiled.joined_fields()
        paths = [joined_paths(view, place) for place in range(len(compiled.topics))]
        self._left: Final = [
            [
                (one.left_topic, paths[one.left_topic].index(one.left))
                for one in fields
                if one.right_topic == place
            ]
            for place in range(len(compiled.topics))
        ]
        self._right: Final = [
            [paths[place].index(one.right) for one in fields if one.right_topic == place]
            for place in range(len(compiled.topics))
        ]

    def of_row(self, row: Grown, packed: bytes) -> str:
        """Where a row goes.

        Args:
            row: the row.
            packed: the same, packed.
        """
        place = len(row.parts)
        if place == len(self._left):
            return self._hash.of_values(self._projection.group_of(self.values(row)))
        texts: list[bytes | None] = []
        for topic, text in self._left[place]:
            part = row.parts[topic]
            if part is None:  # where no record is, nothing fits
                return _nothing_for(packed)
            texts.append(part.texts[text])
        return self._joined(texts) or _nothing_for(packed)

    def of_part(self, place: int, part: Part) -> str | None:
        """Where a part goes that a topic adds; None if it fits no row."""
        return self._joined([part.texts[text] for text in self._right[place]])

    def values(self, row: Grown) -> Values:
        """The values of a row that has grown to the end."""
        values: Values = ()
        for part, nothing in zip(row.parts, self._nothing, strict=True):
            values += nothing if part is None else part.values
        return values

    def _joined(self, texts: Sequence[bytes | None]) -> str | None:
        if None in texts and not self._nulls_match:
            return None
        return ",".join("-" if text is None else text.hex() for text in texts)


def _nothing_for(packed: bytes) -> str:
    # Not `hash`, which differs from process to process.
    return f"{NOTHING}{sum(packed) % _SPREAD}"
