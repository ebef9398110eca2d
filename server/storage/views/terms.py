"""The terms of a client's own aggregation.

Source: AMPS User Guide, Aggregated Subscriptions; Aggregated SOW Queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.storage.views.aggregation import Aggregation
from server.storage.views.group_records import GroupRecords
from server.storage.views.sources import SingleSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.engine.scheduler import Scheduler
    from server.expressions import Functions
    from server.expressions.tree import Expr, Field, Identifier
    from server.message_types.base import MessageType
    from server.message_types.paths import Path
    from server.message_types.select_list import FieldSelection
    from server.storage.views.projection import Projection


@dataclass(frozen=True, slots=True)
class AggregationTerms:
    """A projection over one topic.

    Attributes:
        projection: the projected fields, and the grouping.
        message_type: the topic's message type.
        topic: the topic's name.
        functions: the functions that expressions may call.
        owner: see `GroupRecords`.
    """

    projection: Projection
    message_type: MessageType
    topic: str
    functions: Functions
    owner: tuple[str, Scheduler]

    @property
    def definition(self) -> tuple[Sequence[Field], Sequence[Identifier]]:
        """The projected fields, and the fields that they are grouped by."""
        return self.projection.fields, self.projection.grouping

    @property
    def key_fields(self) -> Sequence[Path]:
        """The paths in its messages of the grouping fields, as far as they are projected."""
        shown = self.projection.shown_grouping(lambda one, other: one.path == other.path)
        return [path for path in shown if path is not None]

    def create_groups(
        self,
        filter_: Expr | None,
        charge_memory: Callable[[int], None],
        shown: FieldSelection | None = None,
    ) -> GroupRecords:
        """Create the groups, still empty.

        Args:
            filter_: selects records of the topic, None for all.
            charge_memory: see `GroupRecords`.
            shown: the fields that the client may see, None for all. The filter reads all fields.

        Raises:
            BodyError: the message type has no fields of such names.
        """
        source = SingleSource(
            self.message_type, self.projection.inputs, filter_, self.functions, shown
        )
        aggregation = Aggregation(
            self.projection, source, self.message_type, self.topic, in_order=False
        )
        return GroupRecords(aggregation, self.projection, self.topic, charge_memory, self.owner)
