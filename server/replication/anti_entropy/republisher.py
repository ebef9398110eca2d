"""Republishes the records that a repair keeps; see `server/replication/anti_entropy/comparison`.

A record is republished unchanged, unless it has changed since it was compared: then a publisher has
meanwhile decided otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from server.replication.anti_entropy.topic_records import TopicRecords
from server.storage.sow.store import RecordStoreError

if TYPE_CHECKING:
    from server.replication.apply.republish import RepairPublisher
    from server.storage.sow.topic_records import SowTopicRecords
    from server.util.log_protocol import ServerLog

MAX_PENDING_RECORDS: Final = 20_000
"""Records waiting to be republished; requests beyond that are dropped."""

_BATCH_SIZE: Final = 16


class _Record(NamedTuple):
    """A record to republish."""

    topic: SowTopicRecords
    key: str
    digest: int


class RecordRepublisher:
    """The records waiting to be republished.

    Args:
        publisher: republishes them.
        log: the event log, which gets their number.
    """

    def __init__(self, publisher: RepairPublisher, log: ServerLog) -> None:
        self._publisher: Final = publisher
        self._log: Final = log
        self._pending_records: deque[_Record] = deque()
        self._republished_count = 0

    @property
    def client_hash(self) -> int:
        """The hash of the client name under which records are republished."""
        return self._publisher.client_hash

    def enqueue_records(self, topic: SowTopicRecords, records: Iterable[tuple[str, int]]) -> None:
        """Enqueue records to be republished soon.

        Args:
            topic: their topic.
            records: their keys, and their digests when they were compared.
        """
        for key, digest in records:
            if len(self._pending_records) < MAX_PENDING_RECORDS:
                self._pending_records.append(_Record(topic, key, digest))

    def republish_batch(self) -> bool:
        """Republish some records, and return whether there are more."""
        if not self._pending_records:
            return False
        for _ in range(min(_BATCH_SIZE, len(self._pending_records))):
            topic, key, digest = self._pending_records.popleft()
            try:
                if TopicRecords(topic, _accept_all_topics).record_state(key).digest == digest:
                    self._republished_count += self._publisher.republish_record(topic, key)
            except RecordStoreError:
                continue  # the record stays as it is, and the next comparison reports it
        if not self._pending_records:
            self._log.emit("1E-0017", count=self._republished_count)
            self._republished_count = 0
        return bool(self._pending_records)


def _accept_all_topics(_name: str) -> bool:
    return True
