"""/AMPS/SOWStats: the number of records of each topic, at regular intervals.

Source: AMPS User Guide, SOW Statistics Events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.topics.system.event_topic import EventField, EventMessageTypes, EventTopic

if TYPE_CHECKING:
    from server.message_types.base import Value
    from server.topics.sow_registry import SowRegistry
    from server.topics.topic_table import TopicTable
    from server.util.clock import Clock

SOW_STATS: Final = "/AMPS/SOWStats"

_FIELDS: Final = (
    EventField("message_type", "MessageType", "20007"),
    EventField("topic", "Topic", "20066", "20068"),
    EventField("record_count", "Records", "20067", "20075"),
    EventField("timestamp", "Timestamp", "20065"),
)


class SowStats:
    """Publishes the number of records of every topic.

    Args:
        topics: finds subscribers.
        types: the message types to build events in.
        sow_registry: the topics to count.
        clock: the clock.
        flush: called after events have been published.
    """

    def __init__(
        self,
        topics: TopicTable,
        types: EventMessageTypes,
        sow_registry: SowRegistry,
        clock: Clock,
        flush: Callable[[], None],
    ) -> None:
        self._event_topic = EventTopic(topics, types, SOW_STATS, "SOWStats")
        self._sow_registry = sow_registry
        self._clock = clock
        self._flush = flush

    def start(self, interval: float) -> None:
        """Start publishing.

        Args:
            interval: seconds between two rounds.
        """

        def tick() -> None:
            self._publish()
            self._clock.call_later(interval, tick)

        self._clock.call_later(interval, tick)

    def _publish(self) -> None:
        listeners = self._event_topic.listeners()
        now = self._clock.now()
        for source in self._sow_registry.sources if listeners else ():
            values: dict[str, Value] = {
                "message_type": source.type_name,
                "topic": source.name,
                "record_count": len(source.table),
                "timestamp": iso_timestamp(now),
            }
            for listener in listeners:
                self._event_topic.publish(listener, _FIELDS, values, now)
        self._flush()
