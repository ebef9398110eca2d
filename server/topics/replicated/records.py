"""Records, applies and announces other instances' entries for a topic with records.

Entries are recorded unchanged except for SOW keys: where queries find records by the fields that
keys are made from, this topic's own `Key` decides. Nothing is preprocessed, enriched or merged
again, and a message keeps its lifetime.

A message that arrives late, behind later ones of its publisher, does not undo these: it is
recorded, and the record stays unchanged.

Records with numeric keys, as most are, are put in batches, like those of messages published here.

Source: AMPS User Guide, Replicating Messages Between Instances; Message Enrichment; Replication and
Expiration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final, cast

import msgspec

from server.message_types.base import BodyError
from server.replication.core.columns import field_of, pick_values
from server.storage.journal import MESSAGES, JournalEntryKind, each
from server.storage.journal.write.blocks import map_column, of_one
from server.storage.sow.keys.key_source import KeyRefusedError
from server.storage.sow.record_batch import SowRecordBatch
from server.storage.sow.records import NANOSECONDS, NANOSECONDS_IN_MICROSECOND, Record, is_later
from server.storage.sow.store import RecordStoreError, cleaning_paused
from server.topics.replicated.batch import APPLY_BATCH_SIZE
from server.topics.replicated.multi_topic import BatchRefusedError, RecordDrafts
from server.topics.subscriptions.delivery.record_delivery import DELETED
from server.topics.topic_journal import split_key

if TYPE_CHECKING:
    from server.storage.journal import AppendResult, EntryColumns, FieldColumn
    from server.storage.sow.topic_records import SowTopicRecords
    from server.topics.replicated.batch import EntryContents, ReplicatedBatch
    from server.topics.replicated.multi_topic import BatchFailure
    from server.topics.sow_topic import SowTopic
    from server.topics.topic_journal import TopicJournal


class ReplicatedRecordApplier:
    """Records, applies and announces received entries for one topic.

    Args:
        sow: the records.
        name: the topic's name.
        journal: records its messages.
        writer: puts records, and announces changes.
    """

    def __init__(
        self, sow: SowTopicRecords, name: str, journal: TopicJournal, writer: SowTopic
    ) -> None:
        self._sow: Final = sow
        self._name: Final = name
        self._journal: Final = journal
        self._writer: Final = writer
        self._computes_keys: Final = bool(sow.table.options.key_fields)

    def process_batch(self, arrivals: ReplicatedBatch) -> None:
        """Record and apply some of the received entries, from the front."""
        if arrivals.kind in MESSAGES:
            self._process_messages(arrivals)
        elif arrivals.kind is JournalEntryKind.SOW_DELETE:
            self._process_deletion(arrivals)
        else:
            self._journal.append_copies(arrivals, arrivals.next_content())

    def draft_records(self, entries: EntryContents, positions: Sequence[int]) -> RecordDrafts:
        """Return drafts of messages that are recorded together with those of other topics.

        Raises:
            BatchRefusedError: not all of them can be recorded at once.
        """
        drafts, problem = self._draft_batch(entries, positions)
        if problem is not None:
            raise BatchRefusedError(str(problem))
        if self._computes_keys:
            has_extras = entries.any_extras(positions)
            if has_extras and any(entries.extras(position)[1] for position in positions):
                raise BatchRefusedError("the key of one of them is not recorded here")
            return drafts
        if drafts.batch is None:
            keys = (entries.sow_key(position) for position in positions)
            if any(record.key != key for record, key in zip(drafts.records, keys, strict=True)):
                raise BatchRefusedError("the key of one of them is another one here")
        return drafts

    def apply_recorded(
        self,
        entries: EntryContents,
        positions: Sequence[int],
        drafts: RecordDrafts,
        appended: AppendResult,
    ) -> Sequence[BatchFailure]:
        """Apply and announce messages that have been drafted and recorded."""
        if self._journal.feeds:
            keys = drafts.sow_keys or pick_values(entries.columns.sow_keys, positions)
            self._journal.feed_replicated(entries, positions[0], appended, keys)
        return self._apply(entries, positions, drafts, appended)

    # messages

    def _process_messages(self, arrivals: ReplicatedBatch) -> None:
        positions = self._next_positions(arrivals)
        drafts, problem = self._draft_batch(arrivals, positions)
        if problem is not None and not drafts.size:
            arrivals.record_problem(problem)
        drafts = self._reserve_room(drafts, arrivals)
        if not drafts.size:
            return
        content = self._journal_content(arrivals, drafts)
        with cleaning_paused([self._sow.table.store]):
            appended = self._journal.append_copies(arrivals, content)
            count = len(appended.txids)
            if count:
                drafts = drafts.part(0, count)
                arrivals.unapplied_entries += self._apply(
                    arrivals, positions[:count], drafts, appended
                )

    def _next_positions(self, arrivals: ReplicatedBatch) -> range:
        """Return the positions of the next messages that may be recorded in one step.

        A message that loses the key which its publisher gave is alone: its extras change.
        """
        start = arrivals.position
        end = min(start + APPLY_BATCH_SIZE, len(arrivals.bodies))
        if self._computes_keys and arrivals.has_extras:
            for index in range(start, end):
                if arrivals.extras(index)[1]:
                    return range(start, max(index, start + 1))
        return range(start, end)

    def _draft_batch(
        self, entries: EntryContents, positions: Sequence[int]
    ) -> tuple[RecordDrafts, Exception | None]:
        """Return drafts of as many messages as one step can record, and the next one's problem."""
        columns, bodies = entries.columns, [entries.bodies[position] for position in positions]
        numbers = self._numeric_keys(bodies, pick_values(columns.sow_keys, positions))
        if not numbers:
            records, problem = self._draft_each(entries, positions)
            return RecordDrafts(records=records), problem
        seconds = field_of(pick_values(columns.expirations, positions))
        drafts = SowRecordBatch(
            self._sow.topic_column(self._name, len(positions)),
            numbers,
            bodies,
            range(len(positions)),
            0,
            map_column(seconds, lambda lifetime: lifetime * NANOSECONDS),
            field_of(pick_values(columns.clients, positions)),
            pick_values(columns.sequences, positions),
            entries.correlation_ids(positions),
        )
        return RecordDrafts(drafts, sow_keys=numbers if self._computes_keys else ()), None

    def _numeric_keys(self, bodies: Sequence[bytes], recorded: Sequence[int]) -> Sequence[int]:
        """Return SOW keys as numbers; empty if messages have to be examined one by one.

        Args:
            bodies: the messages.
            recorded: the keys that they came with, 0 for a key that is no number.
        """
        if self._computes_keys:
            return self._sow.key_numbers(bodies, self._sow.topic_column(self._name, len(bodies)))
        return () if self._sow.learns_keys or not all(recorded) else recorded

    def _draft_each(
        self, entries: EntryContents, positions: Sequence[int]
    ) -> tuple[list[Record], Exception | None]:
        """Do the same as `_draft_batch`, for any keys: return records, not a batch."""
        bodies, sow, name = entries.bodies, self._sow, self._name
        key_of = sow.key_source(name).key
        lifetimes = pick_values(entries.columns.expirations, positions)
        drafts: list[Record] = []
        try:
            for position, lifetime in zip(positions, lifetimes, strict=True):
                body = bodies[position]
                key = entries.sow_key(position)
                if key is None:
                    key = key_of(body, None)
                else:
                    sow.learn_key(body, key)
                correlation_id = entries.correlation_id(position)
                bookmark = entries.bookmark(position)
                lifetime_ns = lifetime * NANOSECONDS
                drafts.append(Record(key, body, name, 0, lifetime_ns, 0, correlation_id, bookmark))
        except (BodyError, KeyRefusedError, RecordStoreError) as error:
            return drafts, error
        return drafts, None

    def _reserve_room(self, drafts: RecordDrafts, arrivals: ReplicatedBatch) -> RecordDrafts:
        """Return the first drafts that there is room for: a recorded message must not fail."""
        while drafts.size:
            try:
                drafts.make_room(self._sow.table)
            except RecordStoreError as error:
                if drafts.size == 1:
                    arrivals.record_problem(error)
                drafts = drafts.part(0, drafts.size // 2)
            else:
                break
        return drafts

    def _journal_content(self, arrivals: ReplicatedBatch, drafts: RecordDrafts) -> EntryColumns:
        """Return the next messages as they are recorded, with the SOW keys that they have here.

        They end before a message that needs other extras than it came with. Such a message is
        returned alone.
        """
        batch = drafts.batch
        if batch is None:
            numbers = self._keys_with_same_extras(arrivals, drafts.records)
            if not numbers:
                return arrivals.next_content_with_key(*split_key(drafts.records[0].key))
            return arrivals.next_content(len(numbers))._replace(sow_keys=numbers)
        if self._computes_keys and arrivals.extras(arrivals.position)[1]:
            return arrivals.next_content_with_key(drafts.sow_keys[0], b"")
        own_keys = cast("Sequence[int]", batch.keys)  # records with texts are no batch here
        content, keys = arrivals.next_content(drafts.size), field_of(own_keys)
        return content if content.sow_keys == keys else content._replace(sow_keys=keys)

    def _keys_with_same_extras(
        self, arrivals: ReplicatedBatch, records: Sequence[Record]
    ) -> list[int]:
        """Return the numeric SOW keys of the first records with messages that keep their extras."""
        numbers: list[int] = []
        for index, record in enumerate(records, arrivals.position):
            number, text = split_key(record.key)
            if text != arrivals.extras(index)[1]:
                break
            numbers.append(number)
        return numbers

    def _apply(
        self,
        entries: EntryContents,
        positions: Sequence[int],
        drafts: RecordDrafts,
        appended: AppendResult,
    ) -> list[BatchFailure]:
        """Apply and announce recorded messages; return the failures."""
        envelope = entries.common_envelope(positions[0], appended.timestamp)
        time_ns = appended.timestamp * NANOSECONDS_IN_MICROSECOND
        failed: list[BatchFailure] = []
        if drafts.batch is not None:
            received = drafts.batch
            batch = received.recorded(appended.txids, time_ns, received.publisher, received.numbers)
            for start, end in self._ranges_to_put(batch, appended.flags):
                problems = self._writer.apply_batch(batch.part(start, end), envelope)
                failed += [(positions[start + index], problem) for index, problem in problems]
            return failed
        flags = each(appended.flags, len(positions))
        for position, txid, is_late, draft in zip(
            positions, appended.txids, flags, drafts.records, strict=True
        ):
            client, sequence = (
                entries.columns.clients[position],
                entries.columns.sequences[position],
            )
            if is_late and self._is_superseded(draft.key, client, sequence):
                continue
            expires = draft.expires + time_ns if draft.expires else 0
            record = draft._replace(timestamp=time_ns, expires=expires, sequence=txid)
            try:
                self._writer.apply_record(record, envelope)
            except RecordStoreError as problem:
                failed.append((position, problem))
        return failed

    def _ranges_to_put(
        self, batch: SowRecordBatch, flags: FieldColumn
    ) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each row of records to put.

        Late records are checked one by one: records put before them count.
        """
        if flags == 0:
            yield 0, len(batch.bodies)
            return
        start = 0
        for is_late, alike in groupby(each(flags, len(batch.bodies))):
            end = start + sum(1 for _ in alike)
            if not is_late:
                yield start, end
            for index in range(start, end) if is_late else ():
                client, sequence = of_one(batch.publisher, index), batch.numbers[index]
                if not self._is_superseded(str(batch.keys[index]), client, sequence):
                    yield index, index + 1
            start = end

    def _is_superseded(self, key: str, client: int, sequence: int) -> bool:
        """Return whether a record is already of a later message of the same publisher.

        Args:
            key: the record's SOW key.
            client: the publisher's identity in bookmarks.
            sequence: the number of its message.
        """
        table = self._sow.table
        return is_later(table.get(table.make_identity(key, self._name)), client, sequence)

    # deletions

    def _process_deletion(self, arrivals: ReplicatedBatch) -> None:
        sow, position = self._sow, arrivals.position
        try:
            keys = msgspec.json.decode(arrivals.bodies[position], type=list[str])
            records = sow.find_by_keys(keys, lambda name: name == self._name)
            sow.table.ensure_space_to_remove(records)
        except (msgspec.MsgspecError, RecordStoreError) as error:
            arrivals.record_problem(error)
            return
        appended = self._journal.append_copies(arrivals, arrivals.next_content(1))
        if not appended.txids:
            return
        envelope = arrivals.envelope(position, appended.timestamp)
        client, sequence = arrivals.columns.clients[position], arrivals.columns.sequences[position]
        time_ns = appended.timestamp * NANOSECONDS_IN_MICROSECOND
        for record in records:
            if appended.flags and self._is_superseded(record.key, client, sequence):
                continue
            try:
                change = sow.remove(record, appended.txids[0], time_ns)
            except RecordStoreError as error:
                arrivals.unapplied_entries.append((position, error))
            else:
                if change is not None:
                    self._writer.announce(change, envelope, DELETED)
