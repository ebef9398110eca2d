"""The engine: the one place where state changes, in one order, on one thread.

It owns sessions and topics, and their dependencies: a log, a clock, the instance's settings.
Transports feed sessions and, when their input is executed, flush the outboxes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from amperage.wire.frame_batches import FrameBatchReader
from amperage.wire.framing import AmpsFrameParts, FrameSource
from config_schema.spec import ConflatedTopicSpec, TopicRef
from server.engine.closed_session_totals import ClosedSessionTotals
from server.engine.connection_context import ConnectionContext, ConnectionHandle
from server.engine.hooks import Hooks
from server.engine.message_tracer import MessageTracer, SessionTracer
from server.engine.pre_logon_limits import PreLogonLimits
from server.engine.replays.tail import ReplayTail
from server.engine.scheduler import Scheduler
from server.engine.session import Session
from server.engine.session_teardown import SessionTeardown
from server.engine.sql_counters import SqlCounters
from server.expressions.filter_cache import FilterParser
from server.expressions.parser import SizeLimits
from server.security.switches import SecuritySwitches
from server.topics.conflated_topic import ConflatedTopic
from server.topics.sow_registry import SowRegistry
from server.topics.subscriptions.delivery.outbox import Outboxes
from server.topics.subscriptions.limits.failures import SubscriptionFailures
from server.topics.system.audit import Audit
from server.topics.system.client_status import ClientStatus
from server.topics.system.event_topic import EventMessageTypes
from server.topics.system.sow_stats import SowStats
from server.topics.topic_table import TopicTable
from server.topics.view_topic import View
from server.util.clock import Clock
from server.util.histogram import Histogram
from server.util.limits import MAX_FILTER_TERMS, MAX_FILTER_VALUES
from server.util.log_protocol import ServerLog
from server.util.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from config_schema.spec import ViewSpec
    from server.storage.sow.records import RecordChange
    from server.topics.record_source import RecordSource
    from server.topics.settings import EngineSettings
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.transaction_log import TransactionLog

_READ_ERROR_INTERVAL_S: Final = 30.0
"""Minimum interval of log entries about failures to read the transaction log."""


class Engine:
    """Owns the sessions and topics of one instance.

    Args:
        settings: the part of the configuration that it uses.
        log: the log for its events.
        clock: the time of day, and timers.
        elapsed: returns seconds, monotonic: measures the length of work.
        processor_time: returns the seconds for which this thread has run; None to measure the cost
            of work by `elapsed`, too.

    Attributes:
        sow_registry: the topics that have records.
        topics: the topics in use.
        filter_parser: parses the filters of commands.
        hooks: callbacks for events of clients, and for deliveries.
        security_switches: whether authentication and entitlement are on.
        client_status: publishes events of clients.
        audit: reports logons, refusals and administrative actions, each with its user.
        sow_stats: publishes how many records topics have.
        pre_logon_limits: the connections that have not logged on, and their limits.
        scheduler: the scheduler, which shares the time between connections, queries and replays.
        subscription_failures: ends subscriptions after a failure on their behalf.
        transaction_log: records published messages; None if there is none. Then there are no tails
            either.
        message_tracer: makes spans of sampled messages; None if none are made. Set before the
            first connection.
        tail: reads the end of the log for bookmark subscriptions.
        fully_durable_tail: the same for those that request messages that are fully durable.
        outboxes: the output buffers that have not been flushed.
        sessions_ending: how many closed sessions still have subscriptions to end.
        sessions_ended: how many sessions have ended.
        closed_totals: traffic totals of all closed sessions, by transport.
        internal_publishes: counts messages that the server publishes itself: events, and messages
            of actions.
        persist_latencies: the time from a publish until it was settled, in microseconds.
        sql_counters: counts the work of SQL connections.
        read_error_log: logs failures to read the transaction log: many readers may fail at once,
            and often.
    """

    tail: ReplayTail
    fully_durable_tail: ReplayTail

    def __init__(
        self,
        settings: EngineSettings,
        log: ServerLog,
        clock: Clock,
        elapsed: Callable[[], float],
        processor_time: Callable[[], float] | None = None,
    ) -> None:
        self.settings = settings
        self.log = log
        self.clock = clock
        self.outboxes = Outboxes(elapsed)
        self.scheduler = Scheduler(clock, elapsed, self.outboxes, log, processor_time or elapsed)
        self.sow_registry = SowRegistry(
            clock, log, self._announce_changes, self.scheduler.start_task, self.flush
        )
        self.topics = TopicTable(
            settings.message_types, settings.functions, self.sow_registry, self.scheduler.queue_task
        )
        self.filter_parser = FilterParser(
            settings.functions, SizeLimits(MAX_FILTER_TERMS, MAX_FILTER_VALUES)
        )
        self.hooks = Hooks()
        self.security_switches = SecuritySwitches()
        event_types = EventMessageTypes(
            settings.message_types, settings.message_type_modules, settings.unified_fix_tags
        )
        self.internal_publishes = event_types.published_counter
        self.persist_latencies = Histogram()
        self.sql_counters = SqlCounters()
        self.read_error_log = RateLimitedLog(
            log, clock, burst=1, window_s=_READ_ERROR_INTERVAL_S, summary=None
        )
        self.client_status = ClientStatus(self.topics, event_types, clock, self.hooks)
        self.audit = Audit(self.topics, event_types, clock, log)
        self.sow_stats = SowStats(self.topics, event_types, self.sow_registry, clock, self.flush)
        self.pre_logon_limits = PreLogonLimits(clock, self.flush)
        self.subscription_failures = SubscriptionFailures(self.scheduler.queue_task, log)
        self.transaction_log: TransactionLog | None = None
        self.message_tracer: MessageTracer | None = None
        self._sessions: dict[int, Session] = {}
        self._clients: dict[str, Session] = {}
        self.sessions_ending = 0
        self.sessions_ended = 0
        self.closed_totals: defaultdict[str, ClosedSessionTotals] = defaultdict(ClosedSessionTotals)
        self._connections_accepted = 0
        self._internal_client_count = 0

    @property
    def sessions(self) -> Collection[Session]:
        """The sessions that are not closed."""
        return self._sessions.values()

    def begin_session(
        self,
        connection_context: ConnectionContext,
        connection: ConnectionHandle,
        reader: FrameSource | None = None,
    ) -> Session:
        """Begin a session for a new connection, and return it.

        Args:
            connection_context: the grants of the connection's transport.
            connection: the peer's connection, for output and flow control.
            reader: splits the peer's bytes into frames; None for a stream of frames.
        """
        self._connections_accepted += 1
        number = self._connections_accepted
        name = f"{self.settings.instance_name}-{connection_context.transport}-{number}"
        source = FrameBatchReader(parts=AmpsFrameParts()) if reader is None else reader
        session_tracer = None
        if self.message_tracer is not None:
            session_tracer = SessionTracer(self.message_tracer, connection.send)
            # It looks at whole frames: those of large bodies must not come in parts.
            connection = replace(connection, send=session_tracer.send, takes_parts=False)
        session = Session(self, number, connection_context, name, connection, source)
        if session_tracer is not None:
            session_tracer.attach(session)
        self._sessions[number] = session
        self.log.emit("07-0011", client=name)
        self.log.emit(
            "07-0012",
            client=name,
            transport=connection_context.transport,
            address=connection.address,
        )
        self.client_status.publish("connect", session, client_address=connection.address)
        return session

    def use_transaction_log(self, log: TransactionLog) -> None:
        """Record messages in a transaction log. Called before the first publish."""
        self.transaction_log = self.topics.transaction_log = self.sow_registry.transaction_log = log
        log.use_scheduler(self.scheduler.start_task)
        self.tail = ReplayTail(log, self, log.journal_durable_txid)
        self.fully_durable_tail = ReplayTail(log, self, log.settled_txid)

    def find_session(self, number: int) -> Session | None:
        """Return the session with a number, if it is not closed."""
        return self._sessions.get(number)

    def find_client(self, name: str) -> Session | None:
        """Return the last session that logged on under a name, until it has ended completely."""
        return self._clients.get(name)

    def register_client(self, session: Session) -> None:
        """Register a session under its client's name."""
        self._clients[session.client_name] = session

    def allocate_internal_number(self) -> int:
        """Return a new number for an internal client: negative, so that no connection has it."""
        self._internal_client_count += 1
        return -self._internal_client_count

    def end_session(self, session: Session, reason: str) -> None:
        """Cancel the queries of a session that has been closed, and end its subscriptions.

        Subscriptions end in slices, see server/engine/session_teardown.py.

        Args:
            session: the session.
            reason: why it was closed.
        """
        self._sessions.pop(session.number, None)
        if self.transaction_log is not None:
            self.transaction_log.refused_sequences.begin_connection(session.client_hash)
        for query in list(session.queries):
            query.cancel()
        session.outbox.close()
        session.closed_totals.add(session)
        self.sessions_ending += 1
        self.scheduler.start_task(
            SessionTeardown(session, partial(self._finish_session, session, reason))
        )

    def _finish_session(self, session: Session, reason: str) -> None:
        self.sessions_ending -= 1
        self.sessions_ended += 1
        if self._clients.get(session.client_name) is session:
            del self._clients[session.client_name]
        self.log.emit("07-0013", client=session.client_name, reason=reason)
        self.client_status.publish(
            "disconnect", session, client_address=session.address, reason=reason or None
        )

    def add_derived_topic(self, spec: ConflatedTopicSpec | ViewSpec) -> None:
        """Add a topic that is derived from others, unless one of these does not exist.

        Raises:
            BodyError: the message type of a view has no fields of such names.
        """
        topic = self.make_derived_topic(spec, self.sow_registry.find_configured)
        if topic is not None:
            self.sow_registry.add_derived(topic)

    def make_derived_topic(
        self,
        spec: ConflatedTopicSpec | ViewSpec,
        find_source: Callable[[TopicRef], RecordSource | None],
    ) -> ConflatedTopic | View | None:
        """Return a topic that is derived from others; None if one of these does not exist.

        Args:
            spec: its description.
            find_source: returns the topic of a reference, if it exists.

        Raises:
            BodyError: the message type of a view has no fields of such names.
        """
        refs = (spec.underlying,) if isinstance(spec, ConflatedTopicSpec) else spec.underlying
        sources: dict[TopicRef, RecordSource] = {}
        for ref in refs:
            source = find_source(ref)
            if source is None:
                return None
            sources[ref] = source
        functions = self.settings.functions
        services = self.sow_registry, self.clock, self._announce_changes, self.flush
        if isinstance(spec, ConflatedTopicSpec):
            return ConflatedTopic(spec, sources[spec.underlying], functions, *services)
        message_type = self.settings.message_types[spec.message_type]
        return View(spec, sources.__getitem__, message_type, functions, *services)

    def _announce_changes(
        self, message_type: str, changes: Iterable[RecordChange], envelope: Envelope, reason: str
    ) -> None:
        self.topics.announce(message_type, changes, envelope, reason)

    def flush(self) -> None:
        """Flush outboxes, as far as there is time, and the rest in scheduling rounds."""
        self.scheduler.flush()
