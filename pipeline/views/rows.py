"""Converts records of underlying topics to rows of a view, and joins those of several topics.

The rows of a single topic are read where they are grouped. For a join, a record is reduced to its
part of the row, pickled, and to the texts of the join fields; Spark joins these like any other
columns. Source: AMPS User Guide, Multiple Topic Aggregation: Join.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F

from pipeline.views.definition import ViewDefinition
from pipeline.views.records import records_in
from server.expressions import semantics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from server.message_types.paths import Path
    from server.storage.sow.records import Record
    from server.storage.views.join import JoinedFields
    from server.storage.views.projection import ProjectionRow

_PART: Final = pa.schema(
    [("part", pa.binary()), ("texts", pa.list_(pa.binary())), ("sequence", pa.int64())]
)
_PART_SCHEMA: Final = "part binary, texts array<binary>, sequence long"


def join_parts(view: ViewDefinition, topics: Sequence[DataFrame]) -> DataFrame:
    """Join the records of a view's topics.

    Args:
        view: the view, of several topics.
        topics: the records of each topic.

    Returns:
        A row for each row of the view: `part_0`, `part_1`, ... (NULL where no record matches), and
        `sequence`, that of its last update.
    """
    joined = _side(view, topics[0], 0)
    for place in range(1, len(topics)):
        conditions = [
            fields for fields in view.compiled.join_conditions() if fields.right_topic == place
        ]
        condition = reduce(and_, [_fit(view, fields) for fields in conditions])
        joined = joined.join(_side(view, topics[place], place), condition, "left")
    places = range(len(topics))
    last = F.greatest(*[F.coalesce(F.col(f"sequence_{place}"), F.lit(0)) for place in places])
    return joined.select(*[f"part_{place}" for place in places], last.alias("sequence"))


def _side(view: ViewDefinition, records: DataFrame, place: int) -> DataFrame:
    """Return the columns of a topic's records for the join."""
    parts = records.mapInArrow(_PartReader(view, place), _PART_SCHEMA)
    return parts.select(*[F.col(name).alias(f"{name}_{place}") for name in _PART.names])


def _fit(view: ViewDefinition, fields: JoinedFields) -> Column:
    """Return the condition that two texts are equal."""
    left = _text(fields.left_topic, joined_paths(view, fields.left_topic).index(fields.left_field))
    right = _text(
        fields.right_topic, joined_paths(view, fields.right_topic).index(fields.right_field)
    )
    if not view.spec.join_null_equivalency:
        return left == right
    # NULL equals NULL; but where there is no record, nothing matches.
    return left.eqNullSafe(right) & F.col(f"part_{fields.left_topic}").isNotNull()


def joined_paths(view: ViewDefinition, place: int) -> list[Path]:
    """Return the join fields of one of the topics, in the order of `texts`."""
    paths: dict[Path, None] = {}
    for fields in view.compiled.join_conditions():
        for topic, path in (
            (fields.left_topic, fields.left_field),
            (fields.right_topic, fields.right_field),
        ):
            if topic == place:
                paths[path] = None
    return list(paths)


def _text(topic: int, place: int) -> Column:
    return F.col(f"texts_{topic}")[place]


class RowPart(NamedTuple):
    """The part of a record in a row.

    Attributes:
        values: its values of the row.
        texts: the join fields, None for NULL; see `joined_paths`.
    """

    values: ProjectionRow
    texts: Sequence[bytes | None]


def part_reader(view: ViewDefinition, place: int) -> Callable[[Record], RowPart]:
    """Return a function that reduces records of one of several topics to their parts.

    Args:
        view: the view.
        place: the index in `CompiledView.topics`.
    """
    inputs = view.compiled.topic_inputs(place)
    extract = view.compiled.message_types[place].extractor([*inputs, *joined_paths(view, place)])
    width = len(inputs)

    def read(record: Record) -> RowPart:
        values = extract(record.body)
        return RowPart(values[:width], [semantics.octets(value) for value in values[width:]])

    return read


class _PartReader:
    """Reduces the records of one topic to their parts; runs in the workers."""

    def __init__(self, view: ViewDefinition, topic_index: int) -> None:
        self._view = view
        self._topic_index = topic_index

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read batches of records."""
        read = part_reader(self._view, self._topic_index)
        for batch in batches:
            parts: list[bytes] = []
            texts: list[Sequence[bytes | None]] = []
            sequences: list[int] = []
            for record in records_in([batch]):
                part = read(record)
                parts.append(pickle.dumps(part.values))
                texts.append(part.texts)
                sequences.append(record.sequence)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(parts, pa.binary()),
                    pa.array(texts, _PART.field("texts").type),
                    pa.array(sequences, pa.int64()),
                ],
                schema=_PART,
            )
