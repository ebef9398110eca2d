"""The clients: whoever is connected, logged on or not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from server.core.readings import NOTHING
from server.statistics.resources import CLIENTS
from server.statistics.sample import Entry
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.core.engine import Engine
    from server.core.readings import Readings
    from server.core.session import Session
    from server.statistics.schema import Value

_MICROSECONDS: Final = 1_000_000

_GIVEN: Final = [field.name for field in CLIENTS.given]
_BYTES_IN: Final = _GIVEN.index("bytes_in")
_MESSAGES_IN: Final = _GIVEN.index("messages_in")
_BYTES_OUT: Final = _GIVEN.index("bytes_out")
_SUBSCRIPTIONS: Final = _GIVEN.index("subscription_count")


class Totals(NamedTuple):
    """What clients have counted, those included that are gone. See `Departed`."""

    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    denied_reads: int
    denied_writes: int
    sessions: int


_NOTHING: Final = Totals(0, 0, 0, 0, 0, 0, 0)


class _Known(NamedTuple):
    """A client as it was in a sample.

    Attributes:
        options: those of its logon; other ones tell that it has logged on since.
        entry: its entry.
        is_quiet: whether nothing was on its way or under way.
    """

    options: object
    entry: Entry
    is_quiet: bool


class ClientsSource:
    """The clients.

    Of most clients nothing has changed since the last sample, which is seen by what they have sent
    and got: their entries stay, and nobody asks the system about their sockets.

    Args:
        engine: has their sessions.

    Attributes:
        totals: the sums of the last sample, by the transport that they came through.
        connected: how many came through it of those that were shown.
        queries: queries that were under way.
        memory: bytes that subscriptions and queries took.
    """

    resource = CLIENTS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[int, _Known] = {}  # those of the last sample, by number
        self.totals: Mapping[str, Totals] = {}
        self.connected: Mapping[str, int] = {}
        self.queries = 0
        self.memory = 0

    def entries(self) -> Iterator[Entry]:
        """See `Source.entries`.

        Whoever goes while the sample is taken is still summed up, and is not shown.
        """
        earlier, self._known = self._known, {}
        sums = {
            transport: list[int](vars(departed).values())
            for transport, departed in self._engine.departed.items()
        }
        connected: dict[str, int] = dict.fromkeys(sums, 0)
        queries = memory = 0
        for session in list(self._engine.sessions):
            number, transport = session.number, session.entrance.transport
            queries += len(session.queries)
            memory += session.memory_of_commands
            _add(sums[transport], session)
            if not session.is_open:
                continue
            connected[transport] += 1
            known = earlier.get(number)
            if known is None or not _is_as_before(session, known):
                known = _look(session, known)
            self._known[number] = known
            yield known.entry
        self.totals = {transport: Totals(*counts) for transport, counts in sums.items()}
        self.connected = connected
        self.queries, self.memory = queries, memory

    @property
    def all_totals(self) -> Totals:
        """The sums of the last sample, of all transports together."""
        return Totals(*map(sum, zip(_NOTHING, *self.totals.values(), strict=True)))

    def totals_of(self, transport: str) -> Totals:
        """The sums of the last sample of one transport."""
        return self.totals.get(transport, _NOTHING)


def _add(sums: list[int], session: Session) -> None:
    """Add to the sums what a session has counted; see `Totals`."""
    intake, outbox = session.intake, session.outbox
    sums[0] += intake.bytes_in
    sums[1] += intake.messages_in
    sums[2] += outbox.bytes_out
    sums[3] += outbox.messages_out
    sums[4] += session.denied_reads
    sums[5] += session.denied_writes
    sums[6] += 1


def _is_as_before(session: Session, known: _Known) -> bool:
    """Whether a client has the same entry as in the sample before."""
    intake, outbox, moving = session.intake, session.outbox, known.entry.moving
    return (
        known.is_quiet
        and moving[_BYTES_IN] == intake.bytes_in
        and moving[_MESSAGES_IN] == intake.messages_in
        and moving[_BYTES_OUT] == outbox.bytes_out
        and moving[_SUBSCRIPTIONS] == len(session.subscriptions)
        and known.options is session.options
        and not (session.queries or intake.is_waiting)
    )


def _look(session: Session, known: _Known | None) -> _Known:
    """Make the entry of a client, with what was fixed before if it still is."""
    readings = session.look()
    is_same = known is not None and known.options is session.options
    fixed = known.entry.fixed if known is not None and is_same else _fixed(session)
    entry = Entry(str(session.number), fixed, _moving(session, readings))
    is_quiet = readings == NOTHING and not session.queries
    return _Known(session.options, entry, is_quiet)


def _fixed(session: Session) -> tuple[Value, ...]:
    return (
        session.user,
        session.client_name,
        str(session.client_hash),
        session.client_version,
        moment(session.connected_at),
        session.connection_name,
        session.options.correlation_id,
        session.address,
        session.entrance.transport,
    )


def _moving(session: Session, readings: Readings) -> tuple[Value, ...]:
    intake, outbox = session.intake, session.outbox
    return (
        intake.bytes_in,
        outbox.bytes_out,
        session.denied_reads,
        session.denied_writes,
        intake.messages_in,
        outbox.messages_out,
        round(session.query_seconds * _MICROSECONDS),
        _messages_kept(readings, outbox.bytes_out, outbox.messages_out),
        readings.waits,
        readings.kept,
        len(session.subscriptions),
        int(readings.window_is_closed),
        readings.receiving,
        readings.sending,
    )


def _messages_kept(readings: Readings, bytes_out: int, messages_out: int) -> int:
    """About how many messages the bytes are that the socket has not taken.

    They are kept as a stream, which is not cut into messages again to count them; what the client
    has been sent so far says how long its messages are.
    """
    if not readings.kept:
        return 0
    return max(math.ceil(readings.kept * messages_out / max(bytes_out, 1)), 1)
