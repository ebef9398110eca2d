"""Records other instances' notes on refused or lost numbers, which are reported to publishers.

When a publisher has moved, one instance may have refused a number that another one has recorded. So
for numbers reported missing elsewhere, this instance records a note of those that it has.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from server.storage.journal import GapRecord, decode_note
from server.topics.refused_sequences import NOTE_TOPIC
from server.topics.topic_journal import TopicJournal

if TYPE_CHECKING:
    from server.replication.core import DedupWindow
    from server.storage.journal.sequence_gaps import SequenceRanges
    from server.topics.replicated.batch import ReplicatedBatch
    from server.topics.transaction_log import TransactionLog


class SequenceGapApplier:
    """Records and applies notes.

    Args:
        log: the log that records them.
        dedup_window: the messages present of each publisher.
    """

    def __init__(self, log: TransactionLog, dedup_window: DedupWindow) -> None:
        self._log: Final = log
        self._dedup_window: Final = dedup_window
        self._journal: Final = TopicJournal(log, NOTE_TOPIC.message_type, NOTE_TOPIC.name)

    def process_batch(self, arrivals: ReplicatedBatch) -> None:
        """Record and apply some of the received entries, from the front."""
        start = arrivals.position
        appended = self._journal.append_copies(arrivals, arrivals.next_content())
        for position in range(start, start + len(appended.txids)):
            with suppress(msgspec.MsgspecError):  # not a note in this version: ignore it
                self._apply_note(
                    arrivals.columns.source_txids[position], decode_note(arrivals.bodies[position])
                )

    def _apply_note(self, client: int, note: GapRecord) -> None:
        refused_sequences, dedup_window = self._log.refused_sequences, self._dedup_window
        refused_sequences.apply_gap_record(client, note)
        received = [
            pair
            for missing in note.missing
            for pair in dedup_window.received_ranges(client, *missing)
        ]
        if received:
            refused_sequences.record_present(client, received)

    def record_lost_sequences(self, client: int, sequences: SequenceRanges) -> None:
        """Record that numbers a source could not read are lost, unless they arrived another way.

        Raises:
            JournalUnavailableError: that cannot be recorded at the moment.
        """
        missing = [
            pair
            for sequence_range in sequences
            for pair in self._dedup_window.missing_ranges(client, *sequence_range)
        ]
        if missing:
            self._log.refused_sequences.record_lost_sequences(client, missing)
