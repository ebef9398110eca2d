"""Numbers of publishers that are not in the log though higher ones are: these must be told of them.

A publisher takes a number for stored when a higher one is acknowledged to it, or named at its
logon. On one connection that is right, for it has been told before if one was refused. But that may
have been lost with the connection. So a refused number is kept in mind:

    refused   in the run of one connection; nothing behind it has been recorded yet
    missing   something has; before that, the log was told

At its next logon the publisher is told what is missing, before it is told how far it has got; when
it goes on after that, it has heard, and so the log is told once more. What comes after all, by way
of another instance, is missing no longer.

In the log these are entries of their own (`Kind.MISSING`), under the identity that the server makes
for the publisher. So they are found again, and replicated, like others. They are about ranges of
numbers: added, and taken away again.

What is missing is never forgotten because it is too much. A publisher for which it is has its
messages refused until it has heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from server.base.ranges import Ranges

MOST_RANGES: Final = 1024
"""Of one publisher."""
MOST_NUMBERS: Final = 131_072
"""Of one publisher: each has to be told by itself."""

Pairs: TypeAlias = Sequence[tuple[int, int]]
"""The first and the last number of ranges."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """What an entry says.

    Attributes:
        missing: ranges of numbers that are missing from now on.
        heard: ranges of numbers of which the publisher knows.
        here: ranges of numbers that are not missing in the log of the instance that says so.
    """

    missing: list[tuple[int, int]] = []
    heard: list[tuple[int, int]] = []
    here: list[tuple[int, int]] = []


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Note)


def encode_note(note: Note) -> bytes:
    """A note as the body of an entry."""
    return _ENCODER.encode(note)


def decode_note(body: bytes) -> Note:
    """Read the body of an entry.

    Raises:
        msgspec.MsgspecError: it is no note.
    """
    return _DECODER.decode(body)


class Missing:
    """What is missing of each publisher.

    Args:
        rows: what has been stored of that; see `rows`.
        most_ranges: of one publisher; beyond that, see `is_full`.
        most_numbers: the same of single numbers.

    Attributes:
        refused: what is not in the log yet. Empty most of the time, and of those who look first.
        missing: what is.
    """

    def __init__(
        self,
        rows: Iterable[tuple[int, int, int]] = (),
        most_ranges: int = MOST_RANGES,
        most_numbers: int = MOST_NUMBERS,
    ) -> None:
        self.refused: dict[int, Ranges] = {}
        self.missing: dict[int, Ranges] = {}
        self._most_ranges = most_ranges
        self._most_numbers = most_numbers
        for client, first, last in rows:
            self.take(client, Note([(first, last)]))

    # Before it is in the log.

    def refuse(self, client: int, sequence: int) -> None:
        """A number has been refused.

        When there is no room for more, this one is not kept: nothing will be recorded behind it.
        """
        if not self.is_full(client):
            self.refused.setdefault(client, Ranges()).add(sequence, sequence)

    def is_full(self, client: int) -> bool:
        """Whether nothing more of a publisher may be recorded until it logs on again."""
        kept = [some[client] for some in (self.refused, self.missing) if client in some]
        return len(kept) > 0 and (
            sum(map(len, kept)) >= self._most_ranges or sum(map(_count, kept)) >= self._most_numbers
        )

    def due(self, client: int, sequence: int) -> Pairs:
        """What the log has to be told before a number is recorded."""
        refused = self.refused.get(client)
        if refused is None:
            return ()
        return [(first, min(last, sequence - 1)) for first, last in refused if first < sequence]

    def begin(self, client: int) -> None:
        """A publisher connects, or has gone: what nothing stands behind, it will send again."""
        self.refused.pop(client, None)

    # When it is.

    def take(self, client: int, note: Note, *, is_own: bool = True) -> None:
        """The log has been told something, by this instance or another one."""
        for first, last in note.missing:
            self.missing.setdefault(client, Ranges()).add(first, last)
            self._remove(self.refused, client, first, last)
        for first, last in (*note.heard, *(note.here if is_own else ())):
            self._remove(self.missing, client, first, last)

    def came(self, client: int, first: int, last: int) -> None:
        """Numbers have been recorded; others between them have not, and are not said to be."""
        self._remove(self.refused, client, first, last)
        self._remove(self.missing, client, first, last)

    def lacks(self, client: int, sequence: int) -> bool:
        """Whether a number is missing."""
        return client in self.missing and sequence in self.missing[client]

    def upto(self, client: int, sequence: int) -> Pairs:
        """What is missing of a publisher, up to a number."""
        ranges = self.missing.get(client, ())
        return [(first, min(last, sequence)) for first, last in ranges if first <= sequence]

    def forget(self, clients: Iterable[int]) -> None:
        """Publishers are known no more."""
        for client in clients:
            self.missing.pop(client, None)

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """All of it: client hash, and the first and the last number of each range."""
        for client, ranges in self.missing.items():
            for first, last in ranges:
                yield client, first, last

    @staticmethod
    def _remove(of: dict[int, Ranges], client: int, first: int, last: int) -> None:
        ranges = of.get(client)
        if ranges is not None:
            ranges.remove(first, last)
            if not ranges:
                del of[client]


def _count(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)
