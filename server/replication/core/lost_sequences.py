"""Entries that a source has skipped for good: the sequence numbers that a destination lacks now.

Their publishers may still keep these messages, and connect to the destination next. So before later
messages are recorded there, it is recorded that these are missing.

The source knows the numbers of entries with damaged bodies, and sends them. Where the record is
damaged, too, a publisher's next message shows the loss: it skips numbers. A publisher may have
reasons of its own to skip some. So more numbers are reported than are lost, rather than fewer; but
at each end of a skipped range, no more than there are entries of which nothing is known.
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
        known: the messages that this instance has of each publisher.
        owed: the entries that the source had skipped in an earlier run; nothing is known of them.
    """

    def __init__(self, known: DedupWindow, owed: Sequence[tuple[int, int]] = ()) -> None:
        self._known: Final = known
        self._untold: list[tuple[int, int, int]] = []
        self._unknown = 0
        self._last = 0  # the txid of the last one that may be unknown
        self._seen = set[int]()  # publishers with a message behind that
        self.lose((), owed, sum(last - first + 1 for first, last in owed))

    def lose(
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
        self._untold += ((client, number, number) for client, number in lost)
        if unknown:
            self._unknown = min(self._unknown + unknown, MAX_UNKNOWN_ENTRIES)
            self._last = ranges[-1][1] if ranges else 0
            self._seen.clear()

    def comes(self, run: BatchColumns, source: str) -> None:
        """Detect skipped numbers in entries that are about to be recorded.

        Args:
            run: the entries, in the order of the source's log.
            source: the name of the source.
        """
        if not self._unknown:
            return
        for client, places in by_client(run.clients):
            path = hops(run.name(places[0]).origin.path)
            publisher = path[0].name if path else source
            if client in self._seen or is_identity_made_by(
                publisher, client, run.source_txids[places[0]]
            ):
                continue
            before = self._known.highest(client)
            for place in places:
                if run.sequences[place] > before + 1:
                    self._skipped(client, before + 1, run.sequences[place] - 1)
                before = max(before, run.sequences[place])
                if run.txids[place] > self._last:
                    self._note(client)
                    break

    def _note(self, client: int) -> None:
        if len(self._seen) >= MAX_SEEN_SEQUENCES:
            self._seen.clear()
        self._seen.add(client)

    def _skipped(self, client: int, first: int, last: int) -> None:
        """Add numbers that a publisher has skipped: those at both ends may be lost."""
        if last - first < 2 * self._unknown:
            self._untold.append((client, first, last))
        else:
            self._untold.append((client, first, first + self._unknown - 1))
            self._untold.append((client, last - self._unknown + 1, last))

    def tell(self, tell: OnLostSequences) -> bool:
        """Pass on all pending numbers; return whether all have been recorded."""
        while self._untold:
            client, first, last = self._untold[-1]
            if not tell(client, [(first, last)]):
                return False
            self._untold.pop()
        return True


def mark_of(run: EntryBatch) -> tuple[int, int] | None:
    """Return the publisher's identity and number of an entry of this log; None if it has none.

    Args:
        run: the entry, alone.
    """
    row, path = run.rows[0], hops(run.origin.path)
    client, number = row[CLIENT], row[SEQUENCE]
    made = (
        is_identity_made_by(path[0].name, client, row[SOURCE_TXID]) if path else number == row[TXID]
    )
    return None if made else (client, number)
