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
from contextlib import ExitStack
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from server.replication.core import RecorderResult
from server.replication.core.columns import by_value
from server.storage.journal import AppendResult, each
from server.topics.replicated.batch import EntryContents

if TYPE_CHECKING:
    from server.replication.core import BatchColumns
    from server.storage.journal import (
        EntryColumns,
        FieldColumn,
        Handles,
        Journal,
        JournalOrigin,
        OriginHandle,
        TopicHandle,
    )
    from server.storage.sow.record_batch import SowRecordBatch
    from server.storage.sow.record_table import RecordTable
    from server.storage.sow.records import Record


class BatchRejectedError(Exception):
    """Messages cannot be recorded together, because of a problem with one of them."""


class RecordDrafts(NamedTuple):
    """The records that messages of one topic become; none if the topic has no records.

    Drafts have no timestamp yet, and no number in the order of changes; their expiry field is a
    lifetime.

    Attributes:
        run: the records.
        records: the same if they cannot be put as a run; see `record_batch.py`.
        sow_keys: their SOW keys here, as numbers; empty if they keep those that they came with.
    """

    run: SowRecordBatch | None = None
    records: Sequence[Record] = ()
    sow_keys: Sequence[int] = ()

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.records) if self.run is None else len(self.run.bodies)

    def each(self) -> Sequence[Record]:
        """Return the records one by one."""
        run = self.run
        return self.records if run is None else [*map(run.record, range(len(run.bodies)))]

    def part(self, start: int, end: int) -> RecordDrafts:
        """Return the drafts of some consecutive messages."""
        run = None if self.run is None else self.run.part(start, end)
        return RecordDrafts(run, self.records[start:end], self.sow_keys[start:end])

    def make_room(self, table: RecordTable) -> None:
        """Reserve room for the records, which are put next, one after the other.

        Raises:
            RecordStoreError: there is no room; nothing has changed.
        """
        if self.run is None or table.history is not None:
            table.make_room(self.each())
        else:
            run = self.run
            table.make_room_for_run(run.topic, run.bodies, run.correlation_ids)


NO_DRAFTS: Final = RecordDrafts()

BatchFailure: TypeAlias = tuple[int, Exception]
"""The position of a message that has been recorded but could not be applied, and the reason."""


class BatchParticipant(Protocol):
    """A topic with messages that are recorded together with those of other topics."""

    @property
    def is_heard(self) -> bool:
        """True if its messages have any recipient."""

    @property
    def table(self) -> RecordTable | None:
        """Its records; None if it has none."""

    def handles(self, origin: JournalOrigin) -> tuple[TopicHandle, OriginHandle]:
        """Return the handles that a journal needs for its messages."""

    def draft(self, entries: EntryContents, positions: Sequence[int]) -> RecordDrafts:
        """Draft the records of messages.

        Raises:
            BatchRejectedError: see there.
        """

    def apply(
        self,
        entries: EntryContents,
        positions: Sequence[int],
        drafts: RecordDrafts,
        appended: AppendResult,
    ) -> Sequence[BatchFailure]:
        """Apply and announce recorded messages; if the topic is heard, they are consecutive."""

    def applied(self) -> None:
        """Note that all recorded messages have been applied."""


class _TopicShare:
    """The messages of one name, or of one topic without recipients.

    Args:
        topic: their topic.
        entries: the entries that contain them.
        positions: their positions in `entries`.
        places: their places among all messages to record.

    Attributes:
        topic: see above.
        entries: see above.
        places: see above.
        drafts: their records.
        failed: messages that could not be applied, each with the reason.
    """

    __slots__ = ("_done", "_positions", "drafts", "entries", "failed", "places", "topic")

    def __init__(
        self,
        topic: BatchParticipant,
        entries: EntryContents,
        positions: Sequence[int],
        places: Sequence[int],
    ) -> None:
        self.topic = topic
        self.entries = entries
        self.places = places
        self.drafts = topic.draft(entries, positions)
        self.failed: list[BatchFailure] = []
        self._positions = positions
        self._done = 0

    def apply_all(self, start: int, step: AppendResult) -> None:
        """Apply all messages recorded in a step that began at a place."""
        places = self.places[self._done : bisect_left(self.places, step.end)]
        if places:
            flags = step.flags
            if not isinstance(flags, int):
                flags = [flags[place - start] for place in places]
            self.apply([step.txids[place - start] for place in places], flags, step.timestamp)

    def apply(self, txids: Sequence[int], flags: FieldColumn, timestamp: int) -> None:
        """Apply the next messages; an error must not affect other topics."""
        start, end = self._done, self._done + len(txids)
        self._done = end
        positions, drafts = self._positions[start:end], self.drafts.part(start, end)
        appended = AppendResult(end - start, txids, timestamp, None, flags)
        try:
            self.failed += self.topic.apply(self.entries, positions, drafts, appended)
        except Exception as error:  # of any kind, see above
            self.failed.append((positions[-1], error))


