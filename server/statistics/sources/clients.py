"""The clients: all connections, logged on or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from server.engine.socket_stats import NO_SOCKET_STATS
from server.statistics.resources import CLIENTS
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import moment
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.session import Session
    from server.engine.socket_stats import SocketStats
    from server.statistics.schema import StatisticValue


_SOURCE_FIELDS: Final = [field.name for field in CLIENTS.source_fields]
_BYTES_IN: Final = _SOURCE_FIELDS.index("bytes_in")
_MESSAGES_IN: Final = _SOURCE_FIELDS.index("messages_in")
_BYTES_OUT: Final = _SOURCE_FIELDS.index("bytes_out")
_SUBSCRIPTIONS: Final = _SOURCE_FIELDS.index("subscription_count")


class ClientTotals(NamedTuple):
    """Traffic counts of clients, including disconnected ones. See `ClosedSessionTotals`."""

    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    denied_reads: int
    denied_writes: int
    sessions: int


_NO_TOTALS: Final = ClientTotals(0, 0, 0, 0, 0, 0, 0)


class _ClientState(NamedTuple):
    """A client's state in a sample.

    Attributes:
        options: those of its logon; a different object means that it has logged on since.
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
            state = earlier.get(number)
            if state is None or not _is_unchanged(session, state):
                state = _make_state(session, state)
            self._states[number] = state
            yield state.entry
        self.totals = {transport: ClientTotals(*counts) for transport, counts in sums.items()}
        self.connected_counts = connected
        self.query_count, self.memory_bytes = queries, memory

    @property
    def all_totals(self) -> ClientTotals:
        """The sums of the last sample over all transports."""
        return ClientTotals(*map(sum, zip(_NO_TOTALS, *self.totals.values(), strict=True)))

    def totals_of(self, transport: str) -> ClientTotals:
        """Return the sums of the last sample of one transport."""
        return self.totals.get(transport, _NO_TOTALS)


def _add(sums: list[int], session: Session) -> None:
    """Add a session's counts to the sums; see `ClientTotals`."""
    input_buffer, outbox = session.input, session.outbox
    sums[0] += input_buffer.bytes_in
    sums[1] += input_buffer.messages_in
    sums[2] += outbox.bytes_out
    sums[3] += outbox.messages_out
    sums[4] += session.denied_reads
    sums[5] += session.denied_writes
    sums[6] += 1


def _is_unchanged(session: Session, state: _ClientState) -> bool:
    """Return whether a client has the same entry as in the sample before."""
    input_buffer, outbox, dynamic_values = session.input, session.outbox, state.entry.dynamic_values
    return (
        state.is_quiet
        and dynamic_values[_BYTES_IN] == input_buffer.bytes_in
        and dynamic_values[_MESSAGES_IN] == input_buffer.messages_in
        and dynamic_values[_BYTES_OUT] == outbox.bytes_out
        and dynamic_values[_SUBSCRIPTIONS] == len(session.subscriptions)
        and state.options is session.options
        and not (session.queries or input_buffer.is_waiting)
    )


def _make_state(session: Session, state: _ClientState | None) -> _ClientState:
    """Create the entry of a client; its fixed values are reused if they are still the same."""
    socket_stats = session.read_socket_stats()
    is_same = state is not None and state.options is session.options
    static_values = (
        state.entry.static_values if state is not None and is_same else _static_values_of(session)
    )
    entry = StatisticsEntry(
        str(session.number), static_values, _dynamic_values(session, socket_stats)
    )
    is_quiet = socket_stats == NO_SOCKET_STATS and not session.queries
    return _ClientState(session.options, entry, is_quiet)


def _static_values_of(session: Session) -> tuple[StatisticValue, ...]:
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


def _dynamic_values(session: Session, socket_stats: SocketStats) -> tuple[StatisticValue, ...]:
    input_buffer, outbox = session.input, session.outbox
    return (
        input_buffer.bytes_in,
        outbox.bytes_out,
        session.denied_reads,
        session.denied_writes,
        input_buffer.messages_in,
        outbox.messages_out,
        round(session.query_seconds * MICROSECONDS_PER_SECOND),
        _messages_kept(socket_stats, outbox.bytes_out, outbox.messages_out),
        socket_stats.unsent_age_s,
        socket_stats.unsent_bytes,
        len(session.subscriptions),
        int(socket_stats.is_window_closed),
        socket_stats.unread_bytes,
        socket_stats.unacked_bytes,
    )


def _messages_kept(socket_stats: SocketStats, bytes_out: int, messages_out: int) -> int:
    """Estimate the number of messages in the bytes that the socket has not taken.

    They are buffered as a stream, which is not parsed again to count messages; the average length
    of the client's messages so far is used instead.
    """
    if not socket_stats.unsent_bytes:
        return 0
    return max(math.ceil(socket_stats.unsent_bytes * messages_out / max(bytes_out, 1)), 1)
