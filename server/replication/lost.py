"""What a source has left out for good: which numbers of which publishers a destination lacks now.

Their publishers may still keep these messages, and go to the destination next. So what is behind
them is recorded there after it has been noted that they are missing.

The source knows the numbers of entries whose bodies are damaged, and says them. Where the record is
damaged, too, they show where a publisher goes on: numbers are skipped there. A publisher may have
reasons of its own to skip some. It is told of more than are lost rather than of fewer, but at each
end of what it has skipped of no more than there are entries of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from server.journal import Run
from server.journal.layout import CLIENT, SEQUENCE, SOURCE_TXID, TXID
from server.replication.columns import Columns, by_client
from server.replication.known import Known, was_made_by
from server.replication.routes import hops

MOST_UNKNOWN: Final = 1024
"""Entries of which nothing is known that are reckoned with."""
MOST_SEEN: Final = 131_072
"""Publishers that have gone on since; when there are more, all of them are looked at again."""

Tell = Callable[[int, Sequence[tuple[int, int]]], bool]
"""Takes note of ranges of numbers of an identity; whether that could be done."""


class Lost:
    """What one source has left out.

    Args:
        known: what this instance has of each publisher.
        owed: what the source had left out in an earlier run; nothing is known of that.
    """

    def __init__(self, known: Known, owed: Sequence[tuple[int, int]] = ()) -> None:
        self._known: Final = known
        self._untold: list[tuple[int, int, int]] = []
        self._unknown = 0
        self._last = 0  # the txid of the last that may be unknown
        self._seen = set[int]()  # who has gone on behind that
        self.lose((), owed, sum(last - first + 1 for first, last in owed))

    def lose(
        self,
        lost: Collection[tuple[int, int]],
        ranges: Sequence[tuple[int, int]],
        unknown: int,
    ) -> None:
        """The source leaves out entries.

        Args:
            lost: identities and numbers of those of which they are known.
            ranges: the first and the last txid of ranges of all that it has left out, ascending.
            unknown: how many there are besides those.
        """
        self._untold += ((client, number, number) for client, number in lost)
        if unknown:
            self._unknown = min(self._unknown + unknown, MOST_UNKNOWN)
            self._last = ranges[-1][1] if ranges else 0
            self._seen.clear()

    def comes(self, run: Columns, source: str) -> None:
        """Entries are about to be recorded.

        Args:
            run: the entries, in the order of the source's log.
            source: the name of the source.
        """
        if not self._unknown:
            return
        for client, places in by_client(run.clients):
            path = hops(run.name(places[0]).origin.path)
            publisher = path[0].name if path else source
            if client in self._seen or was_made_by(publisher, client, run.source_txids[places[0]]):
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
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(client)

    def _skipped(self, client: int, first: int, last: int) -> None:
        """A publisher goes on behind numbers that have not come: those at both ends may be lost."""
        if last - first < 2 * self._unknown:
            self._untold.append((client, first, last))
        else:
            self._untold.append((client, first, first + self._unknown - 1))
            self._untold.append((client, last - self._unknown + 1, last))

    def tell(self, tell: Tell) -> bool:
        """Have noted what there is; whether all of it has been."""
        while self._untold:
            client, first, last = self._untold[-1]
            if not tell(client, [(first, last)]):
                return False
            self._untold.pop()
        return True


def mark_of(run: Run) -> tuple[int, int] | None:
    """The publisher's identity and number of an entry of this log; None if that gave none.

    Args:
        run: the entry, alone.
    """
    row, path = run.rows[0], hops(run.origin.path)
    client, number = row[CLIENT], row[SEQUENCE]
    made = was_made_by(path[0].name, client, row[SOURCE_TXID]) if path else number == row[TXID]
    return None if made else (client, number)
