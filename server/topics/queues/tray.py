"""Messages of one publisher that came together, or were read from the log together.

What they have in common is kept once, and what each has of its own in columns: a message by itself
is no object as long as nobody asks for one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from server.journal.layout import CLIENT, SEQUENCE, TIMESTAMP, TXID
from server.subscriptions.logged import LoggedEnvelope
from server.topics.queues.entrance import context_of

if TYPE_CHECKING:
    from server.expressions.context import MessageContext
    from server.journal import Run
    from server.subscriptions.envelope import Envelope
    from server.topics.feed import Recorded

_Value = TypeVar("_Value")

_STRETCH: Final = 4
"""Bits of a number in the log that count within a stretch."""
_EACH: Final = 110
_EACH_READ_BACK: Final = 550
_TOGETHER: Final = 880
"""What keeping messages takes besides their bodies, in bytes, as measured: each message its objects
and its place in all columns and tables, much more of it when its record of the log is kept as well;
and each tray."""


class Tray:
    """Messages of one publisher in the order of the log, with nothing of the queue between them.

    Args:
        topic: where they were published.
        client: what stands for the publisher in their bookmarks.
        txids: their numbers in the log.
        sequences: the numbers in their bookmarks.
        bodies: what was recorded.
        moments: when they were recorded, in microseconds since 1970.
        envelope: what their publisher said about one of them.
        overhead: bytes of memory that each of them takes besides its body.

    Attributes:
        keys: header keys that all of them carry, as JSON text, each with its leading comma.
        size: bytes of memory that all of it takes, nearly.
    """

    __slots__ = (
        "_first",
        "_is_dense",
        "_last",
        "bodies",
        "client",
        "envelope",
        "keys",
        "moments",
        "sequences",
        "size",
        "topic",
        "txids",
    )

    def __init__(
        self,
        topic: str,
        client: int,
        txids: Sequence[int],
        sequences: Sequence[int],
        bodies: Sequence[bytes],
        moments: Sequence[int],
        envelope: Callable[[int], Envelope],
        overhead: int,
    ) -> None:
        self.topic = topic
        self.client = client
        self.txids = txids
        self.sequences = sequences
        self.bodies = bodies
        self.moments = moments
        self.envelope = envelope
        self.keys = envelope(0).keys
        self.size = sum(map(len, bodies)) + overhead * len(bodies) + _TOGETHER
        self._first, self._last = txids[0], txids[-1]
        self._is_dense = self._last - self._first == len(txids) - 1

    def has(self, txid: int) -> bool:
        """Whether a message is in this tray."""
        if not self._first <= txid <= self._last:
            return False
        return self._is_dense or self.txids[self._position(txid)] == txid

    def _position(self, txid: int) -> int:
        """Where a message of this tray is in it."""
        return txid - self._first if self._is_dense else bisect_left(self.txids, txid)

    def positions(self, txids: Sequence[int], start: int = 0) -> Sequence[int]:
        """Where messages are, from one on that is in this tray, and as far as they are in it.

        Args:
            txids: their numbers in the log.
            start: the position of the first of them.

        Returns:
            A range if they are next to each other.
        """
        own, first = self.txids, self._position(txids[start])
        most = min(len(own) - first, len(txids) - start)
        if most == 1 or list(own[first : first + most]) == list(txids[start : start + most]):
            return range(first, first + most)
        positions: list[int] = []
        for txid in islice(txids, start, None):
            if not self.has(txid):
                break
            positions.append(self._position(txid))
        return positions

    def stretches(self) -> Iterable[int]:
        """The stretches of the log that its messages are in. See `TrayIndex`."""
        if self._is_dense:
            return range(self._first >> _STRETCH, (self._last >> _STRETCH) + 1)
        return {txid >> _STRETCH for txid in self.txids}

    def mark(self, position: int) -> tuple[int, int]:
        """The bookmark of a message as numbers."""
        return self.client, self.sequences[position]

    def context(self, position: int) -> MessageContext:
        """What filters may ask about a message besides its fields."""
        mark = self.mark(position)
        return context_of(self.envelope(position), self.topic, self.bodies[position], mark)


class TrayIndex:
    """Which tray a message is in.

    The log is divided into stretches, each of which knows the trays that have messages in it. So it
    costs next to nothing for each message of a large tray, and a small one is among few.
    """

    def __init__(self) -> None:
        self._trays: dict[int, list[Tray]] = {}

    def add(self, tray: Tray) -> None:
        """Take in a tray."""
        trays = self._trays
        for stretch in tray.stretches():
            if stretch in trays:
                trays[stretch].append(tray)
            else:
                trays[stretch] = [tray]

    def discard(self, tray: Tray) -> None:
        """Leave out a tray."""
        trays = self._trays
        for stretch in tray.stretches():
            alike = trays[stretch]
            if len(alike) == 1:
                del trays[stretch]
            else:
                alike.remove(tray)

    def find(self, txid: int) -> Tray | None:
        """The tray of a message, None if it is in none."""
        for tray in self._trays.get(txid >> _STRETCH, ()):
            if tray.has(txid):
                return tray
        return None

    def between(self, first: int, last: int) -> set[int]:
        """The messages that are in trays, from one to another, and perhaps some others."""
        stretches = range(first >> _STRETCH, (last >> _STRETCH) + 1)
        trays = {tray for stretch in stretches for tray in self._trays.get(stretch, ())}
        return {txid for tray in trays for txid in tray.txids}

    def clear(self) -> None:
        """Leave out all trays."""
        self._trays.clear()


class Part(NamedTuple):
    """Some messages of a tray.

    Attributes:
        tray: the tray.
        positions: where they are in it; see `Tray.positions`.
    """

    tray: Tray
    positions: Sequence[int]

    def of(self, column: Sequence[_Value]) -> Sequence[_Value]:
        """What one of the tray's columns has for them."""
        positions = self.positions
        if isinstance(positions, range):
            return column[positions.start : positions.stop]
        return [column[position] for position in positions]


