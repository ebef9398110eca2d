"""A connection as the core sees it: bytes in, commands obeyed, bytes out.

    CONNECTED --logon--> LOGGED_ON --close--> CLOSED
        \\________________close__________________/

What a session accepts in which state is the table in server/commands/dispatch.py. A session never
raises to the transport that feeds it: a peer that breaks the rules gets a failure ack where one can
be addressed, an entry in the log, and where the stream cannot be trusted any more, is disconnected.

What the peer sends comes through its `Intake` (server/core/intake.py). The publish path is short:
messages whose headers say nothing but "publish to this topic" come in runs, and each run goes to
its topic in one call (server/commands/publish_runs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from amperage.wire.bookmarks import client_hash
from amperage.wire.framing import (
    LONGEST_HEADER,
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
    glance_at,
)
from server.base.limits import MOST_HEADER, MOST_HEADER_BEFORE_LOGON
from server.commands import dispatch
from server.commands.acks import failure
from server.commands.heartbeat import Pulse
from server.commands.persisted_acks import PersistedAcks
from server.commands.plain_acks import PlainAcks
from server.commands.publish_runs import PublishRuns
from server.commands.refusal import CommandRefused
from server.commands.refuse import refuse
from server.commands.repeated_subscribe import RepeatedSubscribes
from server.commands.sender import LogonOptions
from server.commands.silent_refusals import SilentRefusals
from server.commands.writing import NOT_ENTITLED, Writing
from server.core import intake
from server.core.intake import Intake
from server.core.lobby import Visit
from server.filters.base import IncomingCommand, Verdict
from server.security import permissions
from server.security.bound import BoundPermits
from server.security.permissions import Permission, Permissions, Permit
from server.subscriptions.outbox import Outbox, Outboxes
from server.subscriptions.subscription import Subscription
from server.subscriptions.transcript import with_transcript
from server.topics.audit import Party

if TYPE_CHECKING:
    from server.core.departed import Departed
    from server.core.entrance import Entrance, Link
    from server.core.hooks import Hooks
    from server.core.lobby import Lobby
    from server.journal.missing import Pairs
    from server.queries.run import QueryRun
    from server.security.authentication import Exchange
    from server.subscriptions.failures import Failures
    from server.subscriptions.subscriber import DeliveryWatcher
    from server.topics.table import AnyTopic


_GLANCED_AT: Final = 4096
"""Bytes behind a brace in which it is looked for whom to answer, if the header does not end."""


class State(Enum):
    """Where a session is in its life."""

    CONNECTED = "connected"
    LOGGED_ON = "logged on"
    CLOSED = "closed"


class Surroundings(intake.Surroundings, dispatch.Surroundings, Protocol):
    """The engine as its sessions see it."""

    @property
    def departed(self) -> Mapping[str, Departed]:
        """What sessions have counted that are over, by transport; there is one for any name."""

    @property
    def hooks(self) -> Hooks:
        """Who inside the server is told of what happens."""

    @property
    def failures(self) -> Failures:
        """Ends subscriptions on whose behalf something has failed."""

    @property
    def lobby(self) -> Lobby:
        """The connections that have not logged on."""

    @property
    def outboxes(self) -> Outboxes:
        """What has been made for clients and has not left."""

    def logged_on(self, session: Session) -> None:
        """Take note of a session's client name."""

    def forget(self, session: Session, reason: str) -> None:
        """End what a session had going; it has been closed.

        Args:
            session: the session.
            reason: why it was closed.
        """


