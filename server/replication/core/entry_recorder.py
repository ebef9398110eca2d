"""The interface of a receiver to the recorder of new entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from server.replication.core.columns import BatchColumns
from server.replication.core.peer_instance import PeerInstance
from server.storage.journal import JournalTopic


class RecorderResult(NamedTuple):
    """The outcome of recording entries.

    Attributes:
        processed_count: number of entries that have been processed, from the front; if not all,
            the log accepts none at the moment.
        first_txid: of the first that was recorded; 0 if none was.
        last_txid: of the last.
    """

    processed_count: int
    first_txid: int = 0
    last_txid: int = 0


class EntryRecorder(Protocol):
    """The sink of new entries: the topics of this instance."""

    @property
    def last_txid(self) -> int:
        """The txid of the last entry appended to this instance's log."""

    def record(self, entries: BatchColumns, source: PeerInstance) -> RecorderResult:
        """Append entries to the log as they are, apply them, and deliver them, in their order.

        Their identities, numbers and origins stay. Entries that can never be recorded here are
        logged, and count as processed.

        Args:
            entries: the entries to record; all paths end with the source.
            source: the instance that has sent them.
        """

    def report_duplicates(
        self, topic: JournalTopic, bookmarks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Report messages in the log that have been published at two instances.

        That happens when their publisher has moved before the first one had replicated them.

        Args:
            topic: the topic.
            bookmarks: their identities and numbers.
            publishers: the names of the two instances.
        """

    def record_lost_sequences(self, client: int, sequences: Sequence[tuple[int, int]]) -> bool:
        """Record that sequence numbers are missing, although later ones arrive.

        Args:
            client: the publisher's identity.
            sequences: the first and the last number of ranges. Some of them may be here.

        Returns:
            Whether the log has accepted this.
        """

    def highest_sequences(self) -> Mapping[int, int]:
        """Return all identities in the log with their highest numbers."""
