"""The clients: whoever is connected, logged on or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from server.statistics.resources import CLIENTS
from server.statistics.sample import Entry
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.core.engine import Engine
    from server.core.readings import Readings
    from server.core.session import Session
    from server.statistics.schema import Value

_MICROSECONDS = 1_000_000


class Totals(NamedTuple):
    """What all clients have counted, those included that are gone. See `Departed`."""

    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    denied_reads: int
    denied_writes: int


class ClientsSource:
    """The clients.

    Args:
        engine: has their sessions.

    Attributes:
        totals: the sums of the last sample.
        queries: queries that were under way.
        memory: bytes that subscriptions and queries took.
    """

    resource = CLIENTS

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # what was fixed of those in the last sample, with what it depends on, by number
        self._known: dict[int, tuple[object, tuple[Value, ...]]] = {}
        self.totals = Totals(0, 0, 0, 0, 0, 0)
        self.queries = 0
        self.memory = 0

    def entries(self) -> Iterator[Entry]:
        """See `Source.entries`.

        Whoever goes while the sample is taken is still summed up, and is not shown.
        """
        earlier, self._known = self._known, {}
        totals = Totals(*vars(self._engine.departed).values())
        queries = memory = 0
        for session in list(self._engine.sessions):
            number = session.number
            queries += len(session.queries)
            memory += session.memory_of_commands
            totals = _plus(totals, session)
            if not session.is_open:
                continue
            known = earlier.get(number)
            if known is None or known[0] is not session.options:  # it has logged on
                known = session.options, _fixed(session)
            self._known[number] = known
            yield Entry(str(number), known[1], _moving(session))
        self.totals, self.queries, self.memory = totals, queries, memory


def _plus(totals: Totals, session: Session) -> Totals:
    intake, outbox = session.intake, session.outbox
    return Totals(
        totals.bytes_in + intake.bytes_in,
        totals.messages_in + intake.messages_in,
        totals.bytes_out + outbox.bytes_out,
        totals.messages_out + outbox.messages_out,
        totals.denied_reads + session.denied_reads,
        totals.denied_writes + session.denied_writes,
    )


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


def _moving(session: Session) -> tuple[Value, ...]:
    intake, outbox = session.intake, session.outbox
    readings = session.look()
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
