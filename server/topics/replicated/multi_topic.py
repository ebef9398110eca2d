"""Interleaved messages of several topics: recorded together, then applied by each topic.

Messages from another instance arrive in the order of its log, where consecutive messages seldom
have the same topic. So all topics draft their messages, the log records all of them in one step,
and then each topic applies and announces its own.

Subscribers see the order of the log across topics (AMPS User Guide, Message Ordering), and so do
views and queues over several topics. So topics with recipients apply their messages in that order.
If no topic has any, or only one has, each topic applies all its messages at once, of any origin.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from server.replication.core import RecorderResult
from server.replication.core.columns import by_value
from server.storage.journal import AppendResult, each
from server.storage.sow.store import cleaning_paused
from server.topics.replicated.batch import EntryContents

if TYPE_CHECKING:
    from server.replication.core import BatchColumns
    from server.storage.journal import (
        EntryColumns,
        FieldColumn,
        Handles,
        Journal,
    )
    from server.storage.sow.record_batch import SowRecordBatch
    from server.storage.sow.record_table import RecordTable
    from server.storage.sow.records import Record
    from server.topics.journaled_topic import JournaledSowTopic, JournaledTopic


class BatchRefusedError(Exception):
    """Messages cannot be recorded together, because of a problem with one of them."""


class RecordDrafts(NamedTuple):
    """The records that messages of one topic become; none if the topic has no records.

    Drafts have no timestamp yet, and no number in the order of changes; their expiry field is a
    lifetime.

    Attributes:
        batch: the records.
        records: the same if they cannot be put as a batch; see `record_batch.py`.
        sow_keys: their SOW keys here, as numbers; empty if they keep those that they came with.
    """

    batch: SowRecordBatch | None = None
    records: Sequence[Record] = ()
    sow_keys: Sequence[int] = ()

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.records) if self.batch is None else len(self.batch.bodies)

    def to_records(self) -> Sequence[Record]:
        """Return the records one by one."""
        batch = self.batch
        return self.records if batch is None else [*map(batch.record_at, range(len(batch.bodies)))]

    def part(self, start: int, end: int) -> RecordDrafts:
        """Return the drafts of some consecutive messages."""
        batch = None if self.batch is None else self.batch.part(start, end)
        return RecordDrafts(batch, self.records[start:end], self.sow_keys[start:end])

    def make_room(self, table: RecordTable) -> None:
        """Reserve room for the records, which are put next, one after the other.

        Raises:
            RecordStoreError: there is no room; nothing has changed.
        """
        if self.batch is None:
            table.ensure_space(self.records)
        else:
            table.ensure_space_for_batch(self.batch)


NO_DRAFTS: Final = RecordDrafts()

BatchFailure: TypeAlias = tuple[int, Exception]
"""The position of a message that has been recorded but could not be applied, and the reason."""


BatchParticipant: TypeAlias = "JournaledTopic | JournaledSowTopic"
"""A topic with messages that are recorded together with those of other topics."""


class _TopicShare:
    """The messages of one name, or of one topic without recipients.

    Args:
        topic: their topic.
        entries: the entries that contain them.
        entry_positions: their positions in `entries`.
        batch_positions: their places among all messages to record.

    Attributes:
        topic: see above.
        entries: see above.
        batch_positions: see above.
        drafts: their records.
        failures: messages that could not be applied, each with the reason.
    """

    __slots__ = (
        "_applied_count",
        "_entry_positions",
        "batch_positions",
        "drafts",
        "entries",
        "failures",
        "topic",
    )

    def __init__(
        self,
        topic: BatchParticipant,
        entries: EntryContents,
        entry_positions: Sequence[int],
        batch_positions: Sequence[int],
    ) -> None:
        self.topic = topic
        self.entries = entries
        self.batch_positions = batch_positions
        self.drafts = topic.draft_records(entries, entry_positions)
        self.failures: list[BatchFailure] = []
        self._entry_positions = entry_positions
        self._applied_count = 0

    def apply_step(self, start: int, step: AppendResult) -> None:
        """Apply all messages recorded in a step that began at a place."""
        positions = self.batch_positions[
            self._applied_count : bisect_left(self.batch_positions, step.end)
        ]
        if positions:
            flags = step.flags
            if not isinstance(flags, int):
                flags = [flags[index - start] for index in positions]
            self.apply_next(
                [step.txids[index - start] for index in positions], flags, step.timestamp
            )

    def apply_next(self, txids: Sequence[int], flags: FieldColumn, timestamp: int) -> None:
        """Apply the next messages; an error must not affect other topics."""
        start, end = self._applied_count, self._applied_count + len(txids)
        self._applied_count = end
        positions, drafts = self._entry_positions[start:end], self.drafts.part(start, end)
        appended = AppendResult(end - start, txids, timestamp, None, flags)
        try:
            self.failures += self.topic.apply_recorded(self.entries, positions, drafts, appended)
        except Exception as error:  # of any kind, see above
            self.failures.append((positions[-1], error))


class MultiTopicBatch:
    """Messages of several topics.

    Args:
        batch: the messages, as many as can be recorded in one step.
        topics: their topics, by the numbers of their names.
        source: the hash of the instance that sent them.

    Raises:
        BatchRefusedError: one of them has a problem; nothing has changed.
        RecordStoreError: there is no room for all records; nothing has changed.
    """

    def __init__(
        self, batch: BatchColumns, topics: Mapping[int, BatchParticipant], source: int
    ) -> None:
        self._name_numbers: Final = batch.property_indexes
        self._handles: Final[Handles] = {
            number: topics[number].journal.journal_handles(name.origin)
            for number, name in batch.used_properties().items()
        }
        subscribed = {number for number, topic in topics.items() if topic.has_recipients}
        relevant = {
            number for number, topic in topics.items() if topic.table is not None
        } | subscribed
        entries = EntryContents(batch)
        shares: dict[int, _TopicShare] = {}
        unsubscribed: dict[BatchParticipant, list[tuple[int, Sequence[int]]]] = {}
        for number, positions in by_value(batch.property_indexes) if relevant else ():
            topic = topics[number]
            if number in subscribed and len(subscribed) == 1:
                own = EntryContents(batch.pick(positions))
                shares[number] = _TopicShare(topic, own, range(len(positions)), positions)
            elif number in subscribed:
                shares[number] = _TopicShare(topic, entries, positions, positions)
            elif number in relevant:
                unsubscribed.setdefault(topic, []).append((number, positions))
        for topic, parts in unsubscribed.items():
            positions = (
                parts[0][1] if len(parts) == 1 else sorted(chain(*(one for _, one in parts)))
            )
            shares |= dict.fromkeys(
                map(itemgetter(0), parts), _TopicShare(topic, entries, positions, positions)
            )
        self._shares: Final = [*dict.fromkeys(shares.values())]
        tables = self._shares_by_table()
        _reserve_space(tables)
        self._tables: Final = list(tables)
        self._content: Final = self._with_own_keys(batch.journal_columns(source))
        # Space was reserved in this order, so tables with several shares must apply in it.
        of_one_table = {share for shares in tables.values() if len(shares) > 1 for share in shares}
        self._ordered_shares: Final = {
            number: share
            for number, share in shares.items()
            if (number in subscribed and len(subscribed) > 1) or share in of_one_table
        }

    def _shares_by_table(self) -> dict[RecordTable, list[_TopicShare]]:
        """Return the tables that store the messages, each with the shares."""
        tables: dict[RecordTable, list[_TopicShare]] = {}
        for share in self._shares:
            if (table := share.topic.table) is not None:
                tables.setdefault(table, []).append(share)
        return tables

    def _with_own_keys(self, content: EntryColumns) -> EntryColumns:
        """Return the content to record, with the SOW keys that the messages have here."""
        keys: list[int] = []
        for share in self._shares:
            if own := share.drafts.sow_keys:
                keys = keys or list(each(content.sow_keys, len(content.data)))
                for index, key in zip(share.batch_positions, own, strict=True):
                    keys[index] = key
        return content._replace(sow_keys=keys) if keys else content

    @property
    def failures(self) -> Iterator[tuple[EntryContents, Sequence[BatchFailure]]]:
        """The messages of each topic that could not be applied."""
        return ((share.entries, share.failures) for share in self._shares if share.failures)

    def record(self, journal: Journal) -> RecorderResult:
        """Record, apply and announce as many messages as the journal accepts."""
        index = first = last = 0
        with cleaning_paused([table.store for table in self._tables]):
            while index < len(self._name_numbers):
                step = journal.append_copies(self._handles, self._content, index)
                if step.txids:
                    first, last = first or step.txids[0], step.txids[-1]
                    self._apply_step(index, step)
                index = step.end
                if step.problem is not None:
                    break
        for share in self._shares:
            share.topic.finish_batch()
        return RecorderResult(index, first, last)

    def _apply_step(self, start: int, step: AppendResult) -> None:
        """Apply the messages recorded in one step that began at a place."""
        in_order = {*self._ordered_shares.values()}
        for share in self._shares:
            if share not in in_order:
                share.apply_step(start, step)
        if not self._ordered_shares:
            return
        flags = list(each(step.flags, len(step.txids)))
        at = 0
        for number, alike in groupby(self._name_numbers[start : step.end]):
            end = at + sum(1 for _ in alike)
            if number in self._ordered_shares:
                self._ordered_shares[number].apply_next(
                    step.txids[at:end], flags[at:end], step.timestamp
                )
            at = end


def _reserve_space(tables: Mapping[RecordTable, Sequence[_TopicShare]]) -> None:
    """Reserve room for all records, in the order in which they are put.

    Raises:
        RecordStoreError: there is no room.
    """
    for table, shares in tables.items():
        if len(shares) == 1:
            shares[0].drafts.make_room(table)
            continue
        placed = [
            zip(share.batch_positions, share.drafts.to_records(), strict=True) for share in shares
        ]
        table.ensure_space([record for _, record in sorted(chain(*placed), key=itemgetter(0))])
