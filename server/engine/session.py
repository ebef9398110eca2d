"""A session: bytes in, commands executed, bytes out, without a socket.

    CONNECTED --logon--> LOGGED_ON --close--> CLOSED
        \\________________close__________________/

The commands that a session accepts in each state are the tables in
server/engine/commands/dispatch.py. A session never raises to the transport that feeds it: a peer
that breaks the protocol gets a failure ack where one can be addressed, and an entry in the log.
Where the stream cannot be trusted any more, the peer is disconnected.

The peer's input comes through its `SessionInput` (server/engine/session_input.py). The publish path
is short: messages whose headers request only "publish to this topic" are collected in batches,
and each batch goes to its topic in one call (server/engine/commands/publish_batches.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from amperage.wire.bookmarks import client_hash
from amperage.wire.frame_batches import FrameBatchReader
from amperage.wire.frame_splitter import HeaderShapes
from amperage.wire.framing import (
    MAX_BUFFERED_HEADER_SIZE,
    FrameError,
    FrameSource,
    LongHeaderError,
    frame,
)
from amperage.wire.header import (
    Header,
    HeaderError,
    decode_frame,
    encode_header,
    read_reply_keys,
)
from server.engine.commands import dispatch
from server.engine.commands.acks import failure
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse
from server.engine.commands.heartbeat import HeartbeatTimer
from server.engine.commands.parsing.options import SessionLogonOptions
from server.engine.commands.persisted_acks import PersistedAcks
from server.engine.commands.publish_batches import PublishBatcher
from server.engine.commands.publish_target import NOT_ENTITLED, PublishTargets
from server.engine.commands.queue_ack_fast_path import AckHeaderCache
from server.engine.commands.silent_refusals import SilentRefusals
from server.engine.commands.subscribe_fast_path import SubscribeFastPath
from server.engine.pre_logon_limits import PreLogonConnection
from server.engine.session_input import SessionInput
from server.security import permissions
from server.security.bound_identity import PermitBinder
from server.security.interceptors.base import IncomingCommand, Verdict
from server.security.permissions import Permission, Permissions, Permit
from server.topics.subscriptions.delivery.outbox import Outbox
from server.topics.subscriptions.delivery.wire_trace import with_wire_trace
from server.topics.subscriptions.subscription import Subscription
from server.topics.system.audit import AuditActor
from server.util.limits import MAX_HEADER_SIZE, MAX_HEADER_SIZE_BEFORE_LOGON

if TYPE_CHECKING:
    from server.engine.connection_context import ConnectionContext, ConnectionHandle
    from server.engine.engine import Engine
    from server.engine.queries.execution import QueryExecution
    from server.security.authentication import LogonExchange
    from server.storage.journal.sequence_gaps import SequenceRanges
    from server.topics.subscriptions.delivery.delivery_hooks import DeliveryWatcher
    from server.topics.topic_table import AnyTopic


_COMMAND_ID_SEARCH_SIZE: Final = 4096
"""Bytes behind a brace that are searched for the command id, if the header does not end."""


class SessionState(Enum):
    """The state of a session."""

    CONNECTED = "connected"
    LOGGED_ON = "logged on"
    CLOSED = "closed"


class Session:
    """One connection, from accept to close.

    Args:
        engine: the engine that it belongs to.
        number: distinguishes it from all other sessions of the process.
        connection_context: the grants of the transport that accepted it.
        name: the connection's name, which stands for the client's name until the logon.
        connection: the peer's connection, for output and flow control.
        reader: splits the peer's bytes into frames.

    Attributes:
        log: the log for its events.
        closed_totals: traffic totals of the closed sessions of the same transport.
        client_hash: the number that stands for the client's name in bookmarks.
        client_name: the name the client logged on with, the connection's name before.
        options: the options that the client requested at its logon.
        client_version: the version that the client gave at its logon.
        command: the name of the command executed last.
        message_type: the name of the connection's message type; empty before the logon.
        user: the authenticated user's name.
        permissions: the user's permissions.
        logon_exchange: the logon in progress; None before it, and when it is over.
        reported_gaps: the client's sequence numbers that its logon has reported as not stored;
            empty from the client's next command on.
        subscriptions: the connection's subscriptions by id.
        subscriptions_started: how many have begun so far.
        queries: the connection's queries that have not sent all their results yet.
        command_memory: bytes that its subscriptions and queries take.
        outbox: the output buffer for the peer.
        input: the input from the peer.
        publish_batcher: the publishes of the input that are executed in batches.
        subscribe_fast_path: its last plain subscribe command, and the ones like it.
        ack_header_cache: the acknowledgements of the input that need no decoding.
        publish_targets: the topics that it publishes to.
        persisted_acks: the acks that wait for the transaction log.
        silent_refusals: its refused publishes that requested no ack.
        pre_logon_connection: counts it among the connections before logon; None after the logon.
        is_behind: returns whether the peer has not read all its output yet. See `ConnectionHandle`.
        charge_memory: charges memory to it. See `ConnectionHandle`.
        read_socket_stats: returns how much data is in transit. See `ConnectionHandle`.
        read_backlog_stats: returns the data retained for it. See `ConnectionHandle`.
        connected_at: when the connection was made, in seconds since 1970.
        denied_reads: how often its user was refused to read: commands, and topics that a regular
            expression matches.
        denied_writes: how often its user was refused to write.
        query_seconds: time spent on its queries.
        close_reason: why the server has closed it; empty before. See `close`.
        protocol_error: the error in the peer's bytes, if that is why.
    """

    def __init__(
        self,
        engine: Engine,
        number: int,
        connection_context: ConnectionContext,
        name: str,
        connection: ConnectionHandle,
        reader: FrameSource,
    ) -> None:
        self.engine = engine
        self.log = engine.log
        self.number = number
        self.connection_context = connection_context
        self.closed_totals = engine.closed_totals[connection_context.transport]
        self.connection_name = name
        self.client_name = name
        self.client_hash = 0
        self.address = connection.address
        self.is_behind = connection.is_behind
        self.charge_memory = connection.charge_memory
        self.read_socket_stats = connection.read_socket_stats
        self.read_backlog_stats = connection.read_backlog_stats
        self.state = SessionState.CONNECTED
        self.close_reason = ""
        self.protocol_error = ""
        self.client_version = ""
        self.options = SessionLogonOptions()
        self.command = ""
        self.message_type = ""
        self.user = ""
        self.permissions: Permissions = permissions.NO_PERMISSIONS
        self._permit_binder = PermitBinder(self)
        self.logon_exchange: LogonExchange | None = None
        self.reported_gaps: SequenceRanges = ()
        self.subscriptions: dict[str, Subscription] = {}
        self.subscriptions_started = 0
        self.queries: list[QueryExecution] = []
        self.command_memory = 0
        outboxes, send = engine.outboxes, with_wire_trace(self, self.log, connection.send)
        takes_parts = connection.takes_parts and send is connection.send
        self.outbox = Outbox(
            outboxes.pending_outboxes,
            outboxes.traffic,
            send,
            connection.send_shared if takes_parts else None,
            takes_parts=takes_parts,
        )
        self._answer_writer = self.outbox.counting_writer(outboxes.traffic.answers)
        self.heartbeat_timer = HeartbeatTimer(self, 0)
        self.connected_at = self.last_input_s = engine.clock.now()
        self.last_input_steady_s = engine.clock.steady_unpaused()
        self.denied_reads = 0
        self.denied_writes = 0
        self.query_seconds = 0.0
        self.persisted_acks = PersistedAcks(self)
        self.silent_refusals = SilentRefusals()
        self._close_after_flush = connection.close_after_flush
        self.input = SessionInput(self, reader, connection.pause_reading, connection.resume_reading)
        shapes = reader.shapes if isinstance(reader, FrameBatchReader) else HeaderShapes()
        self.publish_batcher = PublishBatcher(self, shapes)
        self.publish_targets = PublishTargets(self)
        self.subscribe_fast_path = SubscribeFastPath(self)
        self.ack_header_cache = AckHeaderCache(
            self, is_filtered=bool(connection_context.transport_filters)
        )
        self.pre_logon_connection: PreLogonConnection | None = PreLogonConnection(
            engine.pre_logon_limits, self.disconnect_for_limit
        )
        self._filters_are_header_only = all(
            transport_filter.header_only
            for transport_filter in connection_context.transport_filters
        )
        self._sub_id_count = 0
        self._logged_once: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """True until the session is closed."""
        return self.state is not SessionState.CLOSED

    @property
    def is_internal(self) -> bool:
        """True for a client of the server itself, whose actions are not reported."""
        return self.number < 0

    @property
    def is_logged_on(self) -> bool:
        """True from the logon on, until the session is closed."""
        return self.state is SessionState.LOGGED_ON

    def end_after_disconnect(self) -> None:
        """End after the peer has closed the connection, and its input has been executed."""
        if self.input.has_partial_frame and self.is_open:
            self.log.emit(
                "18-0001", client=self.client_name, problem="the connection ended within a frame"
            )
        self._end("connection closed")

    def close(self, reason: str) -> None:
        """Disconnect the peer, after flushing its output.

        Args:
            reason: one of the reasons of the reference (AMPS User Guide, Locating the Reason for
                Disconnection); logged.
        """
        if not self.is_open:
            return
        self.close_reason = reason
        self._end(reason)
        self._close_after_flush()

    def abort(self, error: FrameError) -> None:
        """Disconnect a peer after malformed bytes: its stream cannot be trusted any more."""
        self.log.emit("18-0001", client=self.client_name, problem=error)
        self.protocol_error = str(error)
        self.close("unknown command")

    def disconnect_for_limit(self, problem: str) -> None:
        """Disconnect a peer that has not logged on, with a failure ack.

        Args:
            problem: the limit that it has exceeded.
        """
        header = Header("logon")
        self.send(failure(header, "processed", "limit exceeded", problem))
        self.log.emit("18-0002", client=self.client_name, problem=problem)
        self.close("auth")

    def log_once(self, message_id: str, /, **fields: object) -> None:
        """Log an event once per connection, however often it occurs.

        Args:
            message_id: the id of the entry in the catalogue; its field `client` is given here.
            fields: the entry's other fields.
        """
        if message_id not in self._logged_once:
            self._logged_once |= {message_id}
            self.log.emit(message_id, client=self.client_name, **fields)

    def send(self, header: Header) -> None:
        """Send a message that consists of a header only."""
        self._answer_writer.write(frame(encode_header(header)))

    def send_frames(self, data: bytes, count: int) -> None:
        """Send the frames of several messages that consist of headers only."""
        self._answer_writer.write_batch(data, count)

    def log_on(
        self,
        client_name: str,
        message_type: str,
        version: str = "",
        options: SessionLogonOptions | None = None,
    ) -> None:
        """Record the client's identity; from now on it may send commands."""
        self.client_name = client_name
        self.client_hash = client_hash(client_name)
        self.options = options or SessionLogonOptions()
        self.client_version = version
        self.message_type = message_type
        self.state = SessionState.LOGGED_ON
        self._end_pre_logon()

    def suspend_logon_timeout(self, *, begins: bool) -> None:
        """Stop the logon timeout while the decision on a logon is pending, and restart it after.

        Args:
            begins: True when the wait begins, False when it is over.
        """
        if self.pre_logon_connection is not None:
            if begins:
                self.pre_logon_connection.stop_timeout()
            else:
                self.pre_logon_connection.start_timeout()

    @property
    def audit_actor(self) -> AuditActor:
        """The client's identity for the audit trail."""
        connection_context = self.connection_context
        return AuditActor(
            self.user,
            self.address,
            connection_context.transport,
            self.client_name,
            connection_context.auth_module,
        )

    def register(self) -> None:
        """Register the session under its client's name."""
        self.engine.register_client(self)

    def require_permission(self, permission: Permission, topic: str) -> Permit:
        """Refuse the current command unless the user has a permission.

        Returns:
            The user's permit; it may have limits.

        Raises:
            CommandRefusedError: the user does not have it.
        """
        if permission is Permission.READ_TOPIC:
            permit = self.get_read_permit(topic)
        else:
            permit = self.get_permit(permission, topic)
            self.denied_writes += not permit.is_allowed
        if not permit.is_allowed:
            self.engine.audit.report_refusal(self.audit_actor, permission.value, topic, permit.rule)
            raise CommandRefusedError(
                NOT_ENTITLED, f"user {self.user!r} may not {permission.value} topic {topic!r}"
            )
        return permit

    def record_refused_write(self, topic: str, messages: int = 1) -> None:
        """Count and audit messages or records of a topic that the user may not change."""
        self.denied_writes += messages
        permit = self.get_permit(Permission.WRITE_TOPIC, topic)
        limit = f"the filter {permit.filter_text} does not match" if permit.filter_text else ""
        rule = ": ".join(filter(None, (permit.rule, limit)))
        self.engine.audit.report_refusal(
            self.audit_actor, Permission.WRITE_TOPIC.value, topic, rule
        )

    def is_permitted(self, permission: Permission, topic: str) -> bool:
        """Return whether the user may read from, or write to, a topic."""
        return self.get_permit(permission, topic).is_allowed

    def get_permit(self, permission: Permission, topic: str) -> Permit:
        """Return the user's permit to read from, or write to, a topic.

        A permit for certain fields allows nothing if the message type has no select lists.
        """
        resource = self.engine.sow_registry.entitlement_resource(self.message_type, topic)
        permit = self._permit_binder.bind(self.permissions.get_permit(permission, resource))
        if permit.is_undecided:
            self.log_once("25-0021", topic=topic, user=self.user, rule=permit.rule)
        if permit.select is None or not permit.is_allowed:
            return permit
        message_type = self.engine.settings.message_types[self.message_type]
        if message_type.capabilities.select:
            return permit
        self.log_once("25-0020", topic=topic, message_type=message_type.name)
        return Permit(False, rule=f"{permit.rule}, and {message_type.name} has no select lists")

    def get_read_permit(self, topic: str) -> Permit:
        """Return the user's permit to read a topic, and count a refusal."""
        permit = self.get_permit(Permission.READ_TOPIC, topic)
        if not permit.is_allowed:
            self.denied_reads += 1
        return permit

    def delivery_watchers(self, topic: str) -> Sequence[DeliveryWatcher]:
        """Return the callbacks for deliveries of a topic to the client."""
        return self.engine.hooks.delivery_watchers(self.message_type, topic)

    def report_subscription_failure(self, sub_id: str, topic: str, error: Exception) -> None:
        """Report a failure on behalf of one of its subscriptions.

        Args:
            sub_id: the subscription's id.
            topic: its topics, as the client named them.
            error: the failure.
        """
        self.engine.subscription_failures.report(self, sub_id, topic, error)

    def find_topic(self, name: str) -> AnyTopic:
        """Find a topic of the connection's message type."""
        return self.engine.topics.find(self.message_type, name)

    def make_sub_id(self) -> str:
        """Return a new id, for a subscription that came without one."""
        self._sub_id_count += 1
        return f"{self.connection_name}-{self._sub_id_count}"

    def add_subscription(self, subscription: Subscription) -> None:
        """Begin a subscription, and end an earlier one with the same id."""
        if subscription.replay is None:  # before the earlier one ends: a page may continue from it
            consumer = subscription.consumer
            if consumer is not None:
                consumer.subscription = subscription
            self.engine.topics.subscribe(subscription)
            if consumer is not None and subscription.max_backlog is not None:
                consumer.set_requested_backlog(subscription.max_backlog)
        self.remove_subscription(subscription.sub_id)
        self._register_subscription(subscription)

    def add_plain_subscription(self, subscription: Subscription, permit: Permit) -> None:
        """Begin a subscription that consumes no queue, is no replay, and replaces no other.

        Args:
            subscription: the subscription, to a single topic.
            permit: the user's permit to read the topic, which may have limits.
        """
        self.engine.topics.subscribe_permitted(subscription, permit)
        self._register_subscription(subscription)

    def _register_subscription(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.sub_id] = subscription
        self.subscriptions_started += 1
        self.charge_command_memory(subscription.memory_bytes)

    def charge_command_memory(self, size: int) -> None:
        """Charge memory of a subscription or a query to this session.

        Args:
            size: in bytes; negative to release.
        """
        self.command_memory += size
        self.charge_memory(size)

    def detach_some_topics(self, sub_id: str) -> bool:
        """Detach a subscription from some of its topics before it ends, if it has very many.

        It gets no more messages of these topics.

        Returns:
            Whether there is more to detach before it ends.
        """
        subscription = self.subscriptions.get(sub_id)
        return subscription is not None and self.engine.topics.detach_batch(subscription)

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription, if there is one with this id."""
        for query in [query for query in self.queries if query.sub_id == sub_id]:
            query.cancel()
        subscription = self.remove_subscription(sub_id)
        if subscription is not None:
            self.log.emit("14-0002", client=self.client_name, sub_id=sub_id)
            status = self.engine.client_status
            if not status.has_recipients("unsubscribe"):
                return
            status.publish(
                "unsubscribe",
                self,
                topic=subscription.selector.text,
                filter=subscription.filter,
                options=subscription.options,
                sub_id=sub_id,
            )

    def cancel_query(self, query_id: str) -> None:
        """End the queries with this id, if any are in progress.

        A paginated or aggregated subscription ends with its query: it has no result yet to update.
        """
        for query in [query for query in self.queries if query.query_id == query_id]:
            query.cancel()
            subscription = self.subscriptions.get(query.sub_id or "")
            if subscription is not None and (subscription.page or subscription.aggregation):
                self.end_subscription(subscription.sub_id)

    def remove_subscription(self, sub_id: str) -> Subscription | None:
        """End and return the subscription with this id, if there is one, without notification."""
        subscription = self.subscriptions.pop(sub_id, None)
        if subscription is not None:
            if subscription.replay is None:
                self.engine.topics.unsubscribe(subscription)
            subscription.close()
            self.charge_command_memory(-subscription.memory_bytes)
        return subscription

    def execute(self, header_bytes: bytes, body_bytes: bytes) -> None:
        """Execute one command, or refuse it.

        Args:
            header_bytes: its header.
            body_bytes: its body.
        """
        if len(header_bytes) > self._max_header_size:
            self._refuse_long_header(read_reply_keys(header_bytes), len(header_bytes))
            return
        if self.ack_header_cache.try_acknowledge(header_bytes, body_bytes):
            return
        try:
            header, body = decode_frame(header_bytes, body_bytes, MAX_BUFFERED_HEADER_SIZE)
        except HeaderError as error:
            refuse(self, error.header, "bad header", str(error))
            return
        except LongHeaderError:
            self._refuse_long_header(
                read_reply_keys(header_bytes + body_bytes[:_COMMAND_ID_SEARCH_SIZE]),
                MAX_BUFFERED_HEADER_SIZE,
            )
            return
        except FrameError as error:
            self.abort(error)
            return
        size = len(header_bytes) + len(body_bytes) - len(body)
        if size > self._max_header_size:
            self._refuse_long_header(header, size)
            return
        is_whole = body is body_bytes  # the reader has not split the header at a brace in a string
        exact_header = header_bytes if is_whole and self._filters_are_header_only else None
        if self.connection_context.transport_filters:
            command = IncomingCommand(header, body)
            if not self._apply_transport_filters(command):
                return
            header, body = command.header, command.body
        dispatch.execute(self, header, body, exact_header)

    @property
    def _max_header_size(self) -> int:
        return MAX_HEADER_SIZE if self.is_logged_on else MAX_HEADER_SIZE_BEFORE_LOGON

    def _refuse_long_header(self, header: Header, size: int) -> None:
        """Refuse a command with a header beyond the limit."""
        suffix = "" if size < MAX_BUFFERED_HEADER_SIZE else " or more"
        detail = f"a header of {size} bytes{suffix} is over the limit of {self._max_header_size}"
        if self.is_logged_on:
            refuse(self, header, "limit exceeded", detail)
        else:
            self.disconnect_for_limit(f"{detail} before the logon")

    def _apply_transport_filters(self, command: IncomingCommand) -> bool:
        for transport_filter in self.connection_context.transport_filters:
            verdict = transport_filter.filter(command)
            if verdict is Verdict.DISCONNECT:
                self.close("transport filter")
            if verdict is not Verdict.PASS:
                return False
        return True

    def _end_pre_logon(self) -> None:
        if self.pre_logon_connection is not None:
            self.pre_logon_connection.end()
            self.pre_logon_connection = None

    def _end(self, reason: str) -> None:
        if not self.is_open:
            return
        self.ack_header_cache.acknowledge_collected()  # before their messages return to the queues
        self.state = SessionState.CLOSED
        self._end_pre_logon()
        self.input.drop_input()
        self.heartbeat_timer.stop()
        self.permissions.release()
        self.engine.end_session(self, reason)