class MultiTopicBatch:
    """Messages of several topics.

    Args:
        run: the messages, as many as can be recorded in one step.
        topics: their topics, by the numbers of their names.
        source: the hash of the instance that sent them.

    Raises:
        BatchRejectedError: one of them has a problem; nothing has changed.
        RecordStoreError: there is no room for all records; nothing has changed.
    """

    def __init__(
        self, run: BatchColumns, topics: Mapping[int, BatchParticipant], source: int
    ) -> None:
        self._numbers: Final = run.numbers
        self._handles: Final[Handles] = {
            number: topics[number].handles(name.origin) for number, name in run.used().items()
        }
        heard = {number for number, topic in topics.items() if topic.is_heard}
        concerned = {number for number, topic in topics.items() if topic.table is not None} | heard
        entries = EntryContents(run)
        shares: dict[int, _TopicShare] = {}
        unheard: dict[BatchParticipant, list[tuple[int, Sequence[int]]]] = {}
        for number, places in by_value(run.numbers) if concerned else ():
            topic = topics[number]
            if number in heard and len(heard) == 1:
                own = EntryContents(run.pick(places))
                shares[number] = _TopicShare(topic, own, range(len(places)), places)
            elif number in heard:
                shares[number] = _TopicShare(topic, entries, places, places)
            elif number in concerned:
                unheard.setdefault(topic, []).append((number, places))
        for topic, parts in unheard.items():
            places = parts[0][1] if len(parts) == 1 else sorted(chain(*(one for _, one in parts)))
            shares |= dict.fromkeys(
                map(itemgetter(0), parts), _TopicShare(topic, entries, places, places)
            )
        self._shares: Final = [*dict.fromkeys(shares.values())]
        tables = self._by_table()
        _make_room(tables)
        self._tables: Final = list(tables)
        self._content: Final = self._with_own_keys(run.content(source))
        # Room was reserved in this order, so tables with several shares must apply in it.
        of_one_table = {share for shares in tables.values() if len(shares) > 1 for share in shares}
        self._in_order: Final = {
            number: share
            for number, share in shares.items()
            if (number in heard and len(heard) > 1) or share in of_one_table
        }

    def _by_table(self) -> dict[RecordTable, list[_TopicShare]]:
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
                for place, key in zip(share.places, own, strict=True):
                    keys[place] = key
        return content._replace(sow_keys=keys) if keys else content

    @property
    def failures(self) -> Iterator[tuple[EntryContents, Sequence[BatchFailure]]]:
        """The messages of each topic that could not be applied."""
        return ((share.entries, share.failed) for share in self._shares if share.failed)

    def record(self, journal: Journal) -> RecorderResult:
        """Record, apply and announce as many messages as the journal accepts."""
        place = first = last = 0
        with ExitStack() as stack:
            for table in self._tables:
                stack.enter_context(table.store.undisturbed())
            while place < len(self._numbers):
                step = journal.append_copies(self._handles, self._content, place)
                if step.txids:
                    first, last = first or step.txids[0], step.txids[-1]
                    self._apply(place, step)
                place = step.end
                if step.problem is not None:
                    break
        for share in self._shares:
            share.topic.applied()
        return RecorderResult(place, first, last)

    def _apply(self, start: int, step: AppendResult) -> None:
        """Apply the messages recorded in one step that began at a place."""
        in_order = {*self._in_order.values()}
        for share in self._shares:
            if share not in in_order:
                share.apply_all(start, step)
        if not self._in_order:
            return
        flags = list(each(step.flags, len(step.txids)))
        at = 0
        for number, alike in groupby(self._numbers[start : step.end]):
            end = at + sum(1 for _ in alike)
            if number in self._in_order:
                self._in_order[number].apply(step.txids[at:end], flags[at:end], step.timestamp)
            at = end


def _make_room(tables: Mapping[RecordTable, Sequence[_TopicShare]]) -> None:
    """Reserve room for all records, in the order in which they are put.

    Raises:
        RecordStoreError: there is no room.
    """
    for table, shares in tables.items():
        if len(shares) == 1:
            shares[0].drafts.make_room(table)
            continue
        placed = [zip(share.places, share.drafts.each(), strict=True) for share in shares]
        table.make_room([record for _, record in sorted(chain(*placed), key=itemgetter(0))])
