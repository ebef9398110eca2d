"""Pagination of a replay: the records of a topic as of the position that the replay has reached.

A page needs more than the messages of the log: the existing records, their order, and the contents
of those that replace others. So a paginated replay has records of its own, those that match its
filter. They begin as the state that the query returned, and follow the log, deletions included; the
page is cut from them as from the records of the topic (server/topics/subscriptions/paging/page.py).
Their memory is charged to the client.

Source: AMPS User Guide, Pagination with Historical SOW Queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from server.engine.replays.deletions import WITH_DELETIONS
from server.storage.journal import JournalEntryKind
from server.storage.sow.log_apply import is_superseded, record_of
from server.storage.sow.records import RecordChange
from server.topics.subscriptions.delivery.logged_batch import LoggedEnvelope
from server.topics.subscriptions.delivery.record_delivery import DELETED, MATCH
from server.topics.subscriptions.record_fanout import RecordFanout

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.queries.page_query import RecordScan
    from server.security.permissions import Permit
    from server.storage.journal import JournalEntry, JournalTopic
    from server.storage.sow.records import Record
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.paging.page import Page
    from server.topics.subscriptions.subscription import Subscription

_OVERHEAD: Final = 500
"""Bytes that a record takes beside its body; an estimate."""


class HistoricalPage:
    """The records of one paginated replay, and its page.

    Args:
        subscription: the subscription, which has a page and a replay.
        sow: the topic.
        engine: the engine.
        permit: the subscriber's entitlement to the topic.

    Attributes:
        entry_kinds: the kinds of entries to read.
        page: the page, held back until its first records have been sent.
    """

    entry_kinds: Final = WITH_DELETIONS

    def __init__(
        self, subscription: Subscription, sow: SowTopicRecords, engine: Engine, permit: Permit
    ) -> None:
        self._sow: Final = sow
        self._subscription: Final = subscription
        self._records: Final[dict[str, Record]] = {}
        self._charged_bytes = 0
        self._fanout: Final = RecordFanout(
            sow.table.message_type,
            sow.name,
            engine.settings.functions,
            engine.sow_registry.delta_encoder(sow),
            self._records.get,
        )
        self._fanout.attach(subscription, permit)
        page = self._fanout.page(subscription)
        assert page is not None  # noqa: S101 - see `subscription`: attaching it has made one
        self.page: Final[Page] = page

    def close(self) -> None:
        """Release all records; idempotent."""
        if not self.page.has_ended:
            self._fanout.detach(self._subscription)
            self._records.clear()
            self._charge_memory(-self._charged_bytes)

    def filter_costs(self, subscription: Subscription) -> Iterator[FilterCost]:
        """See `ReplayTopics.filter_costs`."""
        cost = self._fanout.cost_of(subscription)
        if cost is not None:
            yield cost

    # ---- the initial state

    def make_fill_scan(self, scan: RecordScan) -> RecordScan:
        """Return a scan that also stores the results of a query as these records."""
        return _PageFillScan(self, scan)

    def fill(self, records: Sequence[Record]) -> None:
        """Store records of the initial state."""
        for record in records:
            self._store_record(record)

    # ---- called by the log reader

    def attach(self, subscription: Subscription) -> None:
        """Do nothing: the records exist when a log reader begins."""

    def detach(self, subscription: Subscription) -> None:
        """Do nothing: the records are kept for a later log reader."""

    def wants_topic(self, name: JournalTopic) -> bool:
        """Return whether to read the entries of a topic."""
        return (name.message_type, name.name) == (self._sow.type_name, self._sow.name)

    def deliveries(self, entry: JournalEntry) -> tuple[Sequence[_PageDelivery], LoggedEnvelope]:
        """Return the delivery of an entry to the page."""
        return (_PageDelivery(self, entry),), LoggedEnvelope(entry)

    def apply_entry(self, entry: JournalEntry, envelope: Envelope) -> None:
        """Apply an entry to the records, and notify the subscriber."""
        if entry.kind == JournalEntryKind.SOW_DELETE:
            for key in msgspec.json.decode(entry.body, type=list[str]):
                if is_superseded(entry, self._records.get(key)):
                    continue
                removed = self._remove_record(key)
                if removed is not None:
                    change = RecordChange(key, removed.topic, removed, None)
                    self._fanout.announce(change, envelope, DELETED)
            return
        record = record_of(self._sow, entry)
        previous = self._records.get(record.key)
        if previous is not None and previous.sequence >= entry.txid:
            return  # included in the state that the query returned
        if is_superseded(entry, previous):
            return
        self._store_record(record)
        self._fanout.announce(
            RecordChange(record.key, record.topic, previous, record), envelope, MATCH
        )
        if self.page.result_set.position_of(record.key) is None:
            self._remove_record(record.key)

    def _store_record(self, record: Record) -> None:
        self._remove_record(record.key)
        self._records[record.key] = record
        self._charge_memory(_size(record))

    def _remove_record(self, key: str) -> Record | None:
        record = self._records.pop(key, None)
        if record is not None:
            self._charge_memory(-_size(record))
        return record

    def _charge_memory(self, size: int) -> None:
        self._charged_bytes += size
        self._subscription.subscriber.charge_memory(size)


class _PageDelivery(NamedTuple):
    """The delivery of an entry to the page."""

    historical_page: HistoricalPage
    entry: JournalEntry

    def deliver(self, _bodies: Sequence[bytes], envelope: Envelope) -> None:
        """See `Delivery.deliver`."""
        self.historical_page.apply_entry(self.entry, envelope)


class _PageFillScan:
    """A query that also stores its results."""

    def __init__(self, historical_page: HistoricalPage, scan: RecordScan) -> None:
        self._historical_page = historical_page
        self._scan = scan

    def __iter__(self) -> Iterator[Sequence[Record]]:
        """See `RecordScan`."""
        for records in self._scan:
            self._historical_page.fill(records)
            yield records

    def close(self) -> None:
        """See `RecordScan`."""
        self._scan.close()


def _size(record: Record) -> int:
    return len(record.body) + _OVERHEAD
