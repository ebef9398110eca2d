"""A passage of the log: entries as they lie in the file, for those who pass them on.

Whoever wants to know what entries say has rows made of them, and runs of rows (`stretch`). To send
them to another instance, little more has to be known than that they are intact, and which topics
and origins there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from server.journal.layout import (
    BODY_LENGTH,
    BODY_START,
    EXTRAS_LENGTH,
    ORIGIN,
    RECORD,
    RECORD_SIZE,
    TOPIC,
    TXID,
)
from server.journal.records import Names, no_names
from server.journal.stretch import Run, Stretch


class Unread(NamedTuple):
    """An entry that cannot be read: it is damaged.

    Attributes:
        txid: its number.
        run: the entry without its body, if that is all that is damaged of it; else there is no
            saying whose it is.
    """

    txid: int
    run: Run | None = None


class Passage:
    """Some entries of one journal file, in order. All of them are intact.

    Args:
        records: as in the file, but that each has its body's place in `bodies`.
        bodies: bodies with extras; there may be others between them.
        names: what the numbers of their topics and origins stand for.
        unread: what had to be left out, in order.

    Attributes:
        records: see above.
        bodies: see above.
        names: see above.
        unread: see above.
    """

    __slots__ = ("bodies", "names", "records", "unread")

    def __init__(
        self, records: bytes, bodies: bytes, names: Names, unread: Sequence[Unread] = ()
    ) -> None:
        self.records = records
        self.bodies = bodies
        self.names = names
        self.unread = unread

    def __bool__(self) -> bool:
        """Whether there is anything to be said."""
        return bool(self.records or self.unread)

    def __len__(self) -> int:
        return len(self.records) // RECORD_SIZE

    def txid(self, position: int) -> int:
        """The number of one of the entries."""
        txid: int = RECORD.unpack_from(self.records, position * RECORD_SIZE)[TXID]
        return txid

    def without_body(self, position: int) -> Unread:
        """One of the entries, of which it turns out that its body is damaged."""
        row = RECORD.unpack_from(self.records, position * RECORD_SIZE)
        run = Run(self.names.topics[row[TOPIC]], self.names.origins[row[ORIGIN]], (row,), (b"",))
        return Unread(row[TXID], run)

    def stretch(self) -> Stretch:
        """The entries as rows and bodies."""
        rows = list(RECORD.iter_unpack(self.records))
        bodies = self.bodies
        data = [
            bodies[row[BODY_START] : row[BODY_START] + row[BODY_LENGTH] + row[EXTRAS_LENGTH]]
            for row in rows
        ]
        return Stretch(rows, data, self.names)

    def pick(self, positions: Sequence[int]) -> Passage:
        """Some of the entries, in their order."""
        if len(positions) == len(self):
            return self
        starts = [position * RECORD_SIZE for position in positions]
        records = b"".join([self.records[start : start + RECORD_SIZE] for start in starts])
        return Passage(records, self.bodies, self.names, self.unread)

    def up_to(self, txid: int) -> Passage:
        """The entries up to one of them."""
        count = len(self)
        return self.pick(range(bisect_right(range(count), txid, key=self.txid)))


NO_PASSAGE: Final = Passage(b"", b"", no_names())
"""No entries."""
