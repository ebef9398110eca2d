"""Repair: republishes a record, unchanged, where two instances have different ones.

It is recorded, announced and replicated like any other publish, but not preprocessed, enriched or
merged: that has been done. Its publisher is the server itself, under a name of its own, which
distinguishes repairs from publishes of clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from amperage.wire.bookmarks import client_hash
from server.storage.journal import EntryTooLargeError, JournalUnavailableError
from server.topics.journaled_topic import JournaledSowTopic

if TYPE_CHECKING:
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.topic_table import TopicTable
    from server.util.clock import Clock

REPAIR_NAME: Final = "amperage-repair"
"""The client name of repairs."""


@dataclass(frozen=True, slots=True)
class _RepairClient:
    """The publisher of repairs; see `server.topics.subscriptions.client.ClientIdentity`."""

    number: int = -1
    client_name: str = REPAIR_NAME
    client_hash: int = client_hash(REPAIR_NAME)
    client_version: str = ""
    connection_name: str = REPAIR_NAME
    address: str = ""
    user: str = ""
    message_type: str = ""


class RepairPublisher:
    """Republishes records.

    Args:
        topics: all topics.
        clock: the clock.
    """

    def __init__(self, topics: TopicTable, clock: Clock) -> None:
        self._topics: Final = topics
        self._clock: Final = clock
        self._client: Final = _RepairClient()

    @property
    def client_hash(self) -> int:
        """The hash of the client name of its publishes."""
        return self._client.client_hash

    def republish_record(self, topic: SowTopicRecords, identity: str) -> bool:
        """Republish a record, unchanged; return whether that was done.

        The caller has to flush outboxes after that.

        Args:
            topic: the topic with records.
            identity: the record's identity, unique in the topic.

        Raises:
            RecordStoreError: the record cannot be read or stored.
        """
        record = topic.table.get(identity)
        if record is None:
            return False
        target = self._topics.find(topic.type_name, record.topic)
        if not isinstance(target, JournaledSowTopic):
            return False
        try:
            target.republish(record, self._client, self._clock.now())
        except (JournalUnavailableError, EntryTooLargeError):
            return False
        return True