class Session:
    """One connection, from accept to close.

    Args:
        engine: the engine that it talks to.
        number: distinguishes it from all other sessions of the process.
        entrance: what the transport that it came through grants.
        name: the connection's name, which stands for the client until it has logged on.
        link: the way back to the peer.
        reader: cuts the peer's bytes into frames.

    Attributes:
        log: where is said what becomes of it.
        departed: what those have counted that came through the same transport, and are over.
        client_hash: the number that stands for that name in bookmarks.
        client_name: the name the client logged on with, the connection's name before.
        options: what the client asked for at its logon.
        client_version: the version that the client gave at its logon.
        command: the name of the command obeyed last.
        message_type: the name of the connection's message type; empty before the logon.
        user: the authenticated user's name.
        permissions: what they may do.
        exchange: the logon that is under way; None before it, and when it is over.
        told: which of its numbers it has been told at its logon that they are not stored, until it
            sends something.
        subscriptions: the connection's subscriptions by id.
        subscriptions_placed: how many have begun so far.
        queries: the connection's queries that have not sent all their results yet.
        memory_of_commands: bytes that its subscriptions and queries take.
        outbox: what is on its way to the peer.
        intake: what the peer sends.
        runs: the publishes among that which go by in runs.
        repeated_subscribes: the last plain one of its subscribe commands, and those like it.
        plain_acks: the acknowledgements among that which need no decoding.
        writing: what it publishes to.
        persisted_acks: the acks that wait for the transaction log.
        silent_refusals: its refused publishes that asked for no ack.
        visit: counts it among those that have not logged on; None after the logon.
        is_behind: whether the peer has not read everything yet.
        hold: takes note of memory that is used for it. See `Link`.
        look: tells how much is on its way. See `Link`.
        kept: tells what is kept for it. See `Link`.
        connected_at: when the connection was made, in seconds since 1970.
        denied_reads: how often its user was refused to read: commands, and topics that a regular
            expression matches.
        denied_writes: how often its user was refused to write.
        query_seconds: time spent on its queries.
        close_reason: why the server has closed it; empty before. See `close`.
        fault: what the peer sent that could not be read, if that is why.
    """

    def __init__(
        self,
        engine: Surroundings,
        number: int,
        entrance: Entrance,
        name: str,
        link: Link,
        reader: FrameSource,
    ) -> None:
        self.engine = engine
        self.log = engine.log
        self.number = number
        self.entrance = entrance
        self.departed = engine.departed[entrance.transport]
        self.connection_name = name
        self.client_name = name
        self.client_hash = 0
        self.address = link.address
        self.is_behind = link.is_behind
        self.hold = link.hold
        self.look = link.look
        self.kept = link.kept
        self.state = State.CONNECTED
        self.close_reason = ""
        self.fault = ""
        self.client_version = ""
        self.options = LogonOptions()
        self.command = ""
        self.message_type = ""
        self.user = ""
        self.permissions: Permissions = permissions.NOTHING
        self._permits = BoundPermits(self)
        self.exchange: Exchange | None = None
        self.told: Pairs = ()
        self.subscriptions: dict[str, Subscription] = {}
        self.subscriptions_placed = 0
        self.queries: list[QueryRun] = []
        self.memory_of_commands = 0
        outboxes, send = engine.outboxes, with_transcript(self, self.log, link.send)
        takes_parts = link.takes_parts and send is link.send
        self.outbox = Outbox(outboxes.waiting, outboxes.traffic, send, takes_parts=takes_parts)
        self._answers = self.outbox.counted(outboxes.traffic.answers)
        self.pulse = Pulse(self, 0)
        self.connected_at = self.last_heard = engine.clock.now()
        self.heard_at = engine.clock.attentive()
        self.denied_reads = 0
        self.denied_writes = 0
        self.query_seconds = 0.0
        self.persisted_acks = PersistedAcks(self)
        self.silent_refusals = SilentRefusals()
        self._hang_up = link.hang_up
        self.intake = Intake(self, reader, link.pause, link.resume)
        self.runs = PublishRuns(self)
        self.writing = Writing(self)
        self.repeated_subscribes = RepeatedSubscribes(self)
        self.plain_acks = PlainAcks(self, is_filtered=bool(entrance.filters))
        self.visit: Visit | None = Visit(engine.lobby, self)
        self._filters_keep_to_headers = all(one.header_only for one in entrance.filters)
        self._sub_ids_made = 0
        self._remarks: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether the connection is still served."""
        return self.state is not State.CLOSED

    @property
    def is_internal(self) -> bool:
        """Whether it belongs to the server itself, which tells nobody what it does."""
        return self.number < 0

    @property
    def logged_on(self) -> bool:
        """Whether the client has said who it is."""
        return self.state is State.LOGGED_ON

    def end_lost(self) -> None:
        """End: the peer has closed the connection, and what it had sent has been obeyed."""
        if self.intake.has_partial_frame and self.is_open:
            self.log.emit(
                "18-0001", client=self.client_name, problem="the connection ended within a frame"
            )
        self._end("connection closed")

    def close(self, reason: str) -> None:
        """Disconnect the peer, after everything that it has been sent.

        Args:
            reason: one of the reasons of the reference (AMPS User Guide, Locating the Reason for
                Disconnection); logged.
        """
        if not self.is_open:
            return
        self.close_reason = reason
        self._end(reason)
        self._hang_up()

    def give_up(self, error: FrameError) -> None:
        """Disconnect a peer whose bytes cannot be trusted any more."""
        self.log.emit("18-0001", client=self.client_name, problem=error)
        self.fault = str(error)
        self.close("unknown command")

    def turn_away(self, problem: str) -> None:
        """Disconnect a peer that has not logged on.

        Args:
            problem: which limit it has gone beyond.
        """
        header = Header("logon")
        self.send(failure(header, "processed", "limit exceeded", problem))
        self.log.emit("18-0002", client=self.client_name, problem=problem)
        self.close("auth")

    def remark(self, message_id: str, /, **fields: object) -> None:
        """Write to the log what is worth saying once of a connection, however often it occurs.

        Args:
            message_id: the id of the entry in the catalogue; its field `client` is given here.
            fields: the entry's other fields.
        """
        if message_id not in self._remarks:
            self._remarks |= {message_id}
            self.log.emit(message_id, client=self.client_name, **fields)

    def send(self, header: Header) -> None:
        """Send a message that is nothing but a header."""
        self._answers.write(frame(encode_header(header)))

    def log_on(
        self,
        client_name: str,
        message_type: str,
        version: str = "",
        options: LogonOptions | None = None,
    ) -> None:
        """Take note of who the client is; from now on it may send commands."""
        self.client_name = client_name
        self.client_hash = client_hash(client_name)
        self.options = options or LogonOptions()
        self.client_version = version
        self.message_type = message_type
        self.state = State.LOGGED_ON
        self._end_visit()

    def wait_for_decision(self, *, begins: bool) -> None:
        """Somebody decides whether the client may log on, or has: that time is not its own.

        Args:
            begins: whether that begins.
        """
        if self.visit is not None:
            if begins:
                self.visit.stop_clock()
            else:
                self.visit.start_clock()

    @property
    def party(self) -> Party:
        """Who it is, for the audit trail."""
        entrance = self.entrance
        return Party(self.user, self.address, entrance.transport, self.client_name, entrance.module)

    def register(self) -> None:
        """Have the session found by the name of its client."""
        self.engine.logged_on(self)

    def require(self, permission: Permission, topic: str) -> Permit:
        """Refuse the command at hand unless the user may do this.

        Returns:
            What the user is said; there may be limits.

        Raises:
            CommandRefused: the user may not.
        """
        if permission is Permission.READ_TOPIC:
            permit = self.permit_to_read(topic)
        else:
            permit = self.permit(permission, topic)
            self.denied_writes += not permit.allowed
        if not permit.allowed:
            self.engine.audit.refused(self.party, permission.value, topic, permit.rule)
            raise CommandRefused(
                NOT_ENTITLED, f"user {self.user!r} may not {permission.value} topic {topic!r}"
            )
        return permit

    def refused_write(self, topic: str, messages: int = 1) -> None:
        """Take note of messages or records of a topic that the user may not change."""
        self.denied_writes += messages
        permit = self.permit(Permission.WRITE_TOPIC, topic)
        limit = f"the filter {permit.filter_text} does not match" if permit.filter_text else ""
        rule = ": ".join(filter(None, (permit.rule, limit)))
        self.engine.audit.refused(self.party, Permission.WRITE_TOPIC.value, topic, rule)

    def may(self, permission: Permission, topic: str) -> bool:
        """Whether the user may read from, or write to, a topic."""
        return self.permit(permission, topic).allowed

    def permit(self, permission: Permission, topic: str) -> Permit:
        """What the user is said who wants to read from, or write to, a topic.

        If some fields may be read only, and messages cannot be taken apart, nothing may be.
        """
        resource = self.engine.stores.resource(self.message_type, topic)
        permit = self._permits.bind(self.permissions.permit(permission, resource))
        if permit.is_undecided:
            self.remark("25-0021", topic=topic, user=self.user, rule=permit.rule)
        if permit.select is None or not permit.allowed:
            return permit
        message_type = self.engine.settings.message_types[self.message_type]
        if message_type.capabilities.select:
            return permit
        self.remark("25-0020", topic=topic, message_type=message_type.name)
        return Permit(False, rule=f"{permit.rule}, and {message_type.name} has no select lists")

    def permit_to_read(self, topic: str) -> Permit:
        """What the user may see of a topic; a refusal is counted."""
        permit = self.permit(Permission.READ_TOPIC, topic)
        if not permit.allowed:
            self.denied_reads += 1
        return permit

    def delivery_watchers(self, topic: str) -> Sequence[DeliveryWatcher]:
        """Who is told of what the client is sent of a topic."""
        return self.engine.hooks.delivery_watchers(self.message_type, topic)

    def subscription_failed(self, sub_id: str, topic: str, error: Exception) -> None:
        """Take note that something has failed on behalf of a subscription. See `Subscriber`."""
        self.engine.failures.report(self, sub_id, topic, error)

    def find_topic(self, name: str) -> AnyTopic:
        """Find a topic of the connection's message type."""
        return self.engine.topics.find(self.message_type, name)

    def make_sub_id(self) -> str:
        """Make an id for a subscription that came without one."""
        self._sub_ids_made += 1
        return f"{self.connection_name}-{self._sub_ids_made}"

    def place(self, subscription: Subscription) -> None:
        """Begin a subscription, in place of one with the same id if there is any."""
        if subscription.replay is None:  # before the other one ends: a page may go on from there
            consumer = subscription.consumer
            if consumer is not None:
                consumer.subscription = subscription
            self.engine.topics.subscribe(subscription)
            if consumer is not None and subscription.max_backlog is not None:
                consumer.request(subscription.max_backlog)
        self.remove_subscription(subscription.sub_id)
        self._add(subscription)

    def place_plain(self, subscription: Subscription, permit: Permit) -> None:
        """Begin a subscription that has no part in queues, is no replay, and replaces no other.

        Args:
            subscription: the subscription, to a single topic.
            permit: what its user, who may read the topic, may see of it.
        """
        self.engine.topics.subscribe_permitted(subscription, permit)
        self._add(subscription)

    def _add(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.sub_id] = subscription
        self.subscriptions_placed += 1
        self.keep(subscription.memory)

    def keep(self, size: int) -> None:
        """Take note of memory that a subscription or a query takes from now on, or no more.

        Args:
            size: in bytes; below zero if it is taken no more.
        """
        self.memory_of_commands += size
        self.hold(size)

    def loosen(self, sub_id: str) -> bool:
        """Prepare the end of a subscription a little further; whether that takes more.

        One that is attached to very many topics gets nothing of some of them any more.
        """
        subscription = self.subscriptions.get(sub_id)
        return subscription is not None and self.engine.topics.detach_some(subscription)

    def end_subscription(self, sub_id: str) -> None:
        """End a subscription, if there is one with this id."""
        for query in [query for query in self.queries if query.sub_id == sub_id]:
            query.cancel()
        subscription = self.remove_subscription(sub_id)
        if subscription is not None:
            self.log.emit("14-0002", client=self.client_name, sub_id=sub_id)
            self.engine.client_status.publish(
                "unsubscribe",
                self,
                topic=subscription.selector.text,
                filter=subscription.filter,
                options=subscription.options,
                sub_id=sub_id,
            )

    def cancel_query(self, query_id: str) -> None:
        """End the queries with this id, if any are under way.

        A paginated or aggregated subscription ends with its query: there is nothing yet that it
        could follow.
        """
        for query in [query for query in self.queries if query.query_id == query_id]:
            query.cancel()
            subscription = self.subscriptions.get(query.sub_id or "")
            if subscription is not None and (subscription.page or subscription.aggregation):
                self.end_subscription(subscription.sub_id)

    def remove_subscription(self, sub_id: str) -> Subscription | None:
        """End a subscription, if there is one with this id, without telling anybody."""
        subscription = self.subscriptions.pop(sub_id, None)
        if subscription is not None:
            if subscription.replay is None:
                self.engine.topics.unsubscribe(subscription)
            subscription.close()
            self.keep(-subscription.memory)
        return subscription

    def obey(self, header_bytes: bytes, body_bytes: bytes) -> None:
        """Carry out one command, or refuse it.

        Args:
            header_bytes: its header.
            body_bytes: its body.
        """
        if len(header_bytes) > self._most_header:
            self._refuse_long(glance_at(header_bytes), len(header_bytes))
            return
        if self.plain_acks.take(header_bytes, body_bytes):
            return
        try:
            header, body = decode_frame(header_bytes, body_bytes, LONGEST_HEADER)
        except HeaderError as error:
            refuse(self, error.header, "bad header", str(error))
            return
        except LongHeaderError:
            self._refuse_long(glance_at(header_bytes + body_bytes[:_GLANCED_AT]), LONGEST_HEADER)
            return
        except FrameError as error:
            self.give_up(error)
            return
        size = len(header_bytes) + len(body_bytes) - len(body)
        if size > self._most_header:
            self._refuse_long(header, size)
            return
        whole = body is body_bytes  # the reader had not cut the header at a brace inside a string
        exact_header = header_bytes if whole and self._filters_keep_to_headers else None
        if self.entrance.filters:
            command = IncomingCommand(header, body)
            if not self._pass_filters(command):
                return
            header, body = command.header, command.body
        dispatch.execute(self, header, body, exact_header)

    @property
    def _most_header(self) -> int:
        return MOST_HEADER if self.logged_on else MOST_HEADER_BEFORE_LOGON

    def _refuse_long(self, header: Header, size: int) -> None:
        """Refuse a command with a header beyond the limit."""
        more = "" if size < LONGEST_HEADER else " or more"
        detail = f"a header of {size} bytes{more} is over the limit of {self._most_header}"
        if self.logged_on:
            refuse(self, header, "limit exceeded", detail)
        else:
            self.turn_away(f"{detail} before the logon")

    def _pass_filters(self, command: IncomingCommand) -> bool:
        for transport_filter in self.entrance.filters:
            verdict = transport_filter.filter(command)
            if verdict is Verdict.DISCONNECT:
                self.close("transport filter")
            if verdict is not Verdict.PASS:
                return False
        return True

    def _end_visit(self) -> None:
        if self.visit is not None:
            self.visit.end()
            self.visit = None

    def _end(self, reason: str) -> None:
        if not self.is_open:
            return
        self.state = State.CLOSED
        self._end_visit()
        self.intake.drop()
        self.pulse.stop()
        self.permissions.leave()
        self.engine.forget(self, reason)
