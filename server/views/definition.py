"""What a `<View>` says, made ready to run: its topics in order, its projection, its rows.

Source: AMPS User Guide, Configuring Views in a SOW.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from config_schema.spec import TopicRef
from server.expressions import Kind, parse, parse_field, parse_identifier
from server.views.join import Join, JoinedFields, JoinedTopic
from server.views.projection import Projection
from server.views.sources import SingleSource

if TYPE_CHECKING:
    from config_schema.spec import JoinSpec, ViewSpec
    from server.expressions import Functions
    from server.expressions.tree import Reference
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.views.sources import RowSource


class Definition:
    """One view, compiled.

    Args:
        spec: its description.
        functions: what its expressions call.
        type_of: finds the message type of a topic.

    Attributes:
        topics: its underlying topics; each but the first is joined to one before it.
        message_types: the message type of each of these.
        projection: its fields.
        shown_grouping: where each field that it is grouped by stands in its messages; None for one
            that does not.
    """

    def __init__(
        self, spec: ViewSpec, functions: Functions, type_of: Callable[[TopicRef], MessageType]
    ) -> None:
        self._spec: Final = spec
        self._functions: Final = functions
        self.topics: Final = _chain(spec.underlying, spec.joins)
        self.message_types: Final = [type_of(topic) for topic in self.topics]
        self.projection: Final = Projection(
            [parse_field(text, Kind.PROJECTION, functions) for text in spec.projection],
            [parse_identifier(text, Kind.GROUPING) for text in spec.grouping],
            functions,
            self._place,
            self._is_untyped,
        )
        self.shown_grouping: Final = self.projection.shown_grouping(self._read_the_same)

    def rows(self) -> RowSource:
        """Where its rows come from."""
        spec = self._spec
        if not spec.joins:
            filter_ = None
            if spec.filter is not None:
                filter_ = parse(spec.filter, Kind.VIEW_FILTER, self._functions)
            inputs = self.projection.inputs
            return SingleSource(self.message_types[0], inputs, filter_, self._functions)
        topics = [
            JoinedTopic(message_type, self.inputs(place))
            for place, message_type in enumerate(self.message_types)
        ]
        return Join(topics, self.joined_fields(), nulls_match=spec.join_null_equivalency)

    def inputs(self, place: int) -> list[Path]:
        """What a row has of one of the topics."""
        return [
            reference.path
            for reference in self.projection.inputs
            if self._place(reference) == place
        ]

    def joined_fields(self) -> list[JoinedFields]:
        """What joins the topics."""
        return [self._joined(join) for join in self._spec.joins]

    def _joined(self, join: JoinSpec) -> JoinedFields:
        """A join with the earlier topic on its left."""
        sides = [
            (self.topics.index(side.topic), _path(side.field)) for side in (join.left, join.right)
        ]
        (left, left_field), (right, right_field) = sorted(sides, key=lambda side: side[0])
        return JoinedFields(left, left_field, right, right_field)

    def _place(self, reference: Reference) -> int:
        """Which of the topics a reference reads."""
        if reference.topic is None:
            return 0
        message_type = reference.message_type or self._spec.message_type
        return self.topics.index(TopicRef(reference.topic, message_type))

    def _is_untyped(self, reference: Reference) -> bool:
        """Whether what a reference reads does not say what it is."""
        return not self.message_types[self._place(reference)].capabilities.typed

    def _read_the_same(self, one: Reference, other: Reference) -> bool:
        """Whether two references read the same, however much of the topic they name."""
        return one.path == other.path and self._place(one) == self._place(other)


def _chain(underlying: Sequence[TopicRef], joins: Sequence[JoinSpec]) -> list[TopicRef]:
    """The topics in the order in which they are joined: the first one, then as they connect."""
    chain = [underlying[0]]
    waiting = list(underlying[1:])
    while waiting:
        joined = next(
            topic
            for topic in waiting
            for join in joins
            if (topic == join.right.topic and join.left.topic in chain)
            or (topic == join.left.topic and join.right.topic in chain)
        )
        waiting.remove(joined)
        chain.append(joined)
    return chain


def _path(field: str) -> Path:
    return parse_identifier(field, Kind.PATH).path
