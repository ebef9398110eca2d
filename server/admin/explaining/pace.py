"""How fast a client reads, beside how fast there is something for it: from its last samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.statistics.resources import CLIENTS
from server.statistics.timestamps import from_unix, to_unix

if TYPE_CHECKING:
    from server.admin.explaining.facts import ClientFacts
    from server.statistics.history import History

_SAMPLES: Final = 6
"""Samples that are looked back at, and at least _SECONDS."""
_SECONDS: Final = 60.0
_LEAST_SECONDS: Final = 0.5
"""A shorter time says nothing about a rate."""

_FIELDS: Final = ("bytes_in", "bytes_out", "queued_bytes_out", "transport_tx_queue")


class Mark(NamedTuple):
    """What a client had sent and read at a moment.

    Attributes:
        moment: in seconds since 1970.
        received: bytes that it had sent.
        written: bytes that there had been for it.
        unread: bytes of these that it had not read.
    """

    moment: float
    received: int
    written: int
    unread: int


class Pace(NamedTuple):
    """How fast a client is, in bytes a second.

    Attributes:
        seconds: the time over which this is an average; 0 if it is not known yet.
        received: what it sends.
        written: what there is for it.
        read: what it reads.
        read_lately: what it has read since the last sample.
    """

    seconds: float
    received: float
    written: float
    read: float
    read_lately: float

    @property
    def is_known(self) -> bool:
        """Whether there has been a sample."""
        return self.seconds > 0

    @property
    def growth(self) -> float:
        """By how much what is unread grows in a second."""
        return self.written - self.read


_UNKNOWN: Final = Pace(0.0, 0.0, 0.0, 0.0, 0.0)


def marks(client: ClientFacts, interval: float, history: History) -> list[Mark]:
    """What the last samples have of a client, oldest first.

    Args:
        client: the client.
        interval: seconds between two samples.
        history: has the samples.

    Raises:
        sqlite3.Error: they cannot be read.
    """
    earliest = max(client.connected_at, client.moment - max(_SAMPLES * interval, _SECONDS))
    first, last = from_unix(earliest), from_unix(client.moment)
    columns = [
        dict(history.values(CLIENTS, str(client.number), name, first, last)) for name in _FIELDS
    ]
    return [
        Mark(to_unix(timestamp), *_counts([column.get(timestamp, 0) for column in columns]))
        for timestamp in columns[0]
    ]


def _counts(values: Sequence[str | int | float]) -> tuple[int, int, int]:
    received, written, kept, sending = (int(value) for value in values)
    return received, written, kept + sending


def pace(client: ClientFacts, earlier: Sequence[Mark]) -> Pace:
    """How fast a client is.

    Args:
        client: as it is now.
        earlier: what it was like, oldest first.
    """
    now = Mark(client.moment, client.bytes_in, client.bytes_out, client.unread)
    usable = [one for one in earlier if now.moment - one.moment >= _LEAST_SECONDS]
    if not usable:
        return _UNKNOWN
    first, last = usable[0], usable[-1]
    seconds = now.moment - first.moment
    return Pace(
        seconds,
        max(now.received - first.received, 0) / seconds,
        max(now.written - first.written, 0) / seconds,
        _read(first, now),
        _read(last, now),
    )


def _read(earlier: Mark, now: Mark) -> float:
    """Bytes a second that have been read between two moments."""
    count = now.written - now.unread - earlier.written + earlier.unread
    return max(count, 0) / (now.moment - earlier.moment)
