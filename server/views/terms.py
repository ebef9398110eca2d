"""What a client asks to be aggregated for it alone.

Source: AMPS User Guide, Aggregated Subscriptions; Aggregated SOW Queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.views.aggregation import Aggregation
from server.views.group_records import GroupRecords
from server.views.sources import SingleSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.base.slices import Slices
    from server.expressions import Functions
    from server.expressions.tree import Expr, Field, Identifier
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.message_types.selection import Selection
    from server.views.projection import Projection


@dataclass(frozen=True, slots=True)
class AggregationTerms:
    """A projection over one topic.

    Attributes:
        projection: what is projected, and how it is grouped.
        message_type: the topic's message type.
        topic: the topic's name.
        functions: what expressions may call.
        owner: see `GroupRecords`.
    """

    projection: Projection
    message_type: MessageType
    topic: str
    functions: Functions
    owner: tuple[str, Slices]

    @property
    def definition(self) -> tuple[Sequence[Field], Sequence[Identifier]]:
        """The fields that are projected, and those that they are grouped by."""
        return self.projection.fields, self.projection.grouping

    @property
    def key_fields(self) -> Sequence[Path]:
        """Where the fields that it is grouped by stand in its messages, as far as they do."""
        shown = self.projection.shown_grouping(lambda one, other: one.path == other.path)
        return [path for path in shown if path is not None]

    def groups(
        self,
        filter_: Expr | None,
        hold: Callable[[int], None],
        shown: Selection | None = None,
    ) -> GroupRecords:
        """Groups to be filled, without any yet.

        Args:
            filter_: which records of the topic count, None for all.
            hold: see `GroupRecords`.
            shown: which fields of them may be seen, None for all. The filter sees all.

        Raises:
            BodyError: the message type has no fields of such names.
        """
        source = SingleSource(
            self.message_type, self.projection.inputs, filter_, self.functions, shown
        )
        aggregation = Aggregation(
            self.projection, source, self.message_type, self.topic, in_order=False
        )
        return GroupRecords(aggregation, self.projection, self.topic, hold, self.owner)
