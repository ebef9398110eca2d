"""A passage of the log: entries as they lie in the file, for those who pass them on.

Whoever wants to know what entries say has rows made of them, and runs of rows (`stretch`). To send
them to another instance, little more has to be known than that they are intact, and which topics
and origins there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from server.journal.layout import BODY_LENGTH, BODY_START, EXTRAS_LENGTH, RECORD, RECORD_SIZE, TXID
from server.journal.records import Names, no_names
from server.journal.stretch import Stretch


class Passage:
    """Some entries of one journal file, in order. All of them are intact.

    Args:
        records: as in the file, but that each has its body's place in `bodies`.
        bodies: bodies with extras; there may be others between them.
        names: what the numbers of their topics and origins stand for.

    Attributes:
        records: see above.
        bodies: see above.
        names: see above.
    """

    __slots__ = ("bodies", "names", "records")

    def __init__(self, records: bytes, bodies: bytes, names: Names) -> None:
        self.records = records
        self.bodies = bodies
        self.names = names

    def __len__(self) -> int:
        return len(self.records) // RECORD_SIZE

    def txid(self, position: int) -> int:
        """The number of one of the entries."""
        txid: int = RECORD.unpack_from(self.records, position * RECORD_SIZE)[TXID]
        return txid

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
        return Passage(records, self.bodies, self.names)


NO_PASSAGE: Final = Passage(b"", b"", no_names())
"""No entries."""
