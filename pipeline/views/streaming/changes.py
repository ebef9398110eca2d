"""Changes of rows: the data between the stages of a streaming view.

    key         the routing key of the next stage: the fields of the next join, or the group's SOW
                key
    is_right    whether the change belongs to the topic that the next join adds
    row         the row so far (`JoinedRow`), or that topic's part of it (`RowPart`), pickled
    times       the number of such rows that are added, or removed if it is negative
    sequence    the order of the events that caused the changes
    timestamp   the time of the event, in nanoseconds since 1970

An updated row is removed in its old form and added in its new form. Rows that a micro-batch removes
existed before it, so that a stage may first process all removals, and then all additions, in order.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

from pyspark.sql import Row

from pipeline.views.definition import ViewDefinition
from pipeline.views.rows import RowPart, joined_paths
from server.expressions.message_context import MessageContext
from server.storage.sow.keys.key_source import KeyHash
from server.storage.views.projection import ProjectionRow as Values

SCHEMA: Final = (
    "key string, is_right boolean, row binary, times long, sequence long, timestamp long"
)
NOTHING: Final = "!"
"""The key prefix of rows that match no record of the next topic."""
_SPREAD: Final = 1024
"""The number of keys that these rows are spread over."""


class StreamChange(NamedTuple):
    """A change of rows; the module's docstring describes the fields."""

    key: str
    is_right: bool
    row: bytes
    times: int
    sequence: int
    timestamp: int

    def to_spark_row(self) -> Row:
        """Return the change as a Spark row."""
        return _ROW(*self)


_ROW: Final = Row(*StreamChange._fields)


def in_order(rows: Iterable[Row]) -> list[StreamChange]:
    """Return the changes of a micro-batch for one key: removals, then additions, in order."""
    changes = [
        StreamChange(
            row.key,
            row.is_right,
            bytes(row.row),
            row.times,
            row.sequence,
            row.timestamp,
        )
        for row in rows
    ]
    changes.sort(key=lambda change: (change.times > 0, change.sequence, change.row))
    return changes


class JoinedRow(NamedTuple):
    """A row with the topics joined so far.

    Attributes:
        parts: a part of each topic so far, None where no record matches.
        context: the message context for expressions, if they use it.
    """

    parts: tuple[RowPart | None, ...]
    context: MessageContext | None = None


_Stored: TypeAlias = "tuple[Any, ...]"


def pack(row: JoinedRow | RowPart) -> bytes:
    """Serialize a row, or a part of one; equal rows have equal bytes."""
    plain = (tuple(row.parts), row.context) if isinstance(row, JoinedRow) else tuple(row)
    return pickle.dumps(plain, protocol=5)


def unpack(packed: bytes) -> JoinedRow:
    """Deserialize a row."""
    return JoinedRow(*_loads(packed))


def unpack_part(packed: bytes) -> RowPart:
    """Deserialize a part of a row."""
    return RowPart(*_loads(packed))


def _loads(packed: bytes) -> _Stored:
    return cast("_Stored", pickle.loads(packed))  # noqa: S301 - made by `pack`, now or in an earlier run


class RoutingKeys:
    """Computes the routing keys of changes.

    Args:
        view: the view.
    """

    def __init__(self, view: ViewDefinition) -> None:
        compiled = view.compiled
        self._projection: Final = compiled.projection
        self._hash: Final = KeyHash(view.spec.key_domain)
        self._nulls_match: Final = view.spec.join_null_equivalency
        self._null_values: Final[Sequence[Values]] = [
            (None,) * len(compiled.topic_inputs(place)) for place in range(len(compiled.topics))
        ]
        fields = compiled.join_conditions()
        paths = [joined_paths(view, place) for place in range(len(compiled.topics))]
        self._left_fields: Final = [
            [
                (condition.left_topic, paths[condition.left_topic].index(condition.left_field))
                for condition in fields
                if condition.right_topic == place
            ]
            for place in range(len(compiled.topics))
        ]
        self._right_fields: Final = [
            [
                paths[place].index(condition.right_field)
                for condition in fields
                if condition.right_topic == place
            ]
            for place in range(len(compiled.topics))
        ]

    def key_of_row(self, row: JoinedRow, packed: bytes) -> str:
        """Return the key of a row.

        Args:
            row: the row.
            packed: the row, serialized.
        """
        place = len(row.parts)
        if place == len(self._left_fields):
            return self._hash.hash_values(self._projection.group_key(self.row_values(row)))
        texts: list[bytes | None] = []
        for topic, text in self._left_fields[place]:
            part = row.parts[topic]
            if part is None:  # where there is no record, nothing matches
                return _nothing_for(packed)
            texts.append(part.texts[text])
        return self._join_key(texts) or _nothing_for(packed)

    def key_of_part(self, place: int, part: RowPart) -> str | None:
        """Return the key of a part that a topic adds; None if it matches no row."""
        return self._join_key([part.texts[text] for text in self._right_fields[place]])

    def row_values(self, row: JoinedRow) -> Values:
        """Return the values of a complete row."""
        values: Values = ()
        for part, nothing in zip(row.parts, self._null_values, strict=True):
            values += nothing if part is None else part.values
        return values

    def _join_key(self, texts: Sequence[bytes | None]) -> str | None:
        if None in texts and not self._nulls_match:
            return None
        return ",".join("-" if text is None else text.hex() for text in texts)


def _nothing_for(packed: bytes) -> str:
    # Not `hash`, which differs between processes.
    return f"{NOTHING}{sum(packed) % _SPREAD}"
