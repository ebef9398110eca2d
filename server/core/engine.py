"""The engine: the one place where state changes, in one order, on one thread.

It owns sessions and topics, and what they need from outside: a log, a clock, the instance's
settings. Transports feed sessions and, when a turn's input is used up, have the outboxes flushed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from amperage.wire.framing import FrameSource, HeadedParts
from amperage.wire.runs import RunReader
from config_schema.spec import ConflatedTopicSpec, TopicRef
from server.base.clock import Clock
from server.base.histogram import Histogram
from server.base.limits import MOST_FILTER_PARTS, MOST_FILTER_VALUES
from server.base.log import Log
from server.core.departed import Departed
from server.core.ending import Ending
from server.core.entrance import Entrance, Link
from server.core.hooks import Hooks
from server.core.lobby import Lobby
from server.core.session import Session
from server.core.turns import Turns
from server.expressions.parser import SizeLimits
from server.expressions.prepared import FilterParser
from server.replays.tail import Tail
from server.security.switches import Switches
from server.subscriptions.failures import Failures
from server.subscriptions.outbox import Outboxes
from server.topics.audit import Audit
from server.topics.client_status import ClientStatus
from server.topics.conflated import ConflatedTopic
from server.topics.events import EventTypes
from server.topics.sow_stats import SowStats
from server.topics.stores import Stores
from server.topics.table import TopicTable
from server.topics.view import View

if TYPE_CHECKING:
    from config_schema.spec import ViewSpec
    from server.sow.records import Change
    from server.subscriptions.envelope import Envelope
    from server.topics.keeper import Keeper
    from server.topics.settings import Settings
    from server.topics.transaction_log import TransactionLog


class Engine:
    """Sessions and topics of one instance.

    Args:
        settings: what of the configuration it decides by.
        log: where it writes what happens.
        clock: the time of day, and timers.
        elapsed: seconds since some moment, never going back: measures how long work takes.

    Attributes:
        stores: the topics that have records.
        topics: the topics in use.
        filters: reads the filters of commands.
        hooks: who inside the server is told of what happens.
        switches: whether authentication and entitlement are on.
        client_status: publishes what clients do.
        audit: says who logs on, is refused, and has what done.
        sow_stats: publishes how many records topics have.
        lobby: the connections that have not logged on.
        turns: shares the time among connections, queries and replays.
        failures: ends subscriptions on whose behalf something has failed.
        transaction_log: records what is published; None if there is none. Then there are no tails
            either.
        tail: reads the end of the log for bookmark subscriptions.
        settled_tail: the same for those that ask for messages that are fully durable.
        outboxes: what has been made for clients and has not left.
        ending: how many sessions have been closed of which something is left.
        gone: how many have ended.
        departed: what all of these have counted, by the transport that they came through.
        published_inside: what the server has published itself: events, and messages of actions.
        persisting: how long it took from a publish until it was settled, in microseconds.
    """

    tail: Tail
    settled_tail: Tail

    def __init__(
        self, settings: Settings, log: Log, clock: Clock, elapsed: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.log = log
        self.clock = clock
        self.outboxes = Outboxes(elapsed)
        self.turns = Turns(clock, elapsed, self.outboxes, log)
        self.stores = Stores(clock, log, self._announce, self.turns.start, self.flush)
        self.topics = TopicTable(
            settings.message_types, settings.functions, self.stores, self.turns.queue
        )
        self.filters = FilterParser(
            settings.functions, SizeLimits(MOST_FILTER_PARTS, MOST_FILTER_VALUES)
        )
        self.hooks = Hooks()
        self.switches = Switches()
        event_types = EventTypes(
            settings.message_types, settings.message_type_modules, settings.unified_fix_tags
        )
        self.published_inside = event_types.published
        self.persisting = Histogram()
        self.client_status = ClientStatus(self.topics, event_types, clock, self.hooks)
        self.audit = Audit(self.topics, event_types, clock, log)
        self.sow_stats = SowStats(self.topics, event_types, self.stores, clock, self.flush)
        self.lobby = Lobby(clock, self.flush)
        self.failures = Failures(self.turns.queue, log)
        self.transaction_log: TransactionLog | None = None
        self._sessions: dict[int, Session] = {}
        self._clients: dict[str, Session] = {}
        self.ending = 0
        self.gone = 0
        self.departed: defaultdict[str, Departed] = defaultdict(Departed)
        self._connections_accepted = 0
        self._internal_clients = 0

    @property
    def sessions(self) -> Collection[Session]:
        """The sessions that are not closed."""
        return self._sessions.values()

    def connect(
        self,
        entrance: Entrance,
        link: Link,
        reader: FrameSource | None = None,
    ) -> Session:
        """Begin a session for a new connection.

        Args:
            entrance: what the connection's transport grants.
            link: the way back to the peer.
            reader: cuts the peer's bytes into frames; None for a stream of frames.
        """
        self._connections_accepted += 1
        number = self._connections_accepted
        name = f"{self.settings.instance_name}-{entrance.transport}-{number}"
        source = RunReader(parts=HeadedParts()) if reader is None else reader
        session = Session(self, number, entrance, name, link, source)
        self._sessions[number] = session
        self.log.emit("07-0011", client=name)
        self.log.emit("07-0012", client=name, transport=entrance.transport, address=link.address)
        self.client_status.publish("connect", session, client_address=link.address)
        return session

    def use_transaction_log(self, log: TransactionLog) -> None:
        """Record what is published from now on. Called before anything is."""
        self.transaction_log = self.topics.transaction_log = self.stores.transaction_log = log
        log.use_turns(self.turns.start)
        self.tail = Tail(log, self, log.safe_here)
        self.settled_tail = Tail(log, self, log.settled)

    def session(self, number: int) -> Session | None:
        """The session with a number, if it is not closed."""
        return self._sessions.get(number)

    def client(self, name: str) -> Session | None:
        """The session that logged on last under a name, until all of it has ended."""
        return self._clients.get(name)

    def logged_on(self, session: Session) -> None:
        """Take note of a session's client name."""
        self._clients[session.client_name] = session

    def number_internal_client(self) -> int:
        """A session number that no connection has: those of internal clients are negative."""
        self._internal_clients += 1
        return -self._internal_clients

    def forget(self, session: Session, reason: str) -> None:
        """End what a session had going; it has been closed. See server/core/ending.py.

        Args:
            session: the session.
            reason: why it was closed.
        """
        self._sessions.pop(session.number, None)
        if self.transaction_log is not None:
            self.transaction_log.refusals.begin(session.client_hash)
        for query in list(session.queries):
            query.cancel()
        session.outbox.close()
        session.departed.add(session)
        self.ending += 1
        self.turns.start(Ending(session, partial(self._gone, session, reason)))

    def _gone(self, session: Session, reason: str) -> None:
        self.ending -= 1
        self.gone += 1
        if self._clients.get(session.client_name) is session:
            del self._clients[session.client_name]
        self.log.emit("07-0013", client=session.client_name, reason=reason)
        self.client_status.publish(
            "disconnect", session, client_address=session.address, reason=reason or None
        )

    def derive(self, spec: ConflatedTopicSpec | ViewSpec) -> None:
        """Add a topic that is made from others, unless one of these is not there.

        Raises:
            BodyError: it is a view whose message type has no fields of such names.
        """
        refs = (spec.underlying,) if isinstance(spec, ConflatedTopicSpec) else spec.underlying
        sources: dict[TopicRef, Keeper] = {}
        for ref in refs:
            source = self.stores.configured(ref)
            if source is None:
                return
            sources[ref] = source
        functions, stores = self.settings.functions, self.stores
        surroundings = stores, self.clock, self._announce, self.flush
        if isinstance(spec, ConflatedTopicSpec):
            topic = ConflatedTopic(spec, sources[spec.underlying], functions, *surroundings)
            stores.add_derived(topic)
        else:
            message_type = self.settings.message_types[spec.message_type]
            view = View(spec, sources.__getitem__, message_type, functions, *surroundings)
            stores.add_derived(view)

    def _announce(
        self, message_type: str, changes: Iterable[Change], envelope: Envelope, reason: str
    ) -> None:
        self.topics.announce(message_type, changes, envelope, reason)

    def flush(self) -> None:
        """Let leave what waits in outboxes, as far as there is time, and the rest in turns."""
        self.turns.flush()
