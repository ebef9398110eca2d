"""Entries that a source has skipped for good: the sequence numbers that a destination lacks now.

Their publishers may still keep these messages, and connect to the destination next. So before the
destination records later messages, it records that these are missing.

The source knows the numbers of entries with damaged bodies, and sends them. Where the record is
damaged, too, a publisher's next message shows the loss: it skips numbers. A publisher may have
reasons of its own to skip some. So more numbers are reported than are lost, rather than fewer; but
at each end of a skipped range, no more than the number of entries of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from server.replication.core.columns import BatchColumns, by_client
from server.replication.core.dedup_window import DedupWindow, is_identity_made_by
from server.replication.core.routes import hops
from server.storage.journal import EntryBatch
from server.storage.journal.format.layout import CLIENT, SEQUENCE, SOURCE_TXID, TXID

MAX_UNKNOWN_ENTRIES: Final = 1024
"""Maximum number of unknown entries that are taken into account."""
MAX_SEEN_SEQUENCES: Final = 131_072
"""Publishers that have sent later messages; beyond that, all of them are checked again."""

OnLostSequences = Callable[[int, Sequence[tuple[int, int]]], bool]
"""Records ranges of numbers of an identity; returns whether that was possible."""


class LostSequences:
    """The entries that one source has skipped.

    Args:
        dedup_window: the messages that this instance has of each publisher.
        skipped: the entries that the source had skipped in an earlier run; nothing is known of
            them.
    """

    def __init__(self, dedup_window: DedupWindow, skipped: Sequence[tuple[int, int]] = ()) -> None:
        self._dedup_window: Final = dedup_window
        self._pending_ranges: list[tuple[int, int, int]] = []
        self._unknown_count = 0
        self._last_unknown_txid = 0  # the txid of the last one that may be unknown
        self._seen_clients = set[int]()  # publishers with a message behind that
        self.add_skipped((), skipped, sum(last - first + 1 for first, last in skipped))

    def add_skipped(
        self,
        lost: Collection[tuple[int, int]],
        ranges: Sequence[tuple[int, int]],
        unknown: int,
    ) -> None:
        """Add entries that the source has skipped.

        Args:
            lost: identities and numbers of the entries for which they are known.
            ranges: the first and the last txid of ranges of all that it has skipped, ascending.
            unknown: how many there are besides those.
        """
        self._pending_ranges += ((client, number, number) for client, number in lost)
        if unknown:
            self._unknown_count = min(self._unknown_count + unknown, MAX_UNKNOWN_ENTRIES)
            self._last_unknown_txid = ranges[-1][1] if ranges else 0
            self._seen_clients.clear()

    def detect_gaps(self, entries: BatchColumns, source: str) -> None:
        """Detect skipped numbers in entries that are about to be recorded.

        Args:
            entries: the entries, in the order of the source's log.
            source: the name of the source.
        """
        if not self._unknown_count:
            return
        for client, positions in by_client(entries.clients):
            path = hops(entries.properties_of(positions[0]).origin.path)
            publisher = path[0].name if path else source
            if client in self._seen_clients or is_identity_made_by(
                publisher, client, entries.source_txids[positions[0]]
            ):
                continue
            highest = self._dedup_window.highest_sequence(client)
            for position in positions:
                if entries.sequences[position] > highest + 1:
                    self._add_gap(client, highest + 1, entries.sequences[position] - 1)
                highest = max(highest, entries.sequences[position])
                if entries.txids[position] > self._last_unknown_txid:
                    self._mark_seen(client)
                    break

    def _mark_seen(self, client: int) -> None:
        if len(self._seen_clients) >= MAX_SEEN_SEQUENCES:
            self._seen_clients.clear()
        self._seen_clients.add(client)

    def _add_gap(self, client: int, first: int, last: int) -> None:
        """Add numbers that a publisher has skipped: those at both ends may be lost."""
        if last - first < 2 * self._unknown_count:
            self._pending_ranges.append((client, first, last))
        else:
            self._pending_ranges.append((client, first, first + self._unknown_count - 1))
            self._pending_ranges.append((client, last - self._unknown_count + 1, last))

    def record_pending(self, record: OnLostSequences) -> bool:
        """Record all pending numbers; return whether all have been recorded."""
        while self._pending_ranges:
            client, first, last = self._pending_ranges[-1]
            if not record(client, [(first, last)]):
                return False
            self._pending_ranges.pop()
        return True


def bookmark_of_entry(batch: EntryBatch) -> tuple[int, int] | None:
    """Return the publisher's identity and number of an entry of this log; None if it has none.

    Args:
        batch: the entry, alone.
    """
    row, path = batch.rows[0], hops(batch.origin.path)
    client, number = row[CLIENT], row[SEQUENCE]
    is_server_made = (
        is_identity_made_by(path[0].name, client, row[SOURCE_TXID]) if path else number == row[TXID]
    )
    return None if is_server_made else (client, number)