def tray_of(recorded: Recorded) -> Tray:
    """The tray of messages that have just been recorded."""
    envelope, count = recorded.envelope, len(recorded.txids)
    return Tray(
        recorded.topic,
        recorded.client,
        recorded.txids,
        recorded.sequences,
        recorded.bodies,
        [recorded.moment] * count,
        lambda _: envelope,
        _EACH,
    )


def trays_of(run: Run, known: Collection[int]) -> Iterator[Tray]:
    """The trays of messages that were read from the log.

    Args:
        run: the messages.
        known: the numbers in the log of messages that are to be in none.
    """
    clients, txids = run.column(CLIENT), run.column(TXID)
    if not run.has_extras and len(set(clients)) == 1 and not any(txid in known for txid in txids):
        yield _logged_tray(run, 0, len(txids))
        return
    apart = range(len(txids)) if run.has_extras else repeat(0)  # those with extras are no two alike
    keys = zip(clients, [txid in known for txid in txids], apart, strict=False)
    start = 0
    for (_, is_known, _), alike in groupby(keys):
        stop = start + len(list(alike))
        if not is_known:
            yield _logged_tray(run, start, stop)
        start = stop


def _logged_tray(run: Run, start: int, stop: int) -> Tray:
    rows, bodies = run.rows[start:stop], run.data[start:stop]
    if run.has_extras:
        bodies = [run.entry(position).body for position in range(start, stop)]
    return Tray(
        run.topic.name,
        rows[0][CLIENT],
        [row[TXID] for row in rows],
        [row[SEQUENCE] for row in rows],
        bodies,
        [row[TIMESTAMP] for row in rows],
        lambda position: LoggedEnvelope(run.entry(start + position)),
        _EACH_READ_BACK,
    )
