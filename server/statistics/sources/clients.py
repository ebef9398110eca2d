"""The clients: all connections, logged on or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from server.engine.socket_stats import NO_SOCKET_STATS
from server.statistics.resources import CLIENTS
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.engine.socket_stats import SocketStats
    from server.statistics.schema import StatisticValue

_MICROSECONDS: Final = 1_000_000

_GIVEN: Final = [field.name for field in CLIENTS.source_fields]
_BYTES_IN: Final = _GIVEN.index("bytes_in")
_MESSAGES_IN: Final = _GIVEN.index("messages_in")
_BYTES_OUT: Final = _GIVEN.index("bytes_out")
_SUBSCRIPTIONS: Final = _GIVEN.index("subscription_count")


class ClientTotals(NamedTuple):
    """Traffic counts of clients, including those that are gone. See `ClosedSessionTotals`."""

    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    denied_reads: int
    denied_writes: int
    sessions: int


_NOTHING: Final = ClientTotals(0, 0, 0, 0, 0, 0, 0)


class _ClientState(NamedTuple):
    """A client's state in a sample.

    Attributes:
        options: those of its logon; other ones tell that it has logged on since.
        entry: its entry.
        is_quiet: whether its buffers were empty and no query was under way.
    """

    options: object
    entry: StatisticsEntry
    is_quiet: bool


class ClientsSource:
    """The clients.

    Most clients have not changed since the last sample, as their counts of received and sent bytes
    show: their entries are reused, without a system call for their sockets.

    Args:
        engine: has their sessions.

    Attributes:
        totals: the sums of the last sample, by the clients' transport.
        connected_counts: the number of clients shown, by their transport.
        query_count: queries that were under way.
        memory_bytes: bytes that subscriptions and queries took.
    """

    resource = CLIENTS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._states: dict[int, _ClientState] = {}  # those of the last sample, by number
        self.totals: Mapping[str, ClientTotals] = {}
        self.connected_counts: Mapping[str, int] = {}
        self.query_count = 0
        self.memory_bytes = 0

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`.

        A client that disconnects while the sample is taken is still summed up, and is not shown.
        """
        earlier, self._states = self._states, {}
        sums = {
            transport: list[int](vars(closed_totals).values())
            for transport, closed_totals in self._engine.closed_totals.items()
        }
        connected: dict[str, int] = dict.fromkeys(sums, 0)
        queries = memory = 0
        for session in list(self._engine.sessions):
            number, transport = session.number, session.connection_context.transport
            queries += len(session.queries)
            memory += session.command_memory
            _add(sums[transport], session)
            if not session.is_open:
                continue
            connected[transport] += 1
            known = earlier.get(number)
            if known is None or not _is_as_before(session, known):
                known = _look(session, known)
            self._states[number] = known
            yield known.entry
        self.totals = {transport: ClientTotals(*counts) for transport, counts in sums.items()}
        self.connected_counts = connected
        self.query_count, self.memory_bytes = queries, memory

    @property
    def all_totals(self) -> ClientTotals:
        """The sums of the last sample over all transports."""
        return ClientTotals(*map(sum, zip(_NOTHING, *self.totals.values(), strict=True)))

    def totals_of(self, transport: str) -> ClientTotals:
        """Return the sums of the last sample of one transport."""
        return self.totals.get(transport, _NOTHING)


def _add(sums: list[int], session: Session) -> None:
    """Add a session's counts to the sums; see `ClientTotals`."""
    intake, outbox = session.input, session.outbox
    sums[0] += intake.bytes_in
    sums[1] += intake.messages_in
    sums[2] += outbox.bytes_out
    sums[3] += outbox.messages_out
    sums[4] += session.denied_reads
    sums[5] += session.denied_writes
    sums[6] += 1


def _is_as_before(session: Session, known: _ClientState) -> bool:
    """Return whether a client has the same entry as in the sample before."""
    intake, outbox, dynamic_values = session.input, session.outbox, known.entry.dynamic_values
    return (
        known.is_quiet
        and dynamic_values[_BYTES_IN] == intake.bytes_in
        and dynamic_values[_MESSAGES_IN] == intake.messages_in
        and dynamic_values[_BYTES_OUT] == outbox.bytes_out
        and dynamic_values[_SUBSCRIPTIONS] == len(session.subscriptions)
        and known.options is session.options
        and not (session.queries or intake.is_waiting)
    )


def _look(session: Session, known: _ClientState | None) -> _ClientState:
    """Create the entry of a client; its fixed values are reused if they are still the same."""
    readings = session.read_socket_stats()
    is_same = known is not None and known.options is session.options
    fixed = known.entry.static_values if known is not None and is_same else _fixed(session)
    entry = StatisticsEntry(str(session.number), fixed, _moving(session, readings))
    is_quiet = readings == NO_SOCKET_STATS and not session.queries
    return _ClientState(session.options, entry, is_quiet)


def _fixed(session: Session) -> tuple[StatisticValue, ...]:
    return (
        session.user,
        session.client_name,
        str(session.client_hash),
        session.client_version,
        moment(session.connected_at),
        session.connection_name,
        session.options.correlation_id,
        session.address,
        session.connection_context.transport,
    )


def _moving(session: Session, readings: SocketStats) -> tuple[StatisticValue, ...]:
    intake, outbox = session.input, session.outbox
    return (
        intake.bytes_in,
        outbox.bytes_out,
        session.denied_reads,
        session.denied_writes,
        intake.messages_in,
        outbox.messages_out,
        round(session.query_seconds * _MICROSECONDS),
        _messages_kept(readings, outbox.bytes_out, outbox.messages_out),
        readings.unsent_age_s,
        readings.unsent_bytes,
        len(session.subscriptions),
        int(readings.is_window_closed),
        readings.unread_bytes,
        readings.unacked_bytes,
    )


def _messages_kept(readings: SocketStats, bytes_out: int, messages_out: int) -> int:
    """Estimate the number of messages in the bytes that the socket has not taken.

    They are buffered as a stream, which is not parsed again to count messages; the average length
    of the client's messages so far is used instead.
    """
    if not readings.unsent_bytes:
        return 0
    return max(math.ceil(readings.unsent_bytes * messages_out / max(bytes_out, 1)), 1)
