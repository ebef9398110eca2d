"""The register of entries recorded for this instance's own clients, for replication.

Publishes of clients are checked against the highest number of their publisher, and nothing else. So
the numbers that they skip are passed to `DedupWindow`: these may still come from another instance.
And recorded entries are passed to `RecentEntries`, to detect a message with the same name but other
content. Without replication there is no register, and it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from server.storage.journal.format.layout import crc32c

if TYPE_CHECKING:
    from server.replication.core import DedupWindow, RecentEntries
    from server.storage.journal import JournalOrigin, JournalTopic
    from server.topics.durable_watermark import DurableWatermarks


class PublishTracker:
    """Registers entries that have just been recorded.

    Args:
        dedup_window: the messages of each publisher that this instance has.
        recent_entries: the entries that it recorded last.
        watermarks: the number up to which each publisher's messages are settled.
        settled_txid: returns the txid up to which everything is settled.
        identity_of: returns the identity of a publisher without numbers, from its client hash.
    """

    def __init__(
        self,
        dedup_window: DedupWindow,
        recent_entries: RecentEntries,
        watermarks: DurableWatermarks,
        settled_txid: Callable[[], int],
        identity_of: Callable[[int], int],
    ) -> None:
        self.watermarks: Final = watermarks
        self._settled_txid: Final = settled_txid
        self._dedup_window: Final = dedup_window
        self._recent_entries: Final = recent_entries
        self._identity_of: Final = identity_of

    def may_still_arrive(self, client: int, sequence: int) -> bool:
        """Return whether a number not above its publisher's highest may still arrive."""
        return bool(self._dedup_window.gaps(client)) and bool(
            self._dedup_window.new_positions(client, (sequence,))
        )

    def register_batch(
        self,
        client: int,
        previous_sequence: int,
        sequences: Sequence[int],
        checksums: Sequence[int],
        txids: Sequence[int],
        topic: JournalTopic,
        origin: JournalOrigin,
    ) -> None:
        """Register recorded messages of one client, or other events that it has caused.

        Args:
            client: its hash.
            previous_sequence: the highest number that it had given before.
            sequences: its numbers for them; empty if it gives none.
            checksums: checksums of the recorded data, with extras.
            txids: their txids, which are consecutive.
            topic: the topic that they were published to.
            origin: their user.
        """
        if sequences:
            self.register_sequences(client, previous_sequence, sequences, txids[-1])
        identity = client if sequences else self._identity_of(client)
        txid_bounds = txids[0], txids[-1]
        self._recent_entries.add_batch(
            identity, sequences or txids, checksums, txid_bounds, topic, origin
        )

    def register_entry(
        self,
        client: int,
        previous_sequence: int,
        sequence: int,
        data: bytes,
        txid: int,
        topic: JournalTopic,
        origin: JournalOrigin,
    ) -> None:
        """Register a message; its number is 0 if its client gives none. See `register_batch`."""
        identity = client
        if sequence:
            self.register_sequences(client, previous_sequence, (sequence,), txid)
        else:
            identity, sequence = self._identity_of(client), txid
        self._recent_entries.add_entry(identity, sequence, crc32c(data), txid, topic, origin)

    def register_sequences(
        self, client: int, previous_sequence: int, sequences: Sequence[int], txid: int
    ) -> None:
        """Register a client's ascending numbers up to that of an entry. See `register_batch`."""
        self.watermarks.record_publish(
            client, previous_sequence, sequences[-1], txid, self._settled_txid()
        )
        if sequences[-1] - previous_sequence != len(sequences):
            self._dedup_window.record_sequences(client, previous_sequence, sequences)
