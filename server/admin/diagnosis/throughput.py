"""How fast a client reads, compared with the traffic for it: from its last samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from server.statistics.resources import CLIENTS
from server.statistics.timestamps import from_unix, to_unix

if TYPE_CHECKING:
    from server.admin.diagnosis.facts import ClientFacts
    from server.statistics.history import StatisticsHistory

_SAMPLES: Final = 6
"""Samples to look back at; they cover at least _SECONDS."""
_SECONDS: Final = 60.0
_MIN_SECONDS: Final = 0.5
"""A shorter time gives no meaningful rate."""

_FIELDS: Final = ("bytes_in", "bytes_out", "queued_bytes_out", "transport_tx_queue")


class ByteCounts(NamedTuple):
    """A client's byte counts at a moment.

    Attributes:
        moment: in seconds since 1970.
        received: bytes received from it.
        written: bytes produced for it.
        unread: bytes of these that it had not read.
    """

    moment: float
    received: int
    written: int
    unread: int


class ClientRates(NamedTuple):
    """The rates of a client, in bytes a second.

    Attributes:
        seconds: the time over which this is an average; 0 if it is not known yet.
        received: the rate at which it sends.
        written: the rate at which output for it is produced.
        read: the rate at which it reads.
        read_lately: its reading rate since the last sample.
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
        """The growth of its unread bytes per second."""
        return self.written - self.read


_UNKNOWN: Final = ClientRates(0.0, 0.0, 0.0, 0.0, 0.0)


def marks(client: ClientFacts, interval: float, history: StatisticsHistory) -> list[ByteCounts]:
    """Return a client's byte counts in the last samples, oldest first.

    Args:
        client: the client.
        interval: seconds between two samples.
        history: the recorded samples.

    Raises:
        sqlite3.Error: they cannot be read.
    """
    earliest = max(client.connected_at, client.moment - max(_SAMPLES * interval, _SECONDS))
    first, last = from_unix(earliest), from_unix(client.moment)
    columns = [
        dict(history.values(CLIENTS, str(client.number), name, first, last)) for name in _FIELDS
    ]
    return [
        ByteCounts(to_unix(timestamp), *_counts([column.get(timestamp, 0) for column in columns]))
        for timestamp in columns[0]
    ]


def _counts(values: Sequence[str | int | float]) -> tuple[int, int, int]:
    received, written, kept, sending = (int(value) for value in values)
    return received, written, kept + sending


def pace(client: ClientFacts, earlier: Sequence[ByteCounts]) -> ClientRates:
    """Return the rates of a client.

    Args:
        client: its present facts.
        earlier: its earlier byte counts, oldest first.
    """
    now = ByteCounts(client.moment, client.bytes_in, client.bytes_out, client.unread)
    usable = [one for one in earlier if now.moment - one.moment >= _MIN_SECONDS]
    if not usable:
        return _UNKNOWN
    first, last = usable[0], usable[-1]
    seconds = now.moment - first.moment
    return ClientRates(
        seconds,
        max(now.received - first.received, 0) / seconds,
        max(now.written - first.written, 0) / seconds,
        _read(first, now),
        _read(last, now),
    )


def _read(earlier: ByteCounts, now: ByteCounts) -> float:
    """Return the bytes a second that were read between two moments."""
    count = now.written - now.unread - earlier.written + earlier.unread
    return max(count, 0) / (now.moment - earlier.moment)
