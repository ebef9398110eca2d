"""Numbered commands that were refused: their publishers must not assume that they were executed.

The code that refuses a command reports it here (`record_refusal`). Before a later number is
recorded, the gap is recorded in the log (`record_gaps_below`). At its logon, a publisher gets the
`unreported_gaps` again; `record_reported` records that it has continued after that. See
`server.storage.journal.sequence_gaps`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from server.storage.journal import (
    GapRecord,
    JournalEntryKind,
    JournalTopic,
    JournalUnavailableError,
    encode_note,
)
from server.storage.journal.format.entry import NO_ORIGIN, NO_TOPIC

if TYPE_CHECKING:
    from server.storage.journal import Journal
    from server.storage.journal.sequence_gaps import SequenceRanges
    from server.topics.publish_tracker import PublishTracker

NOTE_TOPIC: Final[JournalTopic] = NO_TOPIC
"""The topic of the entries about gaps: none."""


class RefusedSequenceError(Exception):
    """A command was refused when it came first, and later ones have been executed."""


class RefusedSequences:
    """The refused numbers, and other missing ones, that are reported to publishers.

    Args:
        journal: the log.
        publish_tracker: returns the register of recorded entries for replication; None without
            replication.
    """

    def __init__(
        self, journal: Journal, publish_tracker: Callable[[], PublishTracker | None]
    ) -> None:
        self._journal: Final = journal
        self._publish_tracker: Final = publish_tracker
        self._gaps: Final = journal.sequence_gaps
        self._topic: Final = journal.topic_handle(NOTE_TOPIC.message_type, NOTE_TOPIC.name)

    @property
    def has_any(self) -> bool:
        """True if recorded numbers have to be compared with refused or missing ones."""
        return bool(self._gaps.refused_ranges or self._gaps.missing_ranges)

    def begin_connection(self, client: int) -> None:
        """Note that a publisher's connection begins, or ends. See `SequenceGaps.drop_refused`."""
        self._gaps.drop_refused(client)

    def record_refusal(self, client: int, sequence: int) -> None:
        """Note that a command has been refused.

        Args:
            client: the hash of its sender's name.
            sequence: its number; if the number is not above all of its sender's, the command may
                have been executed before, so nothing is noted.
        """
        if sequence > self._journal.last_sequence(client):
            self._gaps.add_refused(client, sequence)

    def record_failure(self, client: int, sequence: int) -> None:
        """Note that a command that is not in the log has failed; later ones may be in the log."""
        self._gaps.add_refused(client, sequence)
        if sequence <= self._journal.last_sequence(client):
            with suppress(JournalUnavailableError):
                self.record_gaps_below(client, sequence + 1)

    def record_gaps_below(self, client: int, sequence: int) -> None:
        """Record the refused numbers below a publisher's number that is about to be recorded.

        Args:
            client: the publisher's hash.
            sequence: the highest of the numbers.

        Raises:
            JournalUnavailableError: the number must not be recorded, or the gap cannot be.
        """
        if client not in self._gaps.refused_ranges:
            return
        if self._gaps.is_over_limit(client):
            raise JournalUnavailableError(
                "too many messages of this publisher have been refused without its knowledge;"
                " further ones are accepted after its next logon, which reports these"
            )
        missing = self._gaps.refused_before(client, sequence)
        if missing:
            self._append_gap_record(client, GapRecord(missing=list(missing)))

    def record_arrivals(self, client: int, sequences: Sequence[int]) -> None:
        """Note that numbers of a publisher have been recorded."""
        if client in self._gaps.missing_ranges or client in self._gaps.refused_ranges:
            for sequence in sequences:
                self._gaps.remove_recorded(client, sequence, sequence)

    def apply_gap_record(self, client: int, record: GapRecord) -> None:
        """Apply another instance's entry about gaps, which has been recorded."""
        self._gaps.apply_record(client, record, is_own=False)

    def record_present(self, client: int, sequences: SequenceRanges) -> None:
        """Record numbers that are in this log and that another instance lacks."""
        with suppress(JournalUnavailableError):  # then numbers are reported unnecessarily
            self._append_gap_record(client, GapRecord(present_here=list(sequences)))

    def is_missing(self, client: int, sequence: int) -> bool:
        """Return whether a number is known to be missing in the log, though it has higher ones."""
        return self._gaps.is_missing(client, sequence)

    def unreported_gaps(self, client: int, sequence: int) -> SequenceRanges:
        """Return missing numbers to report to a publisher before a number is confirmed to it."""
        return self._gaps.missing_up_to(client, sequence)

    def record_reported(self, client: int, reported: SequenceRanges) -> None:
        """Record that missing numbers were reported to a publisher, and that it has continued."""
        with suppress(JournalUnavailableError):  # then they are reported again later
            self._append_gap_record(client, GapRecord(announced=list(reported)))

    def record_lost_sequences(self, client: int, missing: SequenceRanges) -> None:
        """Record that numbers of a publisher will not arrive, though later ones do.

        Raises:
            JournalUnavailableError: the entry cannot be recorded.
        """
        self._append_gap_record(client, GapRecord(missing=list(missing)))

    def _append_gap_record(self, client: int, record: GapRecord) -> None:
        body = encode_note(record)
        txid = self._journal.append(self._topic, client, 0, body, JournalEntryKind.MISSING)
        self._gaps.apply_record(client, record)
        tracker = self._publish_tracker()
        if tracker is not None:
            tracker.register_entry(client, 0, 0, body, txid, NOTE_TOPIC, NO_ORIGIN)
