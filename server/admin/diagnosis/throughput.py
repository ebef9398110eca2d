"""The rate at which a client reads, compared with the traffic for it: from its last samples."""

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
        timestamp_s: in seconds since 1970.
        received_bytes: bytes received from it.
        written_bytes: bytes produced for it.
        unread_bytes: bytes of these that it had not read.
    """

    timestamp_s: float
    received_bytes: int
    written_bytes: int
    unread_bytes: int


class ClientRates(NamedTuple):
    """The rates of a client, in bytes a second.

    Attributes:
        window_seconds: the time over which this is an average; 0 if it is not known yet.
        receive_rate: the rate at which it sends.
        write_rate: the rate at which output for it is produced.
        read_rate: the rate at which it reads.
        recent_read_rate: its reading rate since the last sample.
    """

    window_seconds: float
    receive_rate: float
    write_rate: float
    read_rate: float
    recent_read_rate: float

    @property
    def is_known(self) -> bool:
        """Whether there has been a sample."""
        return self.window_seconds > 0

    @property
    def unread_growth_rate(self) -> float:
        """The growth of its unread bytes per second."""
        return self.write_rate - self.read_rate


_UNKNOWN: Final = ClientRates(0.0, 0.0, 0.0, 0.0, 0.0)


def byte_counts(
    client: ClientFacts, interval: float, history: StatisticsHistory
) -> list[ByteCounts]:
    """Return a client's byte counts in the last samples, oldest first.

    Args:
        client: the client.
        interval: seconds between two samples.
        history: the recorded samples.

    Raises:
        sqlite3.Error: they cannot be read.
    """
    earliest = max(client.connected_at, client.collected_at - max(_SAMPLES * interval, _SECONDS))
    first, last = from_unix(earliest), from_unix(client.collected_at)
    columns = [
        dict(history.values(CLIENTS, str(client.number), name, first, last)) for name in _FIELDS
    ]
    return [
        ByteCounts(to_unix(timestamp), *_counts([column.get(timestamp, 0) for column in columns]))
        for timestamp in columns[0]
    ]


def _counts(values: Sequence[str | int | float]) -> tuple[int, int, int]:
    received, written, unsent, unacked = (int(value) for value in values)
    return received, written, unsent + unacked


def client_rates(client: ClientFacts, earlier_counts: Sequence[ByteCounts]) -> ClientRates:
    """Return the rates of a client.

    Args:
        client: its present facts.
        earlier_counts: its earlier byte counts, oldest first.
    """
    now = ByteCounts(client.collected_at, client.bytes_in, client.bytes_out, client.unread_bytes)
    usable = [
        counts for counts in earlier_counts if now.timestamp_s - counts.timestamp_s >= _MIN_SECONDS
    ]
    if not usable:
        return _UNKNOWN
    first, last = usable[0], usable[-1]
    seconds = now.timestamp_s - first.timestamp_s
    return ClientRates(
        seconds,
        max(now.received_bytes - first.received_bytes, 0) / seconds,
        max(now.written_bytes - first.written_bytes, 0) / seconds,
        _read(first, now),
        _read(last, now),
    )


def _read(previous: ByteCounts, now: ByteCounts) -> float:
    """Return the bytes a second that were read between two moments."""
    count = now.written_bytes - now.unread_bytes - previous.written_bytes + previous.unread_bytes
    return max(count, 0) / (now.timestamp_s - previous.timestamp_s)
