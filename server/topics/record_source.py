"""The interfaces of all topics with records, filled by clients or by other topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from server.message_types.paths import Path
    from server.storage.sow.query.query import OpenQuery, QuerySpec
    from server.storage.sow.record_table import RecordTable
    from server.storage.sow.records import RecordChange
    from server.topics.subscriptions.delivery.envelope import Envelope


class RecordSource(Protocol):
    """One topic of the configuration that has records, perhaps those of many logical topics."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def type_name(self) -> str:
        """The name of its message type."""

    @property
    def is_container(self) -> bool:
        """True if it has the records of many logical topics."""

    @property
    def key_fields(self) -> Sequence[Path]:
        """The fields that its SOW keys are made from; none if they are made otherwise."""

    @property
    def table(self) -> RecordTable:
        """Its records."""

    def covers_topic(self, name: str) -> bool:
        """Return whether it has the records of a topic."""

    def query(self, spec: QuerySpec, now: int) -> OpenQuery:
        """Begin a query of the state at this moment.

        Args:
            spec: the query.
            now: the time in nanoseconds since 1970.
        """


class RecordFollower(Protocol):
    """A topic that is derived from the records of another one."""

    def handle_change(self, change: RecordChange, envelope: Envelope, reason: str) -> None:
        """Process a change of such a record. See `RecordFanout.announce`."""
