"""A `<View>` of the configuration, compiled: its topics in order, its projection, its rows.

Source: AMPS User Guide, Configuring Views in a SOW.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from config_schema.spec import TopicRef
from server.expressions import ContextKind, parse, parse_field, parse_identifier
from server.storage.sow.record_table_options import field_path
from server.storage.views.join import JoinedFields, JoinedTopic, TopicJoin
from server.storage.views.projection import Projection
from server.storage.views.sources import SingleSource

if TYPE_CHECKING:
    from config_schema.spec import JoinSpec, ViewSpec
    from server.expressions import Functions
    from server.expressions.tree import Reference
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.storage.views.sources import RowSource


class CompiledView:
    """One view, compiled.

    Args:
        spec: its configuration.
        functions: the functions that its expressions call.
        type_of: returns the message type of a topic.

    Attributes:
        topics: its underlying topics; each one but the first is joined to one before it.
        message_types: the message type of each underlying topic.
        projection: its fields.
        shown_grouping: the path in its messages of each field that it is grouped by; None for a
            field that is not in them.
    """

    def __init__(
        self, spec: ViewSpec, functions: Functions, type_of: Callable[[TopicRef], MessageType]
    ) -> None:
        self._spec: Final = spec
        self._functions: Final = functions
        self.topics: Final = _chain(spec.underlying, spec.joins)
        self.message_types: Final = [type_of(topic) for topic in self.topics]
        self.projection: Final = Projection(
            [parse_field(text, ContextKind.PROJECTION, functions) for text in spec.projection],
            [parse_identifier(text, ContextKind.GROUPING) for text in spec.grouping],
            functions,
            self._topic_position,
            self._is_untyped,
        )
        self.shown_grouping: Final = self.projection.shown_grouping(self._is_same_field)

    def make_row_source(self) -> RowSource:
        """Return the source of its rows."""
        spec = self._spec
        if not spec.joins:
            filter_ = None
            if spec.filter is not None:
                filter_ = parse(spec.filter, ContextKind.VIEW_FILTER, self._functions)
            inputs = self.projection.inputs
            return SingleSource(self.message_types[0], inputs, filter_, self._functions)
        topics = [
            JoinedTopic(message_type, self.topic_inputs(index))
            for index, message_type in enumerate(self.message_types)
        ]
        return TopicJoin(topics, self.join_conditions(), nulls_match=spec.join_null_equivalency)

    def topic_inputs(self, index: int) -> list[Path]:
        """Return the fields of one topic that a row contains."""
        return [
            reference.path
            for reference in self.projection.inputs
            if self._topic_position(reference) == index
        ]

    def join_conditions(self) -> list[JoinedFields]:
        """Return the join conditions of the topics."""
        return [self._make_join_condition(join) for join in self._spec.joins]

    def _make_join_condition(self, join: JoinSpec) -> JoinedFields:
        """Return a join condition with the earlier topic on its left."""
        sides = [
            (self.topics.index(side.topic), field_path(side.field))
            for side in (join.left, join.right)
        ]
        (left, left_field), (right, right_field) = sorted(sides, key=lambda side: side[0])
        return JoinedFields(left, left_field, right, right_field)

    def _topic_position(self, reference: Reference) -> int:
        """Return the place of the topic that a reference reads."""
        if reference.topic is None:
            return 0
        message_type = reference.message_type or self._spec.message_type
        return self.topics.index(TopicRef(reference.topic, message_type))

    def _is_untyped(self, reference: Reference) -> bool:
        """Return True if the message type of a reference does not type its values."""
        return not self.message_types[self._topic_position(reference)].capabilities.typed

    def _is_same_field(self, reference: Reference, other: Reference) -> bool:
        """Return True if two references read the same field, named with or without its topic."""
        return reference.path == other.path and self._topic_position(
            reference
        ) == self._topic_position(other)


def _chain(underlying: Sequence[TopicRef], joins: Sequence[JoinSpec]) -> list[TopicRef]:
    """Return the topics in join order: the first one, then each one connected to an earlier one."""
    chain = [underlying[0]]
    remaining = list(underlying[1:])
    while remaining:
        joined = next(
            topic
            for topic in remaining
            for join in joins
            if (topic == join.right.topic and join.left.topic in chain)
            or (topic == join.left.topic and join.right.topic in chain)
        )
        remaining.remove(joined)
        chain.append(joined)
    return chain
