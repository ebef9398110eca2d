"""Messages to topics of which one table has the records, in a batch of several topics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from server.storage.journal.write.blocks import of_one
from server.storage.sow.batch_changes import put_with_changes
from server.storage.sow.records import NANOSECONDS_IN_MICROSECOND
from server.topics.topic_journal import uniform_ranges

if TYPE_CHECKING:
    from server.storage.journal.write.blocks import FieldColumn
    from server.storage.sow.record_batch import SowRecordBatch
    from server.storage.sow.records import RecordChange
    from server.storage.sow.store import RecordStoreError
    from server.topics.journaled_topic import JournaledSowTopic
    from server.topics.subscriptions.delivery.envelope import Envelope


class RecordedStep(NamedTuple):
    """Messages that have been recorded in one step.

    Positions are those among the messages that are for the log.

    Attributes:
        start: the position of the first one.
        end: the position behind the last one.
        txids: their txids.
        timestamp_us: the time of recording, in microseconds since 1970.
        publisher: the publisher's identity in their bookmarks.
        numbers: their numbers in bookmarks.
    """

    start: int
    end: int
    txids: Sequence[int]
    timestamp_us: int
    publisher: int
    numbers: Sequence[int]


class TableBatch:
    """The messages to topics in the log of which one table has the records.

    These are the topics of a Pattern, or a single topic. Records are put in the order of the log,
    whatever their topics are: a restart applies the entries behind the last one in the table.

    Args:
        topics: the topics, by key.
        keys: the key of each message, or of all.
        positions: the positions of the messages among those for the log, ascending.
        drafts: their records, see `SowTopic.draft_batch`.

    Attributes:
        topics: see above.
        table: the table.
    """

    def __init__(
        self,
        topics: Mapping[int, JournaledSowTopic],
        keys: FieldColumn,
        positions: Sequence[int],
        drafts: SowRecordBatch,
    ) -> None:
        self.topics = topics
        self.table = next(iter(topics.values())).table
        self._keys = keys
        self._positions = positions
        self._drafts = drafts
        self._records = drafts  # in `put` those of recorded messages, to be announced
        self._begin = 0  # the index of the first of these
        self._changes: Sequence[RecordChange | None] = ()  # see `put_with_changes`
        self._announced = len(drafts.bodies)  # the number of these that have been announced

    @property
    def announces_batches(self) -> bool:
        """True if changes may be announced after later ones have been made."""
        return all(topic.announces_batches for topic in self.topics.values())

    @property
    def has_unannounced(self) -> bool:
        """True if records have been put that are still to be announced by `announce`."""
        return self._announced < len(self._records.bodies)

    @property
    def announces_deletions(self) -> bool:
        """True if records are deleted, and subscribers get notices of that."""
        return self._needs_removals and any(self._drafts.deletions)

    @property
    def _needs_removals(self) -> bool:
        """See `RecordFanout.needs_removals`."""
        return any(topic.needs_removals for topic in self.topics.values())

    def apply(
        self, start: int, end: int, recorded: RecordedStep, envelope: Envelope, *, is_silent: bool
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Put and announce the records of recorded messages.

        Args:
            start: the position of the first message to apply.
            end: the position behind the last one.
            recorded: the messages that have been recorded in the same step.
            envelope: the publisher's metadata of the batch.
            is_silent: whether the caller delivers them; see `SowTopic.apply_batch`.

        Returns:
            The positions of records that cannot be stored, each with the reason.
        """
        begin, stop = self._range_of(start, end)
        if begin == stop:
            return ()
        if self.announces_batches:
            failures = self.put(start, end, recorded)
            for key, topic in self.topics.items():
                if topic.has_subscriptions and not is_silent and (rows := self._indexes_of(key)):
                    changes = [self._changes[row] for row in rows] if self._changes else ()
                    topic.announce_rows(self._records.pick(rows), changes, envelope)
            return failures
        records = self._recorded_part(begin, stop, recorded)
        found: list[tuple[int, RecordStoreError]] = []
        for first, last, key in uniform_ranges(self._keys, begin, stop):
            part = records.part(first - begin, last - begin)
            problems = self.topics[key].apply_batch(part, envelope, is_silent=is_silent)
            found += self._failures(first, problems)
        return found

    def put(
        self, start: int, end: int, recorded: RecordedStep
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Put the records of recorded messages, to be announced by `announce`; see `apply`."""
        self._begin, stop = self._range_of(start, end)
        self._announced = 0
        self._records = self._recorded_part(self._begin, stop, recorded)
        needs_changes = any(topic.needs_changes for topic in self.topics.values())
        problems, self._changes = put_with_changes(
            self.table,
            self._records,
            needs_changes=needs_changes,
            needs_removals=self._needs_removals,
        )
        return self._failures(self._begin, problems)

    def announce(self, start: int, count: int, envelope: Envelope) -> None:
        """Announce some of the records that have been put, of consecutive messages to one topic.

        These are announced in their order; those of topics without recipients may be left out.

        Args:
            start: the position of the first message.
            count: the number of messages.
            envelope: the publisher's metadata of the batch.
        """
        first = self._announced
        while self._positions[self._begin + first] < start:
            first += 1
        self._announced = last = first + count
        topic = self.topics[of_one(self._keys, self._begin + first)]
        if not self._changes:
            topic.announce_rows(self._records.part(first, last), (), envelope)
        elif topic.has_subscriptions:
            for index in range(first, last):
                change = self._changes[index]
                if change is not None:
                    topic.announce_row(change, self._records.bookmark_at(index), envelope)

    def _range_of(self, start: int, end: int) -> tuple[int, int]:
        """Return the indexes of the first one of some messages, and behind the last one."""
        positions = self._positions
        if start <= positions[0] and end > positions[-1]:  # mostly, all of them
            return 0, len(positions)
        return bisect_left(self._positions, start), bisect_left(self._positions, end)

    def _indexes_of(self, key: int) -> Sequence[int]:
        """Return the indexes of a topic's records among the records that have been put."""
        count = len(self._records.bodies)
        if isinstance(self._keys, int):
            return range(count)
        keys = self._keys[self._begin : self._begin + count]
        return [index for index, own_key in enumerate(keys) if own_key == key]

    def _recorded_part(self, begin: int, stop: int, recorded: RecordedStep) -> SowRecordBatch:
        """Return the records of some of the messages, which have been recorded."""
        start, txids, numbers = recorded.start, recorded.txids, recorded.numbers
        positions = self._positions[begin:stop]
        return self._drafts.part(begin, stop).recorded(
            [txids[position - start] for position in positions],
            recorded.timestamp_us * NANOSECONDS_IN_MICROSECOND,
            recorded.publisher,
            [numbers[position - start] for position in positions],
        )

    def _failures(
        self, begin: int, problems: Sequence[tuple[int, RecordStoreError]]
    ) -> Sequence[tuple[int, RecordStoreError]]:
        """Return problems by the positions of their messages, the first of which is `begin`."""
        return [(self._positions[begin + index], problem) for index, problem in problems]
