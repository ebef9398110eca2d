"""Messages that become records together: what they share is said once, the rest in columns.

Such messages are plain: a record is the message's own body under a key that is a number, whatever
has been there before, and no field of the record is a text of the publisher's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from server.sow.records import Record


class RecordRun(NamedTuple):
    """Records that are put one after the other. See `Record` for the fields.

    Attributes:
        topic: of all of them.
        keys: their SOW keys as numbers.
        bodies: the messages.
        sequences: their places in the instance's order of changes, ascending.
        timestamp: of all of them, in nanoseconds since 1970.
        expires: when all of them expire, in nanoseconds since 1970; 0 for never.
        publisher: what stands for the publisher in their bookmarks.
        numbers: the publisher's numbers there; empty if they have no bookmarks.
    """

    topic: str
    keys: Sequence[int]
    bodies: Sequence[bytes]
    sequences: Sequence[int]
    timestamp: int
    expires: int = 0
    publisher: int = 0
    numbers: Sequence[int] = ()

    def bookmark(self, place: int) -> str:
        """The bookmark of one of them."""
        return f"{self.publisher}|{self.numbers[place]}|" if self.numbers else ""

    def part(self, start: int, end: int) -> RecordRun:
        """Some of them, in a row."""
        if not start and end == len(self.bodies):
            return self
        return self._replace(
            keys=self.keys[start:end],
            bodies=self.bodies[start:end],
            sequences=self.sequences[start:end],
            numbers=self.numbers[start:end],
        )

    def record(self, place: int) -> Record:
        """One of them."""
        return Record(
            str(self.keys[place]),
            self.bodies[place],
            self.topic,
            self.timestamp,
            self.expires,
            self.sequences[place],
            "",
            self.bookmark(place),
        )
