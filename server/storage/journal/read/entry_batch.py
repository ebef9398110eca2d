"""A range of the log: entries that are read together.

Creating a `JournalEntry` per record dominates the cost of a replay. So replays iterate over
batches that share topic and origin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final, NamedTuple

from server.storage.journal.format.entry import JournalEntry, JournalOrigin, JournalTopic
from server.storage.journal.format.layout import (
    BODY_START,
    EXTRAS_LENGTH,
    ORIGIN,
    RECORD,
    TOPIC,
    EntryRow,
)
from server.storage.journal.format.records import FileDefinitions, entry_of, make_file_definitions

_ALIKE: Final[Callable[[EntryRow], object]] = itemgetter(TOPIC, ORIGIN, EXTRAS_LENGTH)


class EntryBatch(NamedTuple):
    """Consecutive entries with the same topic and origin.

    Attributes:
        topic: the topic that they were published to.
        origin: user and replication path.
        rows: their records.
        data: their bodies, with the extras.
    """

    topic: JournalTopic
    origin: JournalOrigin
    rows: Sequence[EntryRow]
    data: Sequence[bytes]

    @property
    def has_extras(self) -> bool:
        """True if they have correlation ids, or SOW keys that their publisher gave."""
        return self.rows[0][EXTRAS_LENGTH] > 0

    def entry_at(self, position: int) -> JournalEntry:
        """Return the entry at a position."""
        return entry_of(self.rows[position], self.data[position], self.topic, self.origin)

    def column(self, field: int) -> list[int]:
        """Return one field of all records."""
        return [row[field] for row in self.rows]

    def pick(self, positions: Sequence[int]) -> EntryBatch:
        """Return the entries at the positions, in their order, as a batch."""
        if len(positions) == len(self.rows):
            return self
        rows, data = self.rows, self.data
        return self._replace(
            rows=[rows[position] for position in positions],
            data=[data[position] for position in positions],
        )


class EntryRange:
    """Some entries of one journal file, in order.

    Args:
        rows: their records, which are intact.
        bodies: their bodies with extras, which are intact, too.
        definitions: the topics and origins by their numbers.
    """

    __slots__ = ("_bodies", "_definitions", "_rows")

    def __init__(
        self, rows: Sequence[EntryRow], bodies: Sequence[bytes], definitions: FileDefinitions
    ) -> None:
        self._rows = rows
        self._bodies = bodies
        self._definitions = definitions

    def __len__(self) -> int:
        return len(self._rows)

    def pack(self) -> tuple[bytes, bytes]:
        """Encode records and bodies as those of a `RawEntryRange`."""
        starts = accumulate(map(len, self._bodies), initial=0)
        records = [
            RECORD.pack(*row[:BODY_START], start, *row[BODY_START + 1 :])
            for row, start in zip(self._rows, starts, strict=False)
        ]
        return b"".join(records), b"".join(self._bodies)

    def batches(self) -> Iterator[EntryBatch]:
        """Yield the entries in batches of maximum length."""
        definitions, start = self._definitions, 0
        for _, alike in groupby(self._rows, _ALIKE):
            rows = list(alike)
            first, data = rows[0], self._bodies[start : start + len(rows)]
            start += len(rows)
            topic, origin = definitions.topics[first[TOPIC]], definitions.origins[first[ORIGIN]]
            yield EntryBatch(topic, origin, rows, data)

    def entries(self) -> list[JournalEntry]:
        """Return the entries as objects."""
        return [
            batch.entry_at(position)
            for batch in self.batches()
            for position in range(len(batch.rows))
        ]


NO_ENTRIES: Final = EntryRange((), (), make_file_definitions())
"""No entries."""
